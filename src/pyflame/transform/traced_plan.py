"""The plan of a trace, and where its inputs, numbers and outputs come from and go to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError
from pyflame.core.locks import Lock
from pyflame.core.state import mode, state
from pyflame.engine.cross_device import (
    CrossDevicePlan,
    MultiDeviceRunner,
    crosses,
    plan_stages,
    without_needless_copies,
)
from pyflame.engine.devices import get_device
from pyflame.engine.launch import Runner, replayed, runner_for
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan, workspace_of
from pyflame.ir import Meta, Node, signature
from pyflame.ir.kernel import Plan
from pyflame.transform.trace import Trace

if TYPE_CHECKING:
    from pyflame.engine.devices import Device


class TracedPlan(NamedTuple):
    """A trace's graph and its plan. `nodes`: outputs of the graph, in the order of the trace's."""

    graph: PendingGraph
    nodes: list[Node]
    plan: Plan
    devices: list[DeviceId]  # that it touches, in the order in which their locks are taken
    stages: CrossDevicePlan | None = None  # where it crosses devices

    @property
    def locks(self) -> list[Lock]:
        return [get_device(device).lock for device in self.devices]

    def runner(self, arguments: Sequence[int]) -> Runner:
        """What replays it. `arguments`: positions of inputs that change place from call to call."""
        if self.stages is not None:
            return MultiDeviceRunner(self.stages, arguments)
        return replayed(runner_for(self.graph, self.plan, get_device(self.devices[0])), arguments)


def plan_trace(trace: Trace) -> TracedPlan:
    """Plan what a function computes. New values of cells take over the old ones' buffers."""
    nodes, successor = list(trace.nodes), trace.successor
    with mode(tracer=None):
        graph = PendingGraph(nodes, keep_held=False)
        if crosses(graph):
            done = without_needless_copies(nodes)
            nodes = [done[n] for n in nodes]
            successor = {made: done[n] for made, n in successor.items() if done[n] is not made}
            graph = PendingGraph(nodes, keep_held=False)
        if crosses(graph):
            stages = plan_stages(graph, successor)
            found = {n.meta.device for n in graph.order if n.meta.device is not None}
            return TracedPlan(graph, nodes, stages.plan, sorted(found, key=str), stages)
        device = get_device(next((n.meta.device for n in nodes if n.meta.device is not None), state.device))
        donations = _donations(trace, graph, successor, device)
        return TracedPlan(graph, nodes, make_plan(graph, device, donations), [device.id])


def workspace_of_trace(trace: Trace, device: DeviceId) -> int:
    """The bytes that a call takes on one device beside arguments, state and results."""
    with mode(tracer=None):
        done, place = without_needless_copies(trace.nodes), get_device(device)
        graph = PendingGraph([done[n] for n in trace.nodes], keep_held=False)
        if crosses(graph):
            raise DeviceError(f"[workspace] expected a function of one device but it crosses from {device} to others")
        successor = {made: done[n] for made, n in trace.successor.items()}
        return workspace_of(graph, place, _donations(trace, graph, successor, place))


def _donations(trace: Trace, graph: PendingGraph, successor: Mapping[Node, Node], device: Device) -> dict[int, int]:
    """Positions of inputs -> the outputs that take over their buffers."""
    position = {n: i for i, n in enumerate(graph.outputs)}
    if not device.interprets:
        graph.inputs += [memory for memory in trace.old_grads if memory is not None]
    input_at = {n: i for i, n in enumerate(graph.inputs)}
    graph.owned = [made for made in successor if made in input_at and made.data is not None]
    return {input_at[made]: position[node] for made, node in successor.items() if made in input_at}


Origin = tuple[str, Any]  # of an input or number
Output = tuple[int, Meta, int]  # position among the plan's outputs, and meta and signature of a leaf that holds it


def outputs_of(trace: Trace, planned: TracedPlan) -> list[Output]:
    """The plan's outputs, in the order of the trace's nodes."""
    position = {n: i for i, n in enumerate(planned.graph.outputs)}
    strides = [view.strides for view in planned.plan.outputs]
    metas = [n.meta for n in trace.nodes]
    places = [position[n] for n in planned.nodes]
    return [(at, meta, signature("leaf", meta, strides[at])) for at, meta in zip(places, metas, strict=True)]


def inputs_of(trace: Trace, graph: PendingGraph) -> list[Origin]:
    """Where the plan's inputs come from: ("arg", number), ("cell", number), ("grad", number) or ("value", Value);
    ("memory", number of a new gradient) where one of the call before has left memory."""
    sources = {n: ("arg", i) for i, n in enumerate(trace.arguments)}
    sources |= {made: ("cell", i) for i, made in enumerate(trace.made)}
    sources |= {made: ("grad", i) for i, (_, made) in enumerate(trace.grad_cells)}
    sources |= {memory: ("memory", i) for i, memory in enumerate(trace.old_grads) if memory is not None}
    return [sources.get(n) or ("value", n.data) for n in graph.inputs]


def constants_of(trace: Trace, graph: PendingGraph) -> list[Origin]:
    """Where the plan's numbers come from: ("arg", number), ("draw", number) or ("value", the number itself)."""
    drawn = {n: 2 * i + k for i, (_, *pair) in enumerate(trace.draws) for k, n in enumerate(pair)}
    return [
        ("arg", n.attrs[0]) if n.attrs else ("draw", drawn[n]) if n in drawn else ("value", n.data)
        for n in graph.constants
    ]
