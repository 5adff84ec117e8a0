"""What fusion asks about single nodes and groups: how dear a value is, and what follows from what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pyflame.core.shape import is_contiguous
from pyflame.ir import Node
from pyflame.ir.graph import Graph, shown_by
from pyflame.ir.opdef import CONST, ELEMENTWISE, LEAF, MOVEMENT, REDUCE
from pyflame.schedule.group import Group

CHEAP = 4  # flops per element below which computing twice beats storing
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
FEW_KEYS = 32  # lines to assign, each of which a GPU's thread can compare with all behind it
SMALL = 32  # a tensor as many times smaller than another counts for nothing beside it


def cheap(node: Node) -> bool:
    """Cheap enough to compute in several kernels: little work on one tensor of its size and what is small beside it."""
    if is_result_copy(node):
        return False
    large = sum(read_size(s) * SMALL > node.size for s in node.srcs if s.size > 1)
    return node.op.kind == ELEMENTWISE and node.op.cost <= CHEAP and large <= 1


def extents_of(group: Group) -> list[list[int]]:
    """Of the loops of each scope."""
    return [[leaf.extent for r in scope for leaf in r.leaves() if leaf.extent != 1] for scope in group.scopes]


def is_result_copy(node: Node) -> bool:
    """Whether a copy says in which order a convolution's result lies."""
    if node.op.name != "contiguous":
        return False
    while node.op.name in ("contiguous", "permute", "reshape"):
        node = node.srcs[0]
    return node.op.name == "conv_general"


def few_lines(order: Sequence[Node]) -> set[Node]:
    """Assignments to a few lines that can compute what they write: nobody else reads what they overwrite."""
    found = {n.srcs[0]: n for n in order if n.op.name == "scatter_at" and _assigns_few_lines(n)}
    read = Counter([source for node in order for source in node.srcs if source in found] if found else ())
    return {node for base, node in found.items() if read[base] == 1}


def _assigns_few_lines(node: Node) -> bool:
    """Whether it assigns a few lines of a tensor that one index names, none of them twice by one key."""
    axes, dims, _, mode = node.attrs
    if mode != "assign" or len(axes) != 1:
        return False
    base, values, index = node.srcs
    free = [dim for axis, dim in enumerate(dims) if axis not in axes and dim >= 0]
    keys = (1,) * (values.ndim - index.ndim) + index.shape
    sizes = enumerate(zip(values.shape, keys, strict=True))
    alone = all(size == 1 or (d in free) != (key > 1) for d, (size, key) in sizes)
    return alone and len(set(free)) == len(free) and index.size <= FEW_KEYS and values.dtype is base.dtype


def is_memory_order(node: Node) -> bool:
    """Whether it shows a leaf in the order in which that lies densely in memory, as images do whose channels lie
    innermost: what wants it dense has it."""
    source = node.srcs[0]
    if node.op.name != "permute" or source.op.kind != LEAF or source.data.strides is None:
        return False
    return is_contiguous(node.shape, tuple([source.data.strides[a] for a in node.attrs[0]]))


def read_size(node: Node) -> int:
    """Of what must be read for a node that may be another one seen otherwise."""
    size = node.size
    while node.op.kind == MOVEMENT:
        node = node.srcs[0]
        size = min(size, node.size)
    return size


def compared(order: Sequence[Node]) -> set[Node]:
    """Numbers that are compared with what may follow from them: `x == amax(x)` asks for the same bits on both sides,
    and compilers round what is computed in two kernels differently."""
    found: set[Node] = set()
    for node in order:
        if node.op.name in _COMPARISONS:
            sides = [shown_by(s) for s in node.srcs]
            if not any(s.op.kind == CONST for s in sides):
                found.update(s for s in sides if s.dtype.is_float)
    return found


def after_reduce(order: Sequence[Node]) -> set[Node]:
    """Nodes of a reduction's size that follow from one: computed once per row, wherever their readers are."""
    return following(order, {n for n in order if n.op.kind == REDUCE})


def following(order: Sequence[Node], nodes: set[Node]) -> set[Node]:
    """Nodes, and what follows from them and is of their size."""
    found = set(nodes)
    for node in order if nodes else ():
        if node.op.kind in (ELEMENTWISE, MOVEMENT):
            size = node.meta.size
            for source in node.srcs:
                if source in found and source.meta.size == size:
                    found.add(node)
                    break
    return found


def behind_kernels(graph: Graph, has_epilogue: Callable[[Node], bool]) -> set[Node]:
    """Kernel ops that take an epilogue, and what one could make of their results, which nobody else reads.

    Where readers cannot make such a value before it is stored, it is stored in the result's place, not beside it.
    """
    read = Counter([source for node in graph.order for source in node.srcs] + list(graph.outputs))
    found: set[Node] = set()
    for node in graph.order:
        follows = node.op.kind == ELEMENTWISE or node.op.name == "reshape"
        if (follows and any(s in found and read[s] == 1 and s.size == node.size for s in node.srcs)) or has_epilogue(
            node
        ):
            found.add(node)
    return found
