"""Evaluation: from pending Nodes to Values, through the cache of plans.

The key of a plan is the structure of the graph (`engine/pending.py`): per node its signature and the positions of its
sources. Numbers are no part of it, so a changing learning rate neither plans nor compiles anything. Nodes that others
still hold (a Tensor, the tape, another pending graph) are computed along, so nothing is computed twice. Large graphs
that repeat themselves are computed in portions (`engine/portions.py`).

Each device has a lock, held while a graph is walked, run and turned into leaves. None is held while a plan is made,
kernels are compiled or a device is waited for: what is missing is made first, then the graph is walked again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from pyflame.core import knobs, trace
from pyflame.core.device import CPU, DeviceId
from pyflame.core.errors import TraceError
from pyflame.core.locks import lock
from pyflame.core.state import mode, state
from pyflame.engine import known, native, resize, sizes
from pyflame.engine.commit import write_all
from pyflame.engine.copies import moved
from pyflame.engine.devices import get_device
from pyflame.engine.host import joined
from pyflame.engine.known import mode_of
from pyflame.engine.launch import NumpyRunner, PlanRunner, run_and_commit, runner_for
from pyflame.engine.pending import PendingGraph, as_leaves
from pyflame.engine.planning import make_plan
from pyflame.engine.portions import is_free, parts_of_joined, portions
from pyflame.engine.report import debug_print, debugging
from pyflame.engine.resize import structure_of
from pyflame.engine.value import Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, F, Node
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import CONST, COPY, LEAF, MOVEMENT
from pyflame.runtime.base import Device

# Plans and what runs them: those used lately, and before that. One that is still used moves along when the first table
# is full; half of the cache is a table.
_plans: dict[tuple[Any, ...], tuple[Plan, PlanRunner]] = {}
_old_plans: dict[tuple[Any, ...], tuple[Plan, PlanRunner]] = {}
# Large graphs without a plan: where to cut them, and how often the last few came. A graph counts as steady only if it
# comes again soon: a loop's does, that of an episode of just this length does not.
_cuts: OrderedDict[tuple[Any, ...], list[list[int]]] = OrderedDict()
_seen: OrderedDict[tuple[Any, ...], int] = OrderedDict()
# Where turns of a loop end, by structure: that is the same in an episode of other actions or with longer texts.
_turns: OrderedDict[tuple[Any, ...], list[list[int]]] = OrderedDict()
_MAX_CUTS, _MAX_SEEN = 64, 8
_STEADY = 3  # runs in portions before a graph is planned as a whole,
_NODES_PER_RUN = 256  # or one for so many nodes: a plan costs as much as some hundred runs gain by it
# The ops of small graphs without a plan, and the key that they had.
_shapes: OrderedDict[int, int] = OrderedDict()
_SMALL = 48  # nodes of a graph that is always planned whole
# How often a structure was planned for a GPU, each time with other sizes: after a few its small launches are not tried
# out any more.
_sizes: OrderedDict[int, int] = OrderedDict()
_lock = lock()
_CAT = OPS["cat"]
_META = DeviceId("meta")
_data = attrgetter("data")


@dataclass
class PlanStats:
    """How often evaluation found its plan, and how long planning took."""

    hits: int = 0
    misses: int = 0
    seconds: float = 0.0


class Misses:
    """Evaluations in turn that C knew nothing of. After a few it is asked about some only: to find that a graph is not
    known takes as long as to look through it."""

    FEW = 4  # and from there on every so-manieth

    def __init__(self) -> None:
        self.count = 0

    def skip(self) -> bool:
        """Whether not to ask about the next one, which then counts as another."""
        skipped = self.count > self.FEW and self.count % self.FEW != 0
        self.count += skipped
        return skipped


plan_stats = PlanStats()
misses = Misses()


def evaluate(nodes: Sequence[Node]) -> None:
    """Compute these nodes. Afterwards each is a leaf with its Value in `data`, but for constants: they have no device
    whose memory could hold one. `placed` gives them one."""
    state.pending = 0
    for node in nodes:
        if node.op.kind not in (LEAF, CONST):
            break
    else:
        return
    if trace.recording is None:
        _evaluate(nodes)
    else:
        with trace.span("evaluate", f"{len(nodes)} tensors"):
            _evaluate(nodes)


def _evaluate(nodes: Sequence[Node]) -> None:
    if _is_known(nodes):
        return
    places = dict.fromkeys([n.meta.device for n in nodes] if len(nodes) > 1 else (nodes[0].meta.device,))
    for place in places:  # a plan is of one device
        device = get_device(place or state.device)
        here = nodes if len(places) == 1 else [n for n in nodes if n.meta.device == place]
        while (task := _attempt(here, device)) is not None:
            task()
            del task
            if _is_known(here):
                break


def _is_known(nodes: Sequence[Node]) -> bool:
    """Evaluate nodes in C, if that can be."""
    if nodes[0].op.kind == COPY or misses.skip():  # a copy says nothing of the graphs around it
        return False
    done = known.evaluate_known(nodes)
    misses.count = 0 if done else misses.count + 1
    plan_stats.hits += done - 1 if done > 0 else -done
    return done > 0


def _in_portions(groups: list[list[Node]]) -> None:
    """Evaluate groups of nodes one after the other, the last one first. Each is forgotten then: nobody else may hold
    what the next one overwrites."""
    while groups:
        _evaluate(groups.pop())


def _attempt(nodes: Sequence[Node], device: Device) -> Callable[[], object] | None:
    """Compute nodes of one device if nothing is in the way: copies between devices, a graph that is better computed in
    portions, or one without a plan.

    Whatever it is, it is done by the caller, who holds no lock.
    """
    with device.lock:
        left: list[Node] = []
        views: dict[Node, Value] = {}
        for node in nodes:
            kind = node.op.kind
            if kind == MOVEMENT and (value := view_of_memory(node)) is not None:
                views[node] = value
            elif kind != LEAF and kind != CONST:
                left.append(node)
        if len(left) == 1 and left[0].op is _CAT and (value := joined(left[0])) is not None:
            views[left.pop()] = value
        if views:
            write_all(as_leaves(list(views), list(views.values())))
        if not left:
            return None
        graph = PendingGraph(left, slices=True)
        if graph.copies:
            return partial(_copy_all, graph.copies)
        if graph.collectives:
            raise TraceError(
                "[jit] expected a tensor with a value but this one waits for a collective of a jitted function; return "
                "it from the function"
            )
        if device.id is _META:
            write_all(as_leaves(graph.outputs, [Value(None) for _ in graph.outputs]))
            return None
        found = _known(graph, device)
        if found is not None:
            misses.count = 0
            _run(graph, *found)
            known.remember(graph, *found, device.id)
            return None
        if device.interprets:
            _run(graph, None, NumpyRunner(graph))
            return None
        found = _resized(graph, device)
        if found is not None:  # a length that may never come again
            _run(graph, *found)
            return None
        groups = _portions(graph, device)
        return partial(_in_portions, groups) if groups else partial(_plan_first, graph.copy(), device)


def _portions(graph: PendingGraph, device: Device) -> list[list[Node]]:
    """What to evaluate before a graph's outputs, the last of it first; nothing where it is better planned whole:
    because it is small, does not repeat itself, or comes again and again.

    The null device is asked for plans, not for results.
    """
    size, key = len(graph.order), graph.key
    if not device.id.computes:
        return []
    with _lock:
        seen, cuts = _seen.pop(key, 0), _cuts.pop(key, None)
    end = len(key) - len(graph.outputs) - len(graph.owned) - 1
    if cuts is None:
        cuts = parts_of_joined(graph.order, key[:end]) or None
    if cuts is None:
        varied = size < knobs.CUT_GRAPHS.integer()
        if size < _SMALL or (varied and not _varies(graph)):
            return []
        cuts = _cut(graph, end, varied)
    with _lock:
        _cuts[key], _seen[key] = cuts, seen + 1
        for table, most in (_cuts, _MAX_CUTS), (_seen, _MAX_SEEN):
            while len(table) > most:
                table.popitem(last=False)
    if seen >= max(_STEADY, size // _NODES_PER_RUN):
        return []
    return [[graph.order[at] for at in group] for group in reversed(cuts)]


def _cut(graph: PendingGraph, end: int, varied: bool) -> list[list[int]]:
    """Where to cut a graph that repeats itself. `end`: of the nodes in its key."""
    alike = (varied, *structure_of(graph)[0])
    with _lock:
        cuts = _turns.pop(alike, None)
    if cuts is None:
        cuts = portions(graph.order, graph.key[:end], graph.key[end + 1 : end + 1 + len(graph.outputs)], varied)
    with _lock:
        _turns[alike] = cuts
        while len(_turns) > _MAX_CUTS:
            _turns.popitem(last=False)
    return cuts


def _varies(graph: PendingGraph) -> bool:
    """Whether the same ops came before in another graph, as where each image of a batch is flipped or not."""
    key = hash(graph.key)
    ops = hash(tuple([id(node.op) for node in graph.order if not is_free(node.op)]))
    with _lock:
        before = _shapes.pop(ops, key)
        _shapes[ops] = key
        while len(_shapes) > knobs.PLAN_CACHE.integer():
            _shapes.popitem(last=False)
    return before != key


def _run(graph: PendingGraph, plan: Plan | None, runner: PlanRunner) -> None:
    """Run a plan; the graph's outputs become leaves."""
    inputs, constants = list(map(_data, graph.inputs)), [*map(_data, graph.constants), *graph.starts]
    debug = debugging()
    donated = plan.overwritten_inputs if plan is not None else ()  # those it owns, says its key
    run_and_commit(runner, inputs, constants, partial(as_leaves, graph.outputs), debug, graph.lines, donated)
    if debug and plan is not None:
        debug_print(plan, runner)


def settle_copies(nodes: Sequence[Node]) -> None:
    """Realise the copies between devices that some pending nodes wait for: a plan is of one device."""
    while copies := PendingGraph(nodes).copies:
        _copy_all(copies)


def _known(graph: PendingGraph, device: Device) -> tuple[Plan, PlanRunner] | None:
    key = (mode_of(device.id), graph.key)
    found = _plans.get(key)
    if found is None:
        found = _old_plans.get(key)
        if found is None:
            return None
        _keep(key, found)
    plan_stats.hits += 1
    return found


def _make_plan(graph: PendingGraph, device: Device) -> tuple[Plan, PlanRunner]:
    """The plan of a graph whose structure is new, and its runner. No lock is held: this may take long."""
    plan_stats.misses += 1
    started = time.perf_counter()
    many_sizes = _has_many_sizes(graph, device)
    with trace.span("plan", f"{len(graph.order)} nodes"), mode(one_by_one=True, many_sizes=many_sizes):
        plan = make_plan(graph, device)
    if many_sizes or not plan.measured:
        resize.learn(graph, device, mode_of(device.id), plan)
    if device.id.computes:
        native.load()
    plan_stats.seconds += time.perf_counter() - started
    return _keep((mode_of(device.id), graph.key), (plan, runner_for(graph, plan, device)))


def _has_many_sizes(graph: PendingGraph, device: Device) -> bool:
    if device.gpu is None:
        return False
    alike = hash(structure_of(graph)[0])
    with _lock:
        planned = _sizes.pop(alike, 0)
        _sizes[alike] = planned + 1
        while len(_sizes) > knobs.PLAN_CACHE.integer():
            _sizes.popitem(last=False)
    return planned >= sizes.FEW_SIZES


def _plan_first(graph: PendingGraph, device: Device) -> None:
    """Plan a graph for the next attempt, which finds it."""
    _make_plan(graph, device)
    plan_stats.hits -= 1


def _resized(graph: PendingGraph, device: Device) -> tuple[Plan, PlanRunner] | None:
    """The plan of a graph that was planned with other extents, and its runner."""
    found = resize.resized(graph, device, mode_of(device.id))
    if found is None:
        return None
    plan_stats.hits += 1
    return _keep((mode_of(device.id), graph.key), found)


def _keep(key: tuple[Any, ...], found: tuple[Plan, PlanRunner]) -> tuple[Plan, PlanRunner]:
    global _plans, _old_plans
    with _lock:
        if len(_plans) >= max(1, knobs.PLAN_CACHE.integer() // 2):
            _plans, _old_plans = {}, _plans
            known.forget()  # what is still used is remembered when it is met in Python
        _plans[key] = found
    return found


def find_plan(graph: PendingGraph, device: Device) -> tuple[Plan, PlanRunner]:
    """The plan of a graph and what runs it, made if this structure is new."""
    return _known(graph, device) or _resized(graph, device) or _make_plan(graph, device)


def clear_plans() -> None:
    """Forget all plans."""
    with _lock:
        _plans.clear()
        _old_plans.clear()
        known.forget()
        _cuts.clear()
        _turns.clear()
        _seen.clear()
        _sizes.clear()
        _shapes.clear()
    sizes.forget_sizes()
    resize.forget()


def _copy_all(copies: list[Node]) -> None:
    """Realise copies between devices, sources first. All of one walk: each walk is as long as the graph."""
    copies.reverse()
    while copies:
        _copy(copies.pop())


def _copy(node: Node) -> None:
    """Realise a copy between devices."""
    srcs = node.srcs
    if not srcs:  # another thread has done it
        return
    source = srcs[0]
    if node.meta.device is _META:  # which needs no values
        write_all(as_leaves([node], [Value(None)]))
        return
    evaluate([source])
    here, there = (get_device(m.device or CPU) for m in (source.meta, node.meta))
    if here is not there and source.data.strides is not None and here.id.computes:
        with mode(recorder=None, tracer=None, autocast=None, device=here.id):
            source = F.contiguous(source)  # views are made dense before they travel
            evaluate([source])
    value = moved(source.data, node.meta.nbytes, here, there)
    with there.lock:
        if node.op.kind != LEAF:
            write_all(as_leaves([node], [value]))
