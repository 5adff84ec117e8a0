"""MFMA that gfx950 brings, against Python: layouts as in AMD's guide to matrix cores of CDNA 3 and CDNA 4.

16x16x32, 32x32x16   float16, bfloat16: eight consecutive k of a row in a lane
16x16x64, 32x32x32   int8: sixteen
16x16x128, 32x32x64  8-bit floats: lane group g of G = 64/M holds k = 16g .. 16g+15 and 16(G+g) .. 16(G+g)+15;
                     6- and 4-bit floats: k = 32g .. 32g+31
scales               of row i and k = 32b .. 32b+31 in lane M*b + i
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyflame.runtime.sim.decode.names import known
from pyflame.runtime.sim.decode.text import Undecodable
from pyflame.runtime.sim.interpreter import interpreter
from tests.sim.snippet import assemble, run
from tests.sim.test_matrix_mfma import Shape, check

PLAIN = [
    *(f"v_mfma_f32_{shape}_{t}" for shape in ("16x16x32", "32x32x16") for t in ("f16", "bf16")),
    "v_mfma_i32_16x16x64_i8", "v_mfma_i32_32x32x32_i8",
]  # fmt: skip
KINDS: list[tuple[Any, int]] = [  # by the number that cbsz and blgp tell
    (ml_dtypes.float8_e4m3fn, 8), (ml_dtypes.float8_e5m2, 8), (ml_dtypes.float6_e2m3fn, 6),
    (ml_dtypes.float6_e3m2fn, 6), (ml_dtypes.float4_e2m1fn, 4),
]  # fmt: skip
SHAPES = {"16x16x128": (16, 128), "32x32x64": (32, 64)}


def test_all_are_known() -> None:
    names = known("gfx950", interpreter(64).forms)
    assert {*PLAIN, *(f"v_mfma_{s}f32_{shape}_f8f6f4" for s in ("", "scale_") for shape in SHAPES)} <= names


@pytest.mark.parametrize("name", PLAIN)
def test_plain(name: str) -> None:
    check(name, 1, target="gfx950")


def pack(codes: Any, bits: int) -> Any:
    """Registers from [row][k] of codes."""
    rows, depth = codes.shape
    groups = 64 // rows
    words = np.zeros((32 * bits // 32, 64), np.uint64)
    for k in range(depth):
        if bits == 8:
            group, slot = k // 16 % groups, 16 * (k // (16 * groups)) + k % 16
        else:
            group, slot = k // 32, k % 32
        at = slot * bits
        lanes = slice(group * rows, group * rows + rows)
        shifted = codes[:, k].astype(np.uint64) << np.uint64(at % 32)
        words[at // 32, lanes] |= shifted & np.uint64(0xFFFFFFFF)
        if at % 32 + bits > 32:
            words[at // 32 + 1, lanes] |= shifted >> np.uint64(32)
    return words.astype(np.uint32)


def product(a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
    """Blocks of 32 k: their exact sum is scaled, added to C and rounded."""
    total = c.astype(np.float32)
    for block in range(a.shape[1] // 32):
        part = slice(32 * block, 32 * block + 32)
        exact = a[:, part] @ b[:, part].T
        with np.errstate(all="ignore"):
            total = (total + exact * np.outer(scale_a[:, block], scale_b[:, block])).astype(np.float32)
    return total


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kinds", [(0, 0), (1, 0), (2, 3), (3, 4), (4, 4), (0, 4)])
@pytest.mark.parametrize("scaled", [False, True])
def test_small_floats(shape: str, kinds: tuple[int, int], scaled: bool) -> None:
    m, depth = SHAPES[shape]
    rng = np.random.default_rng(7)
    codes, values, rows = [], [], []
    for number in kinds:
        dtype, bits = KINDS[number]
        code = (rng.standard_normal((m, depth)) * 1.5).astype(dtype).view(np.uint8)
        codes.append(code), values.append(code.view(dtype).astype(np.float64)), rows.append(pack(code, bits))
    c = rng.standard_normal((m, m)).astype(np.float32)
    start = Shape(f"v_mfma_f32_{m}x{m}x4_f32").pack_d(c[None])
    v = {first + n: row for first, part in ((0, rows[0]), (20, rows[1]), (100, start)) for n, row in enumerate(part)}
    scales = [np.ones((m, depth // 32)), np.ones((m, depth // 32))]
    name, further, modifiers = f"v_mfma_f32_{shape}_f8f6f4", "", ""
    if scaled:
        bytes_of = rng.integers(120, 134, (2, m, depth // 32))
        scales = [2.0 ** (x - 127.0) for x in bytes_of]
        for n, (register, byte) in enumerate(((60, 1), (61, 2))):
            word = rng.integers(0, 1 << 32, 64, np.uint64)
            lanes = np.arange(64)
            chosen = bytes_of[n][lanes % m, lanes // m].astype(np.uint64)
            v[register] = (word & ~np.uint64(255 << 8 * byte) | chosen << np.uint64(8 * byte)).astype(np.uint32)
        name, further = f"v_mfma_scale_f32_{shape}_f8f6f4", ", v60, v61"
        modifiers = " op_sel:[1,0,0] op_sel_hi:[0,1,0]"
    modifiers += "".join(f" {key}:{number}" for key, number in zip(("cbsz", "blgp"), kinds, strict=True) if number)
    d = f"v[100:{99 + len(start)}]"
    sources = f"v[0:{len(rows[0]) - 1}], v[20:{19 + len(rows[1])}]"
    after = run("gfx950", f"{name} {d}, {sources}, {d}{further}{modifiers}", v, exec=9)
    got = Shape(f"v_mfma_f32_{m}x{m}x4_f32").unpack_d(after.v[100 : 100 + len(start)])[0]
    np.testing.assert_array_equal(got, product(*values, c, *scales))


def test_a_scale_that_is_not_a_number() -> None:
    v = dict.fromkeys(range(8), 0x38383838) | dict.fromkeys(range(20, 28), 0x38383838) | {60: 0xFF, 61: 127}
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[100:103], v[0:7], v[20:27], v[100:103], v60, v61 op_sel_hi:[0,0,0]"
    assert np.isnan(run("gfx950", text, v).v[100:104].view(np.float32)).all()


def test_formats_of_8_bits_are_ocps() -> None:
    """0x80 is -0, where gfx942 has its NaN."""
    text = "v_mfma_f32_16x16x32_fp8_fp8 v[8:11], v[0:1], v[2:3], 0"
    for target, is_nan in (("gfx942", True), ("gfx950", False)):
        state = run(target, text, dict.fromkeys((0, 1), 0x80808080) | dict.fromkeys((2, 3), 0x38383838))
        assert np.isnan(state.v[8:12].view(np.float32)).all() == is_nan


def test_sparse_ones_with_more_k_are_refused() -> None:
    with pytest.raises(Undecodable):
        assemble("gfx950", "v_smfmac_f32_16x16x64_f16 v[0:3], v[4:7], v[8:15], v16")
