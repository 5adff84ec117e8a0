"""Memory instructions and barriers that neither gfx942 nor gfx1100 has, on the targets that have them."""

from __future__ import annotations

import numpy as np
import pytest

from pyflame.runtime.sim.decode.text import Undecodable
from pyflame.runtime.sim.memory import Memory
from tests.sim.access import filled, some_bytes, words
from tests.sim.snippet import Stopped, assemble, run


def test_scalar_bytes() -> None:
    data = some_bytes(64)
    memory, base = filled(data)
    text = (
        "s_load_u8 s20, s[2:3], 0x3\ns_load_i8 s21, s[2:3], 0x3\ns_load_u16 s22, s[2:3], s8 offset:0x2\n"
        "s_load_i16 s23, s[2:3], 0x6\ns_load_b96 s[24:26], s[2:3], 0x10\n"
        "s_buffer_load_u8 s27, s[4:7], 0x5\ns_buffer_load_u16 s28, s[4:7], 0x1a"
    )
    s = dict(zip((2, 3), words(base), strict=True)) | {8: 4}
    s |= {4: words(base)[0], 5: words(base)[1], 6: 24, 7: 0}
    state = run("gfx1201", text, {}, s, memory=memory, checks=3)
    assert int(state.s[20]) == data[3] and np.int32(state.s[21].view(np.int32)) == data[3:4].view(np.int8)[0]
    assert int(state.s[22]) == data[6:8].view(np.uint16)[0]
    assert int(state.s[23].view(np.int32)) == data[6:8].view(np.int16)[0]
    assert state.s[24:27].tolist() == data[16:28].view(np.uint32).tolist()
    assert int(state.s[27]) == data[5] and int(state.s[28]) == 0  # beyond its 24 bytes
    for offset, kind in (("0x40", 1), ("0x41", 7)):
        with pytest.raises(Stopped) as stopped:
            run("gfx1201", f"s_load_u16 s20, s[2:3], {offset}", {}, s, memory=memory)
        assert stopped.value.fault.kind == kind


def test_conditional_subtraction() -> None:
    memory = Memory(1 << 20)
    base = memory.allocate(128)
    old = np.arange(32, dtype=np.uint32)
    s = dict(zip((2, 3), words(base), strict=True))
    for name, want in (("cond_sub", np.where(old >= 9, old - 9, old)), ("sub_clamp", np.where(old >= 9, old - 9, 0))):
        memory.view(base, 128, write=True).view(np.uint32)[:] = old
        text = f"global_atomic_{name}_u32 v8, v0, v1, s[2:3] th:TH_ATOMIC_RETURN"
        state = run("gfx1201", text, {0: old * 4, 1: 9}, s, memory=memory, checks=3)
        assert np.array_equal(state.v[8], old)
        assert np.array_equal(memory.view(base, 128).view(np.uint32), want)


def test_transposing_loads() -> None:
    """A 16x16 matrix, row by row in memory, arrives as columns, as WMMA wants its B; see isa/transpose.c."""
    lane = np.arange(32, dtype=np.uint32)
    halves = np.arange(256, dtype=np.uint16)
    memory, base = filled(halves.view(np.uint8))
    s = dict(zip((2, 3), words(base), strict=True))
    # Lane l gives the address of row k, from column 0 or 8 on: 8 lanes make a tile of 8x8.
    row, column = 8 * (lane // 16) + lane % 8, lane // 8 % 2 * 8
    state = run("gfx1201", "global_load_tr_b128 v[4:7], v0, s[2:3]", {0: row * 32 + column * 2}, s, memory=memory)
    got = np.ascontiguousarray(state.v[4:8].T).view(np.uint16)
    matrix = halves.reshape(16, 16)
    for n in range(32):
        assert got[n].tolist() == matrix[8 * (n // 16) : 8 * (n // 16) + 8, n % 16].tolist()
    data = np.arange(256, dtype=np.uint8)
    memory, base = filled(data)
    s = dict(zip((2, 3), words(base), strict=True))
    row, column = 8 * (lane // 16) + lane % 4 + lane // 8 % 2 * 4, lane // 4 % 2 * 8
    state = run("gfx1201", "global_load_tr_b64 v[4:5], v0, s[2:3]", {0: row * 16 + column}, s, memory=memory)
    got = np.ascontiguousarray(state.v[4:6].T).view(np.uint8)
    for n in range(32):
        assert got[n].tolist() == data.reshape(16, 16)[8 * (n // 16) : 8 * (n // 16) + 8, n % 16].tolist()
    with pytest.raises(Stopped):
        run("gfx1201", "global_load_tr_b64 v[4:5], v0, s[2:3]", {0: 0}, s, memory=memory, exec=1)


def test_barriers_in_two_halves() -> None:
    run("gfx1201", "s_barrier_signal -1\ns_barrier_wait -1\nv_mov_b32 v0, 1")
    for text in ("s_barrier_wait -1", "s_barrier_signal -1\ns_barrier_signal -1", "s_barrier_signal 1"):
        with pytest.raises(Stopped):
            run("gfx1201", text)
    with pytest.raises(Undecodable):
        assemble("gfx1201", "s_barrier_signal m0")


def test_scratch_through_a_buffer() -> None:
    """gfx90a: s[0:3] describes it, s32 counts the bytes of all lanes, and each lane sees its own."""
    lane = np.arange(64, dtype=np.uint32)
    text = """
    buffer_store_dword v1, off, s[0:3], 0 offset:8
    buffer_store_dwordx2 v[2:3], v0, s[0:3], s32 offen
    buffer_load_dwordx2 v[4:5], off, s[0:3], s32 offset:16
    buffer_load_dword v6, v7, s[0:3], 0 offen
    """
    s = {0: 0, 1: 1 << 31, 2: 0xFFFFFFFF, 3: 1 << 23, 32: 32 * 64}
    v = {0: 16, 1: lane, 2: lane + 100, 3: lane + 200, 7: 8}
    state = run("gfx90a", text, v, s, scratch_bytes=64, checks=3)
    assert np.array_equal(state.v[4], lane + 100) and np.array_equal(state.v[5], lane + 200)
    assert np.array_equal(state.v[6], lane)
    with pytest.raises(Stopped) as stopped:
        run("gfx90a", "buffer_load_dword v6, off, s[0:3], s32 offset:32", v, s, scratch_bytes=64)
    assert (stopped.value.fault.kind, stopped.value.fault.address) == (1, 64)


def test_wide_loads_into_the_lds() -> None:
    """gfx950: 12 or 16 bytes of each lane, one after the other; what lies beyond a buffer's end is zeros."""
    data = some_bytes()
    memory, base = filled(data)
    lane = np.arange(64, dtype=np.uint32)
    s = {2: words(base)[0], 3: words(base)[1], 124: 256}
    for width in (12, 16):
        text = f"global_load_lds_dwordx{width // 4} v0, s[2:3] offset:8\n"
        text += f"ds_read_b{8 * width} v[8:{7 + width // 4}], v1 offset:264"
        state = run("gfx950", text, {0: lane * 20, 1: lane * width}, s, memory=memory, lds_bytes=2048, checks=3)
        for n in range(64):
            assert state.v[8 : 8 + width // 4, n].tobytes() == data[20 * n + 8 : 20 * n + 8 + width].tobytes(), (
                width,
                n,
            )
    resource = {4: s[2], 5: s[3], 6: 104, 7: 0, 124: 0}
    text = "buffer_load_dwordx4 v0, s[4:7], 0 offen lds\nds_read_b128 v[8:11], v0"
    state = run("gfx950", text, {0: lane * 16}, resource, memory=memory, lds_bytes=160 * 1024, checks=3)
    want = np.where(np.arange(256) < 26, data.view(np.uint32)[:256], 0).reshape(64, 4)
    assert np.array_equal(state.v[8:12].T, want)


@pytest.mark.parametrize(("name", "bits"), [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)])
def test_transposing_reads_of_the_lds(name: str, bits: int) -> None:
    """gfx950: 16 lanes read a tile of 16 columns, row by row, and each gets one of them."""
    each = int(name[1:3]) // bits  # elements of a lane, and rows of the tile
    width = each * bits // 8
    lane = np.arange(64)
    rng = np.random.default_rng(2)
    tile = rng.integers(0, 1 << bits, (4, each, 16))  # for each group of 16 lanes
    values = [tile[n // 16, n % 16 // (16 // each), each * (n % (16 // each)) :][:each] for n in lane]
    packed = [sum(int(x) << bits * k for k, x in enumerate(v)) for v in values]
    rows = np.array([[p >> 32 * k & 0xFFFFFFFF for p in packed] for k in range(width // 4)], np.uint32)
    last = width // 4
    text = f"ds_write_b{8 * width} v0, v[2:{1 + last}]\nds_read_{name} v[8:{7 + last}], v0"
    v = {0: (lane * width).astype(np.uint32)} | {2 + k: row for k, row in enumerate(rows)}
    state = run("gfx950", text, v, lds_bytes=1024, checks=3)
    for n in lane:
        got = sum(int(word) << 32 * k for k, word in enumerate(state.v[8 : 8 + last, n]))
        assert [got >> bits * k & (1 << bits) - 1 for k in range(each)] == tile[n // 16, :, n % 16].tolist(), n
