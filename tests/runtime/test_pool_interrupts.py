"""Ctrl-C between any two bytecodes of a pool's work: no memory is lost, and none is given out twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from pyflame.runtime.gpu.memory import MIB, DevicePool
from pyflame.runtime.gpu.pinned import PinnedPool
from tests.runtime.fake import FakeDriver
from tests.seed import code_seed
from tests.unit.test_interrupts import Interrupter

FOLDER = "pyflame/runtime/gpu/"


class OfThePool(Interrupter):
    """Interrupts the pool's own work, not that of the driver that stands in for a GPU's."""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return super().__call__(frame, event, arg) if FOLDER in frame.f_code.co_filename else None


def interrupted(make: Callable[[], tuple[Callable[[], Any], Callable[[int], None]]], points: int) -> None:
    """Interrupt `act` before so many of its bytecodes, others for each state of the code, and check the rest."""
    act, check = make()
    counter = OfThePool(0)
    counter.run(act)
    check(0)
    stride = max(1, -counter.left // points)
    for at in range(1 + code_seed() % stride, -counter.left, stride):
        act, check = make()
        OfThePool(at).run(act)
        check(at)


def apart(blocks: list[Any]) -> bool:
    """Whether no two blocks share a byte."""
    ends = sorted((b.address, b.address + b.nbytes) for b in blocks)
    return all(end <= begin for (_, end), (begin, _) in pairwise(ends))


def device_pool() -> tuple[Callable[[], Any], Callable[[int], None]]:
    driver = FakeDriver()
    driver.set_device(0)
    pool, two = DevicePool(driver), driver.stream_create()
    warm = [pool.allocate(MIB, stream) for stream in (0, two) for _ in range(4)]
    kept = [pool.allocate(MIB // 2), pool.allocate(3 * MIB, two)]
    del warm
    segments = pool.stats.segments
    given: list[Any] = []

    def act() -> None:
        for nbytes in (MIB // 4, MIB // 4, MIB // 2):
            given.append(pool.allocate(nbytes))
        given[1].used_on(two)
        del given[1], given[0]
        given.append(pool.allocate(MIB // 2, two))
        given.append(pool.allocate(MIB // 8))
        driver.run(two)
        given.append(pool.allocate(2 * MIB, two))

    def check(at: int) -> None:
        rest = [pool.allocate(MIB // 4, stream) for stream in (0, two) for _ in range(6)]
        assert apart([*given, *kept, *rest]), at
        assert pool.stats.segments <= segments + 2, at  # what was given up is used again
        rest.clear()
        given.clear()
        pool.empty_cache()
        stats = pool.stats
        assert stats.live_blocks == len(kept) and stats.allocated == sum(b.nbytes for b in kept), at
        kept.clear()
        pool.empty_cache()
        assert pool.stats.reserved == pool.stats.allocated == driver.held[0] == 0, at

    return act, check


def pinned_pool() -> tuple[Callable[[], Any], Callable[[int], None]]:
    driver = FakeDriver()
    driver.set_device(0)
    pool, two = PinnedPool(driver), driver.stream_create()
    pool.warmup([MIB, MIB, 2 * MIB])
    given: list[Any] = []

    def act() -> None:
        for nbytes in (MIB, MIB, 2 * MIB):
            given.append(pool.acquire(nbytes))
        given[0].used_on(two)
        pool.release(given.pop(0))
        del given[0]
        given.append(pool.acquire(MIB))
        driver.run(two)
        given.append(pool.acquire(MIB))

    def check(at: int) -> None:
        driver.run(two)
        rest = [pool.acquire(nbytes) for nbytes in (MIB, MIB, MIB, 2 * MIB)]
        assert apart([*given, *rest]), at
        rest.clear()
        given.clear()
        pool.empty_cache()
        assert driver.held[-1] == 0, at

    return act, check


@pytest.mark.parametrize("make", [device_pool, pinned_pool])
def test_an_interrupt_loses_no_memory(make: Any) -> None:
    interrupted(make, 400)


@pytest.mark.thorough
@pytest.mark.parametrize("make", [device_pool, pinned_pool])
def test_no_interrupt_at_all_loses_memory(make: Any) -> None:
    interrupted(make, 1 << 30)
