"""Give every assignment a base of its own.

An op with an alias overwrites one of its sources. Where anyone else reads that source's buffer, it is cloned, unless
all they do is make what is written: `x[i] += 1` reads x before, or element by element while, it writes. This is the
last rewrite, since merging equal nodes would undo it.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod

from pyflame.core.shape import Region, Shape
from pyflame.ir import F, Node
from pyflame.ir.graph import Graph, rebuilt
from pyflame.ir.opdef import ASSIGN, CONST, ELEMENTWISE, GATHER, IOTA, KERNEL, LEAF, MOVEMENT, REDUCE

MAX_READERS = 32  # beyond that a clone costs less than looking


def own(graph: Graph, owned: Container[Node]) -> Graph:
    """`owned`: leaves whose buffer the plan may overwrite."""
    order, outputs = graph.order, graph.outputs
    bare = {first for first in map(_without_values, outputs) if first is not None}
    if not bare and all(op.alias is None for op in graph.ops):
        return graph
    readers: dict[Node, list[Node]] = {n: [] for n in order}
    for node in order:
        for source in node.srcs:
            readers[source].append(node)
    kept = set(outputs)
    done: dict[Node, Node] = {}
    for node in order:
        if node in bare:
            done[node] = F.clone(F.full_const(0, node.dtype, node.shape))
            continue
        srcs = [done[s] for s in node.srcs]
        alias = node.op.alias
        if alias is not None:
            base = node.srcs[alias]
            foreign = base.op.kind in (CONST, IOTA, MOVEMENT) or (base.op.kind == LEAF and base not in owned)
            if foreign or base in kept or not _only_feeds(node, base, readers, kept):
                srcs[alias] = _copy(srcs[alias])
        done[node] = rebuilt(node, tuple(srcs))
    return Graph([done[o] for o in outputs])


def _without_values(output: Node) -> Node | None:
    """The memory without values that an output began as, if some of it was assigned and some not. It gets zeros: what
    leaves a plan may be copied whole by another."""
    first, assigned = output, 0
    while first.op.kind == ASSIGN:
        assigned += prod(count for _, _, count in first.attrs[0])
        first = first.srcs[0]
    return first if first.op.name == "uninitialized" and 0 < assigned < output.size else None


def _copy(base: Node) -> Node:
    """A base's values in a buffer of their own. Where it began without any, only what was written to it is read."""
    regions: list[Region] = []
    first = base
    while first.op.kind == ASSIGN and first.data is None:
        regions.append(first.attrs[0])
        first = first.srcs[0]
    if first.op.name != "uninitialized":
        return F.clone(base)
    out = F.uninitialized(base.shape, base.dtype)
    for region in reversed(regions):
        out = F.assign(out, F.slice(base, region), region)
    return out


def _only_feeds(writer: Node, base: Node, readers: dict[Node, list[Node]], kept: Container[Node]) -> bool:
    """Whether all others who read the base do so for the writer alone, and are done with an element by its turn."""
    stack = [r for r in readers[base] if r is not writer]
    if len(stack) != len(readers[base]) - 1:
        return False
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in kept or node.op.alias is not None or len(seen) > MAX_READERS:
            return False
        stack += [r for r in readers[node] if r is not writer]
    if writer.op.kind == ASSIGN:
        return all(_same_element(node, writer, base) for node in seen)
    # A kernel takes whole buffers: what is computed is in memory before the kernel runs, a view of the base is not.
    return all(n.op.kind in (ELEMENTWISE, GATHER, REDUCE, KERNEL) for n in seen if writer in readers[n])


def _same_element(node: Node, writer: Node, base: Node) -> bool:
    """Whether a value inside of an assignment's region comes from the element it is written to."""
    region = writer.attrs[0]
    if node.op.name == "slice" and node.srcs[0] is base:
        return bool(node.attrs[0] == region) and writer.data is None  # else it begins somewhere in each run
    if base in node.srcs and region != tuple((0, 1, size) for size in base.shape):
        return False
    plain = node.op.kind == ELEMENTWISE or node.op.name == "reshape"
    return plain and _without_ones(node.shape) == _without_ones(tuple(count for _, _, count in region))


def _without_ones(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)
