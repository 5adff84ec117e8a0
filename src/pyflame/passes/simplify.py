"""Merge equal nodes and chains of movement ops. Constants are data, so no rule looks at their value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflame.ir import F, Node
from pyflame.ir.graph import rewrite
from pyflame.ir.opdef import CONST, LEAF


def simplify(outputs: Sequence[Node]) -> list[Node]:
    """Common subexpressions once; reshape of reshape, permute of permute and expand of expand as one."""
    known: dict[tuple[Any, ...], Node] = {}

    def rule(node: Node) -> Node:
        node = _merge_movement(node)
        if node.op.kind in (LEAF, CONST) or node.op.alias is not None or node.op.name == "uninitialized":
            return node
        return known.setdefault((node.sig, *node.srcs), node)

    return rewrite(outputs, rule)


def _merge_movement(node: Node) -> Node:
    if not node.srcs:
        return node
    source = node.srcs[0]
    name = node.op.name
    if name == "reshape" and source.op.name == "reshape":
        return F.reshape(source.srcs[0], node.shape)
    if name == "expand" and source.op.name == "expand":
        return F.expand(source.srcs[0], node.shape)
    if name == "permute" and source.op.name == "permute":
        inner = source.attrs[0]
        return F.permute(source.srcs[0], tuple(inner[a] for a in node.attrs[0]))
    if name in ("clone", "contiguous") and source.op.name in ("clone", "contiguous"):
        return source
    return node
