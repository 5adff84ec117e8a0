"""Merge equal nodes and chains of movement ops.

Constants of the graph are data, so no rule looks at their value; those that decompositions brought along belong to the
structure, and equal ones are one.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod
from typing import Any

from pyflame.core.shape import Region, Shape, apart, contiguous_strides, region_before_reshape, sliced_again
from pyflame.core.traced import Number
from pyflame.ir import F, Node
from pyflame.ir.graph import Graph
from pyflame.ir.opdef import CONST, ELEMENTWISE, LEAF, REDUCE

_COPIES = ("clone", "contiguous")


def simplify(graph: Graph, data: Container[Node] = ()) -> Graph:
    """Common subexpressions once; reshape of reshape, permute of permute, expand of expand, slice of assign as one.

    `data`: constants whose value may change from run to run.
    """
    known: dict[tuple[Any, ...], Node] = {}

    def rule(node: Node) -> Node:
        if node.op.kind != ELEMENTWISE or node.op.name in _COPIES:
            node = _merge_movement(node)
        if node.op.kind == CONST and node not in data:
            value = node.data if isinstance(node.data, Number) else repr(node.data)  # repr tells 0.0 from -0.0
            return known.setdefault((node.sig, value), node)
        if node.op.kind in (LEAF, CONST) or node.op.alias is not None or node.op.name == "uninitialized":
            return node
        return known.setdefault((node.sig, *node.srcs), node)

    return graph.rewritten(rule)


def _merge_movement(node: Node) -> Node:
    if not node.srcs:
        return node
    if node.op.kind == REDUCE and node.size == node.srcs[0].size:
        node = F.reshape(node.srcs[0], node.shape)  # over axes of size 1: nothing to reduce
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
    if name == "permute" and _without_ones(node.shape) == _without_ones(source.shape):
        moved = [a for a in node.attrs[0] if source.shape[a] != 1]
        if moved == sorted(moved):
            return _merge_movement(F.reshape(source, node.shape))
    if name in _COPIES and source.op.name in _COPIES:
        return source
    if name == "assign":
        return _assigned_to_itself(node)
    return _sunk_slice(node) if name == "slice" else node


def _sunk_slice(node: Node) -> Node:
    """A slice of what was only moved, taken before that. `x[1][2:] *= 2` then reads x where it writes to it, and needs
    no copy."""
    if node.op.name != "slice":
        return node
    (region,), source = node.attrs, node.srcs[0]
    if source.op.name == "slice":
        return _sunk_slice(F.slice(source.srcs[0], sliced_again(source.attrs[0], region)))
    if source.op.name == "permute":
        order = source.attrs[0]
        part = tuple(region[order.index(a)] for a in range(len(order)))
        return _merge_movement(F.permute(_sunk_slice(F.slice(source.srcs[0], part)), order))
    if source.op.name == "reshape":
        below = region_before_reshape(source.srcs[0].shape, source.shape, region)
        if below is not None:
            return _merge_movement(F.reshape(_sunk_slice(F.slice(source.srcs[0], below)), node.shape))
    return _read_assigned(node)


def _without_ones(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _read_assigned(node: Node) -> Node:
    """A slice of what was assigned is the value that was; a slice beside it is one of the base."""
    (region,), source = node.attrs, node.srcs[0]
    while source.op.name == "assign" and source.data is None:  # else it begins somewhere in each run
        base, value = source.srcs
        if source.attrs[0] == region:
            return F.expand(value, node.shape)
        if not apart(region, source.attrs[0]):
            break
        source = base
    return node if source is node.srcs[0] else F.slice(source, region)


def _assigned_to_itself(node: Node) -> Node:
    """A tensor whose parts are assigned to where they were in it: to that tensor itself, or to one without values."""
    (region,), (base, value) = node.attrs, node.srcs
    part = _unreshaped(value)
    if part.op.name != "slice" or node.data is not None or part.size != prod(count for _, _, count in region):
        return node
    whole = part.srcs[0]
    if base.op.name != "uninitialized" and _unreshaped(base) is not _unreshaped(whole):
        return node
    same = whole.size == node.size and _places(whole.shape, part.attrs[0]) == _places(node.shape, region)
    return F.reshape(whole, node.shape) if same else node


def _unreshaped(node: Node) -> Node:
    while node.op.name == "reshape":
        node = node.srcs[0]
    return node


def _places(shape: Shape, region: Region) -> list[tuple[int, int]]:
    """(first, 1) and then (step, count) of a region's elements in row-major memory, in as few loops as can be."""
    strides = contiguous_strides(shape)
    loops = [(sum(s * start for s, (start, _, _) in zip(strides, region, strict=True)), 1)]
    for stride, (_, step, count) in zip(strides, region, strict=True):
        if len(loops) > 1 and loops[-1][0] == stride * step * count:
            loops[-1] = (stride * step, loops[-1][1] * count)
        elif count > 1:
            loops.append((stride * step, count))
    return loops
