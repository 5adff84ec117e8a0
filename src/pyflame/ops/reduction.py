"""Reductions over any axes.

The primitives (`reduce_sum`, ...) take normalised axes and drop them; the public functions add keepdims and dtype.
Sums of 16-bit floats are kept in float32 until the result is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from math import prod as product
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, bool_, uint8
from pyflame.core.shape import Shape, drop_axes, inverse, keep_axes, normalize_axes, reduced_axes
from pyflame.core.state import state
from pyflame.core.traced import real
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE, REDUCE
from pyflame.ops.base import over, want_floats, want_number


def _count(shape: Shape, axes: Shape) -> int:
    return product(shape[a] for a in axes)


def _axes(op: str, x: Node, axis: Any) -> Shape:
    return reduced_axes(op, axis, x.ndim)


def _shaped(out: Node, shape: Shape, axes: Shape, keepdims: bool) -> Node:
    return F.reshape(out, keep_axes(shape, axes)) if keepdims else out


def _expand_back(g: Node, x_meta: Meta, axes: Shape) -> Node:
    return F.expand(F.reshape(g, keep_axes(x_meta.shape, axes)), x_meta.shape)


# --- primitives -----------------------------------------------------------------------------------------------------


def _reduce(name: str, c: str, identity: str, reference: Callable[..., Any], grad: Callable[..., Any] | None) -> None:
    """Declare the primitive behind a public reduction: axes are normalised and dropped."""

    @primitive(
        REDUCE,
        infer=lambda m, axes: (drop_axes(m.shape, axes), m.dtype),
        attrs=("axes",),
        reference=reference,
        grad=grad,
        name=name,
        c=c,
        identity=identity,
        differentiable=grad is not None,
        public=False,
    )
    def fn(x: Node, axes: Shape) -> Any:
        return (x,), (axes,)


def _extreme_grad(g: Node, x: Node, out: Node, axes: Shape) -> tuple[Node]:
    # equal extremes share the gradient evenly, as PyTorch's amax does
    chosen = cast(F.eq(x, _expand_back(out, x.meta, axes)), g.dtype)
    count = F.reduce_sum(chosen, axes)
    return (chosen * _expand_back(g / count, x.meta, axes),)


def _products_of_others(x: Node, axes: Shape) -> Node:
    """For each element the product of all others along the axes: n^2 multiplications, right at zeros to any order."""
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    order = (*kept, *axes)
    moved = F.permute(x, order)
    n = _count(x.shape, axes)
    one = F.eq(F.reshape(F.iota_like(x, (n,)), (n, 1)), F.iota_like(x, (n,)))
    row = F.reshape(moved, (*(x.shape[a] for a in kept), 1, n))
    others = F.reduce_prod(F.where(one, 1.0, row), (len(kept) + 1,))
    return F.permute(F.reshape(others, moved.shape), inverse(order))


def _prod_grad(g: Node, x: Node, out: Node, axes: Shape) -> tuple[Node]:
    # dP/dx_i is the product of the others: P / x_i without zeros; with one zero only that element has any
    if state.recorder is not None:  # that has no derivatives at a zero, and a tape of this gradient is wanted
        return (_expand_back(g, x.meta, axes) * _products_of_others(x, axes),)
    zero = F.eq(x, 0.0)
    zeros = F.reduce_sum(cast(zero, g.dtype), axes)
    others = F.reduce_prod(F.where(zero, 1.0, x), axes)
    alone = F.where(zero, _expand_back(F.where(F.eq(zeros, 1.0), g * others, 0.0), x.meta, axes), 0.0)
    return (F.where(_expand_back(F.eq(zeros, 0.0), x.meta, axes), _expand_back(g * out, x.meta, axes) / x, alone),)


_reduce(
    "reduce_sum",
    "{a} + {b}",
    "zero",
    lambda x, axes: x.sum(axis=axes, dtype=x.dtype),
    lambda g, x_meta, axes: (_expand_back(g, x_meta, axes),),
)
_reduce(
    "reduce_max", "pf_max({a}, {b})", "lowest", lambda x, axes: np.max(x, axis=axes, initial=_lowest(x)), _extreme_grad
)
_reduce(
    "reduce_min",
    "pf_min({a}, {b})",
    "highest",
    lambda x, axes: np.min(x, axis=axes, initial=_highest(x)),
    _extreme_grad,
)
_reduce("reduce_prod", "{a} * {b}", "one", lambda x, axes: x.prod(axis=axes, dtype=x.dtype), _prod_grad)
_reduce("reduce_any", "{a} | {b}", "zero", lambda x, axes: x.any(axis=axes), None)
_reduce("reduce_all", "{a} & {b}", "one", lambda x, axes: x.all(axis=axes), None)


def _lowest(x: Any) -> Any:
    return -inf if x.dtype.kind == "f" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min


def _highest(x: Any) -> Any:
    return inf if x.dtype.kind == "f" else True if x.dtype.kind == "b" else np.iinfo(x.dtype).max


# --- sums -----------------------------------------------------------------------------------------------------------


def _accumulated(x: Node, dtype: object) -> Node:
    """The values to sum or multiply: in the wanted dtype, else integers and bools as int64."""
    return cast(x, as_dtype(dtype) if dtype is not None else (x.dtype if x.dtype.has_gradient else x.dtype.accumulate))


_CUBE = np.linspace(-2.0, 2.5, 24).reshape(2, 3, 4)
_NAN = np.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, 2.0]])


def _axes_samples() -> list[Sample]:
    return [
        Sample((_CUBE, 1)),
        Sample((_CUBE,)),
        Sample((_CUBE[:, ::2].T, (0, 2), True)),
        Sample((np.array(3.0),)),
        Sample((np.linspace(0.1, 1.0, 7 * 131).reshape(7, 131), 0)),
        Sample((np.linspace(0.1, 1.0, 7 * 131).reshape(7, 131), -1)),
        Sample((np.ones((3, 1, 5)), 1)),
    ]


def _torch_reduce(name: str, **fixed: Any) -> Callable[..., Any]:
    """Torch's function of this name, with our argument names; over all axes where none is given."""

    def oracle(torch: Any, x: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        return getattr(torch, name)(x, dim=axes, keepdim=keepdims, **fixed, **rest)

    return oracle


@composite(
    reference=lambda x, axis=None, keepdims=False, dtype=None: x.sum(axis=axis, keepdims=keepdims),
    torch=_torch_reduce("sum"),
    samples=lambda: [
        *_axes_samples(),
        Sample((np.ones((0, 3)), 0)),
        Sample((np.array([[True, False], [True, True]]), 1)),
        Sample((_NAN, 1), grad=False),
    ],
    autocast="high",
)
def sum(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """Sum over axes; integers and bools are summed as int64.

    >>> pf.ones(2, 3).sum(axis=1)
    tensor([3., 3.])
    """
    axes = _axes("sum", x, axis)
    return _shaped(F.reduce_sum(_accumulated(x, dtype), axes), x.shape, axes, keepdims)


@composite(
    reference=lambda x, axis=None, keepdims=False, dtype=None: np.nansum(x, axis=axis, keepdims=keepdims),
    torch=_torch_reduce("nansum"),
    samples=lambda: [Sample((_NAN, 0), grad=False), Sample((_NAN[:1],)), Sample((np.zeros((2, 0)), 1))],
    autocast="high",
)
def nansum(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """Sum over axes that takes NaN as 0.

    >>> pf.nansum(pf.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    return F.sum(F.where(F.isnan(x), 0.0, x) if x.dtype.is_float else x, axis, keepdims, dtype)


@composite(
    reference=lambda x, axis=None, keepdims=False, dtype=None: x.mean(axis=axis, keepdims=keepdims),
    torch=_torch_reduce("mean"),
    samples=lambda: [*_axes_samples(), Sample((np.ones((0, 3)), 0), grad=False), Sample((_NAN, 1), grad=False)],
    autocast="high",
)
def mean(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """The mean over axes.

    >>> pf.tensor([[1.0, 2.0], [3.0, 5.0]]).mean(axis=0)
    tensor([2.0000, 3.5000])
    """
    axes = _axes("mean", x, axis)
    result = x.dtype if dtype is None else as_dtype(dtype)
    if not result.is_complex:
        want_floats("mean", result)
    total = F.reduce_sum(cast(cast(x, result), result.compute), axes)
    return _shaped(cast(total / float(_count(x.shape, axes)), result), x.shape, axes, keepdims)


@composite(
    reference=lambda x, axis=None, keepdims=False, dtype=None: x.prod(axis=axis, keepdims=keepdims),
    torch=lambda torch, x, axis=None, keepdims=False: x.prod() if axis is None else x.prod(axis, keepdims),
    samples=lambda: [
        Sample((_CUBE, 1)),
        Sample((_CUBE[:, :2],)),
        Sample((np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0], [1.0, -2.0, 0.5]]), 1, True)),
        Sample((np.ones((2, 0)), 1)),
        Sample((np.array(3.0),)),
        Sample((np.arange(1, 7).reshape(2, 3), 0)),
    ],
    autocast="high",
)
def prod(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """The product over axes; integers and bools are multiplied as int64.

    >>> pf.tensor([2.0, 3.0, 4.0]).prod()
    tensor(24.)
    """
    axes = _axes("prod", x, axis)
    return _shaped(F.reduce_prod(_accumulated(x, dtype), axes), x.shape, axes, keepdims)


@composite(
    reference=lambda x, axis=None, keepdims=False: np.asarray(np.count_nonzero(x, axis=axis, keepdims=keepdims)),
    torch=lambda torch, x, axis=None: torch.count_nonzero(x, dim=axis),
    samples=lambda: [
        Sample((np.array([[0.0, 1.0, 2.0], [0.0, 0.0, np.nan]]), 1)),
        Sample((np.array([0, 3, 0, 4]),)),
        Sample((np.zeros((0, 2)), 0)),
    ],
)
def count_nonzero(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """How many elements over axes are not 0.

    >>> pf.count_nonzero(pf.tensor([0, 3, 0, 4]))
    tensor(2)
    """
    return F.sum(F.ne(x, 0), axis, keepdims)


# --- variance -------------------------------------------------------------------------------------------------------


def _var(x: Node, axes: Shape, correction: float) -> Node:
    """sum((x - mean)^2) / (n - correction), in two passes: no cancellation."""
    wide = cast(x, x.dtype.compute)
    count = real(_count(x.shape, axes))
    off = wide - _expand_back(F.reduce_sum(wide, axes) / count, x.meta, axes)
    return cast(F.reduce_sum(off * off, axes) / _freedom(x.shape, axes, correction), x.dtype)


def _freedom(shape: Shape, axes: Shape, correction: float) -> float:
    """What the sum of squares is divided by; never below 0, so that one element has a variance of 0/0."""
    left = _count(shape, axes) - correction
    return left if left > 0 else 0.0


def _var_grad(g: Node, x: Node, axes: Shape, correction: float) -> Node:
    # d var/dx_i = 2 (x_i - mean) / (n - correction): the mean's own share sums to zero
    wide = cast(x, x.dtype.compute)
    count = real(_count(x.shape, axes))
    off = wide - _expand_back(F.reduce_sum(wide, axes) / count, x.meta, axes)
    return off * _expand_back(cast(g, wide.dtype) * 2.0 / _freedom(x.shape, axes, correction), x.meta, axes)


def _numpy_var(x: Any, axes: Shape, correction: float) -> Any:
    off = x - x.mean(axis=axes, keepdims=True)
    return np.sum(off * off, axis=axes) / np.float64(_freedom(x.shape, axes, correction))


@primitive(
    COMPOSITE,
    infer=lambda m, axes, correction: (drop_axes(m.shape, axes), m.dtype),
    attrs=("axes", "correction"),
    reference=_numpy_var,
    decompose=_var,
    grad=lambda g, x, axes, correction: (_var_grad(g, x, axes, correction),),
    public=False,
)
def reduce_var(x: Node, axes: Shape, correction: float) -> Any:
    """The variance over normalised axes, which are dropped."""
    return (x,), (axes, correction)


@primitive(
    COMPOSITE,
    infer=lambda m, axes, correction: (drop_axes(m.shape, axes), m.dtype),
    attrs=("axes", "correction"),
    reference=lambda x, axes, correction: np.sqrt(_numpy_var(x, axes, correction)),
    decompose=lambda x, axes, correction: F.sqrt(_var(x, axes, correction)),
    # d std = d var / (2 std); a std of 0 has gradient 0, as in PyTorch
    grad=lambda g, x, out, axes, correction: (_var_grad(over(g * 0.5, out), x, axes, correction),),
    public=False,
)
def reduce_std(x: Node, axes: Shape, correction: float) -> Any:
    """The standard deviation over normalised axes, which are dropped."""
    return (x,), (axes, correction)


def _spread_arguments(op: str, x: Node, axis: Any, unbiased: Any, correction: Any, ddof: Any) -> tuple[Shape, float]:
    """Axes and correction from the ways NumPy and PyTorch write them."""
    if isinstance(axis, bool):  # torch: var(x, False)
        axis, unbiased = None, axis
    given = [want_number(op, "correction", v) for v in (correction, ddof, unbiased) if v is not None]
    axes = _axes(op, x, axis)
    want_floats(op, x.dtype)
    return axes, given[0] if given else 1.0


def _spread_samples() -> list[Sample]:
    usual = [s.args for s in _axes_samples() if s.args[0].ndim and s.args[0].shape != (3, 1, 5)]
    return [
        *[Sample(args[:2], {"keepdims": True} if len(args) > 2 else {}) for args in usual],
        *[Sample(args) for args in ((_CUBE, True), (_CUBE, False), (_CUBE, 1, False), (_CUBE, 1, False, True))],
        Sample((_CUBE, 2), {"correction": 0}),
        Sample((_CUBE, (0, 1)), {"correction": 2, "keepdims": True}),
        Sample((np.ones((3, 1)), 1), grad=False),
        Sample((np.array([1e4, 1e4 + 1, 1e4 + 2]),)),
    ]


def _numpy_spread(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, axis: Any = None, unbiased: Any = 1, keepdims: bool = False, correction: Any = None) -> Any:
        axis, unbiased = (None, axis) if isinstance(axis, bool) else (axis, unbiased)
        axes = normalize_axes("var", axis, x.ndim)
        return fn(_numpy_var(x, axes, unbiased if correction is None else correction)).reshape(
            keep_axes(x.shape, axes) if keepdims else drop_axes(x.shape, axes)
        )

    return reference


def _torch_spread(name: str) -> Callable[..., Any]:
    def oracle(torch: Any, *args: Any, keepdims: bool | None = None, **options: Any) -> Any:
        kept = {} if keepdims is None else {"keepdim": keepdims}
        return getattr(torch, name)(*args, **options, **kept)

    return oracle


@composite(reference=_numpy_spread(np.asarray), torch=_torch_spread("var"), samples=_spread_samples, autocast="high")
def var(
    x: Node,
    axis: Any = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> Node:
    """The variance over axes: squares summed and divided by n - correction (or `ddof`; 1 unless given).

    >>> pf.tensor([1.0, 2.0, 3.0, 4.0]).var(correction=0)
    tensor(1.2500)
    """
    if x.dtype.is_complex:
        parts = [var(p, axis, unbiased, keepdims, correction=correction, ddof=ddof) for p in (F.real(x), F.imag(x))]
        return parts[0] + parts[1]
    axes, taken = _spread_arguments("var", x, axis, unbiased, correction, ddof)
    return _shaped(F.reduce_var(x, axes, taken), x.shape, axes, keepdims)


@composite(
    reference=_numpy_spread(np.sqrt),
    torch=_torch_spread("std"),
    samples=lambda: [*_spread_samples(), Sample((np.full((2, 3), 0.5), 1))],
    autocast="high",
)
def std(
    x: Node,
    axis: Any = None,
    unbiased: bool | None = None,
    keepdims: bool = False,
    *,
    correction: Any = None,
    ddof: Any = None,
) -> Node:
    """The standard deviation over axes: the square root of `var`.

    >>> pf.tensor([1.0, 3.0]).std(ddof=0)
    tensor(1.)
    """
    if x.dtype.is_complex:
        return F.sqrt(var(x, axis, unbiased, keepdims, correction=correction, ddof=ddof))
    axes, taken = _spread_arguments("std", x, axis, unbiased, correction, ddof)
    return _shaped(F.reduce_std(x, axes, taken), x.shape, axes, keepdims)


# --- logic ----------------------------------------------------------------------------------------------------------


def _logic_samples() -> list[Sample]:
    mixed = np.array([[0.0, 1.0, np.nan], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    return [
        Sample((mixed, 1)),
        Sample((mixed,)),
        Sample((mixed > 0, (0, 1), True)),
        Sample((np.zeros((0, 2)), 0)),
        Sample((np.array(0),)),
    ]


@composite(
    reference=lambda x, axis=None, keepdims=False: np.asarray(x.any(axis=axis, keepdims=keepdims)),
    torch=lambda torch, x, axis=None, keepdims=False: (
        torch.any(x, axis, keepdims) if axis is not None else torch.any(x)
    ),
    samples=_logic_samples,
)
def any(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether any element over axes is not 0.

    >>> pf.tensor([0.0, 2.0]).any()
    tensor(True)
    """
    axes = normalize_axes("any", axis, x.ndim)
    out = _shaped(F.reduce_any(cast(x, bool_), axes), x.shape, axes, keepdims)
    return cast(out, uint8) if x.dtype is uint8 else out  # as PyTorch's


@composite(
    reference=lambda x, axis=None, keepdims=False: np.asarray(x.all(axis=axis, keepdims=keepdims)),
    torch=lambda torch, x, axis=None, keepdims=False: (
        torch.all(x, axis, keepdims) if axis is not None else torch.all(x)
    ),
    samples=_logic_samples,
)
def all(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Whether no element over axes is 0.

    >>> pf.tensor([0.0, 2.0]).all()
    tensor(False)
    """
    axes = normalize_axes("all", axis, x.ndim)
    out = _shaped(F.reduce_all(cast(x, bool_), axes), x.shape, axes, keepdims)
    return cast(out, uint8) if x.dtype is uint8 else out
