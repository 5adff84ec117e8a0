"""The graph that is pending under some nodes: its structure as a key, what it reads and what is wanted of it.

The key holds structure, not positions: numbers, where slices of what is in memory begin (`engine/views.py`) and where
assignments begin are data that a plan is given at each run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import compress
from typing import Any

from pyflame.engine import native
from pyflame.engine.commit import Writes, write_all
from pyflame.engine.ownership import held, sole_owner
from pyflame.engine.starts import start_of_assignment
from pyflame.engine.value import Part, Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, Node, signature
from pyflame.ir.graph import shown_by
from pyflame.ir.opdef import ASSIGN, COLLECTIVE, CONST, COPY, IOTA, LEAF, MOVEMENT, OpDef

_NEVER_KEPT = (LEAF, CONST, IOTA, MOVEMENT, COPY)
_SLICE, _RESHAPE, _LEAF, _CONST = OPS["slice"], OPS["reshape"], OPS["leaf"], OPS["const"]
_Inner = tuple[int, Node, tuple[Node, ...], OpDef, int]
_View = Callable[[Node, OpDef], int]


class PendingGraph:
    """The unevaluated nodes under some outputs: their structure as a key, their leaves and constants.

    With `slices`, slices of what is in memory become leaves; the caller holds the device's lock. Where no slices are
    left, `starts` tells where assignments begin in their tensors, in elements: that is no part of the key then.
    """

    __slots__ = (
        "assigned", "collectives", "constants", "copies", "inputs", "key", "lines", "order", "outputs", "overwritten",
        "owned", "sliced", "starts", "views",
    )  # fmt: skip

    def __init__(self, outputs: Sequence[Node], keep_held: bool = True, slices: bool = False) -> None:
        index: dict[Node, int] = {}
        # references that the graph has to each node: `index`, readers, once per use, and to inner nodes `order`
        uses: list[int] = []
        key = self._walk(outputs, index, uses, slices)
        if (self.overwritten and self._restore_parts()) or (self.views and not self._take_views()):
            key = self._walk(outputs, index, uses, False)
        self.starts: list[int] = []
        if slices and self.assigned and not self.sliced:
            self._take_starts(key)
        aliasing = bool(self.overwritten)
        wanted = dict.fromkeys(outputs)
        held_views: list[Node] = []  # they stay views, and are read again later
        leaves = len(self.inputs) + len(self.constants)
        if keep_held and len(self.order) > leaves + len(wanted):
            inner = self.order[leaves:]
            for node in compress(inner, held(inner, uses[leaves:])):
                if node in wanted:
                    continue
                if aliasing and node.op.kind in _NEVER_KEPT and node.srcs:
                    held_views.append(node)
                # for a view, what it shows: made again it could differ, or read memory that is overwritten
                node = shown_by(node)
                if node.op.kind not in _NEVER_KEPT:
                    wanted[node] = None
            node = inner = None  # type: ignore[assignment]  # nothing else may hold one when references are counted
        self.outputs = list(wanted)
        self.owned: list[Node] = []
        if aliasing:
            read = {index[n] for n in _below(held_views, wanted)}
            known = [uses[index[n]] + 1 for n in self.inputs]  # and `order`
            sole = compress(self.inputs, sole_owner(self.inputs, known))
            self.owned = [n for n in sole if index[n] not in read]
        key.append(-1)
        key += [index[n] for n in self.outputs]
        self.key: tuple[Any, ...] = (*key, *[("own", index[n]) for n in self.owned])

    def _walk(self, outputs: Sequence[Node], index: dict[Node, int], uses: list[int], slices: bool) -> list[int]:
        """Visit all nodes, sources first; gives the key of their structure. Every evaluation comes through here: it is
        done in C where that can be."""
        self.order: list[Node] = []
        self.inputs: list[Node] = []
        self.constants: list[Node] = []
        self.copies: list[Node] = []
        self.collectives: list[Node] = []  # as they were called: all processes call them in this order
        self.lines: list[str] = []  # where the ops were called whose values are checked
        self.overwritten: set[int] = set()  # ids of memory that ops would like to write to; 0: of what is yet to come
        self.views: dict[Node, Value] = {}
        self.sliced = False
        self.assigned: list[tuple[int, int]] = []  # assignments: where in the key, and where in the order
        index.clear()
        uses.clear()
        key: list[int] = []
        view = self._view_in_memory if slices else self._no_view
        if (walk := native.walk) is not None:
            lists = self.order, self.inputs, self.constants, key
            return walk([*outputs], index, uses, *lists, view, self._note)  # type: ignore[no-any-return]
        inner = self._reached(outputs, view, index, key)
        order, position = self.order, len(self.order)
        uses += [1] * position + [2] * len(inner)
        for _, node, srcs, op, sig in inner:
            index[node] = position
            position += 1
            order.append(node)
            key.append(~sig)
            for s in srcs:
                at = index[s]
                uses[at] += 1
                key.append(at)
            if not op.plain:
                self._note(node, op, srcs, len(key) - len(srcs) - 1, position - 1)
        return key

    def _reached(self, outputs: Sequence[Node], view: _View, index: dict[Node, int], key: list[int]) -> list[_Inner]:
        """All nodes below the outputs: leaves and constants into the order and the key as they are met; gives the
        others in the order in which they were made, so that sources come first. What they are is read once: another
        device's thread may evaluate them.
        """
        order, inputs, constants = self.order, self.inputs, self.constants
        nodes = list(dict.fromkeys(outputs))
        index |= dict.fromkeys(nodes, -1)  # seen, and yet to be numbered
        inner: list[_Inner] = []
        for node in nodes:  # which grows meanwhile
            srcs, op, sig = node.srcs, node.op, node.sig
            # `x[i]` is both, or a part of memory under another shape
            if op is _SLICE or (op is _RESHAPE and (srcs[0].op is _SLICE or type(srcs[0].data) is Part)):
                found = view(node, op)
                if found >= 0:
                    srcs, op, sig = (), _LEAF, found
            if op is _LEAF or op is _CONST:
                index[node] = len(order)
                order.append(node)
                key.append(~sig)
                (inputs if op is _LEAF else constants).append(node)
                continue
            inner.append((node.serial, node, srcs, op, sig))
            for s in srcs:
                if s not in index:
                    index[s] = -1
                    nodes.append(s)
        inner.sort()
        return inner

    def _view_in_memory(self, node: Node, op: OpDef) -> int:
        """The signature of a leaf, if a node is a view of what is in memory; else -1."""
        value = view_of_memory(node)
        if value is None:
            return self._no_view(node, op)
        self.views[node] = value
        return signature("leaf", node.meta, value.strides)

    def _no_view(self, node: Node, op: OpDef) -> int:
        self.sliced |= op is _SLICE
        return -1

    def _note(self, node: Node, op: OpDef, srcs: tuple[Node, ...], at: int, number: int) -> None:
        """Whatever a plan must know of a node beside its structure. `at`: where it stands in the key; `number`: in the
        order."""
        if op.kind == COPY:
            self.copies.append(node)
        elif op.kind == COLLECTIVE:
            self.collectives.append(node)
        elif op.kind == ASSIGN:
            self.assigned.append((at, number))
        if op.alias is not None:
            base = srcs[op.alias]
            self.overwritten.add(id(base.data.storage) if base.op.kind == LEAF else 0)
        if node.line is not None:
            self.lines.append(node.line)

    def _take_views(self) -> bool:
        """Turn slices into leaves, unless they share memory with what is overwritten: then a plan must see who else
        reads it, or it is copied."""
        if any(id(value.storage) in self.overwritten for value in self.views.values()):
            return False
        write_all(as_leaves(list(self.views), list(self.views.values())))
        self.views.clear()
        return True

    def _restore_parts(self) -> bool:
        """Turn parts of memory that is overwritten into ops again, for the same reason; gives whether there are any.
        Others let go of their source, whose memory may then be theirs alone."""
        found = False
        parts = [*self.inputs, *map(shown_by, self.views)]
        for node in parts:  # which grows: a part of a part
            part = node.data
            if type(part) is not Part or part.source is None:
                continue
            if id(part.storage) not in self.overwritten:
                part.source = None
                continue
            found = True
            parts.append(part.source)
            above, (op, attrs, _, sig) = part.source, part.made[-1]
            for first, values, meta, number in part.made[:-1]:
                above = Node(first, (above,), values, meta, number)
                above.serial = part.serial  # nodes stand in the order of the program
            write_all(([node] * 5, ("op", "srcs", "attrs", "sig", "data"), (op, (above,), attrs, sig, None)))
        return found

    def _take_starts(self, key: list[int]) -> None:
        """Let where assignments begin be data. A slice would have to be compared with what is assigned, and a CPU's
        plan alone takes addresses as they come."""
        found = [start_of_assignment(self.order[n]) for _, n in self.assigned]
        if () not in found:
            for (at, _), (without, start) in zip(self.assigned, found, strict=True):
                key[at] = ~without
                self.starts.append(start)

    def copy(self) -> PendingGraph:
        """The same graph in nodes of its own, for a planner: another thread may evaluate the others meanwhile.

        Assignments whose begin is data begin at 0; `data` is their number among `starts`.
        """
        again: dict[Node, Node] = {}
        numbers = {self.order[at]: k for k, (_, at) in enumerate(self.assigned)} if self.starts else {}
        for n in self.order:
            if n.op is _CONST:  # which nobody evaluates
                again[n] = n
                continue
            made = again[n] = Node(n.op, tuple([again[s] for s in n.srcs]), n.attrs, n.meta, n.sig, n.data)
            made.line = n.line
            if n in numbers:
                made.attrs, made.data = (tuple([(0, step, count) for _, step, count in n.attrs[0]]),), numbers[n]
        out = copy.copy(self)
        for name in ("constants", "inputs", "order", "outputs", "owned"):
            setattr(out, name, [again[n] for n in getattr(self, name)])
        return out


def _below(nodes: list[Node], stop: Container[Node]) -> Iterator[Node]:
    """All that these nodes are made of, but for what lies below nodes that will be in memory."""
    seen: set[Node] = set()
    while nodes:
        for source in nodes.pop().srcs:
            if source not in seen and source not in stop:
                seen.add(source)
                nodes.append(source)
                yield source


def as_leaves(nodes: Sequence[Node], values: Sequence[Value]) -> Writes:
    """What turns evaluated nodes into leaves: they drop their sources, so the graph behind them can go."""
    names = ("data", "sig", "srcs", "attrs", "line", "op")
    changed: list[Node] = []
    new: list[Any] = []
    for n, value in zip(nodes, values):  # noqa: B905  each evaluation comes here, and a keyword takes 0.3 us
        changed += (n, n, n, n, n, n)
        new += (value, signature("leaf", n.meta, value.strides), (), (), None, _LEAF)
    return changed, names * len(nodes), new
