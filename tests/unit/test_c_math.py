"""pf_math.h, pf_half.h, pf_philox.h: every function, compiled as a kernel would be, against NumPy, math, ml_dtypes."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np
import pytest

from pyflame.core import philox
from tests.unit.c_math import (
    BESSEL,
    CASTS,
    CC,
    HALVES,
    INF,
    INTEGERS,
    LOOPS,
    NAN,
    PREDICATES,
    ROUNDING,
    SCALAR,
    SPECIAL,
    UNARY,
    build,
    call,
    elementwise,
    sample,
    sigmoid,
    source,
    ulps,
)

__all__ = ["build", "call"]  # fixtures

pytestmark = [
    pytest.mark.skipif(CC is None, reason="no C compiler"),
    pytest.mark.filterwarnings("ignore:invalid value encountered in cast"),  # signalling NaNs are among the samples
]


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_error_of_float_functions(call, name):
    bound, reference, limit, smallest = UNARY[name]
    x = sample(40009 if name in ("erf", "erfc", "erfinv") else 997)
    if limit is not None:
        x = x[(np.abs(x) < limit) | ~np.isfinite(x)]
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    got = call(f"{name}_f4", x)
    held = ~(np.abs(want) < smallest)
    error = np.where(held, ulps(got, want), 0)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}, want {want[worst]!r}: {error[worst]} ulp"
    assert np.all(np.abs(got[~held]) <= 2 * smallest)
    zero = (got == 0) & (want == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", UNARY)
def test_double_functions(call, name):
    x = sample(400009).astype(np.float64)
    with np.errstate(all="ignore"):
        want = UNARY[name][1](x)
    np.testing.assert_allclose(call(f"{name}_f8", x), want, rtol=4e-15, atol=0)


def test_trig_beyond_its_range_is_nan(call):
    x = np.array([2.0**47, -(2.0**60), 3e38, INF], np.float32)
    for name in ("sin", "cos", "tan"):
        assert np.isnan(call(f"{name}_f4", x)).all()


def test_gelu_tanh(call):
    x = np.linspace(-12, 12, 1_000_003).astype(np.float32)
    wide = x.astype(np.float64)
    share = sigmoid(2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    want = wide * share
    np.testing.assert_allclose(call("gelu_tanh_f4", x), want, rtol=3e-5, atol=1e-37)
    np.testing.assert_allclose(call("gelu_tanh_f4", x[np.abs(x) < 1]), want[np.abs(x) < 1], rtol=4e-7)
    np.testing.assert_allclose(call("gelu_tanh_f8", wide), want, rtol=1e-13)
    np.testing.assert_array_equal(call("gelu_tanh_f4", SPECIAL[:2]), SPECIAL[:2])
    slope = share + want * (1 - share) * 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * wide**2)
    np.testing.assert_allclose(call("gelu_tanh_slope_f4", x), slope, rtol=3e-5, atol=3e-7)
    np.testing.assert_allclose(call("gelu_tanh_slope_f8", wide), slope, rtol=1e-12, atol=1e-15)


def test_gelu(call):
    """To the ulp where 1 + erf(x / sqrt 2) cancels, too; what is far off is 0 or x, never a product of inf and 0."""
    x = np.linspace(-12, 12, 300_007).astype(np.float32)
    wide = x.astype(np.float64)
    share = 0.5 * np.vectorize(math.erfc)(-wide * math.sqrt(0.5))
    slope = share + wide * np.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
    near = wide > -1
    np.testing.assert_allclose(call("gelu_f4", x), wide * share, rtol=6e-6, atol=1e-37)
    np.testing.assert_allclose(call("gelu_f4", x[near]), (wide * share)[near], rtol=4e-7)
    np.testing.assert_allclose(call("gelu_slope_f4", x), slope, rtol=6e-6, atol=1.5e-7)
    np.testing.assert_allclose(call("gelu_f8", wide), wide * share, rtol=1e-13)
    np.testing.assert_allclose(call("gelu_slope_f8", wide), slope, rtol=1e-13, atol=1e-15)
    far = np.array([0.0, -0.0, 1e30, -1e30, NAN], np.float32)
    np.testing.assert_array_equal(call("gelu_f4", far), np.array([0.0, -0.0, 1e30, -0.0, NAN], np.float32))
    np.testing.assert_array_equal(call("gelu_slope_f4", far), np.array([0.5, 0.5, 1.0, 0.0, NAN], np.float32))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gamma_functions(call, dtype):
    x = np.concatenate([np.linspace(-5.3, 12, 1000), [0.5, 1.0, 1e-5, 1e5, 1e30]]).astype(dtype)
    rtol = 2e-7 if dtype == "f4" else 1e-13
    np.testing.assert_allclose(call(f"lgamma_{dtype}", x), elementwise(math.lgamma)(x), rtol=rtol, atol=1e-15)
    euler = 0.57721566490153286
    known = {1.0: -euler, 0.5: -euler - 2 * math.log(2), 2.0: 1 - euler, -0.5: 2 - euler - 2 * math.log(2)}
    known |= {0.25: -math.pi / 2 - 3 * math.log(2) - euler, 1e9: math.log(1e9) - 0.5e-9}
    np.testing.assert_allclose(call(f"digamma_{dtype}", list(known)), list(known.values()), rtol=rtol)
    np.testing.assert_array_equal(call(f"digamma_{dtype}", [0.0, -0.0, -3.0, INF, NAN]), [-INF, INF, NAN, INF, NAN])


# I0(x) and I1(x), and both times e^-x; beyond 709 e^x is no double, and these still are
KNOWN_BESSEL = {
    0.0: (1.0, 1.0, 0.0, 0.0),
    1e-09: (1.0, 0.999999999, 5e-10, 4.999999995000001e-10),
    0.25: (1.015686141223608, 0.7910171621397194, 0.12597910894546793, 0.09811262869736824),
    1.0: (1.2660658777520084, 0.46575960759364043, 0.565159103992485, 0.20791041534970844),
    3.5: (7.3782034322254795, 0.22280243801077917, 6.205834922258365, 0.18739997660305),
    7.75: (338.5137537472759, 0.1458122743089143, 315.85248092400343, 0.1360511000803391),
    8.0: (427.5641157218048, 0.14343178185685032, 399.8731367825601, 0.13414249329269817),
    8.25: (540.325079074807, 0.1411645506329935, 506.4338383076455, 0.13231017396500142),
    12.0: (18948.925349296307, 0.11642622121344044, 18141.348781638833, 0.11146429929018098),
    30.0: (781672297823.9775, 0.0731459464822373, 768532038938.957, 0.07191633059864755),
    85.0: (3.563477630408124e35, 0.04333542649242439, 3.542453606440377e35, 0.04307975348427788),
    300.0: (4.475847367935052e128, 0.02304255841508546, 4.468381385036955e128, 0.02300412204026895),
    705.0: (2.2620505526554727e304, 0.015027701660471416, 2.260445691777057e304, 0.015017039931245658),
    712.0: (2.4684110577627523e307, 0.014953620962177634, 2.4666770135246153e307, 0.01494311613147401),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bessel_functions(call, dtype):
    x = np.array(list(KNOWN_BESSEL)).astype(dtype)
    known = np.array(list(KNOWN_BESSEL.values()))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, name in enumerate(BESSEL):
            want = known[:, column].astype(dtype)
            got = call(f"{name}_{dtype}", x)
            spacing = np.spacing(np.where(np.isfinite(want), want, 1))
            assert np.all((got == want) | (np.abs(got - want) <= (1 if dtype == "f4" else 4) * spacing)), name
            sign = -1 if name.startswith("i1") else 1
            np.testing.assert_array_equal(call(f"{name}_{dtype}", -x), sign * got)
    np.testing.assert_array_equal(call(f"i0_{dtype}", [INF, -INF, NAN, 0.0]), [INF, INF, NAN, 1])
    np.testing.assert_array_equal(call(f"i1_{dtype}", [INF, -INF, NAN, 0.0]), [INF, -INF, NAN, 0])
    for name in ("i0e", "i1e"):
        np.testing.assert_array_equal(call(f"{name}_{dtype}", [INF, -INF, NAN]), [0, 0, NAN])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_parts_and_neighbours(call, dtype):
    x, y = (a.astype(dtype) for a in pairs(np.array([0.0, -0.0, INF, -INF, NAN, 1.0, -2.0, 3.7, 5e-324, 1e-40, 1e38])))
    tiny = np.array([np.finfo(dtype).smallest_subnormal, np.finfo(dtype).tiny, np.finfo(dtype).max], dtype)
    x, y = np.concatenate([x, tiny, -tiny]), np.concatenate([y, -tiny, tiny * 0])
    mantissa, exponent = np.frexp(x)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(call(f"mantissa_{dtype}", x), mantissa)
    np.testing.assert_array_equal(call(f"exponent_{dtype}", x), np.where(finite, exponent, 0))
    got, want = call(f"nextafter_{dtype}", x, y), np.nextafter(x, y)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(want)[got == 0])


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_neighbours_of_halves(call, name):
    """Every number, towards 0, both infinities and a NaN."""
    unsigned, half = HALVES[name]
    x = np.arange(65536, dtype=unsigned).view(half)
    for to in (0.0, -0.0, INF, -INF, 1.0, NAN):
        y = np.full_like(x, to)
        with np.errstate(over="ignore", invalid="ignore"):
            want = np.nextafter(x, y).astype(np.float32)
        np.testing.assert_array_equal(call(f"nextafter_{name}", x.astype("f4"), y.astype("f4")), want)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8"])
def test_divisors(call, dtype):
    limits = np.iinfo(dtype)
    x, y = (a.astype(dtype) for a in pairs(np.array([0, 1, 2, 6, 10, 12, 35, 60, 100, limits.max])))
    if limits.min:
        x, y = (
            np.concatenate([x, -x, [limits.min] * 3]).astype(dtype),
            np.concatenate([-y, y, [0, 6, -1]]).astype(dtype),
        )
    want = [math.gcd(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(call(f"gcd_{dtype}", x, y), np.array(want, np.uint64).astype(dtype))
    want = [math.lcm(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    fits = np.array([w <= limits.max for w in want])
    got = call(f"lcm_{dtype}", x, y)
    np.testing.assert_array_equal(got[fits], np.array([w for w in want if w <= limits.max], dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zeta(call, dtype):
    rtol = 2e-7 if dtype == "f4" else 1e-14
    # sums over all k of (q + k)^-s, on both sides of 0, and their difference from one q to the next
    known = {(2, 1): math.pi**2 / 6, (2, 0.5): math.pi**2 / 2, (4, 1): math.pi**4 / 90, (2, -0.5): math.pi**2 / 2 + 4}
    known |= {(3, -1.5): 7 * 1.2020569031595942 - 8 - 8 / 27, (2, 1e8): 1e-8 + 0.5e-16}
    known[15, 11] = sum(float(k) ** -15 for k in range(11, 200))
    s, q = np.array(list(known)).T
    np.testing.assert_allclose(call(f"zeta_{dtype}", s, q), list(known.values()), rtol=rtol)
    s, q = (a.astype(dtype) for a in pairs(np.array([2.0, 3.0, 5.0, 9.0, -7.75, -0.25, 0.25, 40.5])))
    s = np.abs(np.rint(s)) + 2
    got, after = call("zeta_f8", s, q), call("zeta_f8", s, q + 1)
    np.testing.assert_allclose(got, after + q.astype(np.float64) ** -s.astype(np.float64), rtol=1e-14)
    odd = call(f"zeta_{dtype}", [2, 2, 2, 1, 0.5, 2, 2.5, 2], [0, -3, INF, 2, 2, NAN, -0.5, -INF])
    np.testing.assert_array_equal(odd, [INF, INF, 0, INF, NAN, NAN, NAN, INF])


# (a, x) -> P(a, x), Q(a, x), of mpmath with 40 digits: each of the ways to compute them
INCOMPLETE_GAMMA = {
    (1e-5, 0.1): (0.9999817708537233, 1.8229146276698593e-05),
    (0.05, 3.0): (0.9992840945687974, 0.0007159054312025862),
    (0.3, 0.7): (0.8668625855062952, 0.13313741449370475),
    (1.5, 1.0): (0.4275932955291202, 0.5724067044708798),
    (4.2, 12.0): (0.9970289144238823, 0.002971085576117745),
    (25.0, 20.0): (0.15677262182623772, 0.8432273781737623),
    (150.0, 160.0): (0.7956261882343224, 0.20437381176567754),
    (2000.0, 1950.0): (0.1313526369567147, 0.8686473630432853),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_incomplete_gamma(call, dtype):
    a, x = np.array(list(INCOMPLETE_GAMMA)).T
    p, q = np.array(list(INCOMPLETE_GAMMA.values())).T
    for name, want in (("igamma", p), ("igammac", q)):
        got = call(f"{name}_{dtype}", a, x)
        np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "f4" else 1e-13)
    # on both sides of where the way changes both agree with each other, and add up to 1
    a = np.repeat([999.9999999999, 1000.0, 19.999999999999, 20.0], 50)
    x = a * np.tile(np.linspace(0.5, 1.5, 50), 4)
    p, q = (call(f"{name}_f8", a, x).reshape(2, 2, 50) for name in ("igamma", "igammac"))
    for value in (p, q):
        np.testing.assert_allclose(value[:, 0], value[:, 1], rtol=2e-9)
    np.testing.assert_allclose(p + q, 1.0, rtol=1e-14)
    odd = [[0, 1, 1, -1, NAN, 0, INF, INF, 1], [1, 0, INF, 1, 1, 0, 1, INF, -1]]
    np.testing.assert_array_equal(call(f"igamma_{dtype}", *odd), [1, 0, 1, NAN, NAN, NAN, 0, NAN, NAN])
    np.testing.assert_array_equal(call(f"igammac_{dtype}", *odd), [0, 1, 0, NAN, NAN, NAN, 1, NAN, NAN])


def pairs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def many_pairs(scale: float, n: int = 2_000_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    a = np.exp(rng.uniform(-scale, scale, n)).astype(np.float32) * rng.choice([-1, 1], n)
    b = (np.exp(rng.uniform(-5, 4.7, n)) * rng.choice([-1, 1], n)).astype(np.float32)
    return a.astype(np.float32), b


@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_two_arguments(call, name):
    reference, bound = {"pow": (np.power, 0.6), "atan2": (np.arctan2, 2.0)}[name]
    for a, b in (pairs(SPECIAL), many_pairs(20), many_pairs(0.5), (many_pairs(8)[0], np.rint(many_pairs(1)[1]))):
        with np.errstate(all="ignore"):
            want = reference(a.astype(np.float64), b.astype(np.float64))
        got = call(f"{name}_f4", a, b)
        error = ulps(got, want)
        worst = int(np.argmax(error))
        assert error[worst] <= bound, f"{name}({a[worst]!r}, {b[worst]!r}) = {got[worst]!r}, want {want[worst]!r}"
        zero = (got == 0) & (want == 0)
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
        np.testing.assert_allclose(call(f"{name}_f8", a[:2000], b[:2000]), want[:2000], rtol=4e-15)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_division_of_floats(call, dtype):
    torch = pytest.importorskip("torch")
    a, b = (
        np.concatenate(both).astype(dtype)
        for both in zip(pairs(SPECIAL), many_pairs(20, 200_000), many_pairs(60, 200_000), strict=True)
    )
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        modulo = np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
        near = np.abs(a / b) < 2**20  # torch's vectorised remainder loses bits, or makes NaN, beyond
    np.testing.assert_array_equal(call(f"fmod_{dtype}", a, b), rest)
    np.testing.assert_array_equal(call(f"mod_{dtype}", a, b), modulo)
    np.testing.assert_array_equal(modulo[near], torch.remainder(ta, tb).numpy()[near])
    np.testing.assert_array_equal(call(f"floordiv_{dtype}", a, b), torch.floor_divide(ta, tb).numpy())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(call, dtype):
    info = np.iinfo(dtype)
    values = [
        v for v in (info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100, info.max - 1, info.max) if v >= info.min
    ]
    a, b = pairs(np.array(values, dtype))
    exact = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]

    def wrapped(results):
        return np.array([r % (1 << info.bits) for r in results], np.uint64).astype(f"u{info.bits // 8}").view(dtype)

    np.testing.assert_array_equal(call(f"mod_{dtype}", a, b), wrapped(x % y if y else 0 for x, y in exact))
    np.testing.assert_array_equal(call(f"floordiv_{dtype}", a, b), wrapped(x // y if y else 0 for x, y in exact))
    np.testing.assert_array_equal(call(f"max_{dtype}", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(call(f"min_{dtype}", a, b), np.minimum(a, b))
    np.testing.assert_array_equal(call(f"abs_{dtype}", a), wrapped(abs(x) for x, _ in exact))
    np.testing.assert_array_equal(call(f"sign_{dtype}", a), np.sign(a))

    def power(x, y):
        if y < 0:
            return x**-y if x in (1, -1) else 0
        return pow(x, y, 1 << 64)

    np.testing.assert_array_equal(call(f"ipow_{dtype}", a, b), wrapped(power(x, y) for x, y in exact))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rounding_and_comparing(call, dtype):
    x = np.concatenate([sample(40009), np.arange(-9, 9) / 2, [8388608.5, 2.0**52 + 1]]).astype(dtype)
    for name, reference in (ROUNDING | PREDICATES).items():
        got, want = call(f"{name}_{dtype}", x), reference(x)
        np.testing.assert_array_equal(got, want)
        if name in ROUNDING:
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]), err_msg=name)
    a, b = pairs(SPECIAL.astype(dtype))
    np.testing.assert_array_equal(call(f"max_{dtype}", a, b), np.maximum(a, b))
    np.testing.assert_array_equal(call(f"min_{dtype}", a, b), np.minimum(a, b))
    np.testing.assert_array_equal(call(f"copysign_{dtype}", a, b).view(f"i{dtype[1]}") < 0, np.signbit(b))
    np.testing.assert_array_equal(call("clamp", x), np.clip(x.astype(np.float32), -1, 2))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_casts_from_float(call, dtype):
    x = [0, -0.0, 0.9, -0.9, 1.5, -1.5, 300.7, 70000, 2147483520, 2147483647, 2147483648, -2147483648, -2147483649, 3e9]
    x += [-3e9, 9.2e18, 9.3e18, -9.3e18, 1.8e19, 1.9e19, 1e30, INF, -INF, NAN]
    x = np.array(x, dtype)

    def truncated(v, bits):
        inside = math.isfinite(v) and -(1 << (bits - 1)) <= math.trunc(v) < 1 << (bits - 1)
        return math.trunc(v) if inside else -(1 << (bits - 1))

    for name, to in CASTS.items():
        if name == "bool":
            want = [v != 0 for v in x.tolist()]
        elif name == "u64":
            want = [math.trunc(v) if 2.0**63 <= v < 2.0**64 else truncated(v, 64) % (1 << 64) for v in x.tolist()]
        else:
            size = np.dtype(to).itemsize * 8
            wide = [truncated(v, 64 if name in ("u32", "i64") else 32) for v in x.tolist()]
            want = np.array([v % (1 << size) for v in wide], np.uint64).astype(f"u{size // 8}").view(to)
        np.testing.assert_array_equal(call(f"to_{name}_{dtype}", x), np.array(want, to), err_msg=name)
    whole = np.array([0, -1, 300, 1 << 20, -(1 << 31)])
    for name, to in CASTS.items():
        want = whole != 0 if name == "bool" else whole.astype(to)
        np.testing.assert_array_equal(call(f"to_{name}_i4", whole), want)
        np.testing.assert_array_equal(call(f"to_{name}_i8", whole), want)


def same_bits(got, want):
    """Equal bits; NaN of float32 and float16 equal by being NaN."""
    nan = np.isnan(want) & np.isnan(got)
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}")[~nan], want.view(f"u{want.itemsize}")[~nan])


@pytest.mark.parametrize("name", HALVES)
def test_half_types(call, name):
    unsigned, dtype = HALVES[name]
    codes = np.arange(np.iinfo(unsigned).max + 1).astype(unsigned)
    values = codes.view(dtype).astype(np.float32)
    same_bits(call(f"{name}_to_f32", codes), values)
    # All floats, densely, then every code, the middle between neighbours, and the floats beside it.
    finite = np.unique(values[np.isfinite(values)])
    with np.errstate(all="ignore"):
        middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
        x = np.concatenate([sample(), values, middle, np.nextafter(middle, INF), np.nextafter(middle, -INF)])
        got, want = call(f"f32_to_{name}", x), x.astype(np.float32).astype(dtype)
    if name == "f16":
        same_bits(got.view(np.float16), want)
    else:
        np.testing.assert_array_equal(got, want.view(unsigned))


@pytest.mark.parametrize("name", HALVES)
def test_half_types_from_double_round_once(call, name):
    unsigned, dtype = HALVES[name]
    codes = np.arange(np.iinfo(unsigned).max + 1).astype(unsigned)
    values = codes.view(dtype).astype(np.float64)
    finite = np.unique(values[np.isfinite(values)])
    low, high = finite[:-1], finite[1:]
    middle = (low + high) / 2
    eps = np.abs(middle) * 2.0**-50
    back = codes.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(back[call(f"f64_to_{name}", middle + eps)], high)
    np.testing.assert_array_equal(back[call(f"f64_to_{name}", middle - eps)], low)
    np.testing.assert_array_equal(back[call(f"f64_to_{name}", finite)], finite)
    x = np.array([INF, -INF, NAN, 1e300, -1e300, 1e-300, -1e-300, 3.5e38])
    with np.errstate(all="ignore"):
        same_bits(
            call(f"f64_to_{name}", x).view(dtype).astype(np.float32),
            x.astype(np.float32).astype(dtype).astype(np.float32),
        )


def test_loops_are_vectorised(build):
    """What the header promises: a loop over any float function becomes vector code."""
    if build[1] is None:
        pytest.skip("only gcc reports")
    lines = source().splitlines()
    done = {int(line.split(":")[1]) for line in build[1].splitlines() if "loop vectorized" in line}
    wanted = {
        name: lines.index(f"void loop_{name}(" + line.split("(", 1)[1]) + 3
        for line in lines
        if (name := line.removeprefix("void loop_").split("(")[0]) in LOOPS and line.startswith("void loop_")
        if not name.startswith(SCALAR) and "f8" not in LOOPS[name][1] + LOOPS[name][2]
        if "f4" in LOOPS[name][1] + LOOPS[name][2] or name == "random_u32"
    }
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "avx512" not in flags:
        pytest.skip("checked on AVX-512 machines")
    assert [name for name, line in wanted.items() if line not in done] == []


# ---- random numbers


def test_philox_known_answers():
    """The test vectors of Random123 (kat_vectors, philox4x32 10)."""
    cases = [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88, "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ]
    for seed, offset, block, words in cases:
        got = philox.philox_blocks(seed, offset, block, 1)[0]
        assert " ".join(f"{int(word):08x}" for word in got) == words


@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (1, 2), (2**64 - 1, 2**63 + 12345)])
def test_random_is_the_same_in_c_and_numpy(call, build, seed, offset):
    n = 100_003
    key = np.full(n, seed, np.uint64), np.full(n, offset, np.uint64)
    for name in ("u32", "u64", "uniform_f32", "uniform_f64"):
        got, want = call(f"random_{name}", *key), getattr(philox, f"random_{name}")(seed, offset, n)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    normal = philox.random_normal_f32(seed, offset, n)
    # The reference rounded once more: 4 ulp of the contract, half a ulp of it already spent.
    assert ulps(call("random_normal_f32", *key), normal.astype(np.float64)).max() <= 4
    double = call("random_normal_f64", *key)
    wide = philox.random_normal_f64(seed, offset, n)
    assert (np.abs(double - wide) / np.spacing(np.abs(wide))).max() <= 4
    blocks = np.empty(4096, np.float32)
    build[0].blocks_uniform(
        ctypes.c_uint64(seed), ctypes.c_uint64(offset), ctypes.c_void_p(blocks.ctypes.data), ctypes.c_long(4096)
    )
    np.testing.assert_array_equal(
        blocks.reshape(-1, 4)[:, :2], call("random_uniform_f32", *key)[:4096].reshape(-1, 4)[:, :2]
    )
    np.testing.assert_array_equal(
        blocks.reshape(-1, 4)[:, 2:], call("random_normal_f32", *key)[:4096].reshape(-1, 4)[:, 2:]
    )


def test_random_has_the_right_distribution():
    n = 1 << 20
    uniform = philox.random_uniform_f32(3, 4, n)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    counts, _ = np.histogram(uniform, 64, (0, 1))
    assert ((counts - n / 64) ** 2 / (n / 64)).sum() < 110  # chi-square with 63 degrees of freedom, p = 2e-4
    for normal in (philox.random_normal_f32(3, 4, n), philox.random_normal_f64(3, 4, n)):
        wide = normal.astype(np.float64)
        assert abs(wide.mean()) < 4 / math.sqrt(n)
        assert abs(wide.var() - 1) < 4 * math.sqrt(2 / n)
        assert abs((wide**4).mean() - 3) < 4 * math.sqrt(96 / n)
        assert abs((wide[:-1] * wide[1:]).mean()) < 4 / math.sqrt(n)
    assert not np.array_equal(philox.random_u32(3, 4, 64), philox.random_u32(3, 5, 64))
    assert not np.array_equal(philox.random_u32(3, 4, 64), philox.random_u32(4, 4, 64))
    np.testing.assert_array_equal(philox.random_u32(3, 4, 7), philox.random_u32(3, 4, 64)[:7])
