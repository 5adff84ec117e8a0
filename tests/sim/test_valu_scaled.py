"""Conversions of gfx950 between floats of 8, 6 and 4 bits and wider ones, with a scale.

The numbers are ml_dtypes'; the place of each element follows from the instruction's name and op_sel.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.sim.snippet import run

SMALL: dict[str, tuple[Any, int]] = {
    "fp8": (ml_dtypes.float8_e4m3fn, 8), "bf8": (ml_dtypes.float8_e5m2, 8), "fp6": (ml_dtypes.float6_e2m3fn, 6),
    "bf6": (ml_dtypes.float6_e3m2fn, 6), "fp4": (ml_dtypes.float4_e2m1fn, 4),
}  # fmt: skip
WIDE: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
_PREFIX = "v_cvt_scalef32_"
# name -> small format, wide format, number of elements
WIDENS = {
    **{f"{_PREFIX}{w}_{s}": (s, w, 1) for s in ("fp8", "bf8") for w in ("f32", "f16")},
    **{f"{_PREFIX}pk_{w}_{s}": (s, w, 2) for s in ("fp8", "bf8", "fp4") for w in WIDE},
    **{f"{_PREFIX}pk32_{w}_{s}": (s, w, 32) for s in ("fp6", "bf6") for w in WIDE},
}
NARROWS = {
    **{f"{_PREFIX}pk_{s}_{w}": (s, w, 2) for s in ("fp8", "bf8", "fp4") for w in WIDE},
    **{f"{_PREFIX}pk32_{s}_{w}": (s, w, 32) for s in ("fp6", "bf6") for w in ("f16", "bf16")},
}
RANDOM = {f"{_PREFIX}sr_{s}_{w}": (s, w, 1) for s in ("fp8", "bf8") for w in WIDE}
NAMES = {*WIDENS, *NARROWS, *RANDOM}
SCALES = np.array([1.0, 2.0, 0.25, 2.0**20, 1.5, -8.0], np.float32)  # of the last two the exponent counts


def power(scale: np.float32) -> float:
    return 2.0 ** (math.frexp(abs(float(scale)))[1] - 1)


def small_bits(values: Any, kind: str) -> Any:
    """To the nearest; what is too large becomes a NaN, infinite, or the largest, as the format has it."""
    dtype, bits = SMALL[kind]
    with np.errstate(over="ignore"):
        array = np.asarray(values, np.float32)
        if bits < 8:
            most = float(ml_dtypes.finfo(dtype).max)
            array = np.clip(np.where(np.isnan(array), np.copysign(most, array), array), -most, most)
        return array.astype(dtype).view(np.uint8) | (np.isnan(array) & (kind == "bf8"))  # the NaN is all ones


def register(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


@pytest.mark.parametrize("name", WIDENS)
def test_widening(name: str) -> None:
    small, wide, count = WIDENS[name]
    dtype, bits = SMALL[small]
    rng = np.random.default_rng(1)
    source_rows = 6 if count == 32 else 1
    words = rng.integers(0, 1 << 32, (source_rows, 64), np.uint64).astype(np.uint32)
    scales = SCALES[np.arange(64) % len(SCALES)]
    rows = count if wide == "f32" else max(1, count // 2)
    selections = [""] if count == 32 else ["", " op_sel:[1,0,0]"] + [" op_sel:[1,1,0]"] * (bits == 4 or count == 1)
    for selection in selections:
        start = 0 if not selection else 16 if count == 2 and bits == 8 else 8 if "[1,0" in selection else 24
        v = {40 + n: row for n, row in enumerate(words)} | {50: scales, 0: 0xAAAA5555}
        text = f"{name} {register(0, rows)}, {register(40, source_rows)}, v50{selection}"
        state = run("gfx950", text, v)
        for lane in range(64):
            whole = sum(int(word) << 32 * n for n, word in enumerate(words[:, lane]))
            codes = np.array([whole >> start + bits * e & (1 << bits) - 1 for e in range(count)], np.uint8)
            with np.errstate(over="ignore"):
                want = (codes.view(dtype).astype(np.float64) * power(scales[lane])).astype(WIDE[wide])
            raw = state.v[:rows, lane].tobytes()[: want.nbytes]
            got = np.frombuffer(raw, WIDE[wide])
            assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True), (name, lane)
            if count == 1 and wide == "f16":
                assert int(state.v[0][lane]) >> 16 == 0xAAAA


@pytest.mark.parametrize("name", NARROWS)
def test_narrowing(name: str) -> None:
    small, wide, count = NARROWS[name]
    bits = SMALL[small][1]
    rng = np.random.default_rng(2)
    values = (rng.standard_normal((64, count)) * 2.0 ** rng.integers(-8, 9, (64, count))).astype(WIDE[wide])
    values[:3, 0] = np.inf, -np.inf, np.nan
    scales = SCALES[np.arange(64) % len(SCALES)]
    packed = np.ascontiguousarray(values).view(np.uint32).reshape(64, -1).T
    two = wide == "f32"
    sources = "v40, v41" if two else register(40, len(packed))
    v = {40 + n: row for n, row in enumerate(packed)} | {60: scales, 0: 0xAAAA5555}
    selection, start = "", 0
    if count == 2 and bits == 8:
        selection, start = (" op_sel:[0,0,0,1]" if two else " op_sel:[0,0,1]"), 16
    elif count == 2:
        selection, start = " op_sel:[0,0,1,1]", 24
    state = run("gfx950", f"{name} {register(0, 6 if count == 32 else 1)}, {sources}, v60{selection}", v)
    for lane in range(64):
        with np.errstate(invalid="ignore"):
            codes = small_bits(values[lane].astype(np.float64) / power(scales[lane]), small)
        want = sum(int(code) << start + bits * e for e, code in enumerate(codes))
        if count == 2:
            want |= 0xAAAA5555 & ~(((1 << count * bits) - 1) << start)
        got = sum(int(word) << 32 * n for n, word in enumerate(state.v[: 6 if count == 32 else 1, lane]))
        assert got == want, (name, lane, values[lane], scales[lane])


@pytest.mark.parametrize("name", RANDOM)
def test_random_rounding(name: str) -> None:
    """No random bits cut off; all of them round up whatever is not exact."""
    small, wide, _ = RANDOM[name]
    dtype = SMALL[small][0]
    rng = np.random.default_rng(3)
    x = (rng.uniform(0.5, 100, 64) * np.where(np.arange(64) % 2, -1, 1)).astype(WIDE[wide])
    raw = x.view(np.uint32) if wide == "f32" else x.view(np.uint16).astype(np.uint32)
    every = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float64)
    finite = every[np.isfinite(every)]
    for random in (0, 0xFFFFFFFF):
        text = f"{name} v0, v1, v2, v3 op_sel:[0,0,0,1]"
        state = run("gfx950", text, {0: 0x11223344, 1: raw, 2: random, 3: np.full(64, 2, np.float32)})
        for lane in range(64):
            magnitude = abs(float(x[lane])) / 2
            exact = magnitude in finite
            want = finite[finite <= magnitude].max() if not random or exact else finite[finite >= magnitude].min()
            code = int(state.v[0][lane]) >> 16 & 255
            assert int(state.v[0][lane]) & 0xFF00FFFF == 0x11003344
            assert abs(float(np.uint8(code).view(dtype))) == want and code >> 7 == (x[lane] < 0), (lane, x[lane])
