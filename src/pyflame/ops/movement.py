"""Ops that only move elements: index maps, free until someone needs the result in memory.

Four primitives (reshape, permute, expand, slice) are all that the compiler knows; the others are written with them.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.core.errors import ShapeError
from pyflame.core.shape import (
    Region,
    Shape,
    broadcast_shapes,
    check_shape,
    expands_to,
    is_plain,
    normalize_axes,
    normalize_axis,
    resolve_reshape,
)
from pyflame.ir import F, Meta, Node, Sample, composite, primitive
from pyflame.ir.opdef import MOVEMENT
from pyflame.ops.base import _slices, want_whole

_CUBE = np.linspace(-1.0, 1.0, 24).reshape(2, 3, 4)


def _flat(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """reshape(2, 3) and reshape((2, 3)) are the same."""
    if len(values) != 1:
        return values
    (only,) = values
    return only if type(only) is tuple else tuple(only) if isinstance(only, (tuple, list)) else values


# --- primitives -----------------------------------------------------------------------------------------------------


@primitive(
    MOVEMENT,
    infer=lambda m, shape: (shape, m.dtype),
    attrs=("shape",),
    reference=lambda x, shape: x.reshape(shape),
    grad=lambda g, x_meta: (F.reshape(g, x_meta.shape),),
    torch=lambda torch, x, *shape: x.reshape(*shape),
    samples=lambda: [
        Sample((np.arange(12.0).reshape(3, 4), (2, -1))),
        Sample((np.arange(12.0).reshape(3, 4).T, (2, 6))),
        Sample((np.arange(6.0), 3, 2)),
        Sample((np.array(2.0), (1, 1))),
        Sample((np.zeros((0, 3)), (3, 0, 2))),
    ],
)
def reshape(x: Node, *shape: Any) -> Any:
    """The same elements, in row-major order, under another shape. One size may be -1.

    >>> pf.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    have, wanted = x.meta, _flat(shape)
    if not is_plain(wanted) or prod(wanted) != have.size:
        wanted = resolve_reshape("reshape", have.shape, wanted)
    return x if wanted == have.shape else ((x,), (wanted,))


def _permute_grad(g: Node, axes: Shape) -> tuple[Node]:
    return (F.permute(g, tuple([axes.index(a) for a in range(len(axes))])),)


@primitive(
    MOVEMENT,
    infer=lambda m, axes: (tuple(m.shape[a] for a in axes), m.dtype),
    attrs=("axes",),
    reference=lambda x, axes: x.transpose(axes),
    grad=_permute_grad,
    torch=lambda torch, x, *axes: x.permute(*axes),
    samples=lambda: [Sample((_CUBE, (2, 0, 1))), Sample((_CUBE[:, ::2], 0, -1, 1)), Sample((np.array(1.0), ()))],
)
def permute(x: Node, *axes: Any) -> Any:
    """Reorder the axes.

    >>> pf.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    order = _flat(axes)
    if not is_plain(order) or len(order) != x.ndim:
        order = tuple(normalize_axis("permute", a, x.ndim) for a in order)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"[permute] expected each of {x.ndim} axes once but got {_flat(axes)}")
    return x if order == tuple(range(x.ndim)) else ((x,), (order,))


@primitive(
    MOVEMENT,
    infer=lambda m, shape: (shape, m.dtype),
    attrs=("shape",),
    reference=lambda x, shape: np.broadcast_to(x, shape),
    grad=lambda g: (g,),  # the walk sums the gradient back to the source's shape
    torch=lambda torch, x, *shape: x.expand(*shape),
    samples=lambda: [
        Sample((np.arange(3.0).reshape(3, 1), (2, 3, 4))),
        Sample((np.arange(3.0).reshape(3, 1), -1, 5)),
        Sample((np.array(2.0), (2, 2))),
        Sample((np.ones((1, 3)), (0, 3))),
    ],
)
def expand(x: Node, *shape: Any) -> Any:
    """Repeat axes of size 1 without copying; -1 keeps a size.

    >>> pf.ones(3, 1).expand(3, 4).shape
    (3, 4)
    """
    given = _flat(shape)
    if is_plain(given) and expands_to(x.meta.shape, given):
        return x if given == x.meta.shape else ((x,), (given,))
    wanted = list(given)
    skip = len(wanted) - x.ndim
    for axis, size in enumerate(wanted):
        if size == -1 and axis >= skip:
            wanted[axis] = x.shape[axis - skip]
    target = check_shape("expand", wanted)
    if skip < 0 or broadcast_shapes("expand", x.shape, target) != target:
        raise ShapeError(f"[expand] expected a shape that {x.shape} broadcasts to but got {target}")
    return x if target == x.shape else ((x,), (target,))


def _slice_grad(g: Node, x_meta: Meta, region: Region) -> tuple[Node]:
    # zero outside of the region that was read
    return (F.assign(F.full_const(0, g.dtype, x_meta.shape), g, region),)


@primitive(
    MOVEMENT,
    infer=lambda m, region: (tuple(count for _, _, count in region), m.dtype),
    attrs=("region",),
    reference=lambda x, region: x[tuple(_slices(region))],
    grad=_slice_grad,
    public=False,
)
def slice(x: Node, region: Region) -> Any:
    """A strided region: (start, step, count) per axis; steps may be negative."""
    for part, size in zip(region, x.meta.shape, strict=True):
        if part != (0, 1, size):
            return (x,), (region,)
    return x


def _whole_but(x: Node, axis: int, part: tuple[int, int, int]) -> Region:
    """The region that is all of x but for one axis."""
    return tuple(part if a == axis else (0, 1, size) for a, size in enumerate(x.shape))


# --- shapes ---------------------------------------------------------------------------------------------------------


@composite(
    reference=lambda x, other: x.reshape(other.shape),
    torch=lambda torch, x, other: x.reshape(other.shape),
    samples=lambda: [Sample((_CUBE, np.zeros((4, 6), np.int64)))],
)
def reshape_as(x: Node, other: Node) -> Node:
    """x under the shape of another tensor.

    >>> pf.zeros(6).reshape_as(pf.ones(2, 3)).shape
    (2, 3)
    """
    return F.reshape(x, other.shape)


def _numpy_flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if x.ndim == 0:
        return x.reshape(1)
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:first], int(np.prod(x.shape[first : last + 1])), *x.shape[last + 1 :])


@composite(
    reference=_numpy_flatten,
    torch="flatten",
    samples=lambda: [
        Sample((_CUBE,)),
        Sample((_CUBE, 1)),
        Sample((_CUBE.T, 0, 1)),
        Sample((np.array(1.0),)),
        Sample((np.zeros((2, 0)),)),
    ],
)
def flatten(x: Node, start_dim: int = 0, end_dim: int = -1) -> Node:
    """Make one axis of the axes from start_dim to end_dim.

    >>> pf.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    first, last = normalize_axis("flatten", start_dim, x.ndim), normalize_axis("flatten", end_dim, x.ndim)
    if first > last:
        raise ShapeError(
            f"[flatten] expected start_dim before end_dim but got {start_dim} and {end_dim} for shape {x.shape}"
        )
    size = int(np.prod(x.shape[first : last + 1], dtype=np.int64))
    return F.reshape(x, (*x.shape[:first], size, *x.shape[last + 1 :]))


@composite(
    reference=lambda x, dim, sizes: x.reshape(*x.shape[: dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1 :]),
    torch="unflatten",
    samples=lambda: [Sample((_CUBE, -1, (2, 2))), Sample((_CUBE, 0, (1, -1)))],
)
def unflatten(x: Node, dim: int, sizes: Any) -> Node:
    """Cut one axis into several; one of the sizes may be -1.

    >>> pf.zeros(2, 6).unflatten(1, (3, -1)).shape
    (2, 3, 2)
    """
    axis = normalize_axis("unflatten", dim, x.ndim)
    parts = resolve_reshape("unflatten", x.shape[axis : axis + 1], sizes)
    return F.reshape(x, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


def _numpy_squeeze(x: Any, axis: Any = None) -> Any:
    wanted = (
        range(x.ndim) if axis is None else [a % max(x.ndim, 1) for a in (axis if isinstance(axis, tuple) else (axis,))]
    )
    return x.reshape([n for a, n in enumerate(x.shape) if n != 1 or a not in wanted])


@composite(
    reference=_numpy_squeeze,
    torch=lambda torch, x, axis=None: x.squeeze() if axis is None else x.squeeze(axis),
    samples=lambda: [
        Sample((np.ones((1, 3, 1)),)),
        Sample((np.ones((1, 3, 1)), 0)),
        Sample((np.ones((1, 3, 1)), 1)),
        Sample((np.ones((1, 3, 1)), (0, -1))),
        Sample((np.array(1.0),)),
    ],
)
def squeeze(x: Node, axis: Any = None) -> Node:
    """Drop axes of size 1: all, one, or several. Axes of another size stay.

    >>> pf.zeros(1, 3, 1).squeeze().shape
    (3,)
    """
    axes = normalize_axes("squeeze", axis, x.ndim)
    return F.reshape(x, tuple(n for a, n in enumerate(x.shape) if n != 1 or a not in axes))


@composite(
    reference=np.expand_dims,
    torch="unsqueeze",
    samples=lambda: [Sample((_CUBE, 0)), Sample((_CUBE, -1)), Sample((_CUBE.T, 2)), Sample((np.array(1.0), 0))],
)
def unsqueeze(x: Node, axis: int) -> Node:
    """A new axis of size 1 at this place.

    >>> pf.zeros(3).unsqueeze(-1).shape
    (3, 1)
    """
    at = normalize_axis("unsqueeze", axis, x.ndim + 1)
    return F.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


# --- order of axes --------------------------------------------------------------------------------------------------


@composite(
    reference=np.swapaxes,
    torch="transpose",
    samples=lambda: [Sample((_CUBE, 0, 2)), Sample((_CUBE, -1, 1)), Sample((_CUBE.T, 1, 1))],
)
def transpose(x: Node, dim0: int, dim1: int) -> Node:
    """Exchange two axes.

    >>> pf.zeros(2, 3, 4).transpose(0, 2).shape
    (4, 3, 2)
    """
    a, b = normalize_axis("transpose", dim0, x.ndim), normalize_axis("transpose", dim1, x.ndim)
    order = list(range(x.ndim))
    if x.ndim:
        order[a], order[b] = order[b], order[a]
    return F.permute(x, tuple(order))


@composite(
    reference=np.transpose,
    torch="t",
    samples=lambda: [Sample((_CUBE[0],)), Sample((_CUBE[0, 0],)), Sample((np.array(1.0),))],
)
def t(x: Node) -> Node:
    """A matrix with its axes exchanged; a vector or a number as it is.

    >>> pf.zeros(2, 3).t().shape
    (3, 2)
    """
    if x.ndim > 2:
        raise ShapeError(f"[t] expected at most two axes but got shape {x.shape}; use x.mT or transpose")
    return F.permute(x, tuple(reversed(range(x.ndim))))


@composite(
    reference=np.moveaxis,
    torch="movedim",
    samples=lambda: [Sample((_CUBE, 0, -1)), Sample((_CUBE, (0, 1), (2, 0))), Sample((_CUBE, (-1, 0), (0, 1)))],
)
def movedim(x: Node, source: Any, destination: Any) -> Node:
    """Move axes to other places; the rest keep their order.

    >>> pf.zeros(2, 3, 4).movedim(0, -1).shape
    (3, 4, 2)
    """
    froms, tos = ([a] if not isinstance(a, (tuple, list)) else list(a) for a in (source, destination))
    from_axes = [normalize_axis("movedim", a, x.ndim) for a in froms]
    to_axes = [normalize_axis("movedim", a, x.ndim) for a in tos]
    if len(from_axes) != len(to_axes) or len(set(from_axes)) != len(from_axes) or len(set(to_axes)) != len(to_axes):
        raise ShapeError(
            f"[movedim] expected as many different sources as destinations but got {source} and {destination}"
        )
    order = [a for a in range(x.ndim) if a not in from_axes]
    for to, a in sorted(zip(to_axes, from_axes, strict=True)):
        order.insert(to, a)
    return F.permute(x, tuple(order)) if x.ndim else x


# --- repeats without a copy -----------------------------------------------------------------------------------------


@composite(
    reference=lambda x, other: np.broadcast_to(x, other.shape),
    torch=lambda torch, x, other: x.expand_as(other),
    samples=lambda: [Sample((np.arange(3.0).reshape(3, 1), np.zeros((2, 3, 4), np.int64)))],
)
def expand_as(x: Node, other: Node) -> Node:
    """x expanded to the shape of another tensor.

    >>> pf.ones(3, 1).expand_as(pf.zeros(3, 4)).shape
    (3, 4)
    """
    return F.expand(x, other.shape)


# --- parts ----------------------------------------------------------------------------------------------------------


@composite(
    reference=lambda x, dim, start, length: np.take(x, np.arange(start, start + length) % max(x.shape[dim], 1), dim),
    torch="narrow",
    samples=lambda: [Sample((_CUBE, 1, 1, 2)), Sample((_CUBE.T, -1, 0, 1)), Sample((_CUBE, 0, 1, 0))],
)
def narrow(x: Node, dim: int, start: int, length: int) -> Node:
    """`length` positions of one axis, from `start` on.

    >>> pf.arange(5).narrow(0, 1, 3)
    tensor([1, 2, 3])
    """
    axis = normalize_axis("narrow", dim, x.ndim)
    start, length = want_whole("narrow", "start", start), want_whole("narrow", "length", length)
    size = x.shape[axis] if x.ndim else 0
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise PyFlameIndexError(
            f"[narrow] expected a range within an axis of size {size} but got start {start} and length {length}"
        )
    return F.slice(x, _whole_but(x, axis, (first, 1, length)))


@composite(
    reference=lambda x, dim, index: np.take(x, index, dim),
    torch="select",
    samples=lambda: [Sample((_CUBE, 1, 2)), Sample((_CUBE.T, -1, -2)), Sample((np.arange(3.0), 0, 0))],
)
def select(x: Node, dim: int, index: int) -> Node:
    """One position of an axis; the axis is dropped.

    >>> pf.tensor([[1, 2], [3, 4]]).select(1, -1)
    tensor([2, 4])
    """
    axis = normalize_axis("select", dim, x.ndim)
    size = x.shape[axis] if x.ndim else 0
    at = operator.index(index)
    if not -size <= at < size:
        raise PyFlameIndexError(f"[select] expected an index in [{-size}, {size - 1}] but got {at}")
    return F.reshape(F.slice(x, _whole_but(x, axis, (at % size, 1, 1))), (*x.shape[:axis], *x.shape[axis + 1 :]))


@composite(
    reference=lambda x, *axis: np.flip(x, _flat(axis) or None),
    torch=lambda torch, x, *axis: x.flip(*axis) if axis else x.flip(tuple(range(x.ndim))),
    samples=lambda: [
        Sample((_CUBE, (0, 2))),
        Sample((_CUBE, 0, 2)),
        Sample((_CUBE.T, -1)),
        Sample((_CUBE,)),
        Sample((np.zeros((0, 2)), 0)),
    ],
)
def flip(x: Node, *axis: Any) -> Node:
    """The elements in reverse order along axes; along all of them by default.

    >>> pf.tensor([1, 2, 3]).flip(0)
    tensor([3, 2, 1])
    """
    axes = normalize_axes("flip", _flat(axis) if axis and axis[0] is not None else None, x.ndim)
    return F.slice(x, tuple((n - 1, -1, n) if a in axes and n else (0, 1, n) for a, n in enumerate(x.shape)))


@composite(reference=np.fliplr, torch="fliplr", samples=lambda: [Sample((_CUBE,)), Sample((_CUBE[0].T,))])
def fliplr(x: Node) -> Node:
    """The columns (the second axis) in reverse order.

    >>> pf.tensor([[1, 2], [3, 4]]).fliplr()
    tensor([[2, 1],
            [4, 3]])
    """
    if x.ndim < 2:
        raise ShapeError(f"[fliplr] expected at least two axes but got shape {x.shape}; use flip")
    return F.flip(x, 1)


@composite(reference=np.flipud, torch="flipud", samples=lambda: [Sample((_CUBE,)), Sample((np.arange(3.0),))])
def flipud(x: Node) -> Node:
    """The rows (the first axis) in reverse order.

    >>> pf.tensor([[1, 2], [3, 4]]).flipud()
    tensor([[3, 4],
            [1, 2]])
    """
    if x.ndim < 1:
        raise ShapeError("[flipud] expected at least one axis but got a 0-d tensor")
    return F.flip(x, 0)


@composite(
    reference=lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2),
    torch=lambda torch, x, offset=0, dim1=0, dim2=1: torch.diagonal(x, offset, dim1, dim2),
    samples=lambda: [
        Sample((_CUBE[0],)),
        Sample((_CUBE[0], 2)),
        Sample((_CUBE[0].T, -1)),
        Sample((_CUBE, 1, -1, 0)),
        Sample((_CUBE, -5, 1, 2)),
    ],
)
def diagonal(x: Node, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Node:
    """The diagonal of two axes, as a last axis; above the main one where the offset is positive.

    >>> pf.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1, 4])
    """
    a, b = normalize_axis("diagonal", dim1, x.ndim), normalize_axis("diagonal", dim2, x.ndim)
    offset = want_whole("diagonal", "offset", offset)
    if x.ndim < 2 or a == b:
        raise ShapeError(f"[diagonal] expected two different axes but got {dim1} and {dim2} for shape {x.shape}")
    others = [d for d in range(x.ndim) if d not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    kept = tuple(x.shape[d] for d in others)
    flat = F.reshape(F.permute(x, (*others, a, b)), (*kept, rows * columns))
    # (row, column) lies at row * columns + column: along the diagonal each step is columns + 1
    start = (offset if offset >= 0 else -offset * columns) if length else 0
    return F.slice(flat, (*((0, 1, n) for n in kept), (start, columns + 1, length)))
