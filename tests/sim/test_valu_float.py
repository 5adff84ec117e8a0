"""Vector arithmetic of floats: exact arithmetic rounded once, and NumPy; NaN, infinities, denormals, signed zeros."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.sim.snippet import LANES, MODE, each_target, run
from tests.sim.valu import (
    DOWN,
    FORMATS,
    NEAREST,
    UP,
    ZERO,
    Bits,
    check,
    exact,
    rounded,
    to_bits,
    to_float,
    values,
)  # fmt: skip

_ORDER = {
    "F16": (0x8000, 0x7C00, 0x0200),
    "F32": (1 << 31, 0x7F800000, 1 << 22),
    "F64": (1 << 63, 0x7FF << 52, 1 << 51),
}


def extreme(kind: str, largest: bool, ieee: bool = True) -> Callable[[int, int], Bits]:
    """v_min and v_max on bits: signalling NaN first (IEEE mode), numbers before NaN, -0 below 0."""
    sign, infinite, quiet = _ORDER[kind]

    def nan(x: int) -> bool:
        return x & (sign - 1) > infinite

    def key(x: int) -> int:
        return -(x & (sign - 1)) - 1 if x & sign else x

    def choose(a: int, b: int) -> Bits:
        for x in (a, b):
            if ieee and nan(x) and not x & quiet:
                return Bits(x | quiet)
        if nan(a) or nan(b):
            return Bits(b if nan(a) else a)
        return Bits(max(a, b, key=key) if largest else min(a, b, key=key))

    return choose


def median(kind: str) -> Callable[..., Bits]:
    low = extreme(kind, False)

    def choose(a: int, b: int, c: int) -> Any:
        if any(math.isnan(to_float(x, kind)) for x in (a, b, c)):
            return low(low(a, b), c)
        return sorted(to_float(x, kind) for x in (a, b, c))[1]

    return choose


def whole(of: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding to whole numbers by Python's own, with the sign of zeros kept."""
    return lambda x: math.copysign(of(x), x) if math.isfinite(x) else x


def fraction(kind: str) -> Callable[[float], float]:
    precision = FORMATS[kind][0]

    def of(x: float) -> float:
        if not math.isfinite(x):
            return math.nan
        part = Fraction(x) - math.floor(Fraction(x))
        return min(rounded(part, kind), 1 - 2.0**-precision) if part else 0.0

    return of


def scaled(kind: str) -> Callable[[float, int], float]:
    def of(x: float, n: int) -> float:
        if not math.isfinite(x) or x == 0:
            return x
        if abs(n) > 5000:
            return math.copysign(0.0 if n < 0 else math.inf, x)
        return rounded(Fraction(x) * Fraction(2) ** n, kind)

    return of


def multiply_legacy(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else exact(lambda x, y: x * y, "F32")(a, b)


def fma_legacy(a: float, b: float, c: float) -> float:
    return c if a == 0 or b == 0 else exact(lambda x, y, z: x * y + z, "F32")(a, b, c)


def fixed_up(q: float, d: float, n: float) -> float:
    """v_div_fixup: what n / d is, where the approximation q does not know."""
    if math.isnan(n) or math.isnan(d):
        return math.nan
    if (d == 0 and n == 0) or (math.isinf(d) and math.isinf(n)):
        return math.nan
    sign = math.copysign(1, d) * math.copysign(1, n)
    if d == 0 or math.isinf(n):
        return sign * math.inf
    if math.isinf(d) or n == 0:
        return sign * 0.0
    return math.copysign(math.inf if math.isnan(q) else q, sign)


EXPECTED: dict[str, Callable[..., Any]] = {}
for _kind in ("F16", "F32", "F64"):
    _t = _kind.lower()
    EXPECTED |= {
        f"v_add_{_t}": exact(lambda a, b: a + b, _kind),
        f"v_mul_{_t}": exact(lambda a, b: a * b, _kind),
        f"v_fma_{_t}": exact(lambda a, b, c: a * b + c, _kind),
        f"v_fmac_{_t}": exact(lambda a, b, c: a * b + c, _kind),
        f"v_min_{_t}": extreme(_kind, False),
        f"v_max_{_t}": extreme(_kind, True),
        f"v_floor_{_t}": whole(math.floor),
        f"v_ceil_{_t}": whole(math.ceil),
        f"v_trunc_{_t}": whole(math.trunc),
        f"v_rndne_{_t}": whole(round),
        f"v_fract_{_t}": fraction(_kind),
        f"v_ldexp_{_t}": scaled(_kind),
        f"v_frexp_mant_{_t}": lambda a: math.frexp(a)[0],
        f"v_frexp_exp_{'i16' if _kind == 'F16' else 'i32'}_{_t}": lambda a: math.frexp(a)[1] if math.isfinite(a) else 0,
    }
    if _kind == "F64":
        continue
    _low, _high = extreme(_kind, False), extreme(_kind, True)
    EXPECTED |= {
        f"v_sub_{_t}": exact(lambda a, b: a - b, _kind),
        f"v_subrev_{_t}": exact(lambda a, b: b - a, _kind),
        f"v_min3_{_t}": lambda a, b, c, f=_low: f(f(a, b), c),
        f"v_max3_{_t}": lambda a, b, c, f=_high: f(f(a, b), c),
        f"v_minmax_{_t}": lambda a, b, c, f=_low, g=_high: g(f(a, b), c),
        f"v_maxmin_{_t}": lambda a, b, c, f=_low, g=_high: f(g(a, b), c),
    }
EXPECTED |= {
    "v_mul_legacy_f32": multiply_legacy,
    "v_fma_legacy_f32": fma_legacy,
    "v_fmac_legacy_f32": fma_legacy,
    "v_fma_legacy_f16": EXPECTED["v_fma_f16"],
    "v_div_fixup_f16": fixed_up,
    "v_div_fixup_legacy_f16": fixed_up,
}
MEDIANS = {f"v_med3_{kind.lower()}": median(kind) for kind in ("F16", "F32")}


def _safely(of: Callable[[float], float]) -> Callable[[float], float]:
    """NumPy's rule for what Python refuses: infinities and NaN."""

    def value(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(of(np.float64(x)))

    return value


def _no_denormal(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


def _f32(x: float) -> float:
    with np.errstate(all="ignore"):
        return _no_denormal(float(np.float32(x)))


def _turns(of: Callable[[float], float], zeros: float) -> Callable[[float], float]:
    def value(x: float) -> float:
        if not math.isfinite(x):
            return math.nan
        part = math.fmod(x, 1.0)
        if abs(part) in (zeros, 1 - zeros):
            return math.copysign(0.0, x) if zeros == 0.5 else 0.0
        return of(2 * math.pi * part)

    return value


_FUNCTIONS = {
    "rcp": _safely(lambda x: 1 / x), "rsq": _safely(lambda x: 1 / np.sqrt(x)), "sqrt": _safely(np.sqrt),
    "exp": _safely(np.exp2), "log": _safely(np.log2), "sin": _turns(math.sin, 0.5), "cos": _turns(math.cos, 0.25),
}  # fmt: skip
# Right to one unit in the last place; float32 knows no denormals here, neither as a source nor as a result.
APPROXIMATE: dict[str, Callable[..., Any]] = {
    f"v_{name}_f32": lambda a, f=f: _f32(f(_no_denormal(a))) for name, f in _FUNCTIONS.items()
}
APPROXIMATE["v_rcp_iflag_f32"] = APPROXIMATE["v_rcp_f32"]


def _f16(x: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float16(x))


APPROXIMATE |= {f"v_{name}_f16": lambda a, f=f: _f16(f(a)) for name, f in _FUNCTIONS.items()}
# Right to 2^29 units in the last place.
ROUGH = {f"v_{name}_f64": _FUNCTIONS[name] for name in ("rcp", "rsq", "sqrt")}


@each_target
def test_arithmetic(target: str) -> None:
    assert len(check(EXPECTED, target)) > 40


@each_target
def test_approximations(target: str) -> None:
    assert check(APPROXIMATE, target, tolerance=1) == APPROXIMATE.keys()
    assert check(ROUGH, target, tolerance=1 << 29) == ROUGH.keys()


@each_target
def test_approximations_of_doubles_are_no_better_than_documented(target: str) -> None:
    x = np.linspace(1.1, 1.9, LANES[target])
    halves = x.view(np.uint32).reshape(-1, 2)
    got = run(target, "v_rcp_f64 v[2:3], v[0:1]", {0: halves[:, 0].copy(), 1: halves[:, 1].copy()}).pair(2)
    error = np.abs(got.view(np.float64) * x - 1)
    assert 2.0**-30 < error.max() < 2.0**-24


@each_target
def test_medians(target: str) -> None:
    rng = np.random.default_rng(5)
    if target == "gfx1201":
        pytest.skip("its v_med3_num is tested with the others of its kind")
    for kind, word in (("F32", np.uint32), ("F16", np.uint16)):
        name, lanes = f"v_med3_{kind.lower()}", LANES[target]
        rows = [np.array(values(kind, lanes, int(rng.integers(1 << 30)))).astype(np.uint32) for _ in range(3)]
        half = ".l" if kind == "F16" and target.startswith("gfx1") else ""
        state = run(target, f"{name} v3{half}, v0{half}, v1{half}, v2{half}", dict(enumerate(rows)))
        for lane, got in enumerate(state.v[3].astype(word)):
            three = [int(r[lane]) for r in rows]
            want = MEDIANS[name](*three)
            value = to_float(int(got), kind)
            # Which of two zeros is in the middle is not said: compare as numbers.
            assert int(got) == want if isinstance(want, Bits) else value == want, three


@each_target
@pytest.mark.parametrize("rounding", [NEAREST, UP, DOWN, ZERO])
def test_rounding_modes(target: str, rounding: int) -> None:
    """float32 follows bits 0..1 of MODE, float16 and float64 bits 2..3; the other pair rounds to nearest."""
    for kinds, mode in ((("F32",), MODE | rounding), (("F16", "F64"), MODE | rounding << 2)):
        names = {}
        for kind in kinds:
            t = kind.lower()
            names[f"v_add_{t}"] = exact(lambda a, b: a + b, kind, rounding)
            names[f"v_mul_{t}"] = exact(lambda a, b: a * b, kind, rounding)
            names[f"v_fma_{t}"] = exact(lambda a, b, c: a * b + c, kind, rounding)
        others = {"v_add_f64": EXPECTED["v_add_f64"]} if kinds == ("F32",) else {"v_add_f32": EXPECTED["v_add_f32"]}
        check(names | others, target, mode=mode, rounds=1)


def _flushing(of: Callable[..., float], kind: str) -> Callable[..., float]:
    smallest = 2.0 ** FORMATS[kind][1]

    def flush(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < smallest else x

    return lambda *a: flush(of(*(flush(x) for x in a)))


@each_target
def test_flushed_denormals(target: str) -> None:
    for kind, mode in (("F32", MODE & ~0x30), ("F16", MODE & ~0xC0), ("F64", MODE & ~0xC0)):
        t = kind.lower()
        names = {n: _flushing(EXPECTED[n], kind) for n in (f"v_add_{t}", f"v_mul_{t}", f"v_fma_{t}")}
        names[f"v_max_{t}"] = lambda a, b, k=kind: _max_flushed(a, b, k)
        check(names, target, mode=mode)
    # Moves and selections are not arithmetic.
    got = run(
        target,
        "v_mov_b32 v1, v0\nv_cndmask_b32 v2, v0, v0, vcc" + ("_lo" if LANES[target] == 32 else ""),
        {0: 1},
        mode=MODE & ~0xF0,
    )
    assert set(got.v[1]) == set(got.v[2]) == {1}


def _max_flushed(a: int, b: int, kind: str) -> Bits:
    sign, infinite, _ = _ORDER[kind]

    def flush(x: int) -> int:
        return x if x & infinite else x & sign

    return Bits(flush(extreme(kind, True)(flush(a), flush(b))))


@each_target
def test_clamp_and_output_modifiers(target: str) -> None:
    def clamped(x: float) -> float:
        return 0.0 if math.isnan(x) or x <= 0 else min(x, 1.0)

    for kind in ("F32", "F16", "F64"):
        t = kind.lower()
        add = EXPECTED[f"v_add_{t}"]
        check({f"v_add_{t}": lambda a, b, f=add: clamped(f(a, b))}, target, suffix=" clamp")
    x = np.linspace(-3, 3, LANES[target], dtype=np.float32)
    text = "v_add_f32 v1, v0, v0 mul:4\nv_add_f32 v2, v0, v0 div:2\nv_add_f32 v3, v0, v0 clamp mul:2"
    state = run(target, text, {0: x})  # IEEE mode: no output modifier
    assert np.array_equal(state.v[1].view(np.float32), x + x)
    state = run(target, text, {0: x}, mode=MODE & ~0x230)  # denormals flushed, no IEEE mode
    assert np.array_equal(state.v[1].view(np.float32), 8 * x)
    assert np.array_equal(state.v[2].view(np.float32), x)
    assert np.array_equal(state.v[3].view(np.float32), np.clip(4 * x, 0, 1))
    nan = run(target, "v_max_f32 v1, v0, v0 clamp", {0: 0x7FC00000}, mode=MODE & ~0x100).v[1]  # no DX10_CLAMP
    assert np.isnan(nan.view(np.float32)).all()


@each_target
def test_without_ieee_mode_a_signalling_nan_loses(target: str) -> None:
    for kind in ("F32", "F64"):
        t = kind.lower()
        check(
            {f"v_min_{t}": extreme(kind, False, False), f"v_max_{t}": extreme(kind, True, False)},
            target,
            mode=MODE & ~0x200,
        )


def _divide(target: str, kind: str, n: Any, d: Any) -> Any:
    """A division as LLVM's compiler writes it."""
    vcc, none = ("vcc", "s[8:9]") if target.startswith("gfx9") else ("vcc_lo", "null")
    wide = kind == "F64"
    t = kind.lower()

    def r(x: int) -> str:
        return f"v[{2 * x}:{2 * x + 1}]" if wide else f"v{x}"

    refine = f"v_fma_{t} {r(5)}, -{r(2)}, {r(3)}, 1.0\nv_fma_{t} {r(3)}, {r(5)}, {r(3)}, {r(3)}\n"
    text = (
        f"v_div_scale_{t} {r(2)}, {none}, {r(1)}, {r(1)}, {r(0)}\nv_rcp_{t} {r(3)}, {r(2)}\n"
        f"{refine * (2 if wide else 1)}"
        f"v_div_scale_{t} {r(4)}, {vcc}, {r(0)}, {r(1)}, {r(0)}\nv_mul_{t} {r(5)}, {r(4)}, {r(3)}\n"
        f"v_fma_{t} {r(6)}, -{r(2)}, {r(5)}, {r(4)}\n"
    )
    if wide:
        text += f"v_div_fmas_f64 {r(5)}, {r(6)}, {r(3)}, {r(5)}\n"
    else:
        text += "v_fma_f32 v5, v6, v3, v5\nv_fma_f32 v6, -v2, v5, v4\nv_div_fmas_f32 v5, v6, v3, v5\n"
    text += f"v_div_fixup_{t} {r(7)}, {r(5)}, {r(1)}, {r(0)}"
    if not wide:
        return run(target, text, {0: n, 1: d}).v[7].view(np.float32)
    words = [x.view(np.uint32).reshape(-1, 2) for x in (n, d)]
    return (
        run(target, text, {2 * i + j: w[:, j].copy() for i, w in enumerate(words) for j in range(2)})
        .pair(14)
        .view(np.float64)
    )


@each_target
@pytest.mark.parametrize("kind", ["F32", "F64"])
def test_division(target: str, kind: str) -> None:
    """v_div_scale, v_div_fmas and v_div_fixup together give the correctly rounded quotient, denormals included."""
    dtype, span = (np.float32, 140) if kind == "F32" else (np.float64, 1060)
    word = np.uint32 if kind == "F32" else np.uint64
    lanes = LANES[target]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        if seed % 3 == 0:
            n, d = (np.array(values(kind, lanes, 2 * seed + i), word).view(dtype) for i in range(2))
        else:
            with np.errstate(all="ignore"):
                n, d = (
                    np.ldexp(rng.uniform(1, 2, lanes), rng.integers(-span, span // 2, lanes)).astype(dtype)
                    for _ in range(2)
                )
                d *= rng.choice([-1, 1], lanes).astype(dtype)
        with np.errstate(all="ignore"):
            want = n / d
        got = _divide(target, kind, n, d)
        bad = ~((got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want)))
        assert not bad.any(), (n[bad], d[bad], got[bad], want[bad])


@each_target
def test_division_by_parts(target: str) -> None:
    """The flags and factors of v_div_scale and v_div_fmas."""
    vcc = "vcc" if target.startswith("gfx9") else "vcc_lo"
    n = np.resize(np.array([1, 3e38, 1, 2.0**-126, 0, 1, 2.0**-110], np.float32), LANES[target])
    d = np.resize(np.array([4, 1, 2.0**127, 1, 1, 0, 3], np.float32), LANES[target])
    state = run(target, f"v_div_scale_f32 v2, {vcc}, v1, v1, v0\nv_div_scale_f32 v3, {vcc}, v0, v1, v0", {0: n, 1: d})
    flags = [state.vcc >> lane & 1 for lane in range(7)]
    assert flags == [0, 1, 1, 1, 1, 1, 0]
    denominators, numerators = state.v[2].view(np.float32)[:7], state.v[3].view(np.float32)[:7]
    assert np.array_equal(
        denominators, np.array([4, 2.0**64, 2.0**63, 1, np.nan, np.nan, 3 * 2.0**64], np.float32), equal_nan=True
    )
    assert np.array_equal(
        numerators, np.array([1, 3e38, 1, 2.0**-62, np.nan, np.nan, 2.0**-46], np.float32), equal_nan=True
    )
    v = {
        0: np.float32(1).view(np.uint32),
        1: np.float32(1).view(np.uint32),
        2: np.resize(np.array([2, 1], np.float32), LANES[target]),
    }
    got = run(target, "v_div_fmas_f32 v3, v0, v1, v2", v, vcc=0b0011).v[3].view(np.float32)
    assert list(got[:4]) == [3 * 2.0**64, 2 * 2.0**-64, 3, 2]
    far = run(
        target,
        "v_div_fixup_f32 v3, v0, v1, v2",
        {0: 1, 1: np.float32(1e38).view(np.uint32), 2: np.float32(1e-38).view(np.uint32)},
    )
    assert set(far.v[3]) == {0}


def _two_by_pi(bits: int) -> int:
    """The first bits of 2/pi, by Machin's formula in integers."""
    one = 1 << (bits + 64)

    def arctan(x: int) -> int:
        term, total, n = one // x, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term, n = term // (x * x), n + 2
        return total

    pi = 4 * (4 * arctan(5) - arctan(239))
    return (2 * one << bits) // pi


@each_target
def test_trig_preop(target: str) -> None:
    digits = _two_by_pi(1201)
    lanes = LANES[target]
    x = np.resize(np.array([1.0, 1e10, 2.0**60, 2.0**100, 2.0**900, 2.0**1000]), lanes)
    segments = np.arange(lanes, dtype=np.uint32) % 20
    words = x.view(np.uint32).reshape(-1, 2)
    got = run(
        target, "v_trig_preop_f64 v[4:5], v[0:1], v2", {0: words[:, 0].copy(), 1: words[:, 1].copy(), 2: segments}
    ).pair(4)
    for lane in range(lanes):
        exponent = math.frexp(x[lane])[1] + 1022
        shift = int(segments[lane]) * 53 + max(exponent - 1077, 0)
        piece = (digits << 2000) >> (1201 + 2000 - shift - 53) & ((1 << 53) - 1)
        want = float(Fraction(piece) * Fraction(2) ** (-53 - shift + (128 if exponent >= 1968 else 0)))
        assert got.view(np.float64)[lane] == want, (x[lane], segments[lane])


@each_target
def test_literal_multiply_add(target: str) -> None:
    if target == "gfx90a":
        pytest.skip("it has v_madak and v_madmk instead")
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(LANES[target]).astype(np.float32) for _ in range(2))
    text = "v_fmaak_f32 v2, v0, v1, 0x40490fdb\nv_fmamk_f32 v3, v0, 0x40490fdb, v1"
    state = run(target, text, {0: a, 1: b})
    fma, k = exact(lambda x, y, z: x * y + z, "F32"), to_float(0x40490FDB, "F32")
    assert list(state.v[2].view(np.float32)) == [fma(float(x), float(y), k) for x, y in zip(a, b, strict=True)]
    assert list(state.v[3].view(np.float32)) == [fma(float(x), k, float(y)) for x, y in zip(a, b, strict=True)]
    if target == "gfx1100":
        h = [to_bits(float(x), "F16") for x in np.float16(a)]
        state = run(
            target,
            "v_fmaak_f16 v2.l, v0.l, v1.l, 0x4248\nv_fmamk_f16 v3.l, v0.l, 0x4248, v1.l",
            {0: np.array(h, np.uint32), 1: 0x3C00},
        )
        fma, k = exact(lambda x, y, z: x * y + z, "F16"), to_float(0x4248, "F16")
        assert [to_float(int(x) & 0xFFFF, "F16") for x in state.v[2]] == [fma(to_float(x, "F16"), 1.0, k) for x in h]
        assert [to_float(int(x) & 0xFFFF, "F16") for x in state.v[3]] == [fma(to_float(x, "F16"), k, 1.0) for x in h]


TESTED = {
    *EXPECTED, *APPROXIMATE, *ROUGH, *MEDIANS, "v_trig_preop_f64",
    *(f"v_fma{form}k_{t}" for form in "am" for t in ("f16", "f32")),
    *(f"v_div_{part}_{t}" for part in ("scale", "fmas", "fixup") for t in ("f32", "f64")),
}  # fmt: skip
