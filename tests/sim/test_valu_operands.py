"""How vector instructions read and write parts of registers: SDWA, op_sel, halves with names, dual instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.decode.decoder import Undecodable
from tests.sim.snippet import LANES, assemble, run
from tests.sim.valu import to_bits, to_float

_SELECTS = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "DWORD": (0, 32),
}


def part(x: int, select: str, signed: bool = False) -> int:
    at, bits = _SELECTS[select]
    value = x >> at & ((1 << bits) - 1)
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def placed(value: int, select: str, unused: str, old: int) -> int:
    at, bits = _SELECTS[select]
    field = ((1 << bits) - 1) << at
    here = value << at & field
    if unused == "UNUSED_PRESERVE":
        return here | old & ~field & 0xFFFFFFFF
    if unused == "UNUSED_SEXT" and value >> (bits - 1) & 1:
        return here | 0xFFFFFFFF << (at + bits) & 0xFFFFFFFF
    return here


def test_sdwa_selects() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 32, 64, np.uint64).astype(np.uint32) for _ in range(2))
    cases = []
    for n, first in enumerate(_SELECTS):
        second = list(_SELECTS)[(3 * n + 1) % 7]
        for unused in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
            cases.append((first, second, list(_SELECTS)[(n + len(cases)) % 7], unused))
    text = [
        f"v_add_u32_sdwa v{10 + n}, v0, sext(v1) dst_sel:{d} dst_unused:{u} src0_sel:{p} src1_sel:{q}"
        for n, (p, q, d, u) in enumerate(cases)
    ]
    state = run(
        "gfx942", "\n".join(text), {0: a, 1: b, **{10 + n: 0x11223344 for n in range(len(cases))}}, exec=0xFFFFFFFF0
    )
    for n, (p, q, d, u) in enumerate(cases):
        for lane in range(64):
            total = part(int(a[lane]), p) + part(int(b[lane]), q, True) & 0xFFFFFFFF
            want = placed(total, d, u, 0x11223344) if 4 <= lane < 36 else 0x11223344
            assert int(state.v[10 + n][lane]) == want, (cases[n], lane)


def test_sdwa_of_narrow_types_and_comparisons() -> None:
    a = np.resize(np.array([0x80, 0x7F, 0xFF01, 0x12348000], np.uint32), 64)
    text = (
        "v_max_i16_sdwa v2, sext(v0), v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:WORD_1\n"
        "v_cmp_gt_i16_sdwa s[4:5], sext(v0), v1 src0_sel:BYTE_0 src1_sel:DWORD\n"
        "v_cmp_eq_u32_sdwa s[6:7], v0, v1 src0_sel:WORD_1 src1_sel:BYTE_3\n"
        "v_mul_lo_u16_sdwa v3, v0, v0 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD\n"
        "v_add_f16_sdwa v4, -v5, |v6| dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0\n"
        "v_cndmask_b32_sdwa v7, v0, v1, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:BYTE_0\n"
        "v_cvt_f32_f16_sdwa v8, v5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1"
    )
    pair = to_bits(1.5, "F16") << 16 | 0xAAAA
    state = run("gfx942", text, {0: a, 1: 0x00050003, 4: 0xAAAA5555, 5: pair, 6: to_bits(-4.0, "F16")}, vcc=0b0101)
    signed = [part(int(x), "BYTE_0", True) for x in a]
    assert [int(x) for x in state.v[2][:4]] == [max(s, 5) & 0xFFFF for s in signed[:4]]
    mask = int(state.s[4])
    assert [mask >> i & 1 for i in range(4)] == [int(s > 3) for s in signed[:4]]
    assert [int(state.s[6]) >> i & 1 for i in range(4)] == [int(int(x) >> 16 == 0) for x in a[:4]]
    assert [int(x) for x in state.v[3][:4]] == [(int(x) >> 8 & 255) * (int(x) & 0xFFFF) % 256 << 8 for x in a[:4]]
    assert set(state.v[4]) == {to_bits(2.5, "F16") << 16 | 0x5555}
    assert [int(x) for x in state.v[7][:4]] == [3, int(a[1]) >> 8 & 255, 3, int(a[3]) >> 8 & 255]
    assert set(state.v[8].view(np.float32)) == {1.5}


def test_op_sel_on_gfx9() -> None:
    """op_sel picks halves of sources and of the result; the other half of the result stays."""
    one, two, three = (to_bits(x, "F16") for x in (1.0, 2.0, 3.0))
    text = (
        "v_fma_f16 v3, v0, v1, v2 op_sel:[1,0,1,1]\nv_fma_f16 v4, v0, v1, v2\n"
        "v_mad_u32_u16 v5, v6, v7, v8 op_sel:[1,0,0,0]\n"
        "v_add_i16 v9, v6, v7 op_sel:[0,1,0]\nv_pack_b32_f16 v10, v0, v1 op_sel:[1,0,0]"
    )
    v = {
        0: two << 16 | one,
        1: three,
        2: one << 16 | two,
        3: 0x11112222,
        4: 0x11112222,
        6: 0x00070002,
        7: 0x00050003,
        8: 10,
        9: 0x33334444,
    }
    state = run("gfx942", text, v)
    assert int(state.v[3][0]) == to_bits(7.0, "F16") << 16 | 0x2222
    assert int(state.v[4][0]) == 0x11110000 | to_bits(5.0, "F16")
    assert int(state.v[5][0]) == 7 * 3 + 10 and int(state.v[9][0]) == 0x33330000 | 2 + 5
    assert int(state.v[10][0]) == two | three << 16


def test_named_halves_on_gfx11() -> None:
    text = (
        "v_mov_b16 v1.h, v0.l\nv_add_nc_u16 v2.l, v0.h, v0.l\nv_cvt_f32_f16 v3, v4.h\nv_cvt_f16_f32 v5.h, v6\n"
        "v_mul_f16 v7.h, v4.h, -|v4.l|\nv_cndmask_b16 v8.h, v0.l, v0.h, vcc_lo\nv_fmac_f16 v9.h, v4.l, v4.h\n"
        "v_lshlrev_b16 v10.h, 8, v0.h\nv_and_b16 v11.l, 0xff, v0.h\nv_cmp_lt_u16 vcc_lo, v0.l, v0.h"
    )
    pair = to_bits(0.5, "F16") << 16 | to_bits(-3.0, "F16")
    v = {
        0: 0x12345678,
        4: pair,
        6: np.float32(8).view(np.uint32),
        **dict.fromkeys((1, 2, 5, 7, 8, 10, 11), 2863289685),
        9: to_bits(4.0, "F16") << 16 | 0x5555,
    }
    state = run("gfx1100", text, v, vcc=1)
    got = {n: int(state.v[n][0]) for n in v}
    assert got[1] == 0x56785555 and got[2] == 0xAAAA68AC and got[5] == to_bits(8.0, "F16") << 16 | 0x5555
    assert to_float(int(state.v[3][0]), "F32") == 0.5
    assert got[7] == to_bits(-1.5, "F16") << 16 | 0x5555
    assert got[8] == 0x12345555 and int(state.v[8][1]) == 0x56785555
    assert got[9] == to_bits(2.5, "F16") << 16 | 0x5555
    assert got[10] == 0x34005555 and got[11] == 0xAAAA0034 and state.vcc == 0


def test_dual_instructions_read_before_either_writes() -> None:
    f = np.float32
    v = {n: f(n).view(np.uint32) for n in range(8)}
    text = "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0\nv_dual_add_f32 v2, v3, v2 :: v_dual_mul_f32 v5, v2, v3\n"
    text += "v_dual_fmac_f32 v6, v4, v3 :: v_dual_cndmask_b32 v7, v6, v4"
    state = run("gfx1100", text, v, vcc=0b10)
    floats = state.v.view(f)[:, :2]
    assert [tuple(map(float, floats[n])) for n in (0, 1, 2, 5, 6, 7)] == [
        (1, 1),
        (0, 0),
        (5, 5),
        (6, 6),
        (18, 18),
        (6, 4),
    ]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("gfx942", "v_mul_i32_i24_e64 v0, v1, v2 clamp"),
        ("gfx942", "v_pk_fma_f32 v[0:1], v[2:3], 2.0, v[4:5]"),
        ("gfx942", "v_cvt_pk_u8_f32 v0, v1, v2, v3"),
        ("gfx942", "s_set_gpr_idx_on s0, gpr_idx(SRC0)\nv_add_u32 v0, v1, v2"),
        ("gfx1100", "v_cvt_pk_norm_i16_f32 v0, v1, v2"),
    ],
)
def test_what_is_not_known_for_sure_is_refused(target: str, text: str) -> None:
    with pytest.raises(Undecodable):
        assemble(target, text)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_scalar_operands_and_constants(target: str) -> None:
    add = "v_add_u32" if target.startswith("gfx9") else "v_add_nc_u32"
    text = f"{add} v1, s2, v0\n{add} v2, -16, v0\n{add} v3, 0x12345, v0\n{add} v4, m0, v0\n"
    text += "v_add_f64 v[6:7], s[4:5], 0.5\nv_lshlrev_b64 v[8:9], 4, s[4:5]"
    if target.startswith("gfx1"):
        text += f"\n{add} v5, null, v0"
    one = int(np.float64(1.0).view(np.uint64))
    state = run(target, text, {0: 100}, {2: 7, 4: one & 0xFFFFFFFF, 5: one >> 32, 124: 9})
    assert [int(state.v[n][0]) for n in (1, 2, 3, 4)] == [107, 84, 0x12345 + 100, 109]
    assert state.pair(6).view(np.float64)[0] == 1.5 and int(state.pair(8)[0]) == one << 4 & (1 << 64) - 1
    if target.startswith("gfx1"):
        assert int(state.v[5][0]) == 100


def test_signs_of_sources() -> None:
    x = np.linspace(-2, 2, LANES["gfx942"], dtype=np.float32)
    text = "v_add_f32 v1, -v0, 1.0\nv_mul_f32 v2, |v0|, v0\nv_fma_f32 v3, -|v0|, v0, -v0\n"
    text += "v_max_f32 v4, -s2, v0\nv_cndmask_b32 v5, -v0, |v0|, s[4:5]"
    state = run("gfx942", text, {0: x}, {2: int(np.float32(1).view(np.uint32)), 4: 1, 5: 0})
    got: Any = state.v.view(np.float32)
    assert np.array_equal(got[1], 1 - x) and np.array_equal(got[2], np.abs(x) * x)
    assert np.allclose(got[3], -np.abs(x) * x - x) and np.array_equal(got[4], np.maximum(-1, x))
    assert got[5][0] == abs(x[0]) and np.array_equal(got[5][1:], -x[1:])
