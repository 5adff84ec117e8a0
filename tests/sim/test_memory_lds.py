"""The LDS: every width, two addresses at once, exchanges between lanes, counters, bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyflame.runtime.sim.decode.memory import swizzle
from tests.sim.access import LOADS, OLD, check_loads, lanes_on, name_of, patterns, register, some_bytes
from tests.sim.snippet import LANES, Stopped, each_target, run

COUNT = 4
MASK = 0x5A5A_0F0F_8000_0001
# The LDS names of the loads that it has.
_LDS_LOADS = [
    (old.replace("ubyte", "u8").replace("sbyte", "i8").replace("ushort", "u16").replace("sshort", "i16")
     .replace("short", "u16").replace("dwordx2", "b64").replace("dwordx3", "b96").replace("dwordx4", "b128")
     .replace("dword", "b32"), width, signed, half)
    for old, _, width, signed, half in LOADS
]  # fmt: skip


def fill(target: str, data: Any) -> tuple[str, dict[int, Any]]:
    """Text that puts 16 bytes of each lane, v[60:63], into the LDS at v59; and those registers."""
    lanes = LANES[target]
    rows = data[: 16 * lanes].view(np.uint32).reshape(lanes, 4)
    store = name_of(target, "ds_write_b128", "ds_store_b128")
    v: dict[int, Any] = {60 + n: np.ascontiguousarray(rows[:, n]) for n in range(4)}
    return f"{store} v59, v[60:63]\n", {**v, 59: np.arange(lanes, dtype=np.uint32) * 16}


@each_target
@pytest.mark.parametrize("form", _LDS_LOADS, ids=[form[0] for form in _LDS_LOADS])
def test_reads(target: str, form: tuple[str, int, bool, int | None]) -> None:
    name, width, signed, half = form
    data = some_bytes()
    text, v = fill(target, data)
    size = 16 * LANES[target]
    mask = MASK & (1 << LANES[target]) - 1
    set_exec = "s_mov_b64 exec, s[2:3]\n"
    for at in patterns(target, width).values():
        at = at % (size - width - 4)
        read = f"{name_of(target, 'ds_read_', 'ds_load_')}{name} {register(width)}, v0 offset:4"
        state = run(
            target, text + set_exec + read, {**v, 0: at, **dict.fromkeys(range(8, 12), OLD)},
            {2: mask & 0xFFFFFFFF, 3: mask >> 32}, lds_bytes=size, checks=3,
        )  # fmt: skip
        check_loads(target, state, data, at + 4, width, signed, half, lanes_on(target, mask))


@each_target
def test_writes(target: str) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    values = {8 + n: np.random.default_rng(n).integers(0, 1 << 32, lanes, dtype=np.uint32) for n in range(4)}
    write, read = name_of(target, "ds_write_", "ds_store_"), name_of(target, "ds_read_", "ds_load_")
    for suffix, width in (("b8", 1), ("b16", 2), ("b32", 4), ("b64", 8), ("b96", 12), ("b128", 16)):
        back = "u" + suffix[1:] if width < 4 else suffix
        to = "v20" if width <= 4 else f"v[20:{19 + width // 4}]"
        text = f"{write}{suffix} v0, {register(width)} offset:32\n{read}{back} {to}, v0 offset:32"
        # A stride that neither overlaps nor fills whole words.
        state = run(target, text, {0: lane * (width + 1), **values}, lds_bytes=2048, checks=3)
        for n in range(max(width // 4, 1)):
            assert np.array_equal(state.v[20 + n], values[8 + n] & (1 << 8 * min(width, 4)) - 1), suffix
    for suffix, mask in (("b8_d16_hi", 0xFF), ("b16_d16_hi", 0xFFFF)):
        text = f"{write}{suffix} v0, v8\n{read}{suffix.replace('b', 'u', 1).removesuffix('_d16_hi')} v20, v0"
        state = run(target, text, {0: lane * 2, **values}, lds_bytes=2048, checks=3)
        assert np.array_equal(state.v[20], values[8] >> 16 & mask), suffix


@each_target
def test_an_address_wraps_as_32_bits_do(target: str) -> None:
    lane = np.arange(LANES[target], dtype=np.uint32)
    write, read = name_of(target, "ds_write_b32", "ds_store_b32"), name_of(target, "ds_read_b32", "ds_load_b32")
    text = f"{write} v0, v1\n{read} v8, v2 offset:{4 * (len(lane) - 1)}"
    state = run(target, text, {0: lane * 4, 1: lane, 2: (0 - lane * 4).astype(np.uint32)}, lds_bytes=256, checks=3)
    assert np.array_equal(state.v[8], lane[::-1])
    with pytest.raises(Stopped) as stopped:
        run(target, f"{write} v0, v1", {0: lane * 4}, lds_bytes=4 * len(lane) - 1)
    assert (stopped.value.fault.kind, stopped.value.fault.space, stopped.value.fault.lane) == (1, 1, len(lane) - 1)


@each_target
def test_two_addresses(target: str) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    write, read, exchange = (
        name_of(target, old, new)
        for old, new in (("write2", "store_2addr"), ("read2", "load_2addr"), ("wrxchg2", "storexchg_2addr"))
    )
    far = name_of(target, "st64", "_stride64")
    text = f"""
    ds_{write}_b32 v0, v1, v2 offset0:2 offset1:100
    ds_{read}_b32 v[8:9], v0 offset0:2 offset1:100
    ds_{write}{far}_b64 v3, v[4:5], v[6:7] offset0:4 offset1:6
    ds_{read}{far}_b64 v[10:13], v3 offset0:6 offset1:4
    ds_{exchange}_rtn_b32 v[14:15], v0, v2, v1 offset0:2 offset1:100
    ds_{read}_b32 v[16:17], v0 offset0:2 offset1:100
    """
    v = {0: lane * 4, 3: lane * 8, **{n: lane + 100 * n for n in (1, 2, 4, 5, 6, 7)}}
    state = run(target, text, v, lds_bytes=4096, checks=3)
    for row, source in zip(range(8, 18), (1, 2, 6, 7, 4, 5, 1, 2, 2, 1), strict=True):
        assert np.array_equal(state.v[row], v[source]), row


@each_target
def test_by_lane_and_counters(target: str) -> None:
    lanes = LANES[target]
    lane = np.arange(lanes, dtype=np.uint32)
    write, read = name_of(target, "ds_write", "ds_store"), name_of(target, "ds_read", "ds_load")
    text = f"""
    {write}_addtid_b32 v1 offset:8
    {read}_addtid_b32 v8 offset:8
    {read}_b32 v9, v0 offset:24
    s_mov_b32 exec_lo, 0xff
    s_mov_b32 exec_hi, 0
    ds_append v10 offset:8
    ds_consume v11 offset:8
    s_mov_b32 exec_lo, 1
    ds_append v12 offset:8
    """
    state = run(target, text, {0: lane * 4, 1: lane + 50, 10: 3}, {124: 16}, lds_bytes=512, checks=3)
    assert np.array_equal(state.v[8], lane + 50) and np.array_equal(state.v[9], lane + 50)
    assert state.v[10].tolist() == [50] * 8 + [3] * (lanes - 8)
    assert state.v[11][0] == 58 and state.v[12][0] == 50


@each_target
def test_permutations(target: str) -> None:
    lanes = LANES[target]
    rng = np.random.default_rng(1)
    where = rng.integers(0, 1000, lanes, dtype=np.uint32)
    data = rng.integers(0, 1 << 32, lanes, dtype=np.uint32)
    mask = MASK & (1 << lanes) - 1 | 2
    on = lanes_on(target, mask)
    text = "ds_bpermute_b32 v8, v0, v1 offset:4\nds_permute_b32 v9, v0, v1 offset:8"
    state = run(target, text, {0: where, 1: data, 8: OLD, 9: OLD}, exec=mask)
    source = (where + 4) // 4 % lanes
    assert np.array_equal(state.v[8], np.where(on, np.where(on[source], data[source], 0), OLD))
    pushed = np.zeros(lanes, np.uint32)
    for n in np.flatnonzero(on):
        pushed[(where[n] + 8) // 4 % lanes] = data[n]
    assert np.array_equal(state.v[9], np.where(on, pushed, OLD))


PATTERNS = {
    'swizzle(BITMASK_PERM,"01pip")': lambda n: n & ~0x1F | 0x08 | n & 0x07 ^ 0x02,
    "swizzle(SWAP,16)": lambda n: n ^ 16,
    "swizzle(REVERSE,8)": lambda n: n ^ 7,
    "swizzle(BROADCAST,8,3)": lambda n: n & ~7 | 3,
    "swizzle(QUAD_PERM,3,0,2,1)": lambda n: n & ~3 | (3, 0, 2, 1)[n & 3],
    "swizzle(ROTATE,0,3)": lambda n: n & 32 | (n + 3) & 31,
    "swizzle(ROTATE,1,5)": lambda n: n & 32 | (n - 5) & 31,
    "swizzle(FFT,0)": lambda n: n & 32 | int(f"{n & 31:05b}"[::-1], 2),
    "swizzle(FFT,3)": lambda n: n & 32 | int(f"{n & 31:05b}"[::-1], 2) >> 2 | n & 3,
}


@each_target
def test_swizzles(target: str) -> None:
    lanes = LANES[target]
    data = np.arange(lanes, dtype=np.uint32) + 100
    mask = (1 << lanes) - 1 & ~0x20
    text = "\n".join(f"ds_swizzle_b32 v{8 + n}, v0 offset:{pattern}" for n, pattern in enumerate(PATTERNS))
    state = run(target, text, {0: data}, exec=mask)
    for n, (pattern, source) in enumerate(PATTERNS.items()):
        want = [0 if source(lane) == 5 else 100 + source(lane) for lane in range(lanes) if lane != 5]
        assert np.delete(state.v[8 + n], 5).tolist() == want, pattern


def test_a_swizzle_without_a_name() -> None:
    assert swizzle("37428") == 37428


def conflicts(target: str, width: int, address: Any) -> int:
    name = {4: "b32", 8: "b64", 16: "b128"}[width]
    text = f"{name_of(target, 'ds_write_', 'ds_store_')}{name} v0, {register(width)}"
    return int(run(target, text, {0: address.astype(np.uint32)}, lds_bytes=65536, checks=COUNT).counts[0].conflicts)


@each_target
def test_bank_conflicts(target: str) -> None:
    """32 banks of 4 bytes; as many lanes together as 128 bytes take."""
    lane = np.arange(LANES[target])
    halves = len(lane) // 32
    assert conflicts(target, 4, lane * 4) == 0
    assert conflicts(target, 4, lane * 0) == 0  # one word for all
    assert conflicts(target, 4, lane * 8) == halves  # two words in each of 16 banks
    assert conflicts(target, 4, lane * 128) == 31 * halves
    assert conflicts(target, 4, lane * 132) == 0  # a padded column
    assert conflicts(target, 8, lane * 8) == 0 and conflicts(target, 16, lane * 16) == 0
    assert conflicts(target, 16, lane * 128) == 7 * len(lane) // 8
