"""Reading and writing at computed positions. One primitive each way; every form of indexing comes down to them.

out[o] = x[f_0(o), ..., f_r(o)]: an axis of x in `axes` takes its position from an index tensor (which broadcasts to the
output), every other axis a takes output axis `dims[a]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.shape import Shape
from pyflame.ir import F, Meta, Node, primitive
from pyflame.ir.opdef import GATHER


def positions(axes: Shape, dims: Shape, shape: Shape, indices: tuple[Any, ...]) -> tuple[Any, ...]:
    """NumPy index arrays equivalent to (axes, dims, shape)."""
    grid = np.ogrid[tuple(np.s_[0:n] for n in shape)]
    it = iter(indices)
    return tuple(next(it) if axis in axes else grid[dim] for axis, dim in enumerate(dims))


@primitive(
    GATHER,
    infer=lambda x, *rest: (rest[-1], x.dtype),
    attrs=("axes", "dims", "shape"),
    srcs=("x",),
    reference=lambda x, *rest: np.broadcast_to(x[positions(*rest[-3:], rest[:-3])], rest[-1]),
    grad=lambda g, rest, x_meta, axes, dims: _gather_grad(g, rest, x_meta, axes, dims),
    checked=True,
    public=False,
    cost=2,
)
def gather_at(x: Node, indices: tuple[Node, ...], axes: Shape, dims: Shape, shape: Shape) -> Any:
    """Read x at computed positions."""
    return (x, *indices), (axes, dims, shape)


def _gather_grad(g: Node, indices: tuple[Node, ...], x_meta: Meta, axes: Shape, dims: Shape) -> tuple[Any, ...]:
    # what was read gets the gradient, summed where several outputs read the same element
    zero = F.full_const(0, g.dtype, x_meta.shape)
    return (F.scatter_at(zero, g, indices, axes, dims, "add"), *[None for _ in indices])
