"""Graphs that come again, told by comparing them with those that came before: in go nodes to evaluate, out comes their
plan with what to run it on.

A loop evaluates the same graph in each round, made of new nodes. To number them and make a key of them
(`engine/pending.py`) takes some microseconds for each; to see that they are as they were takes a tenth of that, for
lists of sources, signatures and reference counts are compared in C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyflame.engine.commit import write_all
from pyflame.engine.launch import Runner
from pyflame.engine.ownership import held, sole_owner
from pyflame.engine.pending import PendingGraph, as_leaves, start_of, startless
from pyflame.engine.value import Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import Node, signature
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import ASSIGN, LEAF, MOVEMENT

Found = tuple[Plan, Runner]
_FEW = 8  # graphs with outputs of the same signatures
_MOST = 200_000  # nodes of all graphs: one takes some 200 bytes
_ANY = 1 << 60  # references: nobody asks who holds such a node


class Recalled(NamedTuple):
    """What a plan is run on, as a PendingGraph has it."""

    inputs: list[Node]
    constants: list[Node]
    outputs: list[Node]
    lines: list[str]
    starts: list[int]


class _Known:
    """A graph: the nodes wanted, then the sources of each inner node, level by level, some of them several times.

    Positions are among the nodes, each once, but for `inner`, `leaves` and `assigned`, which are among all.
    """

    def __init__(self, wanted: Sequence[Node], graph: PendingGraph, found: Found) -> None:
        self.found = found
        leaves = {*graph.inputs, *graph.constants}
        nodes = list(wanted)
        self.inner: list[tuple[int, int]] = []  # where an inner node first stands, and how many sources it has
        seen = set()
        for at, node in enumerate(nodes):
            if node not in leaves and node not in seen:
                self.inner.append((at, len(node.srcs)))
                nodes += node.srcs
            seen.add(node)
        self.sigs = [node.sig for node in nodes]
        self.leaves = {at for at, node in enumerate(nodes) if node in leaves}
        at_of = {node: at for at, node in enumerate(dict.fromkeys(nodes))}
        self.places = [at_of[node] for node in nodes]
        self.size = len(at_of)
        self.inputs, self.constants, self.outputs = (
            [at_of[n] for n in some] for some in (graph.inputs, graph.constants, graph.outputs)
        )
        self.lines = [at_of[n] for n in graph.order if n not in leaves and n.line is not None]
        # of inner nodes but for those wanted: references that the graph has to each, and whether there are others
        counts = Counter(self.places)
        self.reads = [counts[at] for at in range(self.size)]
        others = dict(zip(graph.order[-len(graph.held) :], graph.held, strict=True)) if graph.held else {}
        no_question = leaves.union(wanted)
        asked = [node not in no_question for node in at_of]
        self.known = [n if ask else _ANY for n, ask in zip(self.reads, asked, strict=True)]
        self.held = [ask and others[node] for node, ask in zip(at_of, asked, strict=True)]
        self._note_writes(graph, nodes, at_of)

    def _note_writes(self, graph: PendingGraph, nodes: list[Node], at_of: dict[Node, int]) -> None:
        """Keep what is overwritten, who may be, and which assignments begin where the caller says."""
        assigned = dict.fromkeys([graph.order[at] for _, at in graph.assigned] if graph.starts else ())
        self.starts = [at_of[node] for node in assigned]
        self.assigned = {at: startless(node) for at, node in enumerate(nodes) if node in assigned}
        self.aliasing = bool(graph.overwritten)
        bases = [node.srcs[node.op.alias] for node in at_of if node.op.alias is not None and node.srcs]
        self.bases = [at_of[base] for base in bases if base.op.kind == LEAF]
        shown, owned = {graph.order[at] for at in graph.shown}, set(graph.owned)
        self.shown = [node in shown for node in graph.inputs]
        self.owned = [node in owned for node in graph.inputs]

    def recall(self, wanted: Sequence[Node]) -> Recalled | None:
        """The same of these nodes, if they are the same graph."""
        nodes = list(wanted)
        srcs: tuple[Node, ...] = ()
        for at, count in self.inner:
            srcs = nodes[at].srcs
            if len(srcs) != count:
                return None
            nodes += srcs
        sigs = [node.sig for node in nodes]
        views = {} if sigs == self.sigs else self._views(nodes, sigs)
        if views is None:
            return None
        every = list(dict.fromkeys(nodes))
        if len(every) != self.size or nodes != [every[at] for at in self.places]:
            return None
        nodes, srcs = [], ()  # nothing else may hold one when references are counted
        if held(every, self.known) != self.held or (views and not self._take(views, every)):
            return None
        if self.aliasing and not self._same_owners(every):
            return None
        return Recalled(
            [every[at] for at in self.inputs],
            [every[at] for at in self.constants],
            [every[at] for at in self.outputs],
            [every[at].line or "" for at in self.lines],
            [start_of(every[at]) for at in self.starts],
        )

    def _views(self, nodes: list[Node], sigs: list[int]) -> dict[Node, Value] | None:
        """Where leaves were, parts of what is in memory will do: they become leaves. None where the graph differs."""
        found: dict[Node, Value] = {}
        for at, (have, want) in enumerate(zip(sigs, self.sigs, strict=True)):
            if have == want:
                continue
            node = nodes[at]
            if at in self.assigned:
                if node.op.kind != ASSIGN or startless(node) != self.assigned[at]:
                    return None
            elif (value := self._view(at, node)) is None or signature("leaf", node.meta, value.strides) != want:
                return None
            else:
                found[node] = value
        return found

    def _view(self, at: int, node: Node) -> Value | None:
        return view_of_memory(node) if at in self.leaves and node.op.kind == MOVEMENT else None

    def _take(self, views: dict[Node, Value], every: list[Node]) -> bool:
        """Turn views into leaves, unless they share memory with what is overwritten."""
        bases = [every[at] for at in self.bases]
        written = {id((views.get(base) or base.data).storage) for base in bases}
        if any(id(value.storage) in written for value in views.values()):
            return False
        write_all(as_leaves(list(views), list(views.values())))
        views.clear()
        return True

    def _same_owners(self, every: list[Node]) -> bool:
        """Whether the plan may overwrite the same inputs as before."""
        inputs = [every[at] for at in self.inputs]
        sole = sole_owner(inputs, [self.reads[at] + 1 for at in self.inputs])  # and `every`
        return [own and not shown for own, shown in zip(sole, self.shown, strict=True)] == self.owned


_known: dict[tuple[Any, ...], list[_Known]] = {}
_nodes = 0  # of those, or more


def key_of(mode: tuple[Any, ...], wanted: Sequence[Node]) -> tuple[Any, ...]:
    """What graphs are looked up by. `mode`: what plans depend on beside their graphs."""
    return mode, *[startless(node) if node.op.kind == ASSIGN else node.sig for node in wanted]


def recall(key: tuple[Any, ...], wanted: Sequence[Node]) -> tuple[Recalled, Found] | None:
    """The plan of a graph that came before, and what to run it on. The caller holds the device's lock."""
    found = _known.get(key, ())
    for at, known in enumerate(found):
        graph = known.recall(wanted)
        if graph is not None:
            if at:  # the one to try first
                _known[key] = [known, *[other for other in found if other is not known]]
            return graph, known.found
    return None


def remember(key: tuple[Any, ...], wanted: Sequence[Node], graph: PendingGraph, found: Found) -> None:
    """Keep a graph that came again, and its plan, for the next time."""
    global _nodes
    _nodes += len(graph.order)
    if _nodes > _MOST:
        forget()
    _known[key] = [_Known(wanted, graph, found), *_known.get(key, ())[: _FEW - 1]]


def forget() -> None:
    """Forget all graphs, and with them their plans."""
    global _nodes
    _nodes = 0
    _known.clear()
