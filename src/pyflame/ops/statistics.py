"""Statistics: extremes and spreads together, quantiles, covariance, histograms."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import as_dtype, float32, int64
from pyflame.core.errors import ArgumentError, AxisError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.ir import F, Node, Sample, as_node, cast, composite, is_number
from pyflame.ops.base import want_floats, want_integers, want_number, want_whole

_CUBE = np.sin(np.arange(24.0) * 7.1).reshape(2, 3, 4)
_NAN = np.array([[1.0, math.nan, 3.0, 2.5], [math.nan, math.nan, 2.0, 7.0]])


class Extremes(NamedTuple):
    """The smallest and the largest element."""

    min: Node
    max: Node


@composite(
    torch=lambda torch, x, axis=None, keepdims=False: torch.aminmax(x, dim=axis, keepdim=keepdims),
    samples=lambda: [
        Sample((_CUBE,)),
        Sample((_CUBE,), {"axis": 1, "keepdims": True}),
        Sample((np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]),), {"axis": -1}),
        Sample((_NAN,), {"axis": 0}, grad=False),
        Sample((np.array([4, -2]),)),
    ],
)
def aminmax(x: Node, *, axis: Any = None, keepdims: bool = False) -> Extremes:
    """The smallest and the largest element, over one axis or all of them.

    >>> pf.aminmax(pf.tensor([1.0, 3.0, 2.0])).max
    tensor(3.)
    """
    return Extremes(F.amin(x, axis, keepdims), F.amax(x, axis, keepdims))


def _with_mean(name: str, doc: str) -> None:
    """Declare the function that gives a spread, var or std, together with the mean."""

    def fn(
        x: Node,
        axis: Any = None,
        unbiased: bool | None = None,
        keepdims: bool = False,
        *,
        correction: Any = None,
        ddof: Any = None,
    ) -> tuple[Node, Node]:
        spread = getattr(F, name)(x, axis, unbiased, keepdims, correction=correction, ddof=ddof)
        return spread, F.mean(x, None if isinstance(axis, bool) else axis, keepdims)

    fn.__doc__ = doc
    composite(
        name=f"{name}_mean",
        torch=f"{name}_mean",
        samples=lambda: [
            Sample(args) for args in ((_CUBE, 1), (_CUBE,), (_CUBE, True), (_CUBE, False), (_CUBE, (0, 2), False, True))
        ],
        method=False,
        autocast="high",
    )(fn)


_with_mean(
    "var",
    """The variance and the mean over axes.

    >>> pf.var_mean(pf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """,
)
_with_mean(
    "std",
    """The standard deviation and the mean over axes.

    >>> pf.std_mean(pf.tensor([1.0, 2.0, 3.0]))
    (tensor(1.), tensor(2.))
    """,
)


@composite(
    torch=lambda torch, x, axis=None, keepdims=False: torch.nanmean(x, dim=axis, keepdim=keepdims),
    samples=lambda: [Sample((_CUBE, 1)), Sample((_NAN, 0, True), grad=False), Sample((_NAN[:, 1:2], 0), grad=False)],
    autocast="high",
)
def nanmean(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """The mean over axes of the elements that are not NaN.

    >>> pf.nanmean(pf.tensor([1.0, float("nan"), 2.0]))
    tensor(1.5000)
    """
    result = x.dtype if dtype is None else as_dtype(dtype)
    want_floats("nanmean", result)
    wide = cast(x, result.compute)
    there = F.sum(cast(F.eq(wide, wide), wide.dtype), axis, keepdims)
    return cast(F.nansum(wide, axis, keepdims) / there, result)


# --- order ----------------------------------------------------------------------------------------------------------


def _last(op: str, x: Node, axis: Any) -> tuple[Node, int | None]:
    """x with the axis to choose from as its last one; that axis, or None where it is all of them."""
    if axis is None:
        return F.reshape(x, (-1,)), None
    at = normalize_axis(op, axis, x.ndim)
    return F.movedim(x, at, -1) if x.ndim else F.reshape(x, (1,)), at


def _kept(out: Node, x: Node, at: int | None, keepdims: bool, lead: int = 0) -> Node:
    """A result without the axis chosen from, behind `lead` axes: with that axis again, of size 1, where it is kept."""
    if not keepdims or x.ndim == 0:
        return out
    shape = (1,) * x.ndim if at is None else tuple(1 if a == at else n for a, n in enumerate(x.shape))
    return F.reshape(out, (*out.shape[:lead], *shape))


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(op: str, x: Node, q: Any, axis: Any, keepdims: bool, interpolation: str, skip_nan: bool) -> Node:
    want_floats(op, x.dtype)
    if interpolation not in _INTERPOLATIONS:
        raise ArgumentError(f"[{op}] expected interpolation to be one of {_INTERPOLATIONS} but got {interpolation!r}")
    if is_number(q) and not 0 <= q <= 1:
        raise ArgumentError(f"[{op}] expected q in [0, 1] but got {q}")
    wanted = as_node(q, x.dtype.compute)
    if wanted.ndim > 1:
        raise ShapeError(f"[{op}] expected q to be a number or a vector but got shape {wanted.shape}")
    rows, at = _last(op, x, axis)
    size = rows.shape[-1]
    if size == 0:
        raise AxisError(f"[{op}] expected at least one element along the axis but got shape {x.shape}")
    order = F.take_along_axis(rows, F.argsort(rows), -1)  # NaN behind all others
    broken = F.ne(rows, rows)
    if skip_nan:
        last = F.clamp_min(size - 1 - cast(F.sum(broken, -1, True), wanted.dtype), 0.0)
        rank = F.reshape(wanted, (-1,)) * last
    else:
        rank = F.where(F.any(broken, -1, True), size - 1.0, F.reshape(wanted, (-1,)) * (size - 1.0))
    rounded = {"lower": F.floor, "higher": F.ceil, "nearest": F.round}.get(interpolation)
    if rounded is not None:
        out = F.gather(order, -1, cast(rounded(rank), int64))
    else:
        low = F.floor(rank)
        ends = [F.gather(order, -1, cast(r, int64)) for r in (low, F.ceil(rank))]
        out = F.lerp(*ends, 0.5 if interpolation == "midpoint" else rank - low)
    # (*rows, q) -> (q, *rows), without the first axis where q is a number
    out = F.reshape(F.movedim(cast(out, x.dtype), -1, 0), (*wanted.shape, *rows.shape[:-1]))
    return _kept(out, x, at, keepdims, wanted.ndim)


def _quantile_samples() -> list[Sample]:
    q = np.array([0.0, 0.3, 0.5, 0.9, 1.0])
    return [
        *[Sample((_CUBE, 0.37, 2), {"interpolation": how}) for how in _INTERPOLATIONS],
        Sample((_CUBE, 0.5)),
        Sample((_CUBE, 0.5, None, True)),
        Sample((_CUBE, q[1:4], 1)),
        Sample((_CUBE, q, -1, True), grad=False),
        Sample((_NAN, q, 1), grad=False),
        Sample((np.array(2.5), 0.3)),
    ]


def _torch_quantile(name: str) -> Any:
    def oracle(torch: Any, x: Any, q: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return getattr(torch, name)(x, q, dim=axis, keepdim=keepdims, **options)

    return oracle


@composite(torch=_torch_quantile("quantile"), samples=_quantile_samples)
def quantile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, interpolation: str = "linear") -> Node:
    """What a share q of the elements along an axis, or of all, lies below: q is a number in [0, 1] or a vector of them.

    Between two elements the interpolation decides: "linear", "lower", "higher", "midpoint" or "nearest". NaN where
    there is one.

    >>> pf.quantile(pf.tensor([1.0, 2.0, 4.0, 8.0]), 0.5)
    tensor(3.)
    """
    return _quantile("quantile", x, q, axis, keepdims, interpolation, skip_nan=False)


@composite(torch=_torch_quantile("nanquantile"), samples=_quantile_samples)
def nanquantile(x: Node, q: Any, axis: Any = None, keepdims: bool = False, *, interpolation: str = "linear") -> Node:
    """As quantile, of the elements that are not NaN.

    >>> pf.nanquantile(pf.tensor([1.0, float("nan"), 3.0]), 0.5)
    tensor(2.)
    """
    return _quantile("nanquantile", x, q, axis, keepdims, interpolation, skip_nan=True)


# --- covariance -----------------------------------------------------------------------------------------------------


def _weights(op: str, name: str, given: Node | None, count: int) -> Node | None:
    if given is not None and (given.ndim != 1 or given.size != count):
        raise ShapeError(f"[{op}] expected {count} {name}, one per observation, but got shape {given.shape}")
    return given


def _cov_samples() -> list[Sample]:
    x = _CUBE[0]
    counts, importance = np.array([1, 3, 2, 1]), np.array([0.5, 1.0, 0.25, 2.0])
    return [
        Sample((x,)),
        Sample((x,), {"correction": 0}),
        Sample((x[0],)),
        Sample((x,), {"fweights": counts}),
        Sample((x,), {"fweights": counts, "aweights": importance}),
        Sample((x,), {"aweights": importance, "correction": 0}),
        Sample((np.arange(6).reshape(2, 3),)),
    ]


@composite(torch="cov", samples=_cov_samples, autocast="high")
def cov(x: Node, *, correction: int = 1, fweights: Node | None = None, aweights: Node | None = None) -> Node:
    """The covariances of variables (rows) over observations (columns), which may count several times or by weight.

    >>> pf.cov(pf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if x.ndim > 2:
        raise ShapeError(f"[cov] expected at most two axes but got shape {x.shape}")
    rows = F.reshape(x, (1, -1)) if x.ndim < 2 else x
    rows = rows if rows.dtype.has_gradient else cast(rows, float32)
    count = rows.shape[1]
    times = _weights("cov", "fweights", fweights, count)
    if times is not None:
        want_integers("cov", times)
    importance = _weights("cov", "aweights", aweights, count)
    if times is None and importance is None:
        weight, total = None, float(count)
        freedom: Any = max(total - correction, 0.0)
    else:
        given = [cast(w, rows.dtype.real) for w in (times, importance) if w is not None]
        weight = given[0] if len(given) == 1 else given[0] * given[1]
        total = F.sum(weight)  # type: ignore[assignment]
        if importance is None or correction == 0:
            freedom = total - float(correction)
        else:
            freedom = total - F.sum(weight * given[-1]) * float(correction) / total
        freedom = F.clamp_min(freedom, 0.0)
    off = rows - F.sum(rows if weight is None else rows * weight, 1, True) / total
    out = F.matmul(off, F.transpose(F.conj(off if weight is None else off * weight), 0, 1)) / freedom
    return F.squeeze(out)


@composite(
    torch="corrcoef",
    samples=lambda: [Sample((_CUBE[0],)), Sample((_CUBE[0, 0],), grad=False)],
    autocast="high",
)
def corrcoef(x: Node) -> Node:
    """The correlations of variables (rows) over observations (columns): covariances divided by both deviations.

    >>> pf.corrcoef(pf.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    out = F.cov(x)
    if out.ndim == 0:
        return out / out
    deviation = F.sqrt(F.real(F.diagonal(out)))
    out = out / F.reshape(deviation, (-1, 1)) / deviation
    if out.dtype.is_complex:
        return F.complex(F.clamp(F.real(out), -1.0, 1.0), F.clamp(F.imag(out), -1.0, 1.0))
    return F.clamp(out, -1.0, 1.0)


# --- histograms -----------------------------------------------------------------------------------------------------


@composite(
    torch="histc",
    samples=lambda: [
        Sample((_CUBE,), {"bins": 5}),
        Sample((_CUBE, 4, -0.5, 0.5)),
        Sample((np.array([1.0, 1.0, 1.0]), 3)),
        Sample((np.array([0.0, 0.25, 1.0, math.nan, -3.0]), 4, 0, 1)),
        Sample((np.zeros(0), 2)),
    ],
    differentiable=False,
)
def histc(x: Node, bins: int = 100, min: float = 0, max: float = 0) -> Node:
    """How many elements fall into each of `bins` equal parts of [min, max], or of [x.min(), x.max()] where both are 0.

    >>> pf.histc(pf.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    want_floats("histc", x.dtype)
    parts = want_whole("histc", "bins", bins)
    low: Any = want_number("histc", "min", min)
    high: Any = want_number("histc", "max", max)
    if parts < 1 or low > high:
        raise ArgumentError(f"[histc] expected bins of at least 1 and min <= max but got {bins}, {min} and {max}")
    flat = F.reshape(x, (-1,))
    if low == high and flat.size:
        low, high = F.amin(flat), F.amax(flat)
        point = F.eq(low, high)
        low, high = F.where(point, low - 1.0, low), F.where(point, high + 1.0, high)
    inside = F.logical_and(flat >= low, flat <= high)
    place = F.clamp(F.floor((flat - low) * float(parts) / (high - low)), 0.0, parts - 1.0)
    place = cast(F.where(inside, place, 0.0), int64)
    return F.index_add(F.full_const(0, x.dtype, (parts,)), 0, place, cast(inside, x.dtype))
