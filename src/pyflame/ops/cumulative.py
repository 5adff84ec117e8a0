"""Running sums, products and extremes along an axis, and differences of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, bool_, float32
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.core.state import state
from pyflame.ir import F, Node, Sample, cast, composite, is_number, primitive
from pyflame.ir.declare import COMPLEX
from pyflame.ir.opdef import KERNEL
from pyflame.ops.base import ValuesIndices, want_whole


def _numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The NumPy twin; small floats come as float32, and the kernel accumulates in double."""

    def reference(x: Any, axis: int, reverse: bool) -> Any:
        wide = np.float64 if x.dtype.kind == "f" else x.dtype
        out = fn(np.flip(x, axis) if reverse else x, axis=axis, dtype=wide).astype(x.dtype)
        return np.flip(out, axis) if reverse else out

    return reference


def _cumprod_grad(g: Node, x: Node, out: Node, axis: int, reverse: bool) -> Node:
    # without zeros: dx_i = sum_{j >= i} g_j out_j / x_i. Behind the first zero every product is 0, and that zero itself
    # gets the sum over the products without it.
    if state.recorder is not None:  # that has no derivatives at a zero, and a tape of this gradient is wanted
        return _sum_without(g, x, axis, reverse)
    zero = F.eq(x, 0.0)
    zeros = F.running_sum(cast(zero, g.dtype), axis, reverse)
    first = F.logical_and(zero, F.eq(zeros, 1.0))
    without = F.running_product(F.where(first, 1.0, x), axis, reverse)
    before = F.running_sum(g * out, axis, not reverse) / x
    return F.where(F.eq(zeros, 0.0), before, F.where(first, F.running_sum(g * without, axis, not reverse), 0.0))


def _sum_without(g: Node, x: Node, axis: int, reverse: bool) -> Node:
    """dx_i = sum_{j >= i} g_j prod_{k <= j, k != i} x_k, as an n x n matrix for each row."""
    n = x.shape[axis]
    places = F.iota_like(x, (n,))
    i = F.reshape(places, (n, *[1] * (x.ndim - axis)))
    j = F.reshape(places, (n, *[1] * (x.ndim - axis - 1)))
    rows = (*x.shape[:axis], 1, *x.shape[axis:])
    products = F.running_product(F.where(F.eq(i, j), 1.0, F.reshape(x, rows)), axis + 1, reverse)
    later = F.le(j, i) if reverse else F.ge(j, i)
    return F.reduce_sum(F.where(later, F.reshape(g, rows) * products, 0.0), (axis + 1,))


@primitive(
    KERNEL,
    infer=lambda m, axis, reverse: (m.shape, m.dtype),
    attrs=("axis", "reverse"),
    reference=_numpy(np.cumsum),
    # every later sum holds x_i: dx_i = sum_{j >= i} g_j
    grad=lambda g, axis, reverse: (F.running_sum(g, axis, not reverse),),
    public=False,
)
def running_sum(x: Node, axis: int, reverse: bool) -> Any:
    """Sums of all elements up to each one; with `reverse` from the far end."""
    return (x,), (axis, reverse)


@primitive(
    KERNEL,
    infer=lambda m, axis, reverse: (m.shape, m.dtype),
    attrs=("axis", "reverse"),
    reference=_numpy(np.cumprod),
    grad=lambda g, x, out, axis, reverse: (_cumprod_grad(g, x, out, axis, reverse),),
    public=False,
)
def running_product(x: Node, axis: int, reverse: bool) -> Any:
    """Products of all elements up to each one; with `reverse` from the far end."""
    return (x,), (axis, reverse)


def _run(op: str, x: Node, axis: Any, dtype: object, run: Callable[..., Node]) -> Node:
    at = normalize_axis(op, axis, x.ndim)
    # integers and bools run as int64, as they do in sums
    x = cast(x, as_dtype(dtype) if dtype is not None else (x.dtype if x.dtype.has_gradient else x.dtype.accumulate))
    return run(x, at, False) if x.ndim else x


_X = np.cos(np.arange(30.0) * 0.7).reshape(2, 3, 5) + 1.2


def _samples() -> list[Sample]:
    return [
        Sample((_X, 0)),
        Sample((_X.T, 1)),
        Sample((_X[:, ::2], -1)),
        Sample((np.array(2.0), 0)),
        Sample((np.linspace(0.999, 1.001, 70001), 0)),
        Sample((np.linspace(0.99, 1.01, 3 * 131).reshape(3, 131), 0)),
        Sample((np.ones((3, 0)), 1)),
        Sample((np.array([[1, 2, 3], [4, 5, 6]]), 1)),
        Sample((np.array([True, True, False]), 0)),
        Sample((np.array([1.0, np.nan, 2.0, np.inf]), 0), grad=False),
    ]


@composite(
    reference=lambda x, axis: np.cumsum(x, axis) if x.ndim else x, torch="cumsum", samples=_samples, autocast="high"
)
def cumsum(x: Node, axis: Any, dtype: object = None) -> Node:
    """Running sums along an axis; integers and bools are summed as int64.

    >>> pf.cumsum(pf.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 3., 6.])
    """
    return _run("cumsum", x, axis, dtype, F.running_sum)


@composite(
    reference=lambda x, axis: np.cumprod(x, axis) if x.ndim else x,
    torch="cumprod",
    samples=lambda: [
        *_samples(),
        Sample((np.array([[2.0, 0.0, 3.0, 4.0], [1.0, 0.0, 0.0, 2.0], [0.0, 3.0, 2.0, 0.0]]), 1)),
    ],
    autocast="high",
)
def cumprod(x: Node, axis: Any, dtype: object = None) -> Node:
    """Running products along an axis; integers and bools are multiplied as int64.

    >>> pf.cumprod(pf.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 2., 6.])
    """
    return _run("cumprod", x, axis, dtype, F.running_product)


# --- by doubling ----------------------------------------------------------------------------------------------------


def _complex_product(x: Node, axis: int, reverse: bool) -> Node:
    """running_product of complex numbers."""
    turned = F.flip(x, (axis,)) if reverse else x
    out = _doubled(turned, axis, F.mul)
    return F.flip(out, (axis,)) if reverse else out


COMPLEX["running_product"] = _complex_product


def _doubled(x: Node, axis: int, combine: Callable[[Node, Node], Node]) -> Node:
    """Combine each element with all before it: with the one before, the two before those, the four before those, ..."""
    size, shift = x.shape[axis], 1
    while shift < size:
        later = combine(F.narrow(x, axis, 0, size - shift), F.narrow(x, axis, shift, size - shift))
        x = F.cat([F.narrow(x, axis, 0, shift), later], axis)
        shift *= 2
    return x


@composite(
    torch="logcumsumexp",
    samples=lambda: [
        Sample((_X, 0)),
        Sample((_X.T, 1)),
        Sample((np.array(2.0), 0)),
        Sample((np.array([-900.0, 3.0, 800.0, 800.0, -5.0]), 0)),
        Sample((np.array([-np.inf, -np.inf, 1.0, np.inf, 2.0]), 0), grad=False),
        Sample((np.ones((3, 0)), 1)),
    ],
    autocast="high",
)
def logcumsumexp(x: Node, axis: Any) -> Node:
    """The logarithm of running sums of exp(x) along an axis, without overflow.

    >>> pf.logcumsumexp(pf.tensor([0.0, 0.0, 0.0]), 0)
    tensor([0.0000, 0.6931, 1.0986])
    """
    at = normalize_axis("logcumsumexp", axis, x.ndim)
    x = x if x.dtype.has_gradient else cast(x, float32)
    return _doubled(x, at, F.logaddexp) if x.ndim else x


def _running_extreme(op: str, x: Node, axis: Any, combine: Callable[[Node, Node], Node]) -> ValuesIndices:
    at = normalize_axis(op, axis, x.ndim)
    flat = x if x.ndim else F.reshape(x, (1,))
    best = _doubled(flat, at, combine)
    # An element that is the extreme so far sets a record; the last record up to each place is where it lies.
    record = F.logical_or(F.eq(flat, best), F.ne(flat, flat))
    place = F.reshape(F.iota_like(flat, (flat.shape[at],)), (-1, *[1] * (flat.ndim - 1 - at)))
    indices = _doubled(F.where(record, place, 0), at, F.maximum)
    values = F.gather(flat, at, indices)
    return ValuesIndices(F.reshape(values, x.shape), F.reshape(indices, x.shape))


def _extreme_samples() -> list[Sample]:
    return [
        Sample((_X, 0)),
        Sample((_X.T, -1)),
        Sample((np.array([[3.0, 1.0, 3.0, 4.0, 4.0, 0.0, 5.0], [2.0, 2.0, 1.0, 0.0, 9.0, 9.0, 8.0]]), 1)),
        Sample((np.array([1.0, np.nan, 3.0, np.nan, -np.inf, np.inf]), 0), grad=False),
        Sample((np.array([4, 2, 4, 7]), 0)),
        Sample((np.array([True, False, True]), 0)),
        Sample((np.array(2.0), 0)),
        Sample((np.ones((3, 0)), 1)),
    ]


@composite(torch="cummax", samples=_extreme_samples)
def cummax(x: Node, axis: Any) -> ValuesIndices:
    """The largest element up to each one along an axis, and where it lies: the last of equals. NaN counts as largest.

    >>> pf.cummax(pf.tensor([1.0, 3.0, 2.0]), 0).values
    tensor([1., 3., 3.])
    """
    return _running_extreme("cummax", x, axis, F.maximum)


@composite(torch="cummin", samples=_extreme_samples)
def cummin(x: Node, axis: Any) -> ValuesIndices:
    """The smallest element up to each one along an axis, and where it lies: the last of equals. NaN counts as smallest.

    >>> pf.cummin(pf.tensor([2.0, 3.0, 1.0]), 0).values
    tensor([2., 2., 1.])
    """
    return _running_extreme("cummin", x, axis, F.minimum)


# --- neighbours -----------------------------------------------------------------------------------------------------


@composite(
    torch=lambda torch, x, n=1, axis=-1, prepend=None, append=None: torch.diff(x, n, axis, prepend, append),
    samples=lambda: [
        Sample((_X,)),
        Sample((_X, 2, 0)),
        Sample((_X, 1, 1, _X[:, :1], _X[:, :2])),
        Sample((np.array([1, 4, 9]),)),
        Sample((np.array([True, False, False]),)),
        Sample((_X, 0)),
        Sample((_X, 0, 1, _X[:, :1], _X[:, :2])),
        Sample((_X, 9)),
    ],
)
def diff(x: Node, n: int = 1, axis: Any = -1, prepend: Node | None = None, append: Node | None = None) -> Node:
    """Differences of neighbours along an axis, n times over; tensors may be put before and behind x first.

    >>> pf.diff(pf.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    at = normalize_axis("diff", axis, x.ndim)
    times = want_whole("diff", "n", n)
    if x.ndim == 0 or times < 0:
        raise ShapeError(f"[diff] expected at least one axis and n of at least 0 but got shape {x.shape} and n = {n}")
    pieces = [p for p in (prepend, x, append) if p is not None] if times else [x]
    out = F.cat(pieces, at) if len(pieces) > 1 else x
    for _ in range(min(times, out.shape[at])):
        left = max(out.shape[at] - 1, 0)
        before, behind = F.narrow(out, at, 0, left), F.narrow(out, at, out.shape[at] - left, left)
        out = F.ne(before, behind) if out.dtype is bool_ else behind - before
    return out


@composite(
    reference=lambda y, x=None, dx=1.0, axis=-1: np.trapezoid(y, x, dx=dx, axis=axis),
    torch=lambda torch, y, x=None, dx=None, axis=-1: (
        torch.trapezoid(y, x, dim=axis) if x is not None else torch.trapezoid(y, dx=1 if dx is None else dx, dim=axis)
    ),
    samples=lambda: [
        Sample((_X,)),
        Sample((_X,), {"dx": 0.5, "axis": 0}),
        Sample((_X, np.array([0.0, 1.0, 3.0, 4.5, 5.0][: _X.shape[-1]]))),
        Sample((_X, np.cumsum(np.abs(_X), 1))),
        Sample((np.arange(4),)),
    ],
    method=False,
)
def trapezoid(y: Node, x: Node | None = None, *, dx: float | None = None, axis: Any = -1) -> Node:
    """The integral of y along an axis by the trapezoidal rule, over the points x or points that are dx (1) apart.

    >>> pf.trapezoid(pf.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    at = normalize_axis("trapezoid", axis, y.ndim)
    if y.ndim == 0:
        raise ShapeError("[trapezoid] expected a tensor with at least one axis but got a 0-d tensor")
    if x is not None and dx is not None:
        raise ArgumentError("[trapezoid] expected x or dx but got both")
    if dx is not None and not is_number(dx):
        raise ArgumentError(f"[trapezoid] expected a number as dx but got {dx!r}")
    left = max(y.shape[at] - 1, 0)
    both = F.narrow(y, at, 0, left) + F.narrow(y, at, y.shape[at] - left, left)
    if x is None:
        return F.sum(both * 0.5, at) * (1.0 if dx is None else dx)
    points = F.reshape(x, (*x.shape, *[1] * (y.ndim - 1 - at))) if x.ndim == 1 else x
    return F.sum(both * F.diff(points, 1, at - y.ndim) * 0.5, at)
