"""Sorting. One kernel finds positions; values are read there, so their gradient goes back to where they came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, AxisError
from pyflame.core.shape import inverse, normalize_axis
from pyflame.ir import F, Node, Sample, composite, primitive
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import ValuesIndices, share_among_equals, want_whole


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
    return F.permute(found, inverse(order)), at


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
def sort(x: Node, axis: Any = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
    """The elements along an axis in order, and where they lay. Equals keep their order; NaN counts as the largest.

    >>> pf.sort(pf.tensor([3.0, 1.0, 2.0])).values
    tensor([1., 2., 3.])
    """
    found, at = _positions("sort", x, axis, None, descending)
    return ValuesIndices(_read(x, found, at), found)


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
def topk(x: Node, k: int, axis: Any = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
    """The k largest (or smallest) elements along an axis in order, and where they lie; of equals the first ones.

    >>> pf.topk(pf.tensor([3.0, 1.0, 2.0]), 2).indices
    tensor([0, 2])
    """
    size = x.shape[normalize_axis("topk", axis, x.ndim)] if x.ndim else 1
    k = want_whole("topk", "k", k)
    if not 0 <= k <= size:
        raise ArgumentError(f"[topk] expected k in [0, {size}] for shape {x.shape} but got {k!r}")
    found, at = _positions("topk", x, axis, k, largest)
    return ValuesIndices(_read(x, found, at), found)


@composite(
    reference=lambda x, k, axis=-1, keepdims=False: _numpy_kth(x, k, axis, keepdims),
    torch=lambda torch, x, k, axis=-1, keepdims=False: torch.kthvalue(x, k, axis, keepdims),
    samples=lambda: [Sample((_X, 2)), Sample((_X, 3, 1, True)), Sample((np.array([3.0, np.nan, 1.0]), 3), grad=False)],
)
def kthvalue(x: Node, k: int, axis: Any = -1, keepdims: bool = False) -> ValuesIndices:
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
        return ValuesIndices(x, found)
    last = F.slice(found, tuple((k - 1, 1, 1) if a == at else (0, 1, n) for a, n in enumerate(found.shape)))
    values = _read(x, last, at)
    shape = tuple(n for a, n in enumerate(last.shape) if keepdims or a != at)
    return ValuesIndices(F.reshape(values, shape), F.reshape(last, shape))


def _numpy_kth(x: Any, k: int, axis: int, keepdims: bool) -> Any:
    values, found = (np.take(v, [k - 1], axis) for v in _numpy_sort(x, axis))
    return (values, found) if keepdims else (values.squeeze(axis), found.squeeze(axis))


# --- the middle and the most frequent ---------------------------------------------------------------------------------


def _kept(found: ValuesIndices, at: int, keepdims: bool) -> ValuesIndices:
    """Results without the axis that was chosen from, or with it again."""
    return ValuesIndices(*[F.unsqueeze(v, at) for v in found]) if keepdims else found


def _chosen(x: Node, position: Node, at: int) -> ValuesIndices:
    """The elements at one position along an axis, and that position, without the axis."""
    return ValuesIndices(*[F.squeeze(v, at) for v in (_read(x, position, at), position)])


def _middle(op: str, x: Node, at: int) -> ValuesIndices:
    """The lower middle element along an axis: of all elements (the first NaN, if any), or of those that are not NaN."""
    if x.ndim == 0:
        return ValuesIndices(x, F.full_const(0, int64))
    size = x.shape[at]
    if size == 0:
        raise AxisError(f"[{op}] expected at least one element along the axis but got shape {x.shape}")
    order, _ = _positions(op, x, at, None, False)  # NaN behind all others
    there = F.sum(F.eq(x, x), at, True)
    rank = F.clamp_min(F.floor_div(there - 1, 2), 0)
    if op == "median" and x.dtype.is_float:  # NaNs lie in their order, so the one behind all others is the first
        rank = F.where(F.eq(there, size), rank, there)
    return _chosen(x, F.gather(order, at, rank), at)


def _middle_or_pair(op: str, x: Node, axis: Any, keepdims: bool) -> Node | ValuesIndices:
    if axis is not None:
        at = normalize_axis(op, axis, x.ndim)
        found = _middle(op, x, at)
        return _kept(found, at, keepdims) if x.ndim else found
    if x.size == 0 and x.dtype.is_float:
        out = F.full_const(float("nan"), x.dtype)
    else:
        flat = F.reshape(x, (x.size,))
        out = _middle(op, flat, 0).values
        out = share_among_equals(flat, out) if x.dtype.is_float else out
    return F.reshape(out, (1,) * x.ndim) if keepdims else out


def _torch_middle(name: str) -> Any:
    def oracle(torch: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(torch, name)(x) if axis is None else getattr(torch, name)(x, axis, keepdims)

    return oracle


def _middle_samples() -> list[Sample]:
    broken = np.array([[1.0, np.nan, 3.0, 2.5], [np.nan, np.nan, 2.0, 7.0], [3.0, 1.0, 2.0, -np.inf]])
    return [
        Sample((_X, 1)),
        Sample((_X,)),
        Sample((_X, 2, True)),
        Sample((_X[:0],), grad=False),
        Sample((_X[:0], 1)),
        Sample((broken, 1), grad=False),
        Sample((broken,), grad=False),
        Sample((broken[:2, 1:2], 1), grad=False),
        Sample((np.array([3, 1, 2]), 0)),
        Sample((np.array(2.5), 0)),
        Sample((np.array(2.5),)),
    ]


@composite(torch=_torch_middle("median"), samples=_middle_samples)
def median(x: Node, axis: Any = None, keepdims: bool = False) -> Node | ValuesIndices:
    """The middle element: the lower of two, NaN where there is one. Along an axis it gives (values, indices).

    >>> pf.median(pf.tensor([3.0, 1.0, 2.0, 9.0]))
    tensor(2.)
    """
    return _middle_or_pair("median", x, axis, keepdims)


@composite(torch=_torch_middle("nanmedian"), samples=_middle_samples)
def nanmedian(x: Node, axis: Any = None, keepdims: bool = False) -> Node | ValuesIndices:
    """The middle of the elements that are not NaN: the lower of two. Along an axis it gives (values, indices).

    >>> pf.nanmedian(pf.tensor([3.0, float("nan"), 1.0, 2.0]))
    tensor(2.)
    """
    return _middle_or_pair("nanmedian", x, axis, keepdims)


@composite(
    torch=lambda torch, x, axis=-1, keepdims=False: torch.mode(x, axis, keepdims),
    samples=lambda: [
        Sample((_X, 1)),
        Sample((np.array([[2, 1, 2, 0, 1], [3, 3, 3, 0, 0], [4, 3, 2, 1, 0]]),)),
        Sample((np.array([[2.0, 1.0], [2.0, 5.0], [1.0, 5.0]]), 0, True)),
        Sample((np.array([True, False, True]), 0)),
        Sample((np.array(2.5), 0)),
        Sample((np.zeros((0, 3)), 1)),
    ],
)
def mode(x: Node, axis: Any = -1, keepdims: bool = False) -> ValuesIndices:
    """The most frequent element along an axis, the smallest of several, and where it lies: the last of equals.

    >>> pf.mode(pf.tensor([3, 1, 3, 2])).values
    tensor(3)
    """
    at = normalize_axis("mode", axis, x.ndim)
    if x.ndim == 0:
        return ValuesIndices(x, F.full_const(0, int64))
    if x.shape[at] == 0:
        raise AxisError(f"[mode] expected at least one element along the axis but got shape {x.shape}")
    order, _ = _positions("mode", x, at, None, False)
    row = F.movedim(_read(x, order, at), at, -1)
    size = row.shape[-1]
    place = F.iota_like(row, (size,))
    before = F.roll(row, 1, -1)
    starts = F.where(F.logical_or(F.ne(row, before), F.eq(place, 0)), place, 0)
    running: Any = F.cummax(starts, -1)
    length = place - running.values  # of the run of equals so far, less 1
    last = F.movedim(F.argmax(length, -1, True), -1, at)
    return _kept(_chosen(x, F.gather(order, at, last), at), at, keepdims)
