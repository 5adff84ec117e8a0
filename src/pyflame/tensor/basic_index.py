"""x[i], x[a:b], x[i, :, a:b]: reading with whole numbers, slices, None and '...', as programs do in their loops.

What such an index makes of a tensor follows from the tensor's meta and the index alone, so it is looked up: the ops,
their attributes and signatures. Where an index of the same lengths was read before, only where it begins is new. A part
of what lies in the host's memory is that memory from another byte on, and no op at all. An index that is wrong is left
to the general way (indexing.py), which says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyflame.autograd import record
from pyflame.core import knobs
from pyflame.core.device import CPU
from pyflame.core.shape import Region, Shape, start_of
from pyflame.core.state import state
from pyflame.engine.value import PARTS, Value
from pyflame.engine.views import view_of_memory
from pyflame.ir import OPS, F, Meta, Node, OpDef, signature
from pyflame.ir.node import NODES, next_serial
from pyflame.tensor.paths import Path, Step
from pyflame.tensor.tensor import TENSORS, Tensor
from pyflame.tensor.views import link_detached, view_of


class Made(NamedTuple):
    """A Node of an index, but for its source."""

    op: OpDef
    attrs: tuple[Any, ...]
    meta: Meta
    sig: int


Strides = tuple[int, ...] | None


class Known(NamedTuple):
    """What an index makes; and where that lies in the memory of a row-major tensor, in elements from its begin.

    `places`: by a tensor's strides, those of the part and the signature of such a leaf; None: it lies nowhere. All
    indices of the same lengths share them.
    """

    made: list[Made]
    path: Path
    begin: int
    places: dict[Strides, tuple[Strides, int] | None]


Key = tuple[Any, ...]
KNOWN: dict[Key, Known] = {}
_alike: dict[Key, Known] = {}  # by lengths and steps, not by where they begin
_MAX_KNOWN = 10_000
_LEAF, _SLICE, _RESHAPE = OPS["leaf"], OPS["slice"], OPS["reshape"]
_VIEWS = (_SLICE,), (_RESHAPE,), (_SLICE, _RESHAPE)
_OTHER = object()
_MAX_PENDING = knobs.MAX_PENDING.integer()


def plain_key(key: Any) -> Key | None:
    """An index as a tuple that can be looked up, slices as tuples of numbers; None where it holds anything else."""
    out: list[Any] = []
    for item in key if type(key) is tuple else (key,):
        kind = type(item)
        if kind is slice:
            start, stop, step = item.start, item.stop, item.step
            if type(start) is int and type(stop) is int and step is None:  # as most are
                out.append((start, stop, None))
                continue
            ends = [end if end is None or type(end) is int else _number(end) for end in (start, stop, step)]
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
    rank = len(shape)
    for item in key:
        kind = type(item)
        if kind is tuple or kind is int:
            if len(parts) == rank:
                return None
            part = (_part if kind is tuple else _number_part)(item, shape[len(parts)])
            if part is None:
                return None
            parts.append(part)
            if kind is tuple:
                result.append(part[2])
        elif item is None:
            result.append(1)
        else:
            used = len(key) - key.count(None) - key.count(Ellipsis)
            if used > rank or key.count(Ellipsis) > 1:
                return None
            _take_rest(shape[len(parts) : len(parts) + rank - used], parts, result)
    if len(parts) < rank:
        _take_rest(shape[len(parts) :], parts, result)
    return tuple(parts), tuple(result)


def _take_rest(sizes: Shape, parts: list[tuple[int, int, int]], result: list[int]) -> None:
    """Read axes whole."""
    parts += [(0, 1, size) for size in sizes]
    result += sizes


def _number_part(index: int, size: int) -> tuple[int, int, int] | None:
    """(start, step, count) of one place; None where it lies outside."""
    return (index % size, 1, 1) if -size <= index < size else None


def _part(ends: Key, size: int) -> tuple[int, int, int] | None:
    """(start, step, count) of a slice; None where its step is 0."""
    start, stop, step = ends
    if step is None and start is not None and stop is not None and 0 <= start < stop <= size:
        return start, 1, stop - start  # most are so, and this takes a tenth of the time
    if step == 0:
        return None
    read = range(*slice(start, stop, step).indices(size))
    return (read.start, read.step, len(read)) if read else (0, 1, 0)


def read_region(region: Region, shape: Shape, x: Node) -> Node:
    """A region of a value under another shape."""
    return F.reshape(F.slice(x, region), shape)


def read_known(cell: Tensor, key: Key) -> Tensor | None:
    """A part of a tensor, if its kind was read lately; None where it was not, and in modes that see every op."""
    here = state.__dict__
    if here["tracer"] is not None or here["eager"] or here["recorder"] is not None or here["pending"] > _MAX_PENDING:
        return None
    node, tape = cell._node, cell._entry
    found = KNOWN.get((node.meta, here["device"], key)) or _moved(node.meta, here["device"], key)
    if found is None:
        return None
    here["pending"] += len(found.made)  # at most
    if tape is None:
        return view_of(cell, found.path, _part_of(node, found))
    if not here["grad_enabled"]:
        return link_detached(TENSORS.new(_part_of(node, found)), cell, found.path)
    entries = {node: tape}
    nodes = [node := NODES.new(op, (node,), attrs, meta, sig) for op, attrs, meta, sig in found.made]
    record(nodes, entries)
    return view_of(cell, found.path, node, entries.get(node))


def _part_of(node: Node, known: Known) -> Node:
    """The Node of a part of what a Node holds: a leaf over the same memory, or its ops."""
    value, meta = node.data, node.meta
    if node.op is _LEAF and meta.device is CPU and isinstance(value, Value) and value.storage is not None:
        made, _, at, places = known
        strides = value.strides
        place = places[strides] if strides in places else _place(node, strides, known)
        if place is not None:
            if strides is not None and made[0].op is _SLICE:
                at = start_of(made[0].attrs[0], meta.shape, strides)
            begin = value.offset + at * meta.dtype.itemsize
            part = PARTS.new(value.storage, begin, place[0], node, made, next_serial())
            return NODES.new(_LEAF, (), (), made[-1].meta, place[1], part)  # type: ignore[no-any-return]
    return _applied(node, known)


def _applied(node: Node, known: Known) -> Node:
    for op, attrs, meta, sig in known.made:
        node = NODES.new(op, (node,), attrs, meta, sig)
    return node


def _place(node: Node, strides: Strides, known: Known) -> tuple[Strides, int] | None:
    """The strides of a part of what has these, and the signature of its leaf; None where it must be computed."""
    node = _applied(node, known)
    seen = view_of_memory(node) if tuple([made.op for made in known.made]) in _VIEWS else None
    found = None if seen is None else (seen.strides, signature("leaf", node.meta, seen.strides))
    known.places[strides] = found
    return found


def _moved(meta: Meta, device: Any, key: Key) -> Known | None:
    """What an index makes that differs from one before only in where it begins."""
    read = region_of(meta.shape, key)
    if read is None:
        return None
    region, shape = read
    found = _alike.get(_lengths(meta, device, region, shape))
    if found is None:
        return None
    (sliced, *others), (step, *steps) = found.made, found.path
    attrs = (region,)
    made = [Made(sliced.op, attrs, sliced.meta, signature(sliced.op.name, attrs, sliced.meta)), *others]
    path = (Step(step.op, attrs), *steps)
    return _keep(KNOWN, (meta, device, key), Known(made, path, start_of(region, meta.shape), found.places))


def _lengths(meta: Meta, device: Any, region: Region, shape: Shape) -> Key:
    return (meta, device, shape, *[part[1:] for part in region])


def _keep(table: dict[Key, Known], key: Key, found: Known) -> Known:
    if len(table) >= _MAX_KNOWN:
        table.clear()
    table[key] = found
    return found


def learn(cell: Tensor, key: Key, view: Tensor) -> None:
    """Keep how a view was read, for the next time."""
    known = view._link
    if known is None or known.parent is not cell or not known.path or state.tracer is not None:
        return
    node, source = view._node, cell._node
    made: list[Made] = []
    while node is not source:
        if len(node.srcs) != 1 or node.meta.device is not source.meta.device:
            return
        made.append(Made(node.op, node.attrs, node.meta, node.sig))
        node = node.srcs[0]
    made.reverse()
    meta, device = source.meta, vars(state)["device"]
    sliced = made[0].op is _SLICE
    begin = start_of(made[0].attrs[0], meta.shape) if sliced else 0
    found = _keep(KNOWN, (meta, device, key), Known(made, known.path, begin, {}))
    if sliced and len(known.path) == len(made):
        _keep(_alike, _lengths(meta, device, made[0].attrs[0], view._node.meta.shape), found)
