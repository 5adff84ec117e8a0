"""Vector and scalar instructions that neither gfx942 nor gfx1100 has, on the targets that have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim import test_valu_scaled as scaled
from tests.sim.snippet import LANES, MODE, run
from tests.sim.test_valu_convert import from_small, small
from tests.sim.test_valu_float import APPROXIMATE
from tests.sim.test_valu_packed import each
from tests.sim.valu import Bits, check, exact, to_bits, to_float

_QUIET = {"F16": 0x0200, "F32": 0x00400000, "F64": 0x0008000000000000}
_FP8 = {"fp8": "float8_e4m3fn", "bf8": "float8_e5m2"}


def ordered(bits: int, kind: str) -> tuple[float, bool]:
    """Numbers in order, -0 below 0."""
    value = to_float(bits, kind)
    return value, not math.copysign(1, value) < 0


def number(kind: str, largest: bool) -> Callable[..., int]:
    """min_num and max_num: a NaN counts only where all are."""

    def of(*given: int) -> int:
        kept = [x for x in given if not math.isnan(to_float(x, kind))]
        if not kept:
            return Bits(given[0] | _QUIET[kind])
        return Bits((max if largest else min)(kept, key=lambda x: ordered(x, kind)))

    return of


def extreme(kind: str, largest: bool) -> Callable[..., int]:
    """minimum and maximum: a NaN wins, a signalling one first."""

    def of(a: int, b: int) -> int:
        nans = [x for x in (a, b) if math.isnan(to_float(x, kind))]
        signalling = [x for x in nans if not x & _QUIET[kind]]
        if nans:
            return Bits((signalling or nans)[0] | _QUIET[kind])
        return Bits((max if largest else min)(a, b, key=lambda x: ordered(x, kind)))

    return of


def chained(first: Callable[..., int], then: Callable[..., int]) -> Callable[..., int]:
    return lambda a, b, c: then(first(a, b), c)


def median(kind: str) -> Callable[..., int]:
    low = number(kind, False)

    def of(*given: int) -> int:
        if any(math.isnan(to_float(x, kind)) for x in given):
            return low(low(given[0], given[1]), given[2])
        return Bits(sorted(given, key=lambda x: ordered(x, kind))[1])

    return of


def gfx12_extremes(kind: str) -> dict[str, Callable[..., Any]]:
    t = kind.lower()
    low, high, minimum, maximum = number(kind, False), number(kind, True), extreme(kind, False), extreme(kind, True)
    two = {"min_num": low, "max_num": high, "minimum": minimum, "maximum": maximum}
    three = {
        "min3_num": chained(low, low), "max3_num": chained(high, high), "minimum3": chained(minimum, minimum),
        "maximum3": chained(maximum, maximum), "med3_num": median(kind), "minmax_num": chained(low, high),
        "maxmin_num": chained(high, low), "minimummaximum": chained(minimum, maximum),
        "maximumminimum": chained(maximum, minimum),
    }  # fmt: skip
    return {f"v_{n}_{t}": f for n, f in (two | ({} if kind == "F64" else three)).items()}


def dot4(a_kind: str, b_kind: str) -> Callable[[int, int, float], float]:
    left, right = from_small(_FP8[a_kind]).astype(np.float64), from_small(_FP8[b_kind]).astype(np.float64)

    def of(a: int, b: int, c: float) -> float:
        total = np.float64(c)
        with np.errstate(all="ignore"):
            for x, y in zip(a.to_bytes(4, "little"), b.to_bytes(4, "little"), strict=True):
                total += left[x] * right[y]
            return float(np.float32(total))

    return of


def stochastic(kind: str, x: float, random: int) -> int:
    """The random bits, from their highest on, are added to what a conversion drops, and the rest is cut off."""
    mantissa = 3 if kind.startswith("float8_e4") else 2
    if not math.isfinite(x):
        return small(kind, x)
    raw = to_bits(x, "F32")
    moved = (raw & 0x7FFFFFFF) + (random >> 9 + mantissa)
    magnitudes = np.arange(128, dtype=np.uint8).view(getattr(ml_dtypes, kind)).astype(np.float64)
    finite = [n for n in range(128) if np.isfinite(magnitudes[n])]
    exact_value = to_float(moved, "F32") if moved < 0x7F800000 else math.inf
    beyond = 2 * magnitudes[finite[-1]] - magnitudes[finite[-2]]
    if exact_value >= beyond:
        return small(kind, math.copysign(math.inf, x))
    kept = max(n for n in finite if magnitudes[n] <= exact_value)
    return kept | (raw >> 24 & 0x80 if kept or "uz" not in kind else 0)


def multiply_add(a: float, b: float, c: float) -> float:
    """Rounded twice, with denormals as zeros, whatever the mode says."""

    def flushed(x: float) -> float:
        return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x

    product = flushed(exact(lambda x, y: x * y, "F32")(flushed(a), flushed(b)))
    return flushed(exact(lambda x, y: x + y, "F32")(product, flushed(c)))


def multiply_add_legacy(a: float, b: float, c: float) -> float:
    if a == 0 or b == 0:
        return math.copysign(0.0, c) if abs(c) < 2.0**-126 else c
    return multiply_add(a, b, c)


def to_bf16(bits: int) -> int:
    x = np.uint32(bits).view(np.float32)
    return bits >> 16 | 0x40 if np.isnan(x) else int(x.astype(ml_dtypes.bfloat16).view(np.uint16))


def shifted(low: int, high: int) -> Callable[[int, int, int], int]:
    return lambda a, b, c: sum((min(max(x >> (c & 31), low), high) & 255) << 8 * n for n, x in enumerate((a, b)))


EXPECTED: dict[str, Callable[..., Any]] = {
    "v_cvt_f32_bf16": lambda a: to_float(a << 16, "F32"),
    "v_cvt_pk_bf16_f32": lambda a, b: to_bf16(a) | to_bf16(b) << 16,
    "v_ashr_pk_i8_i32": shifted(-128, 127), "v_ashr_pk_u8_i32": shifted(0, 255),
    "v_prng_b32": lambda a: a << 1 ^ (197 if a >> 31 else 0),
    "v_pk_minimum3_f16": each(chained(extreme("F16", False), extreme("F16", False))),
    "v_pk_maximum3_f16": each(chained(extreme("F16", True), extreme("F16", True))),
    "v_mad_f32": multiply_add, "v_mac_f32": multiply_add, "v_mad_legacy_f32": multiply_add_legacy,
    **gfx12_extremes("F16"), **gfx12_extremes("F32"), **gfx12_extremes("F64"),
    **{f"v_pk_{n}_f16": each(f) for n, f in (
        ("min_num", number("F16", False)), ("max_num", number("F16", True)), ("minimum", extreme("F16", False)),
        ("maximum", extreme("F16", True)))},
    **{f"v_dot4_f32_{a}_{b}": dot4(a, b) for a in _FP8 for b in _FP8},
    **{f"v_cvt_f32_{n}_ocp": lambda a, n=n: float(from_small(_FP8[n])[a & 255]) for n in _FP8},
    **{f"v_cvt_pk_{n}_f32_ocp": lambda a, b, n=n: small(_FP8[n], a) | small(_FP8[n], b) << 8 for n in _FP8},
}  # fmt: skip
# Those of 8-bit floats that choose a byte, and those that write scalar registers, have tests of their own below.
_SCALAR = {f"v_s_{n}_{t}" for n in ("exp", "log", "rcp", "rsq", "sqrt") for t in ("f16", "f32")}
TESTED = {
    *EXPECTED, *_SCALAR, *scaled.NAMES, "v_bitop3_b32", "v_bitop3_b16", "v_cvt_sr_bf16_f32", "v_cvt_sr_f16_f32",
    "v_cvt_pk_f16_f32", "v_dot2c_f32_bf16", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_madak_f32",
    "v_madmk_f32", "v_permlane16_var_b32", "v_permlanex16_var_b32",
    *(f"v_cvt_{part}_{n}{of}{s}" for n in _FP8 for part, of in (("sr", "_f32"),) for s in ("", "_ocp")),
    *(f"v_cvt_pk_f32_{n}_ocp" for n in _FP8),
}  # fmt: skip


@pytest.mark.parametrize(("target", "count"), [("gfx1201", 30), ("gfx90a", 3), ("gfx950", 12)])
def test_rows(target: str, count: int) -> None:
    """With the mode that kernels of GFX12 start with, which has no IEEE bit."""
    assert len(check(EXPECTED, target, mode=MODE & ~(1 << 9), rounds=2)) >= count


def test_literal_multiply_add() -> None:
    a, b = np.random.default_rng(3).standard_normal((2, 64)).astype(np.float32)
    text = "v_madak_f32 v2, v0, v1, 0x40490fdb\nv_madmk_f32 v3, v0, 0x40490fdb, v1"
    state, k = run("gfx90a", text, {0: a, 1: b}), to_float(0x40490FDB, "F32")
    for lane, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        assert state.v[2].view(np.float32)[lane] == multiply_add(x, y, k)
        assert state.v[3].view(np.float32)[lane] == multiply_add(x, k, y)


def test_gfx950_operands() -> None:
    """A table of bits, halves of results that are chosen or stay, random bits, swapped rows, and a dot product."""
    rng = np.random.default_rng(5)
    a, b, c = rng.integers(0, 1 << 32, (3, 64), np.uint64).astype(np.uint32)
    x, y = (rng.standard_normal((2, 64)) * 100).astype(np.float32)
    lane = np.arange(64, dtype=np.uint32)
    text = (
        "v_bitop3_b32 v10, v0, v1, v2 bitop3:0xca\nv_bitop3_b16 v11, v0, v1, v2 bitop3:0xca op_sel:[1,0,1,1]\n"
        "v_cvt_sr_bf16_f32 v12, v3, v0 op_sel:[0,0,1]\nv_cvt_sr_f16_f32 v13, v3, v0\nv_cvt_pk_f16_f32 v14, v3, v4\n"
        "v_permlane16_swap_b32 v5, v6\nv_permlane32_swap_b32 v7, v8\nv_dot2c_f32_bf16 v15, v16, v17"
    )
    halves = [(v.view(np.uint32) >> 16) | (w.view(np.uint32) >> 16 << 16) for v, w in ((x, y), (y, x))]
    v = {0: a, 1: b, 2: c, 3: x, 4: y, 5: lane, 6: lane + 100, 7: lane, 8: lane + 100, 15: x, 16: halves[0],
         17: halves[1]} | dict.fromkeys((11, 12, 13), 0xAAAA5555)  # fmt: skip
    state = run("gfx950", text, v)
    assert np.array_equal(state.v[10], a & b | ~a & c)
    assert np.array_equal(state.v[11], 0x5555 | ((a >> 16 & b | ~(a >> 16) & (c >> 16)) & 0xFFFF) << 16)
    bits = x.view(np.uint32).astype(np.uint64)
    assert np.array_equal(state.v[12], 0x5555 | ((bits + (a >> 16)) >> 16 & 0xFFFF).astype(np.uint32) << 16)
    cut = ((bits + (a >> 19)) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    assert np.array_equal(state.v[13], 0xAAAA0000 | cut.astype(np.float16).view(np.uint16).astype(np.uint32))
    pair = [f.astype(np.float16).view(np.uint16).astype(np.uint32) for f in (x, y)]
    assert np.array_equal(state.v[14], pair[0] | pair[1] << 16)
    for first, second, distance in ((5, 6, 16), (7, 8, 32)):
        upper = (lane & distance) != 0
        assert np.array_equal(state.v[first], np.where(upper, lane + 100 - distance, lane))
        assert np.array_equal(state.v[second], np.where(upper, lane + 100, lane + distance))
    left, right = (h.view(ml_dtypes.bfloat16).astype(np.float32).reshape(64, 2) for h in halves)
    want = left[:, 1] * right[:, 1] + (left[:, 0] * right[:, 0] + x)
    assert np.array_equal(state.v[15].view(np.float32), want)


def test_scalar_functions() -> None:
    """v_s_exp and the like read and write scalar registers, whatever EXEC says."""
    values = [0.0, -0.0, 1.0, 2.5, 0.3, 65504.0, math.inf, math.nan, -1.0, 2.0**-14]
    for kind in ("f32", "f16"):
        for x in values:
            bits = to_bits(x, kind.upper())
            for name in ("exp", "log", "rcp", "rsq", "sqrt"):
                state = run("gfx1201", f"v_s_{name}_{kind} s3, s2", {}, {2: bits, 3: 7}, exec=0)
                want = APPROXIMATE[f"v_{name}_{kind}"](to_float(bits, kind.upper()))
                got = to_float(int(state.s[3]), kind.upper())
                assert got == want or (math.isnan(got) and math.isnan(want)), (name, kind, x, got, want)


def test_lanes_name_their_sources() -> None:
    x = np.arange(32, dtype=np.uint32) + 100
    choice = np.arange(32, dtype=np.uint32) * 7 % 16 | 0xF0
    text = "v_permlane16_var_b32 v2, v0, v1 op_sel:[1,0]\nv_permlanex16_var_b32 v3, v0, v1 op_sel:[1,0]\n"
    text += "v_permlane16_var_b32 v4, v0, v1\nv_permlane16_var_b32 v5, v0, v1 op_sel:[0,1]"
    on = 0x0FF0FF0F
    state = run("gfx1201", text, {0: x, 1: choice, 2: 1, 3: 1, 4: 1, 5: 1}, exec=on)
    for lane in range(32):
        source = (lane & 16) + int(choice[lane] & 15)
        active, alive = on >> lane & 1, on >> source & 1
        assert state.v[2][lane] == (x[source] if active else 1)
        assert state.v[3][lane] == (x[source ^ 16] if active else 1)
        assert state.v[4][lane] == (x[source] if active and alive else 1)
        assert state.v[5][lane] == ((x[source] if alive else 0) if active else 1)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1201"])
def test_bytes_of_small_floats(target: str) -> None:
    """A byte is chosen by byte_sel or op_sel, the others of a result stay; random bits decide how it is rounded."""
    lanes = LANES[target]
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(lanes) * 2.0 ** rng.integers(-12, 10, lanes)).astype(np.float32)
    x[:4] = np.inf, np.nan, 0.0, -1e-9
    random = rng.integers(0, 1 << 32, lanes, np.uint64).astype(np.uint32)
    packed = rng.integers(0, 1 << 32, lanes, np.uint64).astype(np.uint32)
    kinds = _FP8 if target != "gfx942" else {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}
    chosen = " byte_sel:2" if target == "gfx1201" else " op_sel:[0,0,0,1]"
    text = "\n".join(f"v_cvt_sr_{n}_f32 v{at}, v0, v1{chosen}" for n, at in (("fp8", 2), ("bf8", 3)))
    if target == "gfx1201":
        text += "\nv_cvt_f32_fp8_e64 v4, v6 byte_sel:3\nv_cvt_f32_bf8_e64 v5, v6 byte_sel:1"
        text += "\nv_cvt_pk_f32_fp8_e64 v[8:9], v6 op_sel:[1,0]\nv_cvt_pk_f32_bf8 v[10:11], v6"
    state = run(target, text, {0: x, 1: random, 2: 0x11223344, 3: 0x55667788, 6: packed})
    for lane in range(lanes):
        for at, kind, before in ((2, kinds["fp8"], 0x11223344), (3, kinds["bf8"], 0x55667788)):
            want = stochastic(kind, float(x[lane]), int(random[lane]))
            assert int(state.v[at][lane]) == before & ~0xFF0000 | want << 16, (kind, x[lane])
    if target == "gfx1201":
        e4, e5 = from_small(_FP8["fp8"]), from_small(_FP8["bf8"])
        wanted = {4: e4[packed >> 24], 5: e5[packed >> 8 & 255], 8: e4[packed >> 16 & 255], 9: e4[packed >> 24],
                  10: e5[packed & 255], 11: e5[packed >> 8 & 255]}  # fmt: skip
        for row, want in wanted.items():
            np.testing.assert_array_equal(state.v[row].view(np.float32), want)


# --- scalar arithmetic of floats --------------------------------------------------------------------------------------

_NUMBERS = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 1e-3, 65504.0, -7e4, math.inf, -math.inf, math.nan]
_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}  # fmt: skip
_CONDITIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lg": lambda a, b: a < b or a > b, "o": lambda a, b: a == a and b == b,
    "u": lambda a, b: a != a or b != b, "nge": lambda a, b: not a >= b, "ngt": lambda a, b: not a > b,
    "nle": lambda a, b: not a <= b, "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b,
    "nlg": lambda a, b: not (a < b or a > b),
}  # fmt: skip


def scalar(text: str, *sources: int) -> Any:
    return run("gfx1201", text, {}, {2 + n: word for n, word in enumerate(sources)} | {1: 0xDEADBEEF})


@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_scalar_arithmetic(kind: str) -> None:
    t = kind.lower()
    lines = [f"s_{n}_{t} s{20 + k}, s2, s3" for k, n in enumerate((*_TWO, "min_num", "max_num", "minimum", "maximum"))]
    lines += [f"s_{n}_{t} s{30 + k}, s2" for k, n in enumerate(("ceil", "floor", "trunc", "rndne"))]
    lines += ["s_mov_b32 s40, s4", f"s_fmac_{t} s40, s2, s3"]
    lines += [f"s_cmp_{n}_{t} s2, s3\ns_cselect_b32 s{50 + k}, 1, 0" for k, n in enumerate(_CONDITIONS)]
    rng = np.random.default_rng(1)
    triples = [*((a, b, 0.5) for a in _NUMBERS for b in _NUMBERS), *rng.standard_normal((20, 3)).tolist()]
    for numbers in triples[:: 3 if kind == "F16" else 2]:
        with np.errstate(over="ignore"):
            a, b, c = (float(np.float16(x)) for x in numbers)
        words = [to_bits(x, kind) for x in (a, b, c)]
        state = scalar("\n".join(lines), *words)
        with np.errstate(all="ignore"):
            wanted = {20 + k: exact(f, kind)(a, b) for k, f in enumerate(_TWO.values())}
            wanted[40] = exact(lambda x, y, z: x * y + z, kind)(a, b, c)
        for k, f in enumerate((math.ceil, math.floor, math.trunc, round)):
            wanted[30 + k] = math.copysign(f(a), a) if math.isfinite(a) else a
        for at, want in wanted.items():
            got = to_float(int(state.s[at]), kind)
            assert got == want or (math.isnan(got) and math.isnan(want)), (lines, at, numbers, got, want)
        extremes = [number(kind, False), number(kind, True), extreme(kind, False), extreme(kind, True)]
        for k, of in enumerate(extremes):
            assert int(state.s[23 + k]) == of(words[0], words[1]), (k, numbers)
        for k, holds in enumerate(_CONDITIONS.values()):
            assert int(state.s[50 + k]) == holds(a, b), (k, numbers)


def test_scalar_conversions_and_wide_integers() -> None:
    text = (
        "s_cvt_f32_i32 s20, s2\ns_cvt_f32_u32 s21, s2\ns_cvt_i32_f32 s22, s3\ns_cvt_u32_f32 s23, s3\n"
        "s_cvt_f16_f32 s24, s3\ns_cvt_f32_f16 s25, s4\ns_cvt_hi_f32_f16 s26, s4\ns_cvt_pk_rtz_f16_f32 s27, s3, s3\n"
        "s_add_nc_u64 s[30:31], s[6:7], s[8:9]\ns_sub_nc_u64 s[32:33], s[6:7], s[8:9]\n"
        "s_mul_u64 s[34:35], s[6:7], s[8:9]\ns_fmamk_f32 s28, s3, 0x40000000, s3\ns_fmaak_f32 s29, s3, s3, 0x40000000"
    )
    x = to_bits(-1234.75, "F32")
    wide = (0xFFFFFFFF, 0x12345678, 0x89ABCDEF, 3)
    s = scalar(text, 0xFFFFFFF0, x, 0x3C00 | 0xC500 << 16, 0, *wide).s
    a, b = wide[0] | wide[1] << 32, wide[2] | wide[3] << 32
    assert [to_float(int(s[n]), "F32") for n in (20, 21, 25, 26)] == [-16.0, 4294967296.0, 1.0, -5.0]
    assert (int(s[22]), int(s[23])) == (-1234 & 0xFFFFFFFF, 0)
    assert to_float(int(s[24]), "F16") == -1235.0 and int(s[27]) & 0xFFFF == to_bits(-1234.0, "F16")
    for at, want in ((30, a + b), (32, a - b), (34, a * b)):
        assert int(s[at]) | int(s[at + 1]) << 32 == want & (1 << 64) - 1
    assert to_float(int(s[28]), "F32") == -1234.75 * 3 and to_float(int(s[29]), "F32") == np.float32(1234.75**2 + 2)
