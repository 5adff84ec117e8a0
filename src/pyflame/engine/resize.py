"""Plans found again for other extents: a pending graph in, its plan out if one of the same structure was traced.

Lengths of batches, of texts that grow and of episodes are numbers of a graph: of shapes, attributes and strides. Graphs
that differ in these alone are a family. When a third one comes, planning is run once more with traced numbers
(`core/traced.py`) in place of those that differ. All that the plan depends on is known then: the structure, the numbers
that did not differ, and the outcomes that were noted. Where they hold for another graph, its plan is computed from its
numbers, in some hundred microseconds; where one does not, it is planned.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from operator import itemgetter
from typing import Any

from pyflame.core import knobs
from pyflame.core.locks import lock
from pyflame.core.traced import Extent, Number, Trace
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.engine.value import Value
from pyflame.ir import Meta, Node, signature
from pyflame.ir.kernel import Launch, Plan
from pyflame.ir.opdef import LEAF
from pyflame.runtime.base import Device

SEEN = 1  # graphs of a family that are planned before one is traced
MAX_TRACED = 16  # traces of a family that are kept: where a kernel changes its way is another
MAX_TRACES = 64  # that are made of one: beyond that its plans depend on what never comes twice
MAX_NODES = 1024  # of a graph that is traced: larger ones are cut (engine/portions.py)

Numbers = tuple[int, ...]


class _Family:
    """What is known of graphs of one structure."""

    def __init__(self) -> None:
        self.seen: list[Numbers] = []
        self.traced: list[_TracedPlan] = []
        self.traces = 0


_families: OrderedDict[tuple[Any, ...], _Family] = OrderedDict()
_lock = lock()


def resized(graph: PendingGraph, device: Device, mode: tuple[Any, ...]) -> Plan | None:
    """The plan of a graph from one for other extents, if there is one. `mode`: what else plans depend on."""
    if not _traceable(graph, device):
        return None
    structure, numbers = _structure(graph)
    with _lock:
        family = _families.get((*mode, *structure))
    if family is None:
        return None
    for traced in family.traced:
        plan = traced.plan(numbers)
        if plan is not None:
            return plan
    return None


def learn(graph: PendingGraph, device: Device, mode: tuple[Any, ...], plan: Plan) -> None:
    """Keep what the plan of a graph tells of others. `graph` is the planner's own copy."""
    if not _traceable(graph, device):
        return
    structure, numbers = _structure(graph)
    with _lock:
        family = _families.setdefault((*mode, *structure), _Family())
        _families.move_to_end((*mode, *structure))
        while len(_families) > knobs.PLAN_CACHE.integer():
            _families.popitem(last=False)
        if len(family.seen) < SEEN or numbers in family.seen or family.traces == MAX_TRACES:
            if numbers not in family.seen:
                family.seen = [*family.seen, numbers]
            return
        family.traces += 1
        before = family.seen[-1]
    traced = _TracedPlan(graph, device, before, numbers)
    again = traced.plan(numbers)
    if again is not None and _same(again, plan):  # else something was decided by what is no number
        with _lock:
            family.traced = [traced, *family.traced[: MAX_TRACED - 1]]


def forget() -> None:
    """Forget all families."""
    with _lock:
        _families.clear()


def _traceable(graph: PendingGraph, device: Device) -> bool:
    """GPUs are left out: their libraries try out each shape."""
    return device.gpu is None and device.id.kind == "cpu" and len(graph.order) <= MAX_NODES


def _structure(graph: PendingGraph) -> tuple[tuple[Any, ...], Numbers]:
    """All of a graph but its numbers, and its numbers: of each node the shape, the attributes, a leaf's strides."""
    numbers: list[int] = []
    parts: list[Any] = []
    started = {graph.order[at] for _, at in graph.assigned} if graph.starts else ()
    for node in graph.order:
        meta = node.meta
        numbers += meta.shape
        attrs: Any = ()
        if node in started:
            attrs = _frame(tuple([(step, count) for _, step, count in node.attrs[0]]), numbers)
        elif node.attrs:
            attrs = _frame(node.attrs, numbers)
        if node.op.kind == LEAF and node.data.strides is not None:
            attrs = _frame(node.data.strides, numbers)
        parts += (node.op, len(meta.shape), meta.dtype, meta.device, meta.committed, attrs)
    sources = [-1 if type(n) is int and n < 0 else n for n in graph.key]
    return (*parts, *sources), tuple(numbers)


def _frame(value: Any, numbers: list[int]) -> Any:
    """An attribute without its integers, which `numbers` gets. 1.0, True and 1 are equal, but no equal attributes."""
    kind = type(value)
    if kind is int:
        numbers.append(value)
        return int
    if kind is tuple:
        return tuple([_frame(v, numbers) for v in value])
    return repr(value) if kind in (float, bool) else value


def _filled(value: Any, numbers: Iterator[Any]) -> Any:
    """An attribute with other integers, in the order of `_frame`."""
    kind = type(value)
    if kind is int:
        return next(numbers)
    return tuple([_filled(v, numbers) for v in value]) if kind is tuple else value


def _with_numbers(graph: PendingGraph, numbers: Iterator[Any]) -> PendingGraph:
    """A copy of a planner's graph with other numbers, in the order of `_structure`."""
    out = graph.copy()
    started = {out.order[at] for _, at in out.assigned} if out.starts else ()
    for node in out.order:
        shape = tuple([next(numbers) for _ in node.shape])
        attrs, strides = node.attrs, None
        if node in started:
            attrs = (tuple([(start, next(numbers), next(numbers)) for start, _, _ in node.attrs[0]]),)
        else:
            attrs = _filled(node.attrs, numbers)
        if node.op.kind == LEAF and node.data.strides is not None:
            strides = _filled(node.data.strides, numbers)
        _renumber(node, shape, attrs, strides)
    return out


def _renumber(node: Node, shape: tuple[Any, ...], attrs: tuple[Any, ...], strides: tuple[Any, ...] | None) -> None:
    if not any(_traced_in(part) for part in (shape, attrs, strides)):
        return
    meta = node.meta
    node.meta = Meta(shape, meta.dtype, meta.device, meta.committed)
    node.attrs = attrs
    if node.op.kind == LEAF:
        node.data = Value(node.data.storage, node.data.offset, strides)
        node.sig = signature("leaf", node.meta, strides)
    else:
        node.sig = signature(node.op.name, attrs, node.meta)


def _traced_in(value: Any) -> bool:
    return isinstance(value, Number) or (type(value) is tuple and any(_traced_in(v) for v in value))


class _TracedPlan:
    """A plan as a function of the numbers in which two graphs of a family differ."""

    def __init__(self, graph: PendingGraph, device: Device, before: Numbers, numbers: Numbers) -> None:
        groups: dict[tuple[int, int], list[int]] = {}  # positions that changed alike are one variable
        for at, pair in enumerate(zip(before, numbers, strict=True)):
            if pair[0] != pair[1]:
                groups.setdefault(pair, []).append(at)
        varying = {at for positions in groups.values() for at in positions}
        self._variables = list(groups.values())
        constant = [at for at in range(len(numbers)) if at not in varying]
        self._constant = itemgetter(*constant, *constant[:1]) if constant else len  # a tuple of at least two
        self._constants = self._constant(numbers)
        trace = Trace()
        extents = trace.numbers([numbers[positions[0]] for positions in self._variables], Extent)
        filled: list[Any] = list(numbers)
        for positions, extent in zip(self._variables, extents, strict=True):
            for at in positions:
                filled[at] = extent
        plan = self._plan = make_plan(_with_numbers(graph, iter(filled)), device)
        places = tuple([(launch.buffers, launch.output) for launch in plan.launches])
        self._again = trace.function((replace(plan, launches=()), places), numbers)
        self._trace, self._plain = trace, numbers
        self._launches: Callable[[Sequence[int]], tuple[Launch, ...]] | None = None

    def plan(self, numbers: Numbers) -> Plan | None:
        """The plan for these numbers, if it would be of the same launches."""
        if self._constant(numbers) != self._constants:
            return None
        values = []
        for first, *others in self._variables:
            value = numbers[first]
            for at in others:
                if numbers[at] != value:
                    return None
            values.append(value)
        found = self._again(values)
        if found is None:
            return None
        plan, places = found
        launches = [
            _Later(launch, buffers, output, self, values, at)
            for at, (launch, (buffers, output)) in enumerate(zip(self._plan.launches, places, strict=True))
        ]
        return replace(plan, launches=tuple(launches))

    def launches(self, values: Sequence[int]) -> tuple[Launch, ...]:
        """All of the launches, with their kernels."""
        if self._launches is None:
            self._launches = self._trace.function(self._plan.launches, self._plain)
        return self._launches(values)


class _Later(Launch):
    """A launch whose kernel is made when somebody asks for it: who runs a plan does not."""

    def __init__(
        self, like: Launch, buffers: Any, output: Any, of: _TracedPlan, values: Sequence[int], number: int
    ) -> None:
        known = {"name": like.name, "ops": like.ops, "implementation": like.implementation, "why": like.why}
        vars(self).update(known, overwrites_input=like.overwrites_input, starts=like.starts)
        vars(self).update(buffers=buffers, output=output, _later=(of, values, number))

    def __getattr__(self, name: str) -> Any:
        if name not in ("kernel", "operands", "nbytes", "flops"):
            raise AttributeError(name)
        of, values, number = vars(self)["_later"]
        vars(self).update(vars(of.launches(values)[number]))
        return vars(self)[name]


def _same(one: Any, other: Any) -> bool:
    """Whether two plans, or parts of them, are equal."""
    if isinstance(one, (Plan, Launch)) or (hasattr(one, "__dataclass_fields__") and type(one) is type(other)):
        return all(_same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)
