"""Reading at computed positions: one primitive, to which every form of advanced indexing comes down.

out[o] = x[f_0(o), ..., f_r(o)]: an axis of x in `axes` takes its position from an index tensor (which broadcasts to the
output), every other axis a takes output axis `dims[a]`. scatter.py goes the other way.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from pyflame.core.dtype import int32, int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Region, Shape, broadcast_shapes, normalize_axis
from pyflame.ir import F, Meta, Node, Sample, as_node, cast, composite, copy_to, placed, primitive
from pyflame.ir.opdef import COMPOSITE, GATHER
from pyflame.ops.base import along_axis, index_arrays, want_elements, want_integers, want_whole


@primitive(
    GATHER,
    infer=lambda x, *rest: (rest[-1], x.dtype),
    attrs=("axes", "dims", "shape"),
    srcs=("x",),
    reference=lambda x, *rest: np.broadcast_to(x[index_arrays(rest[-3], rest[-2], rest[-1], rest[:-3])], rest[-1]),
    grad=lambda g, rest, x_meta, axes, dims: _gather_grad(g, rest, x_meta, axes, dims),
    checked=True,
    public=False,
    cost=2,
)
def gather_at(x: Node, indices: tuple[Node, ...], axes: Shape, dims: Shape, shape: Shape) -> Any:
    """Read x at computed positions."""
    want_elements("gather", x.shape, axes, prod(shape))
    return (x, *indices), (axes, dims, shape)


@composite(public=False)
def gather_region(x: Node, indices: tuple[Node, ...], axes: Shape, dims: Shape, region: Region, shape: Shape) -> Node:
    """Read a strided region of x at computed positions. dims[a] = -1: the region holds one position of this axis."""
    view = F.slice(x, region)
    kept = [a for a, dim in enumerate(dims) if dim >= 0 or a in axes]
    view = F.reshape(view, tuple(view.shape[a] for a in kept))
    return F.gather_at(view, indices, tuple(kept.index(a) for a in axes), tuple(dims[a] for a in kept), shape)


def _gather_grad(g: Node, indices: tuple[Node, ...], x_meta: Meta, axes: Shape, dims: Shape) -> tuple[Any, ...]:
    # what was read gets the gradient, summed where several outputs read the same element
    zero = F.full_const(0, g.dtype, x_meta.shape)
    return (F.scatter_at(zero, g, indices, axes, dims, "add"), *[None for _ in indices])


def _beside(x: Node, node: Node) -> Node:
    return node if x.meta.device is None else copy_to(node, x.meta.device, x.meta.committed)


@composite(public=False)
def iota_like(x: Node, shape: Shape) -> Node:
    """Row-major positions, on the device of x."""
    return _beside(x, F.iota(shape))


def _take(op: str, x: Node, index: Node, axis: int) -> Node:
    """x with one axis replaced by the axes of an index."""
    want_integers(op, index)
    x = x if x.ndim else F.reshape(x, (1,))
    after = x.ndim - axis - 1
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    dims = (*range(axis), -1, *range(axis + index.ndim, axis + index.ndim + after))
    return F.gather_at(x, (F.reshape(index, (*index.shape, *[1] * after)),), (axis,), dims, shape)


_X = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
_CUBE = np.linspace(-1.0, 1.0, 30).reshape(2, 5, 3)


def _numpy_gather(x: Any, dim: int, index: Any) -> Any:
    grid = list(np.ogrid[tuple(np.s_[0:n] for n in index.shape)])
    grid[dim] = index
    return x[tuple(grid)]


@composite(
    reference=_numpy_gather,
    torch="gather",
    samples=lambda: [
        Sample((_X, 1, np.array([[0, 2], [3, 3], [1, 0]]))),
        Sample((_X, 0, np.array([[2, 1, 0, 2]]))),
        Sample((_CUBE, 1, np.array([[[4, 0, 2]], [[1, 1, 3]]]))),
        Sample((_X.T, -1, np.array([[0], [2], [1], [1]]))),
        Sample((np.array([3.0]), 0, np.zeros(5, np.int64))),
        Sample((_X, 1, np.zeros((3, 0), np.int64))),
    ],
)
def gather(x: Node, dim: int, index: Node, *, sparse_grad: bool = False) -> Node:
    """out[i][j] = x[i][index[i][j]] for dim=1, and alike for other axes. Gradients are dense, whatever is asked for.

    >>> pf.gather(pf.tensor([[1, 2], [3, 4]]), 1, pf.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    shape = index.shape
    x, axis, index = along_axis("gather", x, dim, index)
    return F.reshape(F.gather_at(x, (index,), (axis,), tuple(range(x.ndim)), index.shape), shape)


@composite(
    reference=lambda x, indices, axis=None: np.take_along_axis(x, indices, axis),
    torch=lambda torch, x, indices, axis=None: torch.take_along_dim(x, indices, axis),
    samples=lambda: [
        Sample((_X, np.array([[0, 2], [3, 3], [1, 0]]), 1)),
        Sample((_CUBE, np.array([[[4], [0]]]), 1)),
        Sample((_X, np.array([5, 11, 0]))),
        Sample((_X[:1], np.array([[1], [2], [0]]), -1)),
    ],
)
def take_along_axis(x: Node, indices: Node, axis: int | None = None) -> Node:
    """Take elements along an axis by an index per position; the other axes broadcast. Without an axis x is flattened.

    >>> x = pf.tensor([[3, 1, 2]])
    >>> pf.take_along_axis(x, pf.tensor([[1, 2, 0]]), axis=1)
    tensor([[1, 2, 3]])
    """
    want_integers("take_along_axis", indices)
    if axis is None:
        return F.gather(F.reshape(x, (-1,)), 0, F.reshape(indices, (-1,)))
    along = normalize_axis("take_along_axis", axis, x.ndim)
    if indices.ndim != x.ndim:
        raise ShapeError(
            f"[take_along_axis] expected as many axes in indices as in the tensor but got {indices.shape} for {x.shape}"
        )
    others = [(*m.shape[:along], 1, *m.shape[along + 1 :]) for m in (x, indices)]
    shape = list(broadcast_shapes("take_along_axis", *others))
    wide = F.expand(x, (*shape[:along], x.shape[along], *shape[along + 1 :]))
    shape[along] = indices.shape[along]
    return F.gather_at(wide, (indices,), (along,), tuple(range(x.ndim)), tuple(shape))


@composite(
    reference=lambda x, dim, index: np.take(x, np.atleast_1d(index), dim) if x.ndim else x,
    torch="index_select",
    samples=lambda: [
        Sample((_X, 0, np.array([2, 0, 2]))),
        Sample((_CUBE, -1, np.array([1]))),
        Sample((_X.T, 0, np.array([3, 3]))),
        Sample((_X, 1, np.zeros(0, np.int64))),
        Sample((_X[0, 0, ...], 0, np.array([0]))),
    ],
)
def index_select(x: Node, dim: int, index: Node) -> Node:
    """The slices of x at these positions of one axis.

    >>> pf.index_select(pf.tensor([[1, 2], [3, 4]]), 0, pf.tensor([1, 1]))
    tensor([[3, 4],
            [3, 4]])
    """
    want_integers("index_select", index)
    if index.ndim > 1:
        raise ShapeError(
            f"[index_select] expected an index with one axis but got shape {index.shape}; use take(x, index, axis)"
        )
    if x.ndim == 0 and index.size != 1:
        raise ShapeError(f"[index_select] expected one index for a 0-d tensor but got {index.size}")
    return _take(
        "index_select", x, F.reshape(index, (-1,) if x.ndim else ()), normalize_axis("index_select", dim, x.ndim)
    )


@composite(
    reference=lambda x, index, axis=None: np.take(x, index, axis),
    torch=lambda torch, x, index, axis=None: (
        x.take(index) if axis is None else x[(slice(None),) * (axis % x.ndim) + (index,)]
    ),
    samples=lambda: [
        Sample((_X, np.array([[11, 0], [5, 5]]))),
        Sample((_CUBE, np.array([[1, 0], [4, 2]]), 1)),
        Sample((_X, np.array(2), 0)),
    ],
)
def take(x: Node, index: Node, axis: int | None = None) -> Node:
    """Elements at these positions of the flattened tensor, or of one axis.

    >>> pf.take(pf.tensor([[1, 2], [3, 4]]), pf.tensor([3, 0]))
    tensor([4, 1])
    """
    if axis is None:
        return _take("take", F.reshape(x, (-1,)), index, 0)
    return _take("take", x, index, normalize_axis("take", axis, x.ndim))


def _embedding_grad(g: Node, weight_meta: Meta, indices: Node, padding_idx: int) -> tuple[Node, None]:
    # each row gets the sum of the gradients of its uses; the padding row gets none
    index = F.reshape(indices, (*indices.shape, 1))
    zero = F.full_const(0, g.dtype, weight_meta.shape)
    kept = F.where(F.eq(index, padding_idx), 0.0, g)
    return F.scatter_at(zero, kept, (index,), (0,), (-1, indices.ndim), "add"), None


@primitive(
    COMPOSITE,
    infer=lambda weight, indices, padding_idx: ((*indices.shape, weight.shape[1]), weight.dtype),
    attrs=("padding_idx",),
    srcs=("weight", "indices"),
    reference=lambda weight, indices, padding_idx: weight[indices],
    decompose=lambda weight, indices, padding_idx: _take("embedding", weight, indices, 0),
    grad=_embedding_grad,
    checked=True,
    torch=lambda torch, weight, indices, padding_idx=None: torch.nn.functional.embedding(indices, weight, padding_idx),
    samples=lambda: [
        Sample((_X, np.array([[2, 0], [1, 2]]))),
        Sample((_X, np.array([0, 1, 1, 2]), 1)),
        Sample((_X, np.array([0, 1, 2]), -1)),
        Sample((_X.T, np.array(3))),
        Sample((_X, np.zeros((2, 0), np.int64))),
    ],
)
def embedding(weight: Node, indices: Node, padding_idx: int | None = None) -> Any:
    """Rows of `weight` at `indices`. The row at `padding_idx` gets no gradient.

    >>> pf.embedding(pf.tensor([[1.0, 2.0], [3.0, 4.0]]), pf.tensor([1, 0]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    want_integers("embedding", indices)
    if weight.ndim != 2:
        raise ShapeError(f"[embedding] expected a weight with two axes but got shape {weight.shape}")
    want_elements("embedding", weight.shape, (0,), indices.size)
    if padding_idx is None:
        return _take("embedding", weight, indices, 0)
    return (weight, indices), (normalize_axis("embedding", padding_idx, weight.shape[0]),)


@composite(
    reference=lambda x, num_classes: np.eye(num_classes, dtype=np.int64)[x],
    torch="nn.functional.one_hot",
    differentiable=False,
    samples=lambda: [
        Sample((np.array([[0, 2], [1, 1]]), 4)),
        Sample((np.array(1), 3)),
        Sample((np.zeros(0, np.int64), 2)),
    ],
)
def one_hot(x: Node, num_classes: int) -> Node:
    """1 at the position that each index names, 0 elsewhere, along a new last axis; an index outside gives zeros.

    >>> pf.one_hot(pf.tensor([0, 2]), 3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    want_integers("one_hot", x)
    num_classes = want_whole("one_hot", "num_classes", num_classes)
    if num_classes < 1:
        raise ArgumentError(f"[one_hot] expected num_classes of at least 1 but got {num_classes}")
    return cast(F.eq(F.reshape(x, (*x.shape, 1)), F.iota_like(x, (num_classes,))), int64)


def _numpy_searchsorted(
    sorted_sequence: Any,
    values: Any,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
    out_int32: bool = False,
) -> Any:
    side = side or ("right" if right else "left")
    if sorter is not None:
        sorted_sequence = np.take_along_axis(sorted_sequence, sorter, -1)
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, values, side)
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    return np.stack(
        [np.searchsorted(r, v, side) for r, v in zip(rows, values.reshape(len(rows), -1), strict=True)]
    ).reshape(values.shape)


@composite(
    reference=_numpy_searchsorted,
    torch="searchsorted",
    differentiable=False,
    samples=lambda: [
        Sample((np.array([1.0, 3.0, 3.0, 5.0, 8.0]), np.array([[0.0, 3.0], [9.0, 5.0]]))),
        Sample((np.array([1.0, 3.0, 3.0, 5.0, 8.0]), np.array([[0.0, 3.0], [9.0, 5.0]])), {"right": True}),
        Sample((np.array([[1, 4, 6], [0, 0, 2]]), np.array([[4, 7, 5, 1], [0, 1, -1, 2]]))),
        Sample((np.zeros(0), np.array([1.0]))),
        Sample((np.array([1, 3, 5]), 3)),
        Sample((np.array([1.0, 3.0, 5.0]), np.array(3.0)), {"side": "right", "out_int32": True}),
        Sample((np.array([5.0, 1.0, 3.0]), np.array([2.0, 9.0])), {"sorter": np.array([1, 2, 0])}),
    ],
)
def searchsorted(
    sorted_sequence: Node,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Node | None = None,
) -> Node:
    """Where each value would be inserted to keep the last axis sorted: before equal ones, or behind them if `right`.

    `side` says the same in words, "left" or "right"; `sorter` holds the positions that sort the sequence, if it is not.

    >>> pf.searchsorted(pf.tensor([1, 3, 5]), pf.tensor([0, 3, 9]))
    tensor([0, 1, 3])
    """
    values = input if isinstance(input, Node) else as_node(input, sorted_sequence.dtype)
    right = _right_side(right, side)
    if sorter is not None:
        want_integers("searchsorted", sorter)
        if sorter.shape != sorted_sequence.shape:
            raise ShapeError(
                f"[searchsorted] expected a sorter of shape {sorted_sequence.shape} but got {sorter.shape}"
            )
        sorted_sequence = F.gather(sorted_sequence, -1, sorter)
    batched = sorted_sequence.ndim > 1
    if sorted_sequence.ndim == 0 or (batched and sorted_sequence.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            f"[searchsorted] expected a sorted sequence with one axis, or with the leading axes of the values, but got "
            f"{sorted_sequence.shape} for {values.shape}"
        )
    size = sorted_sequence.shape[-1]
    last = sorted_sequence.ndim - 1
    dims = (*range(last), -1)
    found = _beside(values, F.full_const(0, int64, values.shape))
    end = _beside(values, F.full_const(size, int64, values.shape))
    # Binary search: `found` elements lie before the value, those from `end` on do not. It halves as PyTorch does, so
    # that NaN among the elements, which is neither before nor behind a value, leads to the same places.
    for _ in range(size.bit_length()):
        middle = F.right_shift(found + end, 1)
        still = found < end
        at = F.where(still, middle, 0)
        element = F.gather_at(sorted_sequence, (at,), (last,), dims, values.shape)
        before = F.logical_not(element > values if right else element >= values)
        found, end = (
            F.where(F.where(still, before, False), middle + 1, found),
            F.where(F.where(still, before, True), end, middle),
        )
    return placed(cast(found, int32) if out_int32 else found)


def _right_side(right: bool, side: str | None) -> bool:
    if side is None:
        return right
    if side not in ("left", "right") or (right and side == "left"):
        raise ArgumentError(f"[searchsorted] expected side 'left' or 'right', as right says, but got {side!r}, {right}")
    return side == "right"


@composite(
    reference=lambda x, boundaries, right=False: np.searchsorted(boundaries, x, "right" if right else "left"),
    torch=lambda torch, x, boundaries, right=False: torch.bucketize(x, boundaries, right=right),
    differentiable=False,
    samples=lambda: [
        Sample((_X, np.array([-0.5, 0.0, 0.5]))),
        Sample((np.array(0.25), np.array([0.0, 0.25])), {"right": True}),
    ],
)
def bucketize(x: Any, boundaries: Node, *, out_int32: bool = False, right: bool = False) -> Node:
    """The number of the bucket between sorted boundaries that each element falls in.

    >>> pf.bucketize(pf.tensor([1.0, 5.0]), pf.tensor([0.0, 2.0]))
    tensor([1, 2])
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"[bucketize] expected boundaries with one axis but got shape {boundaries.shape}")
    return F.searchsorted(boundaries, x, out_int32=out_int32, right=right)
