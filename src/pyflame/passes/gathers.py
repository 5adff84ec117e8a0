"""gather(f(x)) = f(gather(x)): what is gathered must lie in memory, and x often does while f(x) would be stored.

Two kinds of f change places with a gather. Those that round nothing always do. Sums do where nobody else reads what is
gathered from, so that log-probabilities at targets store no others; elsewhere `x == x.max(0).values` asks for the same
bits on both sides, and a sum that becomes one instruction with a product has others.
"""

from __future__ import annotations

from collections import Counter

from pyflame.ir import F, Node, apply
from pyflame.ir.graph import Graph
from pyflame.ir.opdef import CONST, ELEMENTWISE, GATHER

_EXACT = ("cast", "neg", "abs", "relu", "maximum", "minimum", "sign", "floor", "ceil", "trunc", "round")
_SUMS = ("add", "sub")


def sink_gathers(graph: Graph) -> Graph:
    """The graph with gathers as near to memory as they may be."""
    if not any(op.kind == GATHER for op in graph.ops):
        return graph
    uses = Counter(s for node in graph.order for s in node.srcs)
    uses.update(graph.outputs)
    return graph.rewritten(lambda node: _sunk(node, uses) if node.op.kind == GATHER else node)


def _sunk(node: Node, uses: Counter[Node]) -> Node:
    chain: list[tuple[Node, list[Node | None]]] = []  # each f and its sources, None for the one that is gathered
    source = node.srcs[0]
    exact = uses[source] > 1
    while source.op.kind == ELEMENTWISE and node.size <= source.size:
        wide = [s for s in source.srcs if s.op.kind != CONST and s.shape == source.shape]
        others = [None if s in wide else _same_for_all(s, node) for s in source.srcs]
        if len(wide) != 1 or others.count(None) > 1 or not _may_sink(source, exact):
            break
        chain.append((source, others))
        source = wide[0]
    if not chain:
        return node
    out = apply(node.op, (source, *node.srcs[1:]), node.attrs)
    out.line = node.line
    for f, others in reversed(chain):
        out = apply(f.op, tuple([out if s is None else s for s in others]), f.attrs)
    return out


def _may_sink(f: Node, exact: bool) -> bool:
    return not f.dtype.is_float or f.op.name in _EXACT or (f.op.name in _SUMS and not exact)


def _same_for_all(operand: Node, gather: Node) -> Node | None:
    """What belongs to a gather's result of a smaller operand that is the same at all positions it chooses from; None:
    it is not."""
    if operand.op.kind == CONST:
        return operand
    axes, dims, shape = gather.attrs
    sizes = (*[1] * (gather.srcs[0].ndim - operand.ndim), *operand.shape)
    kept = [a for a in range(len(sizes)) if a not in axes]
    places = [dims[a] for a in kept]
    if any(sizes[a] != 1 for a in axes) or places != sorted(set(places)) or -1 in places:
        return None
    row = [1] * len(shape)
    for a in kept:
        row[dims[a]] = sizes[a]
    return F.reshape(operand, tuple(row))
