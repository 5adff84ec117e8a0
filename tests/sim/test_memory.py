"""Simulated memory: bounds, poison, addresses and what the interpreter sees of it."""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.memory import ALIGNMENT, BASE, GUARD, WINDOW, WINDOWS, Memory, Span


@pytest.mark.slow
def test_the_host_has_nothing_at_these_addresses() -> None:
    maps = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    mine = [(int(low, 16), int(high, 16)) for low, high in maps]
    end = BASE + WINDOWS * WINDOW
    assert end <= 1 << 48 and [m for m in mine if m[0] < end and m[1] > BASE] == []


def test_addresses_lie_apart() -> None:
    memory = Memory(1 << 20)
    addresses = [memory.allocate(n) for n in (1, 255, 256, 257, 5000)]
    assert all(BASE <= a < BASE + WINDOW and a % ALIGNMENT == 0 for a in addresses)
    for low, high, n in zip(addresses, addresses[1:], (1, 255, 256, 257), strict=False):
        assert high - (low + n) >= GUARD
    other = Memory(1 << 20, index=3).allocate(1)
    assert BASE + 3 * WINDOW <= other < BASE + 4 * WINDOW


def test_a_freed_address_is_not_used_again_soon() -> None:
    memory = Memory(100)
    seen = set()
    for _ in range(50):
        address = memory.allocate(100)
        assert address not in seen
        seen.add(address)
        memory.free(address)


def test_addresses_start_over_at_the_end_around_what_lives() -> None:
    memory = Memory(1 << 40)
    first = memory.allocate(1000)
    memory._next = memory._end - GUARD  # as after very many allocations
    again = memory.allocate(1000)
    assert again - (first + 1000) >= GUARD
    assert memory.view(first, 1000).size == memory.view(again, 1000).size == 1000
    memory._next = memory._end - GUARD
    third = memory.allocate(10)
    assert third - (again + 1000) >= GUARD


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_new_memory_is_poisoned(dtype: type) -> None:
    memory = Memory(1 << 20, seed=3)
    view = memory.view(memory.allocate(64), 64)
    assert np.isnan(view.view(dtype)).all()
    assert (np.abs(view.view(np.int32).astype(np.int64)) > 1000).all()
    assert not memory.written(memory.allocate(9), 9).any()


def test_poison_depends_on_the_seed() -> None:
    def words(seed: int) -> list[bytes]:
        memory = Memory(1 << 20, seed)
        return [memory.view(memory.allocate(2), 2).tobytes() for _ in range(20)]

    assert words(1) == words(1) != words(2)
    assert len(set(words(1))) > 5


def test_writing_marks_exactly_what_was_written() -> None:
    memory = Memory(1 << 20)
    address = memory.allocate(16)
    memory.view(address + 4, 8, write=True)[:] = np.arange(8)
    assert memory.written(address, 16).tolist() == [0] * 4 + [1] * 8 + [0] * 4
    assert memory.view(address + 5, 2).tolist() == [1, 2]


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 17), (16, 1), (-1, 1), (-1, 4), (12, 5)])
def test_outside_of_an_allocation(offset: int, nbytes: int) -> None:
    memory = Memory(1 << 20)
    address = memory.allocate(16)
    memory.allocate(16)
    with pytest.raises(SimulationFault, match=f"expected {nbytes} bytes at {address + offset:#x}") as caught:
        memory.view(address + offset, nbytes)
    assert caught.value.kind == "illegal address"
    assert f"{address:#x}" in str(caught.value)
    with pytest.raises(SimulationFault):
        memory.written(address + offset, nbytes)


def test_freed_memory_is_gone_and_named() -> None:
    memory = Memory(1 << 20)
    address = memory.allocate(16)
    memory.free(address)
    with pytest.raises(SimulationFault, match=f"byte 3 of 16 that were allocated at {address:#x} and freed"):
        memory.view(address + 3, 1)
    with pytest.raises(ArgumentError, match="freed"):
        memory.free(address)
    with pytest.raises(ArgumentError, match="where nothing is allocated"):
        memory.free(1)
    kept = memory.allocate(16)
    with pytest.raises(ArgumentError, match="byte 1 of the allocation"):
        memory.free(kept + 1)


def test_no_more_memory() -> None:
    memory = Memory(1000)
    address = memory.allocate(600)
    with pytest.raises(OutOfMemoryError, match="expected 401 bytes but 400 of 1000 are free"):
        memory.allocate(401)
    memory.allocate(400)
    memory.free(address)
    assert memory.used == 400
    memory.allocate(600)
    with pytest.raises(ArgumentError, match="at least one byte"):
        memory.allocate(0)
    with pytest.raises(ArgumentError, match="expected a size of 0 or more"):
        Memory(-1)


def test_spans_are_what_lives_sorted() -> None:
    memory = Memory(1 << 20)
    a, b, c = (memory.allocate(n) for n in (10, 20, 30))
    memory.free(b)
    array, count = memory.spans()
    assert ctypes.sizeof(Span) == 32
    assert [(s.base, s.size) for s in array] == [(a, 10), (c, 30)]
    assert count == 2
    assert memory.spans()[0] is array  # not built again
    array[1].data[29] = 5
    array[1].written[29] = 1
    assert memory.view(c + 29, 1)[0] == 5
    assert memory.written(c, 30).tolist() == [0] * 29 + [1]
    memory.free(a)
    assert memory.spans()[1] == 1


def test_host_memory_and_peers_are_reached_when_allowed() -> None:
    memory, peer = Memory(1 << 20), Memory(1 << 20, index=1)
    mine, theirs = memory.allocate(4), peer.allocate(4)
    host = np.arange(8, dtype=np.uint8)
    memory.share(host.ctypes.data, host)
    assert memory.view(host.ctypes.data + 2, 2).tolist() == [2, 3]
    assert memory.written(host.ctypes.data, 8).all()
    assert [s.base for s in memory.spans()[0]] == sorted([host.ctypes.data, mine])
    memory.reach(peer)
    assert [s.base for s in memory.spans()[0]] == sorted([host.ctypes.data, mine, theirs])
    more = peer.allocate(4)
    assert more in [s.base for s in memory.spans()[0]]
    memory.reach(peer, on=False)
    memory.unshare(host.ctypes.data)
    assert [s.base for s in memory.spans()[0]] == [mine]
    assert memory.find(theirs) is None
    assert memory.used == 4


def test_a_fault_travels_between_processes() -> None:
    fault = pickle.loads(pickle.dumps(SimulationFault("race", "two waves")))
    assert (fault.kind, str(fault)) == ("race", "two waves")
