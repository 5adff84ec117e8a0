"""Walking and rewriting graphs of Nodes, without recursion: graphs may be 100,000 nodes deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyflame.ir.node import Node


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


def rebuilt(node: Node, srcs: tuple[Node, ...]) -> Node:
    """The node over other sources of the same shapes and dtypes."""
    if srcs == node.srcs:  # nodes are equal to themselves alone
        return node
    out = Node(node.op, srcs, node.attrs, node.meta, node.sig, node.data)
    out.line = node.line
    return out


def rewrite(outputs: Sequence[Node], rule: Callable[[Node], Node], order: Sequence[Node] | None = None) -> list[Node]:
    """Apply a rule to every node, sources first; what it returns may be a subgraph, which is not visited again."""
    done: dict[Node, Node] = {}
    for node in topological(outputs) if order is None else order:
        srcs = node.srcs
        done[node] = rule(rebuilt(node, tuple([done[s] for s in srcs])) if srcs else node)
    return [done[o] for o in outputs]
