"""replace_pattern: other nodes for those of a graph that do what a pattern does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pyflame.fx.graph import Graph
from pyflame.fx.graph_module import GraphModule
from pyflame.fx.node import Node
from pyflame.fx.tracer import symbolic_trace


class Match(NamedTuple):
    """Where the pattern was found: the last of its nodes, and which node stands for which of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Replace what does the same as `pattern` by `replacement`, whose arguments are the pattern's.

    >>> gm = pf.fx.symbolic_trace(lambda x: pf.relu(x) + 1)
    >>> found = pf.fx.replace_pattern(gm, lambda x: pf.relu(x), lambda x: pf.tanh(x))
    >>> len(found), gm(pf.zeros(1))
    (1, tensor([1.]))
    """
    wanted, other = (p.graph if isinstance(p, GraphModule) else symbolic_trace(p).graph for p in (pattern, replacement))
    goal = wanted.output_node().args[0]
    matches: list[Match] = []
    taken: set[Node] = set()
    for node in list(gm.graph.nodes):
        found: dict[Node, Node] = {}
        if not _same(goal, node, found):
            continue
        inner = {n for p, n in found.items() if p.op != "placeholder"}
        escapes = any(user not in inner for n in inner - {node} for user in n.users)
        if not inner or escapes or inner & taken:
            continue
        taken |= inner
        matches.append(Match(node, found))
    changed: dict[Node, Node] = {}
    for match in matches:
        _replace(gm.graph, match, wanted, other, changed)
    gm.graph.lint()
    gm.recompile()
    return matches


def _replace(graph: Graph, match: Match, wanted: Graph, other: Graph, changed: dict[Node, Node]) -> None:
    values: dict[Node, Node] = {}
    inputs = [n for n in wanted.nodes if n.op == "placeholder"]
    for theirs, own in zip((n for n in other.nodes if n.op == "placeholder"), inputs, strict=True):
        at = match.nodes_map[own]
        values[theirs] = changed.get(at, at)
    with graph.inserting_before(match.anchor):
        result = graph.graph_copy(other, values)
    match.anchor.replace_all_uses_with(result)
    changed[match.anchor] = result
    for node in reversed(graph.nodes):
        if node in match.nodes_map.values() and not node.users and node.op != "placeholder":
            graph.erase_node(node)


def _same(pattern: Any, value: Any, found: dict[Node, Node]) -> bool:
    """Whether an argument does what the pattern's does, with nodes noted."""
    if isinstance(pattern, Node):
        if not isinstance(value, Node):
            return False
        if pattern in found:
            return found[pattern] is value
        if pattern.op != "placeholder":
            if (pattern.op, pattern.target) != (value.op, value.target):
                return False
            if not _same(pattern.args, value.args, found) or not _same(pattern.kwargs, value.kwargs, found):
                return False
        found[pattern] = value
        return True
    if isinstance(pattern, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(pattern) == len(value)
            and all(_same(p, v, found) for p, v in zip(pattern, value, strict=True))
        )
    if isinstance(pattern, dict):
        return (
            isinstance(value, dict)
            and pattern.keys() == value.keys()
            and all(_same(p, value[k], found) for k, p in pattern.items())
        )
    return type(pattern) is type(value) and bool(pattern == value)
