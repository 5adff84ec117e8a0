"""Sorting. One kernel finds positions; values are read there, so their gradient goes back to where they came from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.ir import F, Node, Sample, composite, primitive
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import share_among_equals, want_whole


class Ordered(NamedTuple):
    """Elements in order, and where they lay."""

    values: Node
    indices: Node


def _numpy_positions(x: Any, take: int, descending: bool) -> Any:
    if descending:
        # sort what is read backwards, so that equal elements keep their order; NaN counts as the largest
        back = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")
        return back[..., ::-1][..., :take]
    return np.argsort(x, axis=-1, kind="stable")[..., :take]


@primitive(
    KERNEL,
    infer=lambda m, take, descending: ((*m.shape[:-1], take), int64),
    attrs=("take", "descending"),
    reference=_numpy_positions,
    public=False,
    differentiable=False,
)
def sort_positions(x: Node, take: int, descending: bool) -> Any:
    """Where the first `take` elements of the sorted last axis lie."""
    return (x,), (take, descending)


def _positions(op: str, x: Node, axis: Any, take: int | None, descending: bool) -> tuple[Node, int]:
    """Positions along any axis, and that axis; a stable sort in which NaN is the largest."""
    at = normalize_axis(op, axis, x.ndim)
    size = x.shape[at] if x.ndim else 1
    take = size if take is None else take
    if x.ndim == 0:
        return F.full_const(0, int64, (take,)) if take != 1 else F.full_const(0, int64), 0
    order = (*(a for a in range(x.ndim) if a != at), at)
    found = F.sort_positions(F.permute(x, order), take, bool(descending))
    return F.permute(found, tuple(order.index(a) for a in range(x.ndim))), at


def _read(x: Node, positions: Node, axis: int) -> Node:
    return F.gather_at(x, (positions,), (axis,), tuple(range(x.ndim)), positions.shape) if x.ndim else x


_X = np.sin(np.arange(60.0) * 7.1).reshape(3, 4, 5)
_TIES = np.array([[2.0, 1.0, 2.0, 0.0, -0.0, 1.0], [np.nan, 3.0, -np.inf, np.inf, np.nan, 3.0]])


def _numpy_sort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    moved = np.moveaxis(x, axis, -1)
    found = np.moveaxis(_numpy_positions(moved, moved.shape[-1], descending), -1, axis)
    return np.take_along_axis(x, found, axis), found


def _sort_samples() -> list[Sample]:
    return [
        Sample((_X,)),
        Sample((_X, 0, True)),
        Sample((_X.T, 1)),
        Sample((_TIES, 1), grad=False),
        Sample((_TIES, 1, True), grad=False),
        Sample((np.array([5, -3, 5, 0, 2**40]), 0)),
        Sample((np.array([True, False, True]), -1, True)),
        Sample((np.array(1.5),)),
        Sample((np.zeros((2, 0)),)),
        Sample((np.sin(np.arange(2 * 1009.0) ** 1.5).reshape(2, 1009), -1)),
    ]


@composite(
    reference=_numpy_sort,
    torch=lambda torch, x, axis=-1, descending=False: torch.sort(x, dim=axis, descending=descending, stable=True),
    samples=_sort_samples,
)
def sort(x: Node, axis: Any = -1, descending: bool = False, stable: bool = True) -> Ordered:
    """The elements along an axis in order, and where they lay. Equals keep their order; NaN counts as the largest.

    >>> pf.sort(pf.tensor([3.0, 1.0, 2.0])).values
    tensor([1., 2., 3.])
    """
    found, at = _positions("sort", x, axis, None, descending)
    return Ordered(_read(x, found, at), found)


@composite(
    reference=lambda *args: _numpy_sort(*args)[1],
    torch=lambda torch, x, axis=-1, descending=False: (
        torch.sort(x, dim=axis, descending=descending, stable=True).indices
    ),
    samples=_sort_samples,
    differentiable=False,
)
def argsort(x: Node, axis: Any = -1, descending: bool = False, stable: bool = True) -> Node:
    """Where the elements along an axis lie, in sorted order. Equals keep their order; NaN counts as the largest.

    >>> pf.argsort(pf.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    return _positions("argsort", x, axis, None, descending)[0]


def _numpy_topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, found = _numpy_sort(x, axis, largest)
    head = np.arange(k)
    return (np.take(values, head, axis), np.take(found, head, axis)) if x.ndim else (values, found)


@composite(
    reference=_numpy_topk,
    torch=lambda torch, x, k, axis=-1, largest=True, sorted=True: torch.topk(x, k, axis, largest, sorted),
    samples=lambda: [
        Sample((_X, 2)),
        Sample((_X, 3, 1, False)),
        Sample((_X.T, 1, 0)),
        Sample((_X, 0)),
        Sample((np.sin(np.arange(3 * 1009.0) ** 1.5).reshape(3, 1009), 17)),
        Sample((np.array([1.0, np.nan, np.inf, -np.inf]), 2), grad=False),
        Sample((np.array(1.5), 1)),
    ],
)
def topk(x: Node, k: int, axis: Any = -1, largest: bool = True, sorted: bool = True) -> Ordered:
    """The k largest (or smallest) elements along an axis in order, and where they lie; of equals the first ones.

    >>> pf.topk(pf.tensor([3.0, 1.0, 2.0]), 2).indices
    tensor([0, 2])
    """
    size = x.shape[normalize_axis("topk", axis, x.ndim)] if x.ndim else 1
    k = want_whole("topk", "k", k)
    if not 0 <= k <= size:
        raise ArgumentError(f"[topk] expected k in [0, {size}] for shape {x.shape} but got {k!r}")
    found, at = _positions("topk", x, axis, k, largest)
    return Ordered(_read(x, found, at), found)


@composite(
    reference=lambda x, k, axis=-1, keepdims=False: _numpy_kth(x, k, axis, keepdims),
    torch=lambda torch, x, k, axis=-1, keepdims=False: torch.kthvalue(x, k, axis, keepdims),
    samples=lambda: [Sample((_X, 2)), Sample((_X, 3, 1, True)), Sample((np.array([3.0, np.nan, 1.0]), 3), grad=False)],
)
def kthvalue(x: Node, k: int, axis: Any = -1, keepdims: bool = False) -> Ordered:
    """The k-th smallest element along an axis (counted from 1), and where it lies.

    >>> pf.kthvalue(pf.tensor([3.0, 1.0, 2.0]), 2).values
    tensor(2.)
    """
    k = want_whole("kthvalue", "k", k)
    size = x.shape[normalize_axis("kthvalue", axis, x.ndim)] if x.ndim else 1
    if not 1 <= k <= size:
        raise ArgumentError(f"[kthvalue] expected k in [1, {size}] for shape {x.shape} but got {k!r}")
    found, at = _positions("kthvalue", x, axis, k, False)
    if x.ndim == 0:
        return Ordered(x, found)
    last = F.slice(found, tuple((k - 1, 1, 1) if a == at else (0, 1, n) for a, n in enumerate(found.shape)))
    values = _read(x, last, at)
    shape = tuple(n for a, n in enumerate(last.shape) if keepdims or a != at)
    return Ordered(F.reshape(values, shape), F.reshape(last, shape))


def _numpy_kth(x: Any, k: int, axis: int, keepdims: bool) -> Any:
    values, found = (np.take(v, [k - 1], axis) for v in _numpy_sort(x, axis))
    return (values, found) if keepdims else (values.squeeze(axis), found.squeeze(axis))


def _numpy_median(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    if axis is None and x.size == 0:
        return np.full((), np.nan)
    flat = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else axis
    values, _ = _numpy_kth(flat, (flat.shape[at] + 1) // 2, at, True)
    values = np.where(np.isnan(flat).any(axis=at, keepdims=True), np.nan, values)
    return values.reshape((1,) * x.ndim) if axis is None and keepdims else values if keepdims else values.squeeze(at)


@composite(
    reference=_numpy_median,
    torch=lambda torch, x, axis=None, keepdims=False: (
        torch.median(x) if axis is None else torch.median(x, axis, keepdims).values
    ),
    samples=lambda: [
        Sample((_X, 1)),
        Sample((_X,)),
        Sample((_X, 2, True)),
        Sample((_X[:0],), grad=False),
        Sample((np.array([[1.0, np.nan, 2.0], [3.0, 1.0, 2.0]]), 1), grad=False),
    ],
)
def median(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The middle element along an axis, or of all elements: the lower of two, NaN where there is one. Values only.

    >>> pf.median(pf.tensor([3.0, 1.0, 2.0, 9.0]))
    tensor(2.)
    """
    flat = F.reshape(x, (x.size,)) if axis is None else x
    at = 0 if axis is None else normalize_axis("median", axis, x.ndim)
    if axis is None and x.size == 0 and x.dtype.is_float:
        return F.full_const(float("nan"), x.dtype, (1,) * x.ndim if keepdims else ())
    if flat.ndim and flat.shape[at] == 0:
        raise ShapeError(f"[median] expected at least one element along the axis but got shape {x.shape}")
    out = kthvalue(flat, (flat.shape[at] + 1) // 2 if flat.ndim else 1, at, keepdims).values
    if axis is None and x.dtype.is_float:
        out = share_among_equals(flat, out)
    if x.dtype.is_float and flat.ndim:
        out = F.where(F.any(F.isnan(flat), at, keepdims), float("nan"), out)
    return F.reshape(out, (1,) * x.ndim) if axis is None and keepdims else out
