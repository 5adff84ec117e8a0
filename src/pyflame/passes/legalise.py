"""Turn the graph into what schedule and kernels can take.

- A composite that no implementation takes whole becomes its decomposition, over and over until none is left.
- Values without elements vanish: nothing is computed for them, and reductions over nothing become their identity.
"""

from __future__ import annotations

from pyflame.core.state import mode
from pyflame.ir import OPS, F, Node, apply, const
from pyflame.ir.graph import Graph, rebuilt
from pyflame.ir.implementation import Table
from pyflame.ir.opdef import COMPOSITE, LEAF, REDUCE


def legalise(graph: Graph, implemented: Table) -> Graph:
    """`implemented`: the ways to run ops on the target."""
    if any(op.kind == COMPOSITE for op in graph.ops):
        graph = graph.rewritten(lambda n: _expand_composite(n, implemented))
    return graph.rewritten(_drop_empty) if any(n.meta.size == 0 for n in graph.order) else graph


def decomposed(node: Node) -> Node:
    """What a composite is made of, one step down."""
    assert node.op.decompose is not None
    with mode(line=node.line):
        return node.op.decompose(*node.srcs, *node.attrs)


def _expand_composite(node: Node, implemented: Table) -> Node:
    if node.op.kind != COMPOSITE or any(way.prior(node) > 0 for way in implemented.get(node.op.name, ())):
        return node
    # The decomposition may hold composites of its own, above sources that are done already.
    return _rewrite_above(decomposed(node), set(node.srcs), implemented)


def _rewrite_above(root: Node, stop: set[Node], implemented: Table) -> Node:
    done: dict[Node, Node] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in stop:
            done[node] = node
            stack.pop()
            continue
        missing = [s for s in node.srcs if s not in done]
        if missing:
            stack.extend(missing)
            continue
        done[node] = _expand_composite(rebuilt(node, tuple([done[s] for s in node.srcs])), implemented)
        stack.pop()
    return done[root]


_IDENTITY = {"zero": 0, "one": 1, "lowest": float("-inf"), "highest": float("inf")}


def _drop_empty(node: Node) -> Node:
    if node.op.kind == REDUCE and node.srcs[0].size == 0 and node.size:
        return F.expand(const(_IDENTITY[node.op.identity or "zero"], node.dtype), node.shape)
    if node.size == 0 and node.op.kind != LEAF and node.srcs:
        return apply(OPS["uninitialized"], (), (node.shape, node.dtype))
    if node.op.name in ("matmul", "conv_general") and any(s.size == 0 for s in node.srcs):
        return F.expand(const(0, node.dtype), node.shape)
    if node.op.name == "assign" and node.srcs[1].size == 0:
        return node.srcs[0]
    return node
