"""A plan found again for other extents on a GPU is the plan that would be made for them, and gives what NumPy gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.state import mode
from pyflame.engine import devices, resize, sizes
from pyflame.engine.evaluate import clear_plans, find_plan, plan_stats
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.gpu_layout import GpuLayout
from pyflame.engine.libraries import decide
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.ir.kernel import Plan
from pyflame.runtime.base import Device
from tests.emulated import emulated_device
from tests.unit.test_resize import PROGRAMS, Program, _compare

NAME = DeviceId("rocm", 44)
LENGTHS = [3, 5, 0, 1, 2, 4, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 65, 100, 130, 257]


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    """Plans that were found for other extents. Each is compared with the one that would have been made."""
    plans: list[Plan] = []
    plain = resize.resized

    def checked(graph: PendingGraph, device: Device, modes: tuple[Any, ...]) -> Any:
        found = plain(graph, device, modes)
        if found is not None and isinstance(found[1], GpuRunner):
            with mode(many_sizes=True):
                plan = make_plan(graph.copy(), device)
            layout, runner = GpuLayout(plan, device.gpu), found[1]  # type: ignore[arg-type]
            assert (runner._constants.tolist(), runner._alignment.tolist()) == (layout.constants, layout.alignment)
            assert [g[1:] for _, g in layout.given()] == [g[1:] for run in runner._runs for g in run]
            assert runner.binding.numbers() == layout.binding.numbers()
            _compare(found[0], plan)
            plans.append(plan)
        return found

    monkeypatch.setattr(resize, "resized", checked)
    monkeypatch.setattr(sizes, "FEW_SIZES", 1)
    devices._open[NAME] = emulated_device(NAME.index, "gfx942")
    clear_plans()
    with pf.device(str(NAME)):
        yield plans
    clear_plans()
    del devices._open[NAME]


@pytest.mark.slow(4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_all_lengths(program: Program, found: list[Plan]) -> None:
    for n in LENGTHS:
        got, want = program(n)
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-5)


def test_lengths_are_not_planned_after_a_few(found: list[Plan]) -> None:
    """Rows of a product, a softmax and an index, two after each other as texts grow."""
    w, table = pf.rand(16, 8), pf.rand(20, 16)
    pf.eval(w, table)
    for n in range(33, 64):
        index = np.arange(n) % 20
        got = (table[pf.tensor(index)] @ w).softmax(-1).sum(1)
        np.testing.assert_allclose(got.numpy(), np.ones(n), rtol=1e-5)
    assert len(found) > 20


def test_neither_where_values_lie_nor_how_many_parts_a_product_has_makes_a_length_another(found: list[Plan]) -> None:
    """What is in memory at once comes in another order of sizes, and products of these lengths are cut into 4 to 10
    parts."""
    w, v = pf.rand(4096, 64), pf.rand(64, 96)
    pf.eval(w, v)
    misses = plan_stats.misses
    for n in range(33, 160, 2):  # whose rows are vectors of one width
        x, y = pf.zeros(n, 4096), pf.zeros(n, 64)
        scores = (y @ y.T).softmax(-1)
        out = ((scores @ (x @ w)) @ v).exp().sum(0) + (scores @ (y + 1.0)).sum()
        find_plan(PendingGraph([out._node]), devices._open[NAME])
    assert plan_stats.misses - misses <= 5


def test_where_a_large_product_varies_each_length_is_planned(
    found: list[Plan], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(decide, "SMALL_FLOPS", 0)
    w = pf.rand(16, 8)
    pf.eval(w)
    misses = plan_stats.misses
    for n in range(33, 40):
        pf.eval(pf.rand(n, 16) @ w)
    assert plan_stats.misses - misses >= 7 and not found and not recwarn.list


def test_memory_that_lies_misaligned(found: list[Plan]) -> None:
    """A plan for another extent is made as a whole where its texts must be others."""
    for length in (64, 128, 192, 256, 320):
        base = pf.tensor(np.arange(length + 1).astype(np.float16))
        pf.eval(base)
        np.testing.assert_array_equal((base[:length] * 2.0).numpy(), np.arange(length) * 2.0)
    base = pf.tensor(np.arange(385).astype(np.float16))
    pf.eval(base)
    np.testing.assert_array_equal((base[1:] * 2.0).numpy(), np.arange(1, 385) * 2.0)
    assert found
