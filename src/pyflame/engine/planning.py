"""Planning: a graph becomes a finished plan, in one step, before anything of it runs.

    passes -> schedule -> implementations (libraries are tried out) -> splitting, merging -> texts -> Plan

The result is frozen. Runners compile it and execute it; none of them decides anything.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence

from pyflame.core import knobs
from pyflame.core.device import Target
from pyflame.core.state import mode, state
from pyflame.core.undo import Undo
from pyflame.engine.implementations import table_for
from pyflame.engine.layout import scratch_bytes
from pyflame.engine.merge import merge
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planned_target import planned_target
from pyflame.engine.texts import c_source, gpu_source, gpu_sources, shared
from pyflame.ir.graph import Graph
from pyflame.ir.kernel import Draft, GpuSource, Launch, Plan, Source, Way
from pyflame.passes.alignment import align_products
from pyflame.passes.convolutions import lower_convolutions
from pyflame.passes.gathers import sink_gathers
from pyflame.passes.layout import lay_out
from pyflame.passes.legalise import legalise
from pyflame.passes.logits import chunk_logits
from pyflame.passes.norms import fuse_norms
from pyflame.passes.own import own
from pyflame.passes.simplify import simplify
from pyflame.runtime.base import Device
from pyflame.schedule.plan import make_plan as schedule


def make_plan(graph: PendingGraph, device: Device, donations: Mapping[int, int] | None = None) -> Plan:
    """The plan of a graph on a device. `donations`: positions of inputs -> the output that may take their buffer."""
    target = planned_target(device)
    draft = draft_plan(graph, target, donations, device)
    return _finished(draft, graph, _sources(draft, device, target))


def plan_ahead(graph: PendingGraph, target: Target, donations: Mapping[int, int] | None = None) -> Plan:
    """The plan of a graph for a GPU that need not be here: every launch is a kernel of ours. `donations`: as in
    `make_plan`."""
    draft = draft_plan(graph, target, donations)
    return _finished(draft, graph, [_source_ahead(draft, launch, target) for launch in draft.launches])


def workspace_of(graph: PendingGraph, device: Device, donations: Mapping[int, int] | None = None) -> int:
    """The bytes that a run of a graph takes on a device beside inputs and outputs: the arena, and the scratch of the
    launch that needs most. Nothing is tried out, so launches of GPUs count as kernels of ours; what a product of a
    library may ask for counts too, where there is one."""
    plan = make_plan(graph, device, donations) if device.gpu is None else plan_ahead(graph, device.target, donations)
    scratch = [
        s.scratch_bytes + s.worker_bytes * device.target.workers if isinstance(s, Source) else scratch_bytes(s)
        for s in plan.sources
    ]
    return plan.arena_bytes + max(*scratch, _library_bytes(plan, device), 0)


def _library_bytes(plan: Plan, device: Device) -> int:
    """What a library may ask for, where one may do a product of the plan."""
    if not any(x.kernel.anchor is not None and x.kernel.anchor.op.name == "matmul" for x in plan.launches):
        return 0
    if not _library_takes(device, "matmul"):
        return 0
    from pyflame.engine.libraries.calls import WORKSPACE

    return WORKSPACE


def _source_ahead(draft: Draft, launch: Launch, target: Target) -> GpuSource:
    """The text of a launch whose buffers start at multiples of any kernel asks for: what is misaligned shows now."""
    source = gpu_source(launch, target)
    starts = [offset + draft.buffers[b].offset for b, offset in launch.buffers]
    if any(start % a for start, a in zip(starts, source.alignment, strict=False)):
        source = gpu_source(launch, target, aligned=False)
    return source


def draft_plan(
    graph: PendingGraph, target: Target, donations: Mapping[int, int] | None = None, device: Device | None = None
) -> Draft:
    """Passes and schedule: what to launch, before it is decided who does it. `device`: as in `table_for`.

    The collector of circles waits meanwhile: all that planning makes is in use until it ends, and going through it over
    and over would take a third of the time. Others' garbage waits with it, for as long as a plan takes."""
    if not gc.isenabled():
        return _drafted(graph, target, donations or {}, device)
    return (Undo(gc.enable), gc.disable(), _drafted(graph, target, donations or {}, device))[2]  # type: ignore[func-returns-value]


def _drafted(graph: PendingGraph, target: Target, given: Mapping[int, int], device: Device | None) -> Draft:
    table = table_for(target, device)
    inputs = {n: i for i, n in enumerate(graph.inputs)}
    constants = {n: i for i, n in enumerate(graph.constants)}
    # Passes make nodes too: where the graph runs, and on nobody's tape.
    place = next((n.meta.device for n in graph.order if n.meta.device is not None), state.device)
    with mode(recorder=None, tracer=None, autocast=None, device=place):
        work, notes = chunk_logits(Graph(graph.outputs), constants)
        work = fuse_norms(work, table)
        work = lower_convolutions(legalise(work, table), target, lambda: _library_takes(device, "conv_general"))
        pinned = {work.outputs[o] for i, o in given.items() if graph.inputs[i].data is not None}
        work = align_products(simplify(lay_out(work, target, pinned), constants), target)
        work = own(sink_gathers(work), set(graph.owned))
    successors = {graph.inputs[i]: work.outputs[o] for i, o in given.items()}
    draft = schedule(work, inputs, constants, target, table, state.max_fused or knobs.MAX_FUSED.integer(), successors)
    draft.notes = notes
    return draft


def _library_takes(device: Device | None, op: str) -> bool:
    """Whether a library of the device competes for an op."""
    if device is None or device.gpu is None:
        return False
    from pyflame.engine.libraries.decide import libraries_of

    return bool(libraries_of(device.gpu).usable(op))


def _sources(draft: Draft, device: Device, target: Target) -> Sequence[Way]:
    """How each launch is done. What libraries cannot fuse is split off, what runs the same text is merged."""
    if device.gpu is not None:
        from pyflame.engine.libraries.decide import choose  # a tenth of what importing pyflame costs: for GPUs only

        calls = choose(draft, device.gpu)
        return gpu_sources(draft.launches, target, calls)
    if device.interprets or device.pool is None:
        return ()
    return [shared(s) for s in merge(draft, [c_source(launch, device.target) for launch in draft.launches])]


def _finished(draft: Draft, graph: PendingGraph, sources: Sequence[Way]) -> Plan:
    # Lines are no part of a plan's key: one who meets the plan again brings lines of their own, in the same order.
    numbers = {id(line): i for i, line in enumerate(graph.lines)}
    return draft.finish(sources, len(graph.starts), [numbers.get(id(line), -1) for _, line in draft.checks])
