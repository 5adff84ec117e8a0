"""Plans found again for other extents: a pending graph in, its plan out if one of the same structure was traced.

Lengths of batches, of texts that grow and of episodes are numbers of a graph: of shapes, attributes and strides. Graphs
that differ in these alone are a family. When another one comes, planning is run once more with traced numbers
(`core/traced.py`) in place of those that differ. All that the plan depends on is known then: the structure, the numbers
that did not differ, and the outcomes that were noted. Where they hold for another graph, its plan is computed from its
numbers, in some hundred microseconds; where one does not, it is planned. What runs it is made first (`CpuLayout`,
`GpuLayout`); the plan itself, which only a profile or a report reads, when somebody asks for it.

On a GPU large products are tried out for each size, and so are small ones in the first few sizes. A family is traced
once nothing of it is tried out any more (`libraries/decide.py`), and none is where a large one varies.
"""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from pyflame.core import knobs
from pyflame.core.locks import lock
from pyflame.core.shape import Size
from pyflame.core.state import mode
from pyflame.core.traced import Extent, Number, Trace, Untraceable
from pyflame.engine.launch import Layout, PlanRunner, layout_of, runner_over
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.engine.value import Value
from pyflame.ir import Meta, Node, signature
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import LEAF
from pyflame.runtime.base import Device

WORTH = 192  # nodes: of a family of so many two are planned before one is traced, which takes as long as five plans
MAX_TRACED = 16  # traces of a family that are kept: where a kernel changes its way is another
MAX_KEPT = 256  # of all families; one of a hundred nodes takes some 300 KB
MAX_TRACES = 64  # that are made of one: beyond that its plans depend on what never comes twice
MAX_PARTS = 20_000  # signatures that are kept
MAX_NODES = 1024  # of a graph that is traced: larger ones are cut (engine/portions.py)

Numbers = tuple[int, ...]


class _Family:
    """What is known of graphs of one structure."""

    def __init__(self) -> None:
        self.first: Numbers | None = None  # the numbers of the first one
        self.seen = 0  # that were planned
        self.traced: list[TracedPlan] = []
        self.traces = 0

    def before(self, numbers: Numbers, nodes: int) -> Numbers | None:
        """Other numbers to compare these with, if a graph of so many nodes shall be traced."""
        if self.first is None:
            self.first = numbers
        self.seen += 1
        if self.seen <= 1 + nodes // WORTH or self.first == numbers or self.traces == MAX_TRACES:
            return None
        self.traces += 1
        return self.first


_families: OrderedDict[tuple[Any, ...], _Family] = OrderedDict()
_sizes: set[int] = set()  # of graphs that were traced: others need no look
_parts: dict[int, tuple[int, Numbers]] = {}  # by the signature of a node: what it is but for its numbers, and these
_kinds: dict[tuple[Any, ...], int] = {}  # a number for all that nodes are but for their numbers
_numbers = itertools.count()
_lock = lock()
_TUPLES = (tuple, Size)


def resized(graph: PendingGraph, device: Device, modes: tuple[Any, ...]) -> tuple[Plan, PlanRunner] | None:
    """The plan of a graph from one for other extents, and its runner, if there is one. `modes`: what else plans
    depend on."""
    if len(graph.order) not in _sizes or not _traceable(graph, device):
        return None
    structure, numbers = structure_of(graph)
    key = (*modes, *structure)
    with _lock:
        family = _families.get(key)
        if family is not None:
            _families.move_to_end(key)
    if family is None:
        return None
    for at, traced in enumerate(family.traced):
        layout = traced.layout(numbers)
        if layout is not None:
            if at:
                _move_ahead(family, traced)
            return layout.plan, runner_over(layout)
    return None


def _move_ahead(family: _Family, traced: TracedPlan) -> None:
    """The next one is most often alike."""
    with _lock:
        family.traced = [traced, *[t for t in family.traced if t is not traced]][:MAX_TRACED]


def learn(graph: PendingGraph, device: Device, modes: tuple[Any, ...], plan: Plan) -> None:
    """Keep what the plan of a graph tells of others. `graph` is the planner's own copy."""
    if not _traceable(graph, device):
        return
    structure, numbers = structure_of(graph)
    key = (*modes, *structure)
    with _lock:
        family = _families.setdefault(key, _Family())
        _families.move_to_end(key)
        while len(_families) > knobs.PLAN_CACHE.integer():
            _families.popitem(last=False)
        before = family.before(numbers, len(graph.order))
    if before is None:
        return
    try:
        traced = TracedPlan(graph, device, before, numbers)
    except Untraceable:
        family.traces = MAX_TRACES
        return
    except Exception as error:  # the graph was planned before without one, so its results are not at stake
        family.traces = MAX_TRACES
        warnings.warn(
            f"a plan cannot be used for other sizes, each of which is planned: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    if traced.gives(plan, numbers):
        with _lock:
            family.traced = [traced, *family.traced[: MAX_TRACED - 1]]
            _sizes.add(len(graph.order))
            while sum(len(f.traced) for f in _families.values()) > MAX_KEPT:
                _families.popitem(last=False)


def forget() -> None:
    """Forget all families."""
    with _lock:
        _families.clear()
        _sizes.clear()
        _parts.clear()


def _traceable(graph: PendingGraph, device: Device) -> bool:
    return device.id.computes and not device.interprets and len(graph.order) <= MAX_NODES


def structure_of(graph: PendingGraph) -> tuple[tuple[Any, ...], Numbers]:
    """All of a graph but its numbers, and its numbers: of each node the shape, the attributes, a leaf's strides."""
    # assignments whose begin is neither: in a planner's copy their signature tells of another
    begun = {graph.order[at] for _, at in graph.assigned} if graph.starts else ()
    known = [_begun_parts(n) if n in begun else _parts.get(n.sig) or _learn_parts(n) for n in graph.order]
    words = graph.key[: len(graph.key) - len(graph.owned)]
    sources = [n if n >= 0 else -1 for n in words]
    structure = (*[kind for kind, _ in known], *sources, *graph.key[len(words) :])
    return structure, tuple(chain.from_iterable([numbers for _, numbers in known]))


def _learn_parts(node: Node) -> tuple[int, Numbers]:
    if len(_parts) >= MAX_PARTS:
        _parts.clear()
    found = _parts[node.sig] = _parts_of(node, node.attrs)
    return found


def _begun_parts(node: Node) -> tuple[int, Numbers]:
    return _parts_of(node, (tuple([(step, count) for _, step, count in node.attrs[0]]),))


def _parts_of(node: Node, attrs: tuple[Any, ...]) -> tuple[int, Numbers]:
    """A number for what a node is but for its numbers, and these."""
    meta = node.meta
    numbers: list[int] = list(meta.shape)
    frame = _frame(attrs, numbers)
    if node.op.kind == LEAF and node.data.strides is not None:
        frame = frame, _frame(node.data.strides, numbers)
    kind = (node.op, len(meta.shape), meta.dtype, meta.device, meta.committed, frame)
    if len(_kinds) >= MAX_PARTS:
        _kinds.clear()  # families whose nodes get other numbers then are not found any more
    return _kinds.setdefault(kind, next(_numbers)), tuple(numbers)


def _frame(values: tuple[Any, ...], numbers: list[int]) -> tuple[Any, ...]:
    """Attributes without their integers, which `numbers` gets. 1.0, True and 1 are equal, but no equal attributes; a
    Size is one: it has the signature of a plain tuple."""
    out: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is int:
            numbers.append(value)
            out.append(int)
        elif isinstance(value, tuple):
            inside = _frame(value, numbers)
            out.append(inside if kind in _TUPLES else (kind, inside))
        else:
            out.append(repr(value) if kind is float or kind is bool else value)
    return tuple(out)


def _filled(value: Any, numbers: Iterator[Any]) -> Any:
    """An attribute with other integers, in the order of `_frame`."""
    kind = type(value)
    if kind is int:
        return next(numbers)
    if not isinstance(value, tuple):
        return value
    filled = [_filled(v, numbers) for v in value]
    return tuple(filled) if kind in _TUPLES else kind(*filled)


def _with_numbers(graph: PendingGraph, numbers: Iterator[Any]) -> PendingGraph:
    """A copy of a planner's graph with other numbers, in the order of `structure_of`."""
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
    return isinstance(value, Number) or (isinstance(value, tuple) and any(_traced_in(v) for v in value))


class TracedPlan:
    """A plan as a function of the numbers in which two graphs of a family differ."""

    def __init__(self, graph: PendingGraph, device: Device, before: Numbers, numbers: Numbers) -> None:
        groups: dict[tuple[int, int], list[int]] = {}  # positions that changed alike are one variable
        for at, pair in enumerate(zip(before, numbers, strict=True)):
            if pair[0] != pair[1]:
                groups.setdefault(pair, []).append(at)
        self._variables = list(groups.values())
        varying = {at for positions in self._variables for at in positions}
        # Two at least of each, so that these give tuples.
        constant = [at for at in range(len(numbers)) if at not in varying] or [0]
        self._constant = itemgetter(*constant, constant[0])
        self._constants = self._constant(numbers) if len(varying) < len(numbers) else None
        self._varying = [itemgetter(*positions, positions[0]) for positions in self._variables]
        trace = Trace()
        extents = trace.numbers([numbers[positions[0]] for positions in self._variables], Extent)
        filled: list[Any] = list(numbers)
        for positions, extent in zip(self._variables, extents, strict=True):
            for at in positions:
                filled[at] = extent
        self._device = device
        with mode(many_sizes=True):
            self._plan = make_plan(_with_numbers(graph, iter(filled)), device)
        self._like = {name: value for name, value in vars(self._plan).items() if name not in _LATER}
        self._layout = layout_of(self._plan, device)
        self._trace = trace.ended()
        told = tuple([getattr(self._plan, name) for name in _TOLD])
        self._again = self._trace.function((self._layout.numbers(), told))
        self._plan_again: Callable[[Sequence[int]], Plan] | None = None

    def gives(self, plan: Plan, numbers: Numbers) -> bool:
        """Whether it gives this plan for the numbers that it was made with. Where it does not, something was decided by
        what is no number of the graph. Kernels are compiled then: `layout` is asked for where a lock is held."""
        found, planned = self.layout(numbers), layout_of(plan, self._device)
        if found is None or (found.texts, found.numbers()) != (planned.texts, planned.numbers()):
            return False
        self._layout.compile()
        return True

    def layout(self, numbers: Numbers) -> Layout | None:
        """What runs the plan for these numbers, if that would be the same launches."""
        if self._constants is not None and self._constant(numbers) != self._constants:
            return None
        values = []
        for get in self._varying:
            (value, *others) = set(get(numbers))
            if others:
                return None
            values.append(value)
        found = self._again(values)
        if found is None:
            return None
        layout, told = found
        return self._layout.with_numbers(_LaterPlan(self, self._like, values, told), layout)

    def plan(self, values: Sequence[int]) -> Plan:
        """All of the plan for these values, of which it is known that they fit."""
        if self._plan_again is None:
            self._plan_again = self._trace.function(self._plan)
        return self._plan_again(values)


_LATER = ("buffers", "launches", "sources", "outputs")
_TOLD = ("arena_bytes", "intermediate_bytes", "uniforms")


class _LaterPlan(Plan):
    """A plan that is made when somebody asks for its launches or buffers: who runs it does not. `like`: what the plans
    of all values have in common."""

    def __init__(self, of: TracedPlan, like: dict[str, Any], values: Sequence[int], sizes: tuple[int, int]) -> None:
        vars(self).update(like, arena_bytes=sizes[0], intermediate_bytes=sizes[1], _made=partial(of.plan, values))

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(name)
        vars(self).update(vars(vars(self)["_made"]()))
        return vars(self)[name]
