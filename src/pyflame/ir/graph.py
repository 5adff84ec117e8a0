"""Walking and rewriting graphs of Nodes, without recursion: graphs may be 100,000 nodes deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyflame.core.cached import cached_property
from pyflame.ir.node import Node
from pyflame.ir.opdef import MOVEMENT, OpDef


class Graph:
    """What some outputs need, for passes: each gives the graph it was given where it has nothing to do, so that those
    behind it walk no graph again that was walked before."""

    def __init__(self, outputs: Sequence[Node]) -> None:
        self.outputs = list(outputs)

    @cached_property
    def order(self) -> list[Node]:
        """All nodes, sources first."""
        return topological(self.outputs)

    @cached_property
    def ops(self) -> set[OpDef]:
        return {node.op for node in self.order}

    def rewritten(self, rule: Callable[[Node], Node]) -> Graph:
        """Apply a rule to every node, sources first; what it returns may be a subgraph, which is not visited again."""
        done: dict[Node, Node] = {}
        changed = False
        for node in self.order:
            srcs = node.srcs
            new = done[node] = rule(rebuilt(node, tuple([done[s] for s in srcs])) if changed and srcs else node)
            changed = changed or new is not node
        return Graph([done[o] for o in self.outputs]) if changed else self


def topological(outputs: Iterable[Node]) -> list[Node]:
    """Every node the outputs need, sources first. Evaluated nodes have no sources and so end the walk."""
    done: dict[Node, None] = {}
    for node in outputs:
        if node in done:
            continue
        stack: list[tuple[Node, Iterator[Node]]] = []
        sources = iter(node.srcs)
        while True:
            for source in sources:
                if source not in done:
                    if source.srcs:
                        stack.append((node, sources))
                        node, sources = source, iter(source.srcs)
                        break
                    done[source] = None
            else:
                done[node] = None
                if not stack:
                    break
                node, sources = stack.pop()
    return list(done)


def shown_by(node: Node) -> Node:
    """What a view shows; a node that is none shows itself."""
    while node.op.kind == MOVEMENT:
        node = node.srcs[0]
    return node


def rebuilt(node: Node, srcs: tuple[Node, ...]) -> Node:
    """The node over other sources of the same shapes and dtypes."""
    if srcs == node.srcs:  # nodes are equal to themselves alone
        return node
    out = Node(node.op, srcs, node.attrs, node.meta, node.sig, node.data)
    out.line = node.line
    return out
