"""The pools of device and pinned memory, over a driver that runs its streams as late as it may."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError, OutOfMemoryError, ROCmMemoryError
from pyflame.core.sizes import human_bytes
from pyflame.runtime.gpu.memory import MIB, Block, DevicePool, segment_size, size_class
from pyflame.runtime.gpu.pinned import PinnedPool
from tests.runtime.fake import GIB, FakeDriver


@pytest.fixture
def driver() -> FakeDriver:
    found = FakeDriver()
    found.set_device(0)
    return found


@pytest.fixture
def pool(driver: FakeDriver) -> DevicePool:
    return DevicePool(driver)


@pytest.fixture
def two(driver: FakeDriver) -> tuple[int, int]:
    return driver.stream_create(), driver.stream_create()


def test_size_classes() -> None:
    sizes = [0, 1, 255, 256, 257, 4096, 4097, 100_000, MIB, MIB + 1, 3 * GIB + 17]
    for nbytes in sizes:
        size = size_class(nbytes)
        assert size % 256 == 0 and size >= max(nbytes, 256)
        assert size <= max(nbytes * 9 // 8 + 1, nbytes + 255, 256)
        assert size_class(size) == size
        assert segment_size(size) >= size


def test_addresses_are_aligned_and_apart(pool: DevicePool) -> None:
    blocks = [pool.allocate(n) for n in (1, 300, 5000, 70_000, MIB, 3 * MIB, 30 * MIB)]
    spans = sorted((b.address, b.address + b.nbytes) for b in blocks)
    assert all(b.address % 256 == 0 and not b.read_only for b in blocks)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_block_comes_back_when_it_is_forgotten(pool: DevicePool, driver: FakeDriver) -> None:
    block = pool.allocate(1000)
    address = block.address
    del block
    assert pool.stats.allocated == 0
    assert pool.allocate(1000).address == address
    assert driver.calls["alloc"] == 1


def test_neighbours_merge(pool: DevicePool, driver: FakeDriver) -> None:
    blocks = [pool.allocate(256 << 10) for _ in range(8)]  # a small segment, filled
    assert driver.calls["alloc"] == 1
    del blocks[1:7]
    assert pool.stats.free_blocks == 1
    big = pool.allocate(MIB)
    assert driver.calls["alloc"] == 1
    assert big.address == blocks[0].address + (256 << 10)
    del big, blocks
    stats = pool.stats
    assert (stats.free_blocks, stats.allocated, stats.fragmentation) == (1, 0, 0.0)


def test_large_segments_are_cut(pool: DevicePool, driver: FakeDriver) -> None:
    del_me = pool.allocate(64 * MIB)
    start = del_me.address
    del del_me
    parts = [pool.allocate(16 * MIB) for _ in range(4)]
    assert driver.calls["alloc"] == 1
    assert sorted(p.address - start for p in parts) == [n * 16 * MIB for n in range(4)]


def test_small_blocks_do_not_hold_large_segments(pool: DevicePool, driver: FakeDriver) -> None:
    large = pool.allocate(64 * MIB)
    del large
    small = pool.allocate(100)
    assert driver.calls["alloc"] == 2
    assert pool.empty_cache() == 64 * MIB
    assert small.nbytes == 256


def test_statistics(pool: DevicePool) -> None:
    blocks = [pool.allocate(4 * MIB) for _ in range(3)]
    stats = pool.stats
    assert (stats.allocated, stats.reserved, stats.cached) == (12 * MIB, 20 * MIB, 8 * MIB)
    assert (stats.allocations, stats.hits, stats.live_blocks, stats.driver_allocations) == (3, 2, 3, 1)
    del blocks[1:]
    stats = pool.stats
    assert (stats.allocated, stats.peak_allocated, stats.frees) == (4 * MIB, 12 * MIB, 2)
    pool.reset_peak()
    assert pool.stats.peak_allocated == 4 * MIB
    blocks += [pool.allocate(4 * MIB), pool.allocate(4 * MIB)]
    del blocks[1]
    assert pool.stats.fragmentation == pytest.approx(1 - 8 / 12)  # 4 MiB alone, 8 at the end


def test_empty_cache_gives_all_back(pool: DevicePool, driver: FakeDriver) -> None:
    kept = pool.allocate(100)
    for n in (100, MIB, 50 * MIB):
        pool.allocate(n)
    assert pool.empty_cache() == 52 * MIB
    assert pool.stats.reserved == 2 * MIB == driver.held[0]
    del kept
    assert pool.empty_cache() == 2 * MIB
    assert driver.held[0] == 0 and not driver.memory


# --- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_reuses_at_once_another_does_not(pool: DevicePool, two: tuple[int, int]) -> None:
    address = pool.allocate(5000, two[0]).address
    other = pool.allocate(5000, two[1])
    again = pool.allocate(5000, two[0])
    assert again.address == address
    assert other.address != address
    assert other.stream == two[1]


def test_a_block_used_elsewhere_waits_for_that_stream(
    pool: DevicePool, driver: FakeDriver, two: tuple[int, int]
) -> None:
    block = pool.allocate(5000, two[0])
    address = block.address
    driver.memset(address, 1, 5000, two[1])
    block.used_on(two[1])
    del block
    assert pool.stats.allocated > 0  # the other stream has not come to it
    kept = pool.allocate(5000, two[0])
    assert kept.address != address
    driver.run(two[1])
    assert pool.stats.allocated == kept.nbytes
    assert pool.allocate(5000, two[0]).address == address


def test_memory_moves_between_streams_behind_an_event(two: tuple[int, int]) -> None:
    driver = FakeDriver(total=64 * MIB)
    driver.set_device(0)
    first, second = driver.stream_create(), driver.stream_create()
    pool = DevicePool(driver)
    block = pool.allocate(60 * MIB, first)
    address = block.address
    ran: list[str] = []
    driver._queue(first, lambda: not ran.append("first"))
    del block
    taken = pool.allocate(60 * MIB, second)
    assert taken.address == address and taken.stream == second
    assert pool.stats.borrowed == 1
    driver._queue(second, lambda: not ran.append("second"))
    driver.run(second)
    assert ran == ["first", "second"]  # although nobody waited for the first stream


def test_no_stream_is_asked_during_a_capture(pool: DevicePool, driver: FakeDriver, two: tuple[int, int]) -> None:
    block = pool.allocate(5000, two[0])
    block.used_on(two[1])
    pool.capturing(True)
    driver.capture_begin(two[0])
    del block
    asked = driver.calls["event_record"], driver.calls["event_query"]
    inside = pool.allocate(5000, two[0])
    assert pool.empty_cache() == 0
    assert (driver.calls["event_record"], driver.calls["event_query"]) == asked
    driver.graph_destroy(driver.capture_end(two[0]))
    pool.capturing(False)
    driver.run(two[1])
    del inside
    assert pool.stats.live_blocks == 1  # its event was recorded just now
    driver.run(two[1])
    assert pool.stats.live_blocks == 0


# --- running out ------------------------------------------------------------------------------------------------------


def test_out_of_memory_releases_the_cache_and_tries_again() -> None:
    driver = FakeDriver(total=100 * MIB)
    driver.set_device(0)
    pool = DevicePool(driver)
    kept = pool.allocate(30 * MIB)
    pool.allocate(40 * MIB)
    big = pool.allocate(64 * MIB)  # fits only without the cached 40
    stats = pool.stats
    assert (stats.retries, stats.out_of_memory, stats.driver_frees) == (1, 0, 1)
    assert big.nbytes + kept.nbytes == stats.allocated


def test_a_medium_block_takes_an_exact_segment_at_the_end() -> None:
    driver = FakeDriver(total=10 * MIB)
    driver.set_device(0)
    assert DevicePool(driver).allocate(5 * MIB).nbytes == 5 * MIB  # 20 MiB would be taken in better times


def test_out_of_memory_tells_all() -> None:
    driver = FakeDriver(total=100 * MIB)
    driver.set_device(0)
    pool = DevicePool(driver, error=ROCmMemoryError)
    blocks = [pool.allocate(24 * MIB) for _ in range(3)]
    blocks[0].note("weights of layer 3")
    pool.allocate(3 * MIB)
    with pytest.raises(ROCmMemoryError) as caught:
        pool.allocate(50 * MIB)
    text = str(caught.value)
    assert "expected 52 MiB on fake:0" in text
    assert "held 72 MiB, cached 0 B" in text and "free 28 MiB of 100 MiB" in text
    assert "1 x 24 MiB (weights of layer 3)" in text and "2 x 24 MiB" in text
    assert isinstance(caught.value, MemoryError)
    assert pool.stats.out_of_memory == 1
    del blocks
    assert pool.allocate(50 * MIB).nbytes == 52 * MIB  # the pool works on


def test_the_fraction_is_a_limit(driver: FakeDriver) -> None:
    pool = DevicePool(driver, fraction=0.25)
    kept = pool.allocate(GIB - 100 * MIB)
    with pytest.raises(OutOfMemoryError, match=r"the limit set for this pool is 1 GiB"):
        pool.allocate(200 * MIB)
    assert driver.calls["alloc"] == 1
    pool.set_fraction(1.0)
    assert pool.allocate(200 * MIB).nbytes and kept.nbytes
    for bad in (0.0, -1.0, 1.5):
        with pytest.raises(ArgumentError, match="expected a fraction"):
            pool.set_fraction(bad)
    with pytest.raises(ArgumentError, match="expected a size"):
        pool.allocate(-1)


def test_an_exact_pool_gives_each_block_its_own_allocation(driver: FakeDriver, two: tuple[int, int]) -> None:
    pool = DevicePool(driver, exact=True)
    sizes = (1, 7, 300, 300, MIB + 3)
    blocks = [pool.allocate(n, two[0]) for n in sizes]
    assert [b.nbytes for b in blocks] == list(sizes)
    assert [driver.held[0], pool.stats.reserved, pool.stats.allocated] == [sum(sizes)] * 3
    assert pool.allocate(0).nbytes == 1  # it still has an address of its own
    del blocks[2]
    stats = pool.stats
    assert (stats.cached, stats.driver_allocations, stats.driver_frees) == (0, 6, 2)
    assert driver.held[0] == stats.reserved == sum(sizes) - 300
    blocks[0].used_on(two[1])
    del blocks
    assert pool.empty_cache() == 0  # nothing is kept that could be released
    assert driver.held[0] == pool.stats.reserved == pool.stats.allocated == 0


def test_an_exact_pool_waits_for_work_before_it_frees(driver: FakeDriver, two: tuple[int, int]) -> None:
    """A driver need not: streams that wait for no other do not wait for its frees either."""
    pool = DevicePool(driver, exact=True)
    block = pool.allocate(64, two[0])
    waited = driver.calls["synchronize"]
    del block
    pool.allocate(64, two[0])
    assert driver.calls["free"] == 1 and driver.calls["synchronize"] == waited + 1


def test_an_exact_pool_runs_out_as_any_other() -> None:
    pool = DevicePool(FakeDriver(total=1000), error=ROCmMemoryError, exact=True)
    first = pool.allocate(600)
    with pytest.raises(ROCmMemoryError, match="expected 401 B on fake:0"):
        pool.allocate(401)
    del first
    assert pool.allocate(1000).nbytes == 1000


def test_the_knob_of_the_pool(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_MEMORY_POOL", "exact")
    assert DevicePool(driver).allocate(5).nbytes == 5
    monkeypatch.setenv("PYFLAME_MEMORY_POOL", "exakt")
    with pytest.raises(ArgumentError, match=r"PYFLAME_MEMORY_POOL. expected cached or exact but got 'exakt'"):
        DevicePool(driver)


@pytest.mark.slow
def test_blocks_freed_by_the_garbage_collector(pool: DevicePool) -> None:
    gc.collect()
    ring: list[object] = [pool.allocate(1000)]
    ring.append(ring)
    del ring
    assert pool.stats.live_blocks == 1
    gc.collect()
    assert pool.stats.live_blocks == 0


def test_bytes_for_people() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1 << 10, 5 << 20, 3 << 40)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "5 MiB",
        "3 TiB",
    ]


# --- stress -----------------------------------------------------------------------------------------------------------


def _work(pool: DevicePool, stream: int, number: int, rounds: int, wrong: list[str]) -> None:
    """Allocate and free at random. A block is marked at both ends, and its marks must be there when it is freed."""
    rng = np.random.default_rng(number)  # everything is drawn ahead: drawing would take longer than the pool does
    frees = (rng.random(rounds) < 0.5).tolist()
    which = rng.random(rounds).tolist()
    sizes = (2 ** rng.uniform(0, 22.5, rounds)).astype(int).tolist()  # to 6 MB, most of them small
    word = ctypes.c_int64.from_address
    held: list[tuple[Block, ctypes.c_int64, ctypes.c_int64, int]] = []
    for turn in range(rounds):
        count = len(held)
        if count and (frees[turn] or count > 40):
            at = int(which[turn] * count)
            held[at], held[-1] = held[-1], held[at]
            block, first, last, mark = held.pop()
            if not first.value == last.value == mark:
                wrong.append(f"thread {number}, round {turn}: {block.nbytes} bytes were overwritten")
                return
            continue
        block = pool.allocate(sizes[turn], stream)
        mark = number << 32 | turn
        first, last = word(block.address), word(block.address + block.nbytes - 8)
        first.value = last.value = mark
        held.append((block, first, last, mark))


def _stress(rounds: int) -> None:
    """Blocks of eight threads on four streams never overlap, and in the end all is free and goes back."""
    driver = FakeDriver(total=64 * GIB)
    driver.set_device(0)
    streams = [driver.stream_create() for _ in range(4)]
    pool = DevicePool(driver)
    wrong: list[str] = []
    threads = [
        threading.Thread(target=_work, args=(pool, streams[n % 4], n, rounds, wrong), daemon=True) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    stats = pool.stats
    assert (stats.allocated, stats.live_blocks) == (0, 0)
    assert stats.allocations == stats.frees > rounds * 3
    assert stats.free_blocks == stats.segments  # every segment is whole again
    pool.empty_cache()
    assert driver.held[0] == 0 and not driver.memory


@pytest.mark.slow(16)
def test_a_million_operations() -> None:
    _stress(125_000)


def test_the_stress_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that gives out memory a little too short is found."""
    original = DevicePool._cut
    monkeypatch.setattr(DevicePool, "_cut", lambda self, chunk, size: original(self, chunk, max(size - 256, 256)))
    with pytest.raises(AssertionError):
        _stress(500)


# --- pinned -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pinned(driver: FakeDriver) -> Iterator[PinnedPool]:
    found = PinnedPool(driver)
    yield found
    found.empty_cache()
    assert driver.held[-1] == 0


def test_pinned_blocks_are_kept(pinned: PinnedPool, driver: FakeDriver) -> None:
    pinned.warmup([10_000, 10_000, 1 << 20])
    assert driver.calls["host_alloc"] == 3
    blocks = [pinned.acquire(9000), pinned.acquire(16_384), pinned.acquire(1 << 20)]
    assert driver.calls["host_alloc"] == 3
    assert (pinned.stats.cached, pinned.stats.hits, pinned.stats.allocated) == (0, 3, (32 << 10) + (1 << 20))
    blocks[0].array()[:] = 7
    assert bytes(np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(blocks[0].address))) == b"\7\7\7\7"
    for block in blocks:
        pinned.release(block)
        pinned.release(block)  # the second time says nothing new
    assert pinned.stats.allocated == 0
    with pytest.raises(ArgumentError):
        pinned.acquire(-1)


def test_a_pinned_block_waits_for_its_copy(pinned: PinnedPool, driver: FakeDriver, two: tuple[int, int]) -> None:
    block = pinned.acquire(100)
    address = block.address
    block.used_on(two[0])
    pinned.release(block)
    other = pinned.acquire(100)
    assert other.address != address
    driver.run(two[0])
    assert pinned.acquire(100).address == address
    assert pinned.stats.allocated == other.nbytes
