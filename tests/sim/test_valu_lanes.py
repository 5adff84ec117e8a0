"""Vector instructions by which lanes read each other: readlane, permlane, DPP; swaps and registers chosen by number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.snippet import ALL, LANES, each_target, run
from tests.sim.valu import TARGETS

TESTED = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32",
    "v_permlane64_b32", "v_swap_b32", "v_swap_b16", "v_movreld_b32", "v_movrels_b32", "v_movrelsd_b32",
    "v_movrelsd_2_b32", "v_mov_b32_indexed", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32",
    "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32",
}  # fmt: skip
NUMBERS = {target: np.arange(LANES[target], dtype=np.uint32) for target in TARGETS}


@each_target
def test_single_lanes(target: str) -> None:
    lanes = LANES[target]
    text = (
        "v_readfirstlane_b32 s4, v0\nv_readlane_b32 s5, v0, 2\nv_readlane_b32 s6, v0, s2\nv_writelane_b32 v1, s3, 7\n"
        "v_writelane_b32 v1, 9, s2"
    )
    state = run(target, text, {0: NUMBERS[target] * 3, 1: 0}, {2: lanes + 5, 3: 77}, exec=0b11000)
    assert [int(x) for x in state.s[4:7]] == [9, 6, 15]  # the lane's number wraps; lanes that are off are read
    assert [int(x) for x in state.v[1]] == [{7: 77, 5: 9}.get(i, 0) for i in range(lanes)]
    assert run(target, "v_readfirstlane_b32 s4, v0", {0: NUMBERS[target] + 8}, exec=0).s[4] == 8


@each_target
def test_counting_lanes_below(target: str) -> None:
    lanes = LANES[target]
    low, high = 0xA5A50FF1, 0x80000001
    state = run(target, "v_mbcnt_lo_u32_b32 v0, s2, 60\nv_mbcnt_hi_u32_b32 v1, s3, v0", {}, {2: low, 3: high})
    for lane in range(lanes):
        below = (high << 32 | low) & ((1 << lane) - 1)
        assert int(state.v[1][lane]) == 60 + bin(below).count("1")
        assert int(state.v[0][lane]) == 60 + bin(below & 0xFFFFFFFF).count("1")


def test_permlanes() -> None:
    x = NUMBERS["gfx1100"] + 100
    select = [int(n) for n in np.random.default_rng(0).integers(0, 16, 16)]
    s = {2: sum(n << 4 * i for i, n in enumerate(select[:8])), 3: sum(n << 4 * i for i, n in enumerate(select[8:]))}
    on = 0x0F0F_FFF0
    text = (
        "v_permlane16_b32 v1, v0, s2, s3 op_sel:[1,0]\nv_permlanex16_b32 v2, v0, s2, s3 op_sel:[1,0]\n"
        "v_permlane16_b32 v3, v0, s2, s3\nv_permlane16_b32 v4, v0, s2, s3 op_sel:[0,1]"
    )
    state = run("gfx1100", text, {0: x, 1: 1, 2: 2, 3: 3, 4: 4}, s, exec=on)
    for lane in range(32):
        same, other = lane & 16 | select[lane & 15], (lane & 16 ^ 16) | select[lane & 15]
        active = on >> same & 1
        want = [100 + same, 100 + other, 100 + same if active else 3, 100 + same if active else 0]
        if not on >> lane & 1:
            want = [1, 2, 3, 4]
        assert [int(state.v[n][lane]) for n in (1, 2, 3, 4)] == want, lane
    assert set(run("gfx1100", "v_permlane64_b32 v1, v0", {0: x, 1: 5}).v[1]) == {5}  # for waves of 64


@each_target
def test_swaps(target: str) -> None:
    x = NUMBERS[target]
    state = run(target, "v_swap_b32 v0, v1", {0: x, 1: x + 1000}, exec=0b1110)
    moved = [i in (1, 2, 3) for i in range(LANES[target])]
    assert [int(v) for v in state.v[0]] == [i + 1000 * m for i, m in enumerate(moved)]
    assert [int(v) for v in state.v[1]] == [i + 1000 * (not m) for i, m in enumerate(moved)]
    if target == "gfx1100":
        state = run(target, "v_swap_b16 v0.h, v1.l", {0: 0x11112222, 1: 0x33334444}, exec=0b10)
        assert [int(v) for v in state.v[0][:3]] == [0x11112222, 0x44442222, 0x11112222]
        assert [int(v) for v in state.v[1][:3]] == [0x33334444, 0x33331111, 0x33334444]


def test_registers_by_number() -> None:
    rows = {n: n + 100 for n in range(20)}
    text = "v_movrels_b32 v20, v1\nv_movreld_b32 v21, 0x1234\nv_movrelsd_b32 v30, v2\nv_movrelsd_2_b32 v40, v5"
    state = run("gfx1100", text, rows, {124: 3})
    assert [int(state.v[n][0]) for n in (20, 24, 33)] == [104, 0x1234, 105]
    assert int(state.v[40][0]) == 108
    state = run("gfx1100", "v_movrelsd_2_b32 v40, v5", rows, {124: 7 << 16 | 3})
    assert int(state.v[47][0]) == 108
    text = (
        "s_set_gpr_idx_on s2, gpr_idx(SRC0)\nv_mov_b32 v30, v1\ns_set_gpr_idx_off\ns_set_gpr_idx_on s2, gpr_idx(DST)\n"
        "v_mov_b32 v40, 7\ns_set_gpr_idx_off\nv_mov_b32 v31, v1"
    )
    state = run("gfx942", text, {**rows, 30: 0, 44: 0}, {2: 4}, exec=0b10)
    assert [int(x) for x in state.v[30][:2]] == [0, 105] and [int(x) for x in state.v[44][:2]] == [0, 7]
    assert int(state.v[31][1]) == 101


def test_accumulation_registers() -> None:
    text = (
        "v_accvgpr_write_b32 a0, v0\nv_accvgpr_mov_b32 a1, a0\nv_accvgpr_read_b32 v1, a1\nv_accvgpr_write_b32 a2, 1.0"
    )
    state = run("gfx942", text, {0: NUMBERS["gfx942"], 1: 0, 256: 5})
    assert list(state.v[1]) == list(state.v[257]) == list(range(64)) and set(state.v[258]) == {0x3F800000}


# --- DPP: lane -> the lane it reads, or None -------------------------------------------------------------------------

SHARED: dict[str, Callable[[int, int], int | None]] = {
    "quad_perm:[3,0,1,2]": lambda i, n: i & ~3 | (i - 1) % 4,
    "row_shl:3": lambda i, n: i + 3 if i % 16 + 3 < 16 else None,
    "row_shr:5": lambda i, n: i - 5 if i % 16 >= 5 else None,
    "row_ror:4": lambda i, n: i & ~15 | (i - 4) % 16,
    "row_mirror": lambda i, n: i & ~15 | 15 - i % 16,
    "row_half_mirror": lambda i, n: i & ~7 | 7 - i % 8,
}
ONLY: dict[str, dict[str, Callable[[int, int], int | None]]] = {
    "gfx942": {
        "row_bcast:15": lambda i, n: (i & ~15) - 1 if i >= 16 else None,
        "row_bcast:31": lambda i, n: 31 if i >= 32 else None,
        "wave_shl:1": lambda i, n: i + 1 if i + 1 < n else None,
        "wave_rol:1": lambda i, n: (i + 1) % n,
        "wave_shr:1": lambda i, n: i - 1 if i else None,
        "wave_ror:1": lambda i, n: (i - 1) % n,
        "row_newbcast:6": lambda i, n: i & ~15 | 6,
    },
    "gfx1100": {
        "row_share:9": lambda i, n: i & ~15 | 9,
        "row_xmask:5": lambda i, n: i ^ 5,
    },
}


@each_target
def test_dpp_controls(target: str) -> None:
    """A lane without a source keeps the old value, or reads 0 with bound_ctrl; so does one whose source is off."""
    lanes = LANES[target]
    controls = SHARED | ONLY["gfx1100" if target.startswith("gfx1") else "gfx942"]
    old, on = 9000, ALL[lanes] & 0xF7FFFEFFDFFFFFFB
    text = []
    for n, control in enumerate(controls):
        for bound in (0, 1):
            masks = "row_mask:0xf bank_mask:0xf" + " bound_ctrl:1" * bound
            text.append(f"v_mov_b32_dpp v{10 + 2 * n + bound}, v0 {control} {masks}")
    state = run(target, "\n".join(text), {0: NUMBERS[target], **dict.fromkeys(range(10, 60), old)}, exec=on)
    for n, (control, source) in enumerate(controls.items()):
        for bound in (0, 1):
            for lane in range(lanes):
                at = source(lane, lanes)
                reads = at if at is not None and on >> at & 1 else 0 if bound else old
                want = reads if on >> lane & 1 else old
                assert int(state.v[10 + 2 * n + bound][lane]) == want, (control, bound, lane)


@each_target
def test_dpp_row_and_bank_masks(target: str) -> None:
    state = run(
        target,
        "v_add_u32_dpp v2, v0, v1 row_ror:1 row_mask:0x2 bank_mask:0x5"
        if target.startswith("gfx9")
        else "v_add_nc_u32_dpp v2, v0, v1 row_ror:1 row_mask:0x2 bank_mask:0x5",
        {0: NUMBERS[target], 1: 1000, 2: 7},
    )
    for lane, got in enumerate(state.v[2]):
        enabled = lane // 16 == 1 and lane % 16 // 4 in (0, 2)
        assert int(got) == (1000 + (lane & ~15 | (lane - 1) % 16) if enabled else 7), lane


def test_dpp8_and_fetching_inactive_lanes() -> None:
    on = 0xFFFF0F0F
    text = (
        "v_mov_b32_dpp v1, v0 dpp8:[7,6,5,4,3,2,1,0]\nv_mov_b32_dpp v2, v0 dpp8:[7,6,5,4,3,2,1,0] fi:1\n"
        "v_mov_b32_dpp v3, v0 row_ror:4 row_mask:0xf bank_mask:0xf fi:1\n"
        "v_fma_f32_e64_dpp v4, v5, v6, v6 row_share:2 row_mask:0xf bank_mask:0xf"
    )
    f = NUMBERS["gfx1100"].astype(np.float32)
    state = run(
        "gfx1100",
        text,
        {0: NUMBERS["gfx1100"] + 1, 1: 99, 2: 99, 3: 99, 4: 99, 5: f, 6: np.float32(2).view(np.uint32)},
        exec=on,
    )
    for lane in range(32):
        if not on >> lane & 1:
            assert [int(state.v[n][lane]) for n in (1, 2, 3, 4)] == [99] * 4
            continue
        at = lane ^ 7
        assert int(state.v[1][lane]) == (at + 1 if on >> at & 1 else 0)
        assert int(state.v[2][lane]) == at + 1
        assert int(state.v[3][lane]) == (lane & ~15 | (lane - 4) % 16) + 1
        assert state.v[4].view(np.float32)[lane] == 2 * (lane & ~15 | 2) + 2


@each_target
def test_dpp_of_comparisons_and_doubles(target: str) -> None:
    if target == "gfx90a":
        pytest.skip("it has no DPP of a double's move")
    lanes = LANES[target]
    mask = "vcc" if lanes == 64 else "vcc_lo"
    text = f"v_cmp_eq_u32_dpp {mask}, v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1" if lanes == 32 else ""
    x = NUMBERS[target]
    if text:
        state = run(target, text, {0: x, 1: np.maximum(x, 1) - 1})
        want = [(0 if i % 16 == 0 else i - 1) == max(i, 1) - 1 for i in range(lanes)]
        assert [bool(state.vcc >> i & 1) for i in range(lanes)] == want
        state = run(target, text.replace(" bound_ctrl:1", ""), {0: x, 1: np.maximum(x, 1) - 1})
        assert [bool(state.vcc >> i & 1) for i in range(lanes)] == [w and i % 16 != 0 for i, w in enumerate(want)]
    else:
        state = run(
            target, "v_mov_b64_dpp v[4:5], v[0:1] row_newbcast:3 row_mask:0xf bank_mask:0xf", {0: x, 1: x + 500}
        )
        assert [int(v) for v in state.v[4]] == [i & ~15 | 3 for i in range(64)]
        assert [int(v) for v in state.v[5]] == [(i & ~15 | 3) + 500 for i in range(64)]
        state = run(
            target, "v_add_co_u32_dpp v2, vcc, v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf", {0: x, 1: 0xFFFFFFFF, 2: 5}
        )
        assert [bool(state.vcc >> i & 1) for i in range(64)] == [
            i % 16 > 1 or (i % 16 == 1 and i > 1) for i in range(64)
        ]
