"""Evaluation: from pending Nodes to Values, through the cache of plans.

The key of a plan is the structure of the graph: per node its signature and the positions of its sources. Numbers are
no part of it, so a changing learning rate neither plans nor compiles anything; nor is where a slice of something in
memory begins (`engine/views.py`). Nodes that something outside of the graph still holds (a Tensor, the tape, another
pending graph) are computed along, so nothing is computed twice.

Each device has a lock, held while a graph is walked, run and turned into leaves. None is held while a plan is made,
kernels are compiled or a device is waited for: what is missing is made first, then the graph is walked again.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from pyflame.core import knobs, trace
from pyflame.core.device import CPU
from pyflame.core.locks import lock
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import contiguous_strides
from pyflame.core.state import mode, state
from pyflame.engine.commit import Writes, write_all
from pyflame.engine.copies import moved
from pyflame.engine.devices import get_device
from pyflame.engine.launch import References, Runner, run_and_commit, runner_for
from pyflame.engine.ownership import held, sole_owner
from pyflame.engine.portions import portions
from pyflame.engine.report import debug_print
from pyflame.engine.table import table_for
from pyflame.engine.value import Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, F, Node, signature
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import ASSIGN, CONST, COPY, IOTA, LEAF, MOVEMENT, OpDef
from pyflame.passes.legalise import legalise
from pyflame.passes.own import own
from pyflame.passes.simplify import simplify
from pyflame.schedule.plan import make_plan

# Plans and what runs them, least recently used first.
_plans: OrderedDict[tuple[Any, ...], tuple[Plan, Runner]] = OrderedDict()
# Large graphs without a plan: how often they came, and where to cut them. The last of few are kept, so that a graph
# counts as steady only if it comes again soon: a loop's does, that of an episode of just this length does not.
_cuts: OrderedDict[tuple[Any, ...], tuple[int, list[list[int]]]] = OrderedDict()
_MAX_CUTS = 8
_STEADY = 3  # runs in portions before a graph is planned as a whole,
_NODES_PER_RUN = 256  # or one for so many nodes: a plan costs as much as some hundred runs gain by it
_lock = lock()


@dataclass
class PlanStats:
    """How often evaluation found its plan, and how long planning took."""

    hits: int = 0
    misses: int = 0
    seconds: float = 0.0


plan_stats = PlanStats()


class PendingGraph:
    """The unevaluated nodes under some outputs: their structure as a key, their leaves and constants.

    With `slices`, slices of what is in memory become leaves; the caller holds the device's lock. Where no slices are
    left, `starts` tells where assignments begin in their tensors, in elements: that is no part of the key then.
    """

    __slots__ = (
        "assigned", "constants", "copies", "inputs", "key", "lines", "order", "outputs", "overwritten", "owned",
        "sliced", "starts", "views",
    )  # fmt: skip

    def __init__(self, outputs: Sequence[Node], keep_held: bool = True, slices: bool = False) -> None:
        index: dict[Node, int] = {}
        uses: list[int] = []  # by other nodes of the graph
        key = self._walk(outputs, index, uses, slices)
        if slices and not self._take_views():
            key = self._walk(outputs, index, uses, False)
        self.starts: list[int] = []
        if slices and not self.sliced:
            self._take_starts(key)
        aliasing = bool(self.overwritten)
        wanted = dict.fromkeys(outputs)
        held_views: list[Node] = []  # they stay views, and are read again later
        if keep_held:
            # `index` holds each node once, and its readers in this graph once per use.
            for node in compress(self.order, held(self.order, [used + 1 for used in uses])):
                if node in wanted:
                    continue
                if aliasing and node.op.kind in _NEVER_KEPT and node.srcs:
                    held_views.append(node)
                node = _shown(node)
                if node.op.kind not in _NEVER_KEPT:
                    wanted[node] = None
            node = None  # type: ignore[assignment]  # nothing but the graph may hold one when references are counted
        self.outputs = list(wanted)
        self.owned: list[Node] = []
        if aliasing:
            read = {index[n] for n in _below(held_views, wanted)}
            known = [uses[index[n]] + 2 for n in self.inputs]  # its readers, order and index
            sole = compress(self.inputs, sole_owner(self.inputs, known))
            self.owned = [n for n in sole if index[n] not in read]
        key.append(-1)
        key += [index[n] for n in self.outputs]
        self.key: tuple[Any, ...] = (*key, *(("own", index[n]) for n in self.owned))

    def _walk(self, outputs: Sequence[Node], index: dict[Node, int], uses: list[int], slices: bool) -> list[int]:
        """Visit all nodes, sources first; gives the key of their structure. Every evaluation comes through here."""
        self.order: list[Node] = []
        self.inputs: list[Node] = []
        self.constants: list[Node] = []
        self.copies: list[Node] = []
        self.lines: list[str] = []  # where the ops were called whose values are checked
        self.overwritten: set[int] = set()  # ids of memory that ops would like to write to; 0: of what is yet to come
        self.views: dict[Node, Value] = {}
        self.sliced = False
        self.assigned: list[tuple[int, int]] = []  # assignments: where in the key, and where in the order
        index.clear()
        uses.clear()
        order, key, stack = self.order, list[int](), list[Node]()
        for root in outputs:
            stack.append(root)
            while stack:
                node = stack[-1]
                if node in index:
                    stack.pop()
                    continue
                srcs, op, sig = node.srcs, node.op, node.sig  # at once: another device's thread may evaluate it
                if op is _SLICE:
                    if slices and (value := view_of_memory(node)) is not None:
                        self.views[node] = value
                        srcs, op, sig = (), _LEAF, signature("leaf", node.meta, value.strides)
                    else:
                        self.sliced = True
                depth = len(stack)
                for s in srcs:
                    if s not in index:
                        stack.append(s)
                if len(stack) > depth:
                    continue
                stack.pop()
                index[node] = len(order)
                order.append(node)
                uses.append(0)
                key.append(-sig - 1)
                for s in srcs:
                    at = index[s]
                    uses[at] += 1
                    key.append(at)
                if not op.plain:
                    if op.kind == ASSIGN:
                        self.assigned.append((len(key) - len(srcs) - 1, len(order) - 1))
                    self._note(node, op, srcs)
        return key

    def _note(self, node: Node, op: OpDef, srcs: tuple[Node, ...]) -> None:
        """Whatever a plan must know of a node beside its structure."""
        if op.kind == LEAF:
            self.inputs.append(node)
        elif op.kind == CONST:
            self.constants.append(node)
        elif op.kind == COPY:
            self.copies.append(node)
        if op.alias is not None:
            base = srcs[op.alias]
            self.overwritten.add(id(base.data.storage) if base.op.kind == LEAF else 0)
        if node.line is not None:
            self.lines.append(node.line)

    def _take_views(self) -> bool:
        """Turn slices into leaves, unless they share memory with what is overwritten: then a plan must see who else
        reads it, or it is copied."""
        if self.views:
            if any(id(value.storage) in self.overwritten for value in self.views.values()):
                return False
            write_all(_leaves(list(self.views), list(self.views.values())))
            self.views.clear()
        return True

    def _take_starts(self, key: list[int]) -> None:
        """Let where assignments begin be data. A slice would have to be compared with what is assigned, and a CPU's
        plan alone takes addresses as they come."""
        assigned = [(at, self.order[n]) for at, n in self.assigned]
        if any(step < 0 for _, n in assigned for _, step, _ in n.attrs[0]) or any(
            n.meta.device != CPU for _, n in assigned
        ):
            return
        for at, node in assigned:
            (region,) = node.attrs
            key[at] = -signature("assign", tuple([(step, count) for _, step, count in region]), node.meta) - 1
            strides = contiguous_strides(node.shape)
            self.starts.append(sum([first * stride for (first, _, _), stride in zip(region, strides, strict=True)]))

    def copy(self) -> PendingGraph:
        """The same graph in nodes of its own, for a planner: another thread may evaluate the others meanwhile.

        Assignments whose begin is data begin at 0; `data` is their number among `starts`.
        """
        again: dict[Node, Node] = {}
        numbers = {self.order[at]: k for k, (_, at) in enumerate(self.assigned)} if self.starts else {}
        for n in self.order:
            made = again[n] = Node(n.op, tuple([again[s] for s in n.srcs]), n.attrs, n.meta, n.sig, n.data)
            made.line = n.line
            if n in numbers:
                made.attrs, made.data = (tuple([(0, step, count) for _, step, count in n.attrs[0]]),), numbers[n]
        out = copy.copy(self)
        for name in ("constants", "inputs", "order", "outputs", "owned"):
            setattr(out, name, [again[n] for n in getattr(self, name)])
        return out


def _shown(node: Node) -> Node:
    """What a view shows, which is kept for it: made again it could differ, or read memory that is overwritten."""
    while node.op.kind == MOVEMENT:
        node = node.srcs[0]
    return node


def _below(nodes: list[Node], stop: Container[Node]) -> Iterator[Node]:
    """All that these nodes are made of, but for what lies below nodes that will be in memory."""
    seen: set[Node] = set()
    while nodes:
        for source in nodes.pop().srcs:
            if source not in seen and source not in stop:
                seen.add(source)
                nodes.append(source)
                yield source


_NEVER_KEPT = (LEAF, CONST, IOTA, MOVEMENT, COPY)
_SLICE, _LEAF = OPS["slice"], OPS["leaf"]


def evaluate(nodes: Sequence[Node]) -> None:
    """Compute these nodes. Afterwards each is a leaf with its Value in `data`, but for constants: they have no device
    whose memory could hold one. `placed` gives them one."""
    state.pending = 0
    if all(n.op.kind in (LEAF, CONST) for n in nodes):
        return
    if trace.recording is None:
        _evaluate(nodes)
    else:
        with trace.span("evaluate", f"{len(nodes)} tensors"):
            _evaluate(nodes)


def _evaluate(nodes: Sequence[Node]) -> None:
    places = dict.fromkeys([n.meta.device for n in nodes])
    for place in places:  # a plan is of one device
        device = get_device(place or state.device)
        here = nodes if len(places) == 1 else [n for n in nodes if n.meta.device == place]
        while (task := _attempt(here, device)) is not None:
            if isinstance(task, Node):
                _copy(task)
            elif isinstance(task, list):
                _in_portions(task)
            else:
                _make_plan(task, device)
                plan_stats.hits -= 1  # the next attempt finds it
            del task


def _in_portions(groups: list[list[Node]]) -> None:
    """Evaluate groups of nodes one after the other, the last one first. Each is forgotten then: nobody else may hold
    what the next one overwrites."""
    while groups:
        _evaluate(groups.pop())


def _attempt(nodes: Sequence[Node], device: Any) -> PendingGraph | Node | list[list[Node]] | None:
    """Compute nodes of one device if nothing is in the way: a copy between devices, a graph that is better computed in
    portions, or one without a plan.

    Whatever it is, it is done by the caller, who holds no lock.
    """
    with device.lock:
        left = [n for n in nodes if n.op.kind not in (LEAF, CONST)]
        if not left:
            return None
        views = {n: value for n in left if (value := view_of_memory(n)) is not None}
        if views:
            write_all(_leaves(list(views), list(views.values())))
            left = [n for n in left if n not in views]
            if not left:
                return None
        graph = PendingGraph(left, slices=True)
        if graph.copies:
            return graph.copies[0]
        if device.id == CPU and device.compiler is None:
            _run(graph, None, References(graph))
            return None
        found = _known(graph, device)
        if found is not None:
            _run(graph, *found)
            return None
        return _portions(graph, device) or graph.copy()


def _portions(graph: PendingGraph, device: Any) -> list[list[Node]]:
    """What to evaluate before a large graph's outputs, the last of it first; nothing where it is better planned whole:
    because it does not repeat itself, or comes again and again.

    The null device is asked for plans, not for results.
    """
    if len(graph.order) < knobs.CUT_GRAPHS.integer() or device.id.kind == "null":
        return []
    key = graph.key
    with _lock:
        seen, cuts = _cuts.pop(key, (0, None))
    if cuts is None:
        end = len(key) - len(graph.outputs) - len(graph.owned) - 1
        cuts = portions(graph.order, key[:end], key[end + 1 : end + 1 + len(graph.outputs)])
    with _lock:
        _cuts[key] = seen + 1, cuts
        while len(_cuts) > _MAX_CUTS:
            _cuts.popitem(last=False)
    if seen >= max(_STEADY, len(graph.order) // _NODES_PER_RUN):
        return []
    return [[graph.order[at] for at in group] for group in reversed(cuts)]


def _run(graph: PendingGraph, plan: Plan | None, runner: Runner) -> None:
    """Run a plan; the graph's outputs become leaves."""
    inputs, constants = [n.data for n in graph.inputs], [*[n.data for n in graph.constants], *graph.starts]
    debug = knobs.DEBUG.text() != "0"
    outputs = graph.outputs
    consumed = plan.consumed if plan is not None else ()  # those it owns, says its key
    run_and_commit(runner, inputs, constants, lambda values: _leaves(outputs, values), debug, graph.lines, consumed)
    if debug and plan is not None:
        debug_print(plan, runner)


def _leaves(nodes: Sequence[Node], values: Sequence[Value]) -> Writes:
    """What turns evaluated nodes into leaves: they drop their sources, so the graph behind them can go."""
    names = ("data", "sig", "srcs", "attrs", "line", "op")
    new: list[Any] = []
    for n, value in zip(nodes, values, strict=True):
        new += (value, signature("leaf", n.meta, value.strides), (), (), None, _LEAF)
    return [n for n in nodes for _ in names], names * len(nodes), new


def settle_copies(nodes: Sequence[Node]) -> None:
    """Realise the copies between devices that some pending nodes wait for: a plan is of one device."""
    while copies := PendingGraph(nodes).copies:
        _copy(copies[0])


def _key(graph: PendingGraph, device: Any) -> tuple[Any, ...]:
    return (device.id, tf32_allowed(), state.deterministic, *graph.key)


def _known(graph: PendingGraph, device: Any) -> tuple[Plan, Runner] | None:
    key = _key(graph, device)
    with _lock:
        found = _plans.get(key)
        if found is not None:
            plan_stats.hits += 1
            _plans.move_to_end(key)
    return found


def _make_plan(graph: PendingGraph, device: Any) -> tuple[Plan, Runner]:
    """The plan of a graph whose structure is new, and what runs it. No lock is held: this may take long."""
    plan_stats.misses += 1
    started = time.perf_counter()
    with trace.span("plan", f"{len(graph.order)} nodes"):
        plan = plan_graph(graph, device.target, device=device)
    plan_stats.seconds += time.perf_counter() - started
    runner = runner_for(graph, plan, device)
    with _lock:
        _plans[_key(graph, device)] = (plan, runner)
        while len(_plans) > knobs.PLAN_CACHE.integer():
            _plans.popitem(last=False)
    return plan, runner


def find_plan(graph: PendingGraph, device: Any) -> tuple[Plan, Runner]:
    """The plan of a graph and what runs it, made if this structure is new."""
    return _known(graph, device) or _make_plan(graph, device)


def plan_graph(graph: PendingGraph, target: Any, heirs: Mapping[int, int] | None = None, device: Any = None) -> Plan:
    """Passes and schedule. `heirs`: positions of inputs whose buffer the output at that position may take over.

    `device`: which will run it, if one is at hand.
    """
    table = table_for(target, device)
    inputs = {n: i for i, n in enumerate(graph.inputs)}
    constants = {n: i for i, n in enumerate(graph.constants)}
    # Passes make nodes too: where the graph runs, and on nobody's tape.
    place = next((n.meta.device for n in graph.order if n.meta.device is not None), state.device)
    with mode(recorder=None, tracer=None, autocast=None, device=place):
        outputs = own(simplify(legalise(graph.outputs, table), constants), set(graph.owned))
    successors = {graph.inputs[i]: outputs[o] for i, o in (heirs or {}).items()}
    plan = make_plan(outputs, inputs, constants, target, table, knobs.MAX_FUSED.integer(), successors)
    plan.starts = len(graph.starts)
    # Lines are no part of a plan's key: one who meets the plan again brings lines of their own, in the same order.
    numbers = {id(line): i for i, line in enumerate(graph.lines)}
    plan.check_lines = [numbers.get(id(line), -1) for _, line in plan.checks]
    return plan


def clear_plans() -> None:
    """Forget all plans."""
    with _lock:
        _plans.clear()
        _cuts.clear()


def _copy(node: Node) -> None:
    """Realise a copy between devices."""
    srcs = node.srcs
    if not srcs:  # another thread has done it
        return
    source = srcs[0]
    evaluate([source])
    here, there = (get_device(m.device or CPU) for m in (source.meta, node.meta))
    if here is not there and source.data.strides is not None and here.id.kind != "null":
        with mode(recorder=None, tracer=None, autocast=None, device=here.id):
            source = F.clone(source)  # views are made dense before they travel
            evaluate([source])
    value = moved(source.data, node.meta.nbytes, here, there)
    with there.lock:
        if node.op.kind != LEAF:
            write_all(_leaves([node], [value]))
