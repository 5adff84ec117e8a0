"""Loads and stores: every width, every way to give an address, lanes that are off, and what a register keeps."""

from __future__ import annotations

import numpy as np
import pytest

from pyflame.runtime.sim.decode.decoder import PRIVATE_BASE, SHARED_BASE
from pyflame.runtime.sim.memory import Memory
from tests.sim.access import (
    LOADS,
    OLD,
    SIZE,
    check_loads,
    filled,
    lanes_on,
    loaded,
    name_of,
    no_offset,
    patterns,
    register,
    some_bytes,
    words,
)  # fmt: skip
from tests.sim.snippet import LANES, Stopped, each_target, run

STORES = (
    ("byte", "b8", 1, 0), ("short", "b16", 2, 0), ("dword", "b32", 4, 0), ("dwordx2", "b64", 8, 0),
    ("dwordx3", "b96", 12, 0), ("dwordx4", "b128", 16, 0), ("byte_d16_hi", "d16_hi_b8", 1, 1),
    ("short_d16_hi", "d16_hi_b16", 2, 1),
)  # fmt: skip
OFFSET = 12
MEETING = ("spread", "the same")  # lanes that store different values in one place: a race
MASKS = (0xFFFFFFFFFFFFFFFF, 0x5A5A_0F0F_8000_0001, 0)


@each_target
@pytest.mark.parametrize("form", LOADS, ids=[form[0] for form in LOADS])
def test_global_loads(target: str, form: tuple[str, str, int, bool, int | None]) -> None:
    old, new, width, signed, half = form
    data = some_bytes()
    memory, base = filled(data)
    load = "global_load_" + name_of(target, old, new)
    for mask in MASKS:
        mask &= (1 << LANES[target]) - 1
        for at in patterns(target, width).values():
            state = run(
                target, f"{load} {register(width)}, v0, s[2:3] offset:{OFFSET}",
                {0: at, **dict.fromkeys(range(8, 12), OLD)}, dict(zip((2, 3), words(base), strict=True)),
                exec=mask, memory=memory, checks=3,
            )  # fmt: skip
            check_loads(target, state, data, at + OFFSET, width, signed, half, lanes_on(target, mask))


@each_target
@pytest.mark.parametrize("form", STORES, ids=[form[0] for form in STORES])
def test_global_stores(target: str, form: tuple[str, str, int, int]) -> None:
    old, new, width, half = form
    store = "global_store_" + name_of(target, old, new)
    lanes = LANES[target]
    values = np.random.default_rng(3).integers(0, 1 << 32, (4, lanes), dtype=np.uint32)
    for mask in MASKS:
        mask &= (1 << lanes) - 1
        for name, at in patterns(target, width).items():
            memory = Memory(1 << 20)
            base = memory.allocate(SIZE)
            before = memory.view(base, SIZE).copy()
            address = at.astype(np.uint64) + np.uint64(base)
            run(
                target, f"{store} v[0:1], {register(width)}, off offset:{OFFSET}",
                {0: address.astype(np.uint32), 1: (address >> np.uint64(32)).astype(np.uint32),
                 **{8 + n: values[n] for n in range(4)}},
                exec=mask, memory=memory, checks=1 if name in MEETING else 3,
            )  # fmt: skip
            written = np.zeros(SIZE, np.uint8)
            for lane in np.flatnonzero(lanes_on(target, mask)):
                raw = (
                    values[:, lane].tobytes() if width >= 4 else int(values[0, lane]).to_bytes(4, "little")[2 * half :]
                )
                before[at[lane] + OFFSET : at[lane] + OFFSET + width] = np.frombuffer(raw[:width], np.uint8)
                written[at[lane] + OFFSET : at[lane] + OFFSET + width] = 1
            assert np.array_equal(memory.view(base, SIZE), before), (name, hex(mask))
            assert np.array_equal(memory.written(base, SIZE), written), (name, hex(mask))


@each_target
def test_lanes_in_two_allocations_and_negative_offsets(target: str) -> None:
    data = some_bytes()
    memory, first = filled(data)
    second = memory.allocate(SIZE)
    memory.view(second, SIZE, write=True)[:] = data[::-1]
    lane = np.arange(LANES[target], dtype=np.uint64)
    address = np.where(lane % np.uint64(3) == 1, np.uint64(second), np.uint64(first)) + lane * np.uint64(8)
    address += np.uint64(64)
    load = "global_load_" + name_of(target, "dwordx2", "b64")
    v = {0: address.astype(np.uint32), 1: (address >> np.uint64(32)).astype(np.uint32)}
    state = run(target, f"{load} v[8:9], v[0:1], off offset:-64", v, memory=memory, checks=3)
    want = [np.where(n % 3 == 1, data[::-1][8 * n : 8 * n + 8], data[8 * n : 8 * n + 8]) for n in range(len(lane))]
    assert np.array_equal(state.pair(8), np.array(want, np.uint8).view(np.uint64).ravel())


def test_global_by_lane() -> None:
    target = "gfx1100"  # GFX9 has no such instruction
    data = some_bytes()
    memory, base = filled(data)
    s = dict(zip((2, 3), words(base), strict=True))
    state = run(
        target, "global_load_addtid_b32 v8, s[2:3] offset:4\nglobal_store_addtid_b32 v8, s[2:3] offset:1024", s=s,
        memory=memory,
    )  # fmt: skip
    assert np.array_equal(state.v[8], data.view(np.uint32)[1:33])
    assert np.array_equal(memory.view(base + 1024, 128), data[4:132])


@each_target
def test_scratch_is_each_lanes_own(target: str) -> None:
    if target == "gfx90a":
        pytest.skip("it reaches scratch through a buffer: test_memory_relatives.py")
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    store, load = (f"scratch_{what}_" + name_of(target, "dword", "b32") for what in ("store", "load"))
    pair = f"scratch_load_{name_of(target, 'dwordx2', 'b64')}"
    half = f"scratch_load_{name_of(target, 'ushort', 'u16')}"
    text = f"""
    {store} off, v0, s4 offset:8
    {store} v1, v2, off offset:16
    {store} v1, v3, s4 offset:32
    {store} off, v3, off offset:4
    {load} v8, off, off offset:12
    {load} v9, v1, s4 offset:12
    {pair} v[10:11], off, off offset:4
    {half} v12, off, s4 offset:1
    """
    # v1 is 4 in even and 8 in odd lanes; s4 is 4.
    v = {0: lane + 1000, 1: lane % 2 * 4 + 4, 2: lane + 2000, 3: lane + 3000}
    state = run(target, text, {**v, 11: 7}, {4: 4}, scratch_bytes=64, checks=1)
    assert np.array_equal(state.v[8], lane + 1000)
    assert np.array_equal(state.v[9], lane + 2000)
    assert np.array_equal(state.v[10], lane + 3000)
    assert np.array_equal(state.v[12], (state.v[10] >> 8) & 0xFFFF)
    with pytest.raises(Stopped) as stopped:
        run(target, f"{load} v8, v1, off offset:60", {1: lane % 2 * 4}, scratch_bytes=64)
    assert (stopped.value.fault.kind, stopped.value.fault.lane, stopped.value.fault.address) == (1, 1, 64)


@each_target
def test_flat_addresses_fall_into_three_spaces(target: str) -> None:
    """In one instruction: every third lane in global memory, in the LDS, in scratch."""
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint64)
    data = some_bytes()
    memory, base = filled(data)
    bases = np.array([base, SHARED_BASE, PRIVATE_BASE], np.uint64)
    address = bases[lane % np.uint64(3)] + lane * np.uint64(4)
    store, load = (f"flat_{what}_" + name_of(target, "dword", "b32") for what in ("store", "load"))
    v = {0: address.astype(np.uint32), 1: (address >> np.uint64(32)).astype(np.uint32), 2: lane.astype(np.uint32) + 5}
    both = f"{store} v[0:1], v2 offset:4\n{load} v8, v[0:1] offset:4"
    state = run(target, both, v, memory=memory, lds_bytes=512, scratch_bytes=512, checks=3)
    assert np.array_equal(state.v[8], v[2])
    in_memory = memory.view(base + 4, 4 * lanes).view(np.uint32)
    assert np.array_equal(in_memory, np.where(lane % np.uint64(3) == 0, v[2], data.view(np.uint32)[1 : 1 + lanes]))
    ds = name_of(target, "ds_read_b32", "ds_load_b32")
    only = {**v, 3: (lane * np.uint64(4)).astype(np.uint32)}
    there = sum(1 << n for n in range(lanes) if n % 3 == 1)
    text = f"{both}\ns_mov_b64 exec, s[2:3]\n{ds} v9, v3 offset:4"
    state = run(
        target, text, only, {2: there & 0xFFFFFFFF, 3: there >> 32}, memory=memory, lds_bytes=512, scratch_bytes=512
    )
    assert np.array_equal(state.v[9][1::3], v[2][1::3])


@each_target
def test_scalar_loads(target: str) -> None:
    data = some_bytes(256)
    memory, base = filled(data)
    want = data.view(np.uint32)
    counts = {1: 20, 2: 22, 4: 24, 8: 28, 16: 36}  # words -> the first register that receives them
    offsets = {"0x10": 4, "s4": 6, "s4 offset:0x8": 8, "-0x8": -2, **({"null": 0} if target.startswith("gfx1") else {})}
    for offset, first in offsets.items():
        text = []
        for count, to in counts.items():
            suffix = name_of(target, "dword" + (f"x{count}" if count > 1 else ""), f"b{32 * count}")
            text.append(f"s_load_{suffix} {f's{to}' if count == 1 else f's[{to}:{to + count - 1}]'}, s[2:3], {offset}")
        s = dict(zip((2, 3, 4), (*words(base + 8), 24), strict=True))
        state = run(target, "\n".join(text), s=s, memory=memory, checks=3)
        for count, to in counts.items():
            assert np.array_equal(state.s[to : to + count], want[2 + first : 2 + first + count]), (count, offset)
    pair = f"s_load_{name_of(target, 'dwordx2', 'b64')}"
    state = run(target, f"{pair} vcc, s[2:3], 0x8", s=dict(zip((2, 3), words(base), strict=True)), memory=memory)
    assert state.vcc == int(data.view(np.uint64)[1])


@each_target
def test_scalar_loads_may_read_a_little_more_than_there_is(target: str) -> None:
    """A compiler loads a word for its byte, and four words for three."""
    memory, base = filled(some_bytes(13))
    one, four = (f"s_load_{name_of(target, old, new)}" for old, new in (("dword", "b32"), ("dwordx4", "b128")))
    s = dict(zip((2, 3), words(base), strict=True))
    state = run(target, f"{one} s20, s[2:3], 0xc\n{four} s[24:27], s[2:3], 0x0", s=s, memory=memory, checks=3)
    assert state.s[20] & 0xFF == memory.view(base + 12, 1)[0]
    assert np.array_equal(state.s[24:27], memory.view(base, 12).view(np.uint32))
    for text, kind in (
        (f"{one} s20, s[2:3], 0x10", 1),
        (f"{four} s[24:27], s[2:3], 0x4", 1),
        (f"{one} s20, s[2:3], 0x2", 7),
    ):
        with pytest.raises(Stopped) as stopped:
            run(target, text, s=s, memory=memory)
        assert stopped.value.fault.kind == kind, text


def test_loads_into_the_lds() -> None:
    """A word per lane, at M0 and the instruction's offset, whatever the width of the load."""
    target = "gfx942"
    data = some_bytes()
    memory, base = filled(data)
    lane = np.arange(64, dtype=np.uint32)
    s = {2: words(base)[0], 3: words(base)[1], 124: 256}
    for suffix, width, signed in (("dword", 4, False), ("ubyte", 1, False), ("sbyte", 1, True), ("sshort", 2, True)):
        text = f"global_load_lds_{suffix} v0, s[2:3] offset:8\nds_read_b32 v8, v1 offset:264"
        state = run(target, text, {0: lane * 5, 1: lane * 4}, s, memory=memory, lds_bytes=1024, checks=3)
        want = [loaded(bytes(data[5 * n + 8 : 5 * n + 8 + width]), signed, None)[0] for n in range(64)]
        assert state.v[8].tolist() == want, suffix
    resource = {4: s[2], 5: s[3], 6: 64, 7: 0, 124: 0}
    text = "buffer_load_dword v0, s[4:7], 0 offen lds\nds_read_b32 v8, v0"
    state = run(target, text, {0: lane * 4}, resource, memory=memory, lds_bytes=256, checks=3)
    assert np.array_equal(state.v[8], np.where(lane < 16, data.view(np.uint32)[:64], 0))  # the rest is out of range


@each_target
def test_buffers(target: str) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    data = some_bytes()
    memory, base = filled(data)
    want = data.view(np.uint32)
    raw = 3 << 28 if target.startswith("gfx1") else 0
    low, high = words(base)
    load, load2, store = (
        "buffer_" + name_of(target, old, new)
        for old, new in (("load_dword", "load_b32"), ("load_dwordx2", "load_b64"), ("store_dword", "store_b32"))
    )
    # A raw buffer of 100 bytes; s8 is 4.
    s, none = {4: low, 5: high, 6: 100, 7: raw, 8: 4}, no_offset(target)
    text = f"""
    {load} v8, v0, s[4:7], s8 offen offset:16
    {load} v9, off, s[4:7], {none} offset:12
    {load2} v[10:11], v0, s[4:7], {none} offen
    {store} v1, v0, s[4:7], {none} offen
    """
    state = run(target, text, {0: lane * 4, 1: lane + 7, 8: 1, 10: 1, 11: 1}, s, memory=memory, checks=3)
    assert np.array_equal(state.v[8], np.where(lane < 20, want[5 : 5 + lanes], 0))
    assert np.array_equal(state.v[9], np.full(lanes, want[3]))
    assert np.array_equal(state.v[10], np.where(lane < 25, want[:lanes], 0))
    assert np.array_equal(state.v[11], np.where(lane < 24, want[1 : 1 + lanes], 0))  # each word is checked alone
    after = memory.view(base, 128).view(np.uint32)
    assert np.array_equal(after[:32], np.where(np.arange(32) < 25, np.arange(32) + 7, want[:32]))
    # Records of 12 bytes, 20 of them.
    memory, base = filled(data)
    s = {4: words(base)[0], 5: words(base)[1] | 12 << 16, 6: 20, 7: 0, 8: 4}
    both = f"{load} v8, v0, s[4:7], {none} idxen offset:8\n{load} v9, v[0:1], s[4:7], {none} idxen offen"
    state = run(target, both, {0: lane, 1: 4}, s, memory=memory, checks=3)
    records = want[: 3 * lanes].reshape(-1, 3)
    assert np.array_equal(state.v[8], np.where(lane < 20, records[:, 2], 0))
    assert np.array_equal(state.v[9], np.where(lane < 20, records[:, 1], 0))


@each_target
def test_buffers_keep_the_other_half_and_refuse_swizzles(target: str) -> None:
    data = some_bytes()
    memory, base = filled(data)
    lane = np.arange(LANES[target], dtype=np.uint32)
    s = {4: words(base)[0], 5: words(base)[1], 6: 10, 7: 3 << 28 if target.startswith("gfx1") else 0}
    load = "buffer_load_" + name_of(target, "short_d16_hi", "d16_hi_b16")
    state = run(target, f"{load} v8, v0, s[4:7], {no_offset(target)} offen", {0: lane * 2, 8: OLD}, s, memory=memory)
    high = np.where(lane < 5, data.view(np.uint16)[: len(lane)], 0).astype(np.uint32)
    assert np.array_equal(state.v[8], high << 16 | OLD & 0xFFFF)
    with pytest.raises(Stopped) as stopped:
        run(
            target,
            f"{load} v8, v0, s[4:7], {no_offset(target)} offen",
            {0: lane},
            {**s, 5: s[5] | 1 << 31},
            memory=memory,
        )
    assert stopped.value.fault.kind == 6


@each_target
def test_scalar_buffer_loads(target: str) -> None:
    data = some_bytes(64)
    memory, base = filled(data)
    s = {4: words(base)[0], 5: words(base)[1], 6: 24, 7: 0, 8: 8}
    four = "s_buffer_load_" + name_of(target, "dwordx4", "b128")
    state = run(target, f"{four} s[20:23], s[4:7], 0x10\n{four} s[24:27], s[4:7], s8", s=s, memory=memory, checks=3)
    want = data.view(np.uint32)
    assert state.s[20:24].tolist() == [*want[4:6].tolist(), 0, 0]
    assert np.array_equal(state.s[24:28], want[2:6])
