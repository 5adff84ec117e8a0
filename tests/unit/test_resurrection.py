"""Tensors that a finaliser brings back to life: the collector has ended their memory by then, and it must stay theirs.

The collector calls the finalisers of everything in a circle of garbage before it looks whether one of them has saved
something: a generator that is closed so may hand a tensor on whose memory was given up a moment before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import pyflame as pf
from pyflame.runtime.pool import HostPool


class Task:
    """Holds a generator that holds it: a circle, which ends when the collector runs."""

    def __init__(self, device: str, saved: list[pf.Tensor]) -> None:
        self.device, self.saved = device, saved
        self.steps = self.run()
        next(self.steps)

    def run(self) -> Iterator[None]:
        x = pf.arange(1000, dtype=pf.float32, device=self.device) + 0.5
        pf.eval(x)
        try:
            yield
        finally:
            self.saved.append(x)


@pytest.mark.slow(16)
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
def test_memory_of_what_lives_on_is_not_given_away(device: str) -> None:
    saved: list[pf.Tensor] = []
    gc.collect()
    Task(device, saved)
    gc.collect()
    (x,) = saved
    others = [pf.full((1000,), float(n), dtype=pf.float32, device=device) for n in range(8)]
    pf.eval(others)
    assert x.tolist() == [n + 0.5 for n in range(1000)]
    allocated = pf.memory_stats(device).allocated
    saved.clear()
    del x
    assert allocated - pf.memory_stats(device).allocated >= 4000  # and it comes back in the end


@pytest.mark.slow
def test_blocks_come_back_while_the_pool_looks_through_its_queue() -> None:
    pool, often = HostPool(exact=False), gc.get_threshold()
    try:
        for count in range(1, 300):
            gc.set_threshold(1 + count % 30)  # the collector runs anywhere, also in the middle of that look
            circle: list[object] = [pool.allocate(256)]
            circle.append(circle)
            pool.allocate(256)
            del circle
    finally:
        gc.set_threshold(*often)
    gc.collect()
    assert pool.stats.live_blocks == 0
