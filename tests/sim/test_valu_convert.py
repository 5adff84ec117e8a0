"""Vector conversions between integers, floats of four widths and packed pairs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim.snippet import LANES, MODE, each_target, run
from tests.sim.valu import DOWN, NEAREST, UP, ZERO, Bits, check, rounded, to_bits, to_float


def cut(low: int, high: int) -> Callable[[float], int]:
    """Towards zero, into a range; 0 for a NaN."""

    def of(x: float) -> int:
        if math.isnan(x):
            return 0
        return int(min(max(math.trunc(x) if math.isfinite(x) else x, low), high))

    return of


def narrowed(kind: str, mode: int = NEAREST) -> Callable[[float], float]:
    return lambda x: rounded(Fraction(x), kind, mode) if math.isfinite(x) and x else float(x)


def pair(of: Callable[[Any], int]) -> Callable[[Any, Any], int]:
    return lambda a, b: (of(a) & 0xFFFF) | (of(b) & 0xFFFF) << 16


def cut_to_f16(x: float) -> int:
    return to_bits(narrowed("F16", ZERO)(x), "F16")


def plus_half(x: float) -> int:
    if not math.isfinite(x):
        return I32(x)
    return I32(math.floor(float(np.float32(x) + np.float32(0.5))))


def small(name: str, x: float) -> int:
    code = int(np.array([x], np.float32).astype(getattr(ml_dtypes, name)).view(np.uint8)[0])
    return code | 1 if name == "float8_e5m2" and math.isnan(x) else code  # the simulator's NaN is all ones


def from_small(name: str) -> np.ndarray[Any, Any]:
    return np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)


I16, U16, I32, U32 = cut(-(2**15), 2**15 - 1), cut(0, 2**16 - 1), cut(-(2**31), 2**31 - 1), cut(0, 2**32 - 1)
EXPECTED: dict[str, Callable[..., Any]] = {
    "v_cvt_f32_i32": narrowed("F32"),
    "v_cvt_f32_u32": narrowed("F32"),
    "v_cvt_i32_f32": I32,
    "v_cvt_u32_f32": U32,
    "v_cvt_f64_i32": float,
    "v_cvt_f64_u32": float,
    "v_cvt_i32_f64": I32,
    "v_cvt_u32_f64": U32,
    "v_cvt_f32_f64": narrowed("F32"),
    "v_cvt_f64_f32": float,
    "v_cvt_f16_f32": narrowed("F16"),
    "v_cvt_f32_f16": float,
    "v_cvt_f16_u16": narrowed("F16"),
    "v_cvt_f16_i16": narrowed("F16"),
    "v_cvt_u16_f16": U16,
    "v_cvt_i16_f16": I16,
    "v_cvt_i32_i16": lambda a: a,
    "v_cvt_u32_u16": lambda a: a,
    "v_cvt_rpi_i32_f32": plus_half,
    "v_cvt_flr_i32_f32": lambda a: I32(math.floor(a) if math.isfinite(a) else a),
    "v_cvt_off_f32_i4": lambda a: ((a & 15) ^ 8) / 16 - 0.5,
    **{f"v_cvt_f32_ubyte{n}": lambda a, n=n: float(a.to_bytes(4, "little")[n]) for n in range(4)},
    "v_cvt_pk_i16_i32": pair(lambda a: max(min(a, 32767), -32768)),
    "v_cvt_pk_u16_u32": pair(lambda a: min(a, 65535)),
    "v_cvt_pk_i16_f32": pair(I16),
    "v_cvt_pk_u16_f32": pair(U16),
    "v_pack_b32_f16": pair(int),
    "v_cvt_pk_fp8_f32": lambda a, b: small("float8_e4m3fnuz", a) | small("float8_e4m3fnuz", b) << 8,
    "v_cvt_pk_bf8_f32": lambda a, b: small("float8_e5m2fnuz", a) | small("float8_e5m2fnuz", b) << 8,
    "v_cvt_f32_fp8": lambda a: float(from_small("float8_e4m3fnuz")[a & 255]),
    "v_cvt_f32_bf8": lambda a: float(from_small("float8_e5m2fnuz")[a & 255]),
}
TESTED = {*EXPECTED, "v_cvt_pkrtz_f16_f32", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"}


@each_target
def test_conversions(target: str) -> None:
    assert len(check(EXPECTED, target)) > 25


@each_target
def test_rounding_follows_the_mode(target: str) -> None:
    """Results of float32 follow bits 0..1 of MODE, of float16 bits 2..3; v_cvt_pkrtz follows none."""
    for rounding in (NEAREST, UP, DOWN, ZERO):
        to_f32 = {name: narrowed("F32", rounding) for name in ("v_cvt_f32_f64", "v_cvt_f32_i32", "v_cvt_f32_u32")}
        check(to_f32, target, mode=MODE | rounding, rounds=2)
        to_f16 = {name: narrowed("F16", rounding) for name in ("v_cvt_f16_f32", "v_cvt_f16_u16", "v_cvt_f16_i16")}
        check(to_f16 | {"v_cvt_f32_f64": narrowed("F32")}, target, mode=MODE | rounding << 2, rounds=2)
        check({"v_cvt_i32_f32": I32, "v_cvt_u32_f64": U32}, target, mode=MODE | rounding * 5, rounds=2)


@each_target
@pytest.mark.parametrize("mode", [MODE, MODE | UP * 5])
def test_pkrtz_cuts_off(target: str, mode: int) -> None:
    name = "v_cvt_pkrtz_f16_f32" if target.startswith("gfx9") else "v_cvt_pk_rtz_f16_f32"
    edges = [
        0.0,
        -0.0,
        1.0,
        65504.0,
        65519.0,
        65536.0,
        1e30,
        -1e30,
        2.0**-14,
        2.0**-24,
        1.9 * 2.0**-24,
        2.0**-25,
        -1e-5,
        math.inf,
        -math.inf,
    ]
    rng = np.random.default_rng(0)
    x = np.concatenate([edges, rng.standard_normal(LANES[target]) * 2.0 ** rng.integers(-20, 16, LANES[target])])
    x = x[: LANES[target]].astype(np.float32)
    state = run(target, f"{name} v2, v0, v1", {0: x, 1: x[::-1].copy()}, mode=mode)
    for got, a, b in zip(state.v[2], x, x[::-1], strict=True):
        assert int(got) == cut_to_f16(float(a)) | cut_to_f16(float(b)) << 16, (a, b)
    nan = run(target, f"{name} v2, v0, v0", {0: 0xFFC00000}, mode=mode).v[2][0]
    assert math.isnan(to_float(int(nan) & 0xFFFF, "F16"))


def test_small_floats_by_byte_and_by_pair() -> None:
    """GFX940's 8-bit floats: a byte chosen by SDWA, two at a time, the half of the result chosen by op_sel."""
    x = np.arange(64, dtype=np.uint32) * 0x04010301 + 0x80FF7F00
    text = (
        "v_cvt_f32_fp8_sdwa v1, v0 src0_sel:BYTE_2\nv_cvt_f32_bf8_sdwa v2, v0 src0_sel:BYTE_3\n"
        "v_cvt_pk_f32_fp8 v[4:5], v0\nv_cvt_pk_f32_bf8_sdwa v[6:7], v0 src0_sel:WORD_1\n"
        "v_cvt_pk_fp8_f32 v8, v10, v11\nv_cvt_pk_bf8_f32 v8, v10, v11 op_sel:[0,0,1]"
    )
    a, b = np.linspace(-300, 300, 64, dtype=np.float32), np.geomspace(1e-7, 1e6, 64).astype(np.float32)
    state = run("gfx942", text, {0: x, 8: 0x12345678, 10: a, 11: b})
    e4, e5 = from_small("float8_e4m3fnuz"), from_small("float8_e5m2fnuz")
    wanted = {
        1: e4[x >> 16 & 255],
        2: e5[x >> 24],
        4: e4[x & 255],
        5: e4[x >> 8 & 255],
        6: e5[x >> 16 & 255],
        7: e5[x >> 24],
    }
    for row, want in wanted.items():
        assert np.array_equal(state.v[row].view(np.float32), want, equal_nan=True), row
    for lane in range(64):
        want = (
            small("float8_e4m3fnuz", a[lane]) | small("float8_e4m3fnuz", b[lane]) << 8
            | small("float8_e5m2fnuz", a[lane]) << 16 | small("float8_e5m2fnuz", b[lane]) << 24
        )  # fmt: skip
        assert int(state.v[8][lane]) == want, (a[lane], b[lane])


def test_constants_of_each_width() -> None:
    """An inline constant and a literal mean what the operand's type makes of them."""
    text = (
        "v_cvt_f64_f32 v[0:1], 1.0\nv_cvt_f32_f64 v2, 0.5\nv_cvt_f32_f16 v3, -4.0\nv_cvt_f32_i32 v4, -16\n"
        "v_cvt_f32_f64 v5, 0x40590000\nv_cvt_f32_f16 v6, 0x4248\nv_cvt_f32_f16 v7, 0.15915494\n"
        "v_cvt_f32_f64 v8, 0.15915494309189532"
    )
    state = run("gfx942", text)
    assert state.pair(0).view(np.float64)[0] == 1.0
    f32 = state.v[:, 0].copy().view(np.float32)
    assert list(f32[2:7]) == [0.5, -4.0, -16.0, 100.0, 3.140625]
    assert f32[7] == np.float32(np.float16(0.15915494)) and f32[8] == np.float32(0.15915494309189532)


def test_bits_are_bits() -> None:
    assert Bits(3) == 3 and isinstance(Bits(3), int)
