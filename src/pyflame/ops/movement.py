"""Ops that only move elements: index maps, free until someone needs the result in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.errors import ShapeError
from pyflame.core.shape import Shape, broadcast_shapes, normalize_axis, resolve_reshape
from pyflame.ir import F, Meta, Node, Sample, primitive
from pyflame.ir.opdef import MOVEMENT
from pyflame.ops.base import Region, _slices


def _flat(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """reshape(2, 3) and reshape((2, 3)) are the same."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


@primitive(
    MOVEMENT,
    infer=lambda m, shape: (shape, m.dtype),
    attrs=("shape",),
    reference=lambda x, shape: x.reshape(shape),
    grad=lambda g, x_meta: (F.reshape(g, x_meta.shape),),
    torch=lambda torch, x, *shape: x.reshape(*shape),
    samples=lambda: [Sample((np.arange(12.0).reshape(3, 4), (2, -1))), Sample((np.arange(6.0), (3, 2)))],
)
def reshape(x: Node, *shape: Any) -> Any:
    """The same elements, in row-major order, under another shape. One size may be -1.

    >>> pf.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    wanted = resolve_reshape("reshape", x.shape, _flat(shape))
    return x if wanted == x.shape else ((x,), (wanted,))


def _permute_grad(g: Node, axes: Shape) -> tuple[Node]:
    return (F.permute(g, tuple(int(a) for a in np.argsort(axes))),)


@primitive(
    MOVEMENT,
    infer=lambda m, axes: (tuple(m.shape[a] for a in axes), m.dtype),
    attrs=("axes",),
    reference=lambda x, axes: x.transpose(axes),
    grad=_permute_grad,
    torch=lambda torch, x, *axes: x.permute(*axes),
    samples=lambda: [Sample((np.arange(24.0).reshape(2, 3, 4), (2, 0, 1)))],
)
def permute(x: Node, *axes: Any) -> Any:
    """Reorder the axes.

    >>> pf.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    order = tuple(normalize_axis("permute", a, x.ndim) for a in _flat(axes))
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
    samples=lambda: [Sample((np.arange(3.0).reshape(3, 1), (2, 3, 4)))],
)
def expand(x: Node, *shape: Any) -> Any:
    """Repeat axes of size 1 without copying; -1 keeps a size.

    >>> pf.ones(3, 1).expand(3, 4).shape
    (3, 4)
    """
    wanted = list(_flat(shape))
    skip = len(wanted) - x.ndim
    for axis, size in enumerate(wanted):
        if size == -1 and axis >= skip:
            wanted[axis] = x.shape[axis - skip]
    target = tuple(int(s) for s in wanted)
    if broadcast_shapes("expand", x.shape, target) != target:
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
    whole = tuple((0, 1, size) for size in x.shape)
    return x if region == whole else ((x,), (region,))
