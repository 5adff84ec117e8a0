"""Walking and rewriting graphs of Nodes, without recursion: graphs may be 100,000 nodes deep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import is_

from pyflame.ir.node import Node


def topological(outputs: Iterable[Node]) -> list[Node]:
    """Every node the outputs need, sources first. Evaluated nodes have no sources and so end the walk."""
    order: list[Node] = []
    seen: set[Node] = set()
    for root in outputs:
        if root in seen:
            continue
        stack: list[tuple[Node, int]] = [(root, 0)]
        seen.add(root)
        while stack:
            node, position = stack.pop()
            srcs = node.srcs
            while position < len(srcs):
                source = srcs[position]
                position += 1
                if source not in seen:
                    seen.add(source)
                    stack.append((node, position))
                    stack.append((source, 0))
                    break
            else:
                order.append(node)
    return order


def rebuilt(node: Node, srcs: tuple[Node, ...]) -> Node:
    """The node over other sources of the same shapes and dtypes."""
    if all(map(is_, srcs, node.srcs)):
        return node
    out = Node(node.op, srcs, node.attrs, node.meta, node.sig, node.data)
    out.line = node.line
    return out


def rewrite(outputs: Sequence[Node], rule: Callable[[Node], Node], order: Sequence[Node] | None = None) -> list[Node]:
    """Apply a rule to every node, sources first; what it returns may be a subgraph, which is not visited again."""
    done: dict[Node, Node] = {}
    for node in topological(outputs) if order is None else order:
        done[node] = rule(rebuilt(node, tuple([done[s] for s in node.srcs])))
    return [done[o] for o in outputs]
