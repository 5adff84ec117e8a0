"""x[i], x[a:b], x[i, :, a:b]: reading with whole numbers, slices, None and '...', as programs do in their loops.

What such an index makes of a tensor follows from the tensor's meta and the index alone, so it is looked up: the ops,
their attributes and signatures. An index that is wrong is left to the general way (indexing.py), which says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyflame.autograd import record
from pyflame.core import knobs
from pyflame.core.shape import Region, Shape
from pyflame.core.state import state
from pyflame.ir import F, Meta, Node, OpDef
from pyflame.tensor.paths import Path
from pyflame.tensor.tensor import Tensor
from pyflame.tensor.views import link, link_detached


class Made(NamedTuple):
    """A Node of an index, but for its source."""

    op: OpDef
    attrs: tuple[Any, ...]
    meta: Meta
    sig: int


Key = tuple[Any, ...]
_known: dict[Key, tuple[list[Made], Path]] = {}
_MAX_KNOWN = 10_000
_OTHER = object()
_MAX_PENDING = knobs.MAX_PENDING.integer()


def plain_key(key: Any) -> Key | None:
    """An index as a tuple that can be looked up, slices as tuples of numbers; None where it holds anything else."""
    if type(key) is int:
        return (key,)
    out: list[Any] = []
    for item in key if type(key) is tuple else (key,):
        kind = type(item)
        if kind is slice:
            ends = [
                end if end is None or type(end) is int else _number(end) for end in (item.start, item.stop, item.step)
            ]
            if _OTHER in ends:
                return None
            item = tuple(ends)
        elif kind is not int and item is not None and item is not Ellipsis:
            return None
        out.append(item)
    return tuple(out)


def _number(end: Any) -> Any:
    """An end of a slice that is a tensor, evaluated; _OTHER for what is none."""
    return end.item() if type(end) is Tensor and end.dtype.is_int and end.numel() == 1 else _OTHER


def region_of(shape: Shape, key: Key) -> tuple[Region, Shape] | None:
    """The region that an index reads, and its shape without the axes of numbers; None for a wrong index."""
    parts: list[tuple[int, int, int]] = []
    result: list[int] = []
    used = len(key) - key.count(None) - key.count(Ellipsis)
    if used > len(shape) or key.count(Ellipsis) > 1:
        return None
    for item in key if Ellipsis in key else (*key, Ellipsis):
        if item is None:
            result.append(1)
        elif item is Ellipsis:
            sizes = shape[len(parts) : len(parts) + len(shape) - used]
            parts += [(0, 1, size) for size in sizes]
            result += sizes
        elif type(item) is tuple:
            start, stop, step = item
            if step == 0:
                return None
            ends = range(*slice(start, stop, step).indices(shape[len(parts)]))
            parts.append((ends.start, ends.step, len(ends)) if ends else (0, 1, 0))
            result.append(len(ends))
        else:
            size = shape[len(parts)]
            if not -size <= item < size:
                return None
            parts.append((item % size, 1, 1))
    return tuple(parts), tuple(result)


def read_region(region: Region, shape: Shape, x: Node) -> Node:
    """A region of a value under another shape."""
    return F.reshape(F.slice(x, region), shape)


def read_known(cell: Tensor, key: Key) -> Tensor | None:
    """A part of a tensor, if its kind was read lately; None where it was not, and in modes that see every op."""
    here = vars(state)
    if here["tracer"] is not None or here["eager"] or here["recorder"] is not None or here["pending"] > _MAX_PENDING:
        return None
    node = cell._node
    found = _known.get((node.meta, here["device"], *key))
    if found is None:
        return None
    made, path = found
    tape = cell._entry
    here["pending"] += len(made)
    if tape is None or not here["grad_enabled"]:
        for op, attrs, meta, sig in made:
            node = Node(op, (node,), attrs, meta, sig)
        out = Tensor(node)
        return link(out, cell, path) if tape is None else link_detached(out, cell, path)
    entries = {node: tape}
    nodes = [node := Node(op, (node,), attrs, meta, sig) for op, attrs, meta, sig in made]
    record(nodes, entries)
    return link(Tensor(node, entries.get(node)), cell, path)


def learn(cell: Tensor, key: Key, view: Tensor) -> None:
    """Keep how a view was read, for the next time."""
    known = view._link
    if known is None or known.parent is not cell or not known.path or state.tracer is not None:
        return
    node, source, made = view._node, cell._node, []
    while node is not source:
        if len(node.srcs) != 1 or node.meta.device is not source.meta.device:
            return
        made.append(Made(node.op, node.attrs, node.meta, node.sig))
        node = node.srcs[0]
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[(source.meta, vars(state)["device"], *key)] = made[::-1], known.path
