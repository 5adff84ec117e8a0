"""Views of evaluated values: a part of a tensor that is in memory already is that memory, from another byte on.

A slice of a leaf is no work for a plan. It becomes a leaf of its own when a graph is walked, over the same memory:
where it begins is a pointer, so no key holds it, and a loop over `data[i:i + 8]` plans once.
"""

from __future__ import annotations

from pyflame.core.shape import Shape, contiguous_strides, is_contiguous, reshaped_strides, start_of
from pyflame.engine.value import Value
from pyflame.ir import Node, signature
from pyflame.ir.opdef import LEAF, MOVEMENT

Layout = tuple[int, tuple[int, ...]]  # offset and strides, in elements


# By the signatures of movement ops and of the leaf below: byte offset, strides, and the signature of a leaf that lies
# so. What an index computes, which loops read again and again.
LAYOUTS: dict[tuple[int, ...], tuple[int, tuple[int, ...] | None, int]] = {}
_MAX_KNOWN = 10_000


def view_of_memory(node: Node) -> Value | None:
    """The memory of a node that only moves elements of a leaf; None where it must be computed, or has no memory."""
    chain: list[Node] = []
    key: list[int] = []
    while (op := node.op).kind == MOVEMENT:
        chain.append(node)
        key.append(node.sig)
        srcs = node.srcs
        if not srcs:  # another thread has evaluated it since
            return None
        node = srcs[0]
    value = node.data
    if op.kind != LEAF or not isinstance(value, Value) or value.storage is None:
        return None
    if not chain:
        return value
    found = LAYOUTS.get(sigs := (*key, node.sig)) or _layout(sigs, node, value.strides, chain)
    return None if found is None else Value(value.storage, value.offset + found[0], found[1])


def _layout(
    sigs: tuple[int, ...], node: Node, strides: tuple[int, ...] | None, chain: list[Node]
) -> tuple[int, tuple[int, ...] | None, int] | None:
    """Where the elements lie that movement ops above a leaf leave, the last op first."""
    offset, strides = 0, contiguous_strides(node.shape) if strides is None else strides
    if not chain[0].meta.size:
        return 0, None, signature("leaf", chain[0].meta, None)
    for moved in reversed(chain):
        layout = _moved(moved, node.shape, offset, strides)
        if layout is None:
            return None
        node, (offset, strides) = moved, layout
    if len(LAYOUTS) >= _MAX_KNOWN:
        LAYOUTS.clear()
    kept = None if is_contiguous(node.shape, strides) else strides
    found = offset * node.meta.dtype.itemsize, kept, signature("leaf", node.meta, kept)
    return LAYOUTS.setdefault(sigs, found)


def _moved(node: Node, source: Shape, offset: int, strides: tuple[int, ...]) -> Layout | None:
    """Where the elements of a movement op lie, given where those of its source do."""
    name, attrs = node.op.name, node.attrs
    if not attrs:  # another thread has evaluated it since
        return None
    (how,) = attrs
    if name == "slice":
        return offset + start_of(how, source, strides), tuple(
            [stride * step for stride, (_, step, _) in zip(strides, how, strict=True)]
        )
    if name == "permute":
        return offset, tuple([strides[axis] for axis in how])
    if name == "expand":
        skip = len(how) - len(source)
        kept = [0 if size == 1 else stride for size, stride in zip(source, strides, strict=True)]
        return offset, (*[0] * skip, *kept)
    if name == "reshape":
        found = reshaped_strides(source, strides, how)
        # one stride for all that do not matter: it is part of a plan's key
        return None if found is None else (offset, tuple([0 if n == 1 else s for n, s in zip(how, found, strict=True)]))
    return None
