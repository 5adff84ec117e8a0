"""A plan is finished before a runner exists: one step makes it, nothing changes it, any number of runners serve it."""

from __future__ import annotations

import gc
import weakref
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.targets import TARGETS
from pyflame.engine import planning
from pyflame.engine.build import CpuRunner
from pyflame.engine.devices import cpu, get_device
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.launch import runner_for
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan, make_plan
from pyflame.ir import OPS
from pyflame.ir.graph import Graph
from pyflame.ir.kernel import GpuSource, Plan, Source
from pyflame.passes.layout import lay_out
from pyflame.passes.legalise import legalise
from pyflame.passes.own import own
from pyflame.passes.simplify import simplify
from tests.emulated import emulated_device
from tests.plans import plan_of


def parameters() -> list[pf.Tensor]:
    """Updates of several parameters, which become one launch, and a product."""
    grown = [pf.ones(n) * 2.0 + 1.0 for n in (3, 5, 7)]
    return [*grown, (pf.ones(4, 3) @ pf.ones(3, 6)).relu()]


def graph_of(tensors: list[pf.Tensor]) -> PendingGraph:
    return PendingGraph([t._node for t in tensors], keep_held=False)


def values(graph: PendingGraph) -> tuple[list[Any], list[Any]]:
    return [n.data for n in graph.inputs], [n.data for n in graph.constants]


def frozen(value: Any) -> bool:
    """Whether a plan's part is a value: nothing of it can be assigned or appended to."""
    if isinstance(value, tuple):
        return all(map(frozen, value))
    if is_dataclass(value) and not isinstance(value, type):
        with pytest.raises(FrozenInstanceError):
            setattr(value, fields(value)[0].name, None)
    return not isinstance(value, list)


def test_a_plan_and_its_parts_are_frozen() -> None:
    graph = graph_of(parameters())
    plan = make_plan(graph, cpu())
    assert all(frozen(getattr(plan, field.name)) for field in fields(Plan))
    assert all(frozen(launch.buffers) and frozen(launch.operands) for launch in plan.launches)
    with pytest.raises(FrozenInstanceError):
        plan.starts = 1  # type: ignore[misc]


@pytest.mark.slow
def test_planning_leaves_nothing_to_the_collector() -> None:
    """A node that is held in a circle keeps its memory until the collector runs, which may be long after."""
    x = pf.tensor(np.ones((4, 8), np.float32))
    shared = x.exp()
    rows = [shared.softmax(-1), shared.sum(0), shared * 2.0, shared.reshape(8, 4) + 1.0]  # groups, merged ones too
    graph = graph_of([*rows, x[pf.tensor([1, 0])].tanh(), *parameters()]).copy()
    gc.collect()
    gc.disable()
    try:
        for target in (cpu().target, TARGETS["gfx942"]):
            nodes = graph.copy()
            left = [weakref.ref(n) for n in nodes.order if n.op.name != "const"]
            draft_plan(nodes, target)
            del nodes
            assert [ref() for ref in left if ref() is not None] == []
    finally:
        gc.enable()


def test_the_collector_waits_while_a_plan_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def failing(*_: object) -> Graph:
        seen.append(gc.isenabled())
        raise ValueError("broken pass")

    graph = graph_of(parameters())
    draft_plan(graph, cpu().target)
    assert gc.isenabled()
    monkeypatch.setattr(planning, "simplify", failing)
    with pytest.raises(ValueError, match="broken pass"):
        draft_plan(graph, cpu().target)
    assert gc.isenabled() and seen == [False]
    gc.disable()
    try:
        with pytest.raises(ValueError, match="broken pass"):
            draft_plan(graph, cpu().target)
        assert not gc.isenabled()  # as whoever called it wants
    finally:
        gc.enable()


def test_a_pass_with_nothing_to_do_gives_the_graph_it_was_given() -> None:
    """So no pass behind it walks the graph again."""
    x = pf.tensor(np.ones(5, np.float32))
    y = x.exp() + 1.0
    graph = Graph([y._node])
    assert own(simplify(lay_out(legalise(graph, {}), cpu().target)), ()) is graph
    twice = simplify(Graph([(y * x.exp())._node]))
    assert [n.op.name for n in twice.order].count("exp") == 1


def test_merging_and_texts_are_part_of_the_plan() -> None:
    graph = graph_of(parameters())
    draft, plan = draft_plan(graph, cpu().target), make_plan(graph, cpu())
    assert len(plan.launches) < len(draft.launches)  # the updates are one launch
    assert len(plan.sources) == len(plan.launches) and all(isinstance(s, Source) for s in plan.sources)


def test_runners_leave_a_plan_as_it_is() -> None:
    tensors = parameters()
    graph = graph_of(tensors)
    plan = make_plan(graph, cpu())
    before = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    for runner in (CpuRunner(plan, cpu()), CpuRunner(plan, cpu())):
        out = runner.run(*values(graph))
        assert len(out) == len(tensors)
    assert {field.name: getattr(plan, field.name) for field in fields(Plan)} == before


def test_the_null_device_needs_no_texts() -> None:
    null = get_device(DeviceId("null", 0, "gfx942"))
    with pf.device("null:gfx942"):
        graph = graph_of([pf.ones(8) * 2.0])
    plan = make_plan(graph, null)
    assert plan.launches and not plan.sources
    assert len(runner_for(graph, plan, null).run(*values(graph))) == 1


def test_a_gpu_is_given_the_texts_of_its_plan() -> None:
    device = emulated_device()
    with pf.device("null:gfx1100"):
        graph = graph_of([pf.softmax(pf.ones(4, 33) * 2.0, -1)])
    plan = make_plan(graph, device)
    assert all(isinstance(source, GpuSource) for source in plan.sources)
    (out,) = GpuRunner(plan, device).run(*values(graph))
    got = np.empty((4, 33), np.float32)
    device.download(got.ctypes.data, out.address, got.nbytes)
    np.testing.assert_allclose(got, 1 / 33, rtol=1e-6)


@pytest.mark.parametrize("target", ["cpu", "gfx1100"])
def test_what_united_groups_share_is_computed_once(target: str) -> None:
    """An update that may be skipped stores three values of a gradient: in the epilogue of the gradient's product."""
    x, slopes, skip = pf.ones(64, 8), pf.ones(64, 8), pf.tensor(False)
    weight, mean, square = (pf.full((8, 8), 0.5) for _ in range(3))
    pf.eval(x, slopes, weight, mean, square)
    gradient = (slopes.T @ x) * 0.25
    new_mean = mean + (gradient - mean) * 0.1
    new_square = square * 0.9 + gradient * gradient * 0.1
    values = (weight - new_mean / new_square.sqrt(), new_mean, new_square)
    kept = [pf.where(skip, old, new) for old, new in zip((weight, mean, square), values, strict=True)]
    (launch,) = plan_of(*kept, target=target).launches
    assert sum(instr.op is OPS["mul"] for instr in launch.kernel.instrs) == 5
    for value, wanted in zip(kept, values, strict=True):
        np.testing.assert_array_equal(value.numpy(), wanted.numpy())
