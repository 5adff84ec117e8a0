"""PYFLAME_MEMORY_POOL=exact on the CPU: allocations with exact bounds, which hold no number until one is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.devices import cpu
from pyflame.engine.evaluate import clear_plans
from pyflame.runtime.pool import ALIGNMENT, POISON, Block, HostPool


@contextmanager
def exact_cpu() -> Iterator[list[int]]:
    """The CPU with an exact pool for the time of a block; gives the sizes that it is asked for."""
    pool, sizes = HostPool(exact=True), list[int]()

    def take_all(wanted: Sequence[int], real: Any = pool.take_all) -> list[Block]:
        sizes.extend(wanted)
        return real(wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "take_all", take_all)
        patch.setattr(cpu(), "pool", pool)
        clear_plans()
        yield sizes
    clear_plans()


def test_a_block_is_an_allocation_of_its_bytes() -> None:
    pool = HostPool(exact=True)
    for nbytes in (0, 1, 7, 100, 1 << 16):
        block = pool.allocate(nbytes)
        size = max(nbytes, 1)
        assert block.nbytes == block.memory.nbytes == size
        assert block.address == block.memory.ctypes.data
        assert block.address % ALIGNMENT == 0
        assert (block.memory == POISON).all()
        block.memory[:] = 1  # nobody sees this again
    del block
    stats = pool.stats
    assert (stats.live_blocks, stats.cached, stats.hits, stats.driver_frees) == (0, 0, 0, 5)


def test_an_array_outlives_its_pool() -> None:
    """Memory is freed when its last user goes."""
    array = HostPool(exact=True).allocate(64).memory[8:]
    array[:] = 3
    assert array.sum() == 3 * 56


def test_each_buffer_of_a_plan_is_its_own() -> None:
    with exact_cpu() as taken:
        x = pf.tensor(np.eye(9, dtype=np.float32))
        taken.clear()
        got = ((x @ x).cumsum(0) @ x).numpy()
        assert taken.count(x.nbytes) == 3  # the result, and two intermediates
    np.testing.assert_array_equal(got, np.eye(9).cumsum(0))


def gradient() -> np.ndarray[Any, Any]:
    """Through intermediates, kernels with scratch, state that a jitted function updates, and an assignment."""
    w = pf.tensor(np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 1, 9), requires_grad=True)
    x = pf.tensor(np.linspace(0, 2, 40, dtype=np.float32).reshape(1, 1, 40))
    step = pf.jit(lambda: (pf.max_pool1d(pf.relu(pf.conv1d(x, w, padding=4)), 2)[0] @ x[0, 0, :20]).sum().backward())
    for _ in range(3):
        step()
    assert w.grad is not None
    w.grad[0] = 0.0
    return w.grad.numpy()


def test_results_are_those_of_the_cached_pool() -> None:
    want = gradient()
    with exact_cpu():
        np.testing.assert_array_equal(gradient(), want)


def test_what_nobody_wrote_is_no_number() -> None:
    with exact_cpu():
        assert np.isnan(pf.empty(5, dtype=pf.float32).numpy()).all()
        assert (pf.empty(5, dtype=pf.int64).numpy() == -1).all()
