"""Reductions with gradient rules of their own: logsumexp, norms and what follows from them."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, float32
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.core.shape import Shape, drop_axes, keep_axes, normalize_axes, reduced_axes
from pyflame.ir import F, Meta, Node, Sample, as_number, cast, composite, is_number, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import over, want_number


def _shaped(out: Node, shape: Shape, axes: Shape, keepdims: bool) -> Node:
    return F.reshape(out, keep_axes(shape, axes)) if keepdims else out


def _back(reduced: Node, shape: Shape, axes: Shape) -> Node:
    """A reduced value with its axes again, as ones that broadcast."""
    return F.reshape(reduced, keep_axes(shape, axes))


def _infer(m: Meta, *attrs: Any) -> tuple[Shape, DType]:
    return drop_axes(m.shape, attrs[-1]), m.dtype


# --- logsumexp ------------------------------------------------------------------------------------------------------


def _logsumexp(x: Node, axes: Shape) -> Node:
    """log(sum(exp(x - m))) + m with m = max(x), or 0 where the maximum is infinite: inf - inf would be NaN."""
    wide = cast(x, x.dtype.compute)
    top = F.reduce_max(wide, axes)
    shift = F.where(F.isfinite(top), top, 0.0)
    return cast(F.log(F.reduce_sum(F.exp(wide - _back(shift, x.shape, axes)), axes)) + shift, x.dtype)


def _logsumexp_grad(g: Node, x: Node, out: Node, axes: Shape) -> tuple[Node]:
    # d/dx_i = exp(x_i - out): the softmax
    return (_back(g, x.shape, axes) * F.exp(x - _back(out, x.shape, axes)),)


def _numpy_logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True, initial=-inf)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return out if keepdims else out.squeeze(axis)


@primitive(
    COMPOSITE,
    infer=_infer,
    attrs=("axes",),
    reference=lambda x, axes: _numpy_logsumexp(x, axes),
    decompose=_logsumexp,
    grad=_logsumexp_grad,
    public=False,
    cost=16,
)
def reduce_logsumexp(x: Node, axes: Shape) -> Any:
    """log(sum(exp(x))) over normalised axes, which are dropped."""
    return (x,), (axes,)


_MATRIX = np.linspace(-3.0, 4.0, 28).reshape(4, 7)


@composite(
    reference=_numpy_logsumexp,
    torch=lambda torch, x, axis=None, keepdims=False: torch.logsumexp(
        x, tuple(range(x.ndim)) if axis is None else axis, keepdims
    ),
    samples=lambda: [
        Sample((_MATRIX, 1)),
        Sample((_MATRIX.T * 300, 0, True)),
        Sample((_MATRIX,)),
        Sample((np.array([[-inf, -inf], [inf, 0.0], [-inf, 1.0], [np.nan, 0.0]]), 1), grad=False),
        Sample((np.zeros((2, 0)), 1), grad=False),
        Sample((np.array(0.5), 0)),
    ],
    autocast="high",
)
def logsumexp(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """log(sum(exp(x))) over axes, without overflow.

    >>> pf.logsumexp(pf.tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    x = x if x.dtype.has_gradient else cast(x, float32)
    axes = normalize_axes("logsumexp", axis, x.ndim)
    return _shaped(F.reduce_logsumexp(x, axes), x.shape, axes, keepdims)


# --- norms ----------------------------------------------------------------------------------------------------------


def _norm(x: Node, p: float, axes: Shape) -> Node:
    """(sum |x|^p)^(1/p) and its limits."""
    wide = cast(x, x.dtype.compute)
    if p == 2:
        out = F.sqrt(F.reduce_sum(wide * wide, axes))
    elif p == 0:
        out = F.reduce_sum(cast(F.ne(wide, 0.0), wide.dtype), axes)
    elif p == 1:
        out = F.reduce_sum(F.abs(wide), axes)
    elif p == inf:
        out = F.reduce_max(F.abs(wide), axes)
    elif p == -inf:
        out = F.reduce_min(F.abs(wide), axes)
    else:
        out = F.pow(F.reduce_sum(F.pow(F.abs(wide), p), axes), 1 / p)
    return cast(out, x.dtype)


def _norm_grad(g: Node, x: Node, out: Node, p: float, axes: Shape) -> tuple[Node]:
    norm, up = _back(out, x.shape, axes), _back(g, x.shape, axes)
    if p == 0:
        return (F.full_const(0, x.dtype, x.shape),)
    if p == 1:
        return (up * F.sign(x),)
    if p == 2:
        # x / |x|, and 0 where the norm is 0
        return (x * over(up, norm),)
    if abs(p) == inf:
        # elements that reach the extreme share the gradient
        chosen = cast(F.eq(F.abs(x), norm), g.dtype)
        return (F.sign(x) * chosen * (up / _back(F.reduce_sum(chosen, axes), x.shape, axes)),)
    # sign(x) (|x| / norm)^(p-1), and 0 where the norm is 0 or, for p < 1, where x is
    part, flat = (over(F.abs(x), norm), F.eq(norm, 0.0)) if p > 1 else (F.abs(x) / norm, F.eq(x, 0.0))
    ratio = F.pow(part, p - 1)
    return (F.where(flat, 0.0, up * F.sign(x) * ratio),)


def _numpy_norm(x: Any, p: float, axes: Shape) -> Any:
    size = np.abs(x)
    if p == 0:
        return (x != 0).sum(axis=axes).astype(x.dtype)
    if abs(p) == inf:
        return size.max(axis=axes) if p > 0 else size.min(axis=axes)
    return (size**p).sum(axis=axes) ** (1 / p)


@primitive(
    COMPOSITE,
    infer=_infer,
    attrs=("p", "axes"),
    reference=_numpy_norm,
    decompose=_norm,
    grad=_norm_grad,
    public=False,
)
def reduce_norm(x: Node, p: float, axes: Shape) -> Any:
    """The p-norm over normalised axes, which are dropped."""
    return (x,), (p, axes)


def _numpy_public_norm(x: Any, p: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    axes = normalize_axes("norm", axis, x.ndim)
    out = _numpy_norm(x, 2.0 if p == "fro" else float(p), axes)
    return np.reshape(out, keep_axes(x.shape, axes) if keepdims else drop_axes(x.shape, axes))


def _torch_norm(torch: Any, x: Any, p: Any = 2, axis: Any = None, keepdims: bool = False) -> Any:
    return torch.linalg.vector_norm(x, 2 if p == "fro" else float(p), axis, keepdims)


@composite(
    reference=_numpy_public_norm,
    torch=_torch_norm,
    samples=lambda: [
        *[Sample((_MATRIX + 0.01, p, 1)) for p in (1, 2, 3, 0.5, -1, 0, inf, -inf)],
        Sample((_MATRIX,)),
        Sample((_MATRIX.T, "fro", (0, 1), True)),
        Sample((np.zeros((2, 3)), 2, 1)),
        Sample((np.array([[1.0, -3.0, 3.0]]), inf, 1)),
        Sample((np.zeros((2, 0)), 2, 1)),
        Sample((np.array([[1.0, np.nan], [inf, 2.0]]), 2, 1), grad=False),
        Sample((np.array(-2.0), 3)),
    ],
    autocast="high",
)
def norm(x: Node, p: Any = 2, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """The p-norm of the vectors along axes: (sum |x|^p)^(1/p), with its limits at p = 0, inf and -inf. "fro": p = 2.

    >>> pf.norm(pf.tensor([3.0, 4.0]))
    tensor(5.)
    """
    if p != "fro" and not is_number(p):
        raise ArgumentError(
            f"[norm] expected a number or 'fro' as p but got {p!r}; linalg.matrix_norm has the norms of matrices"
        )
    x = x if dtype is None else cast(x, as_dtype(dtype))
    x = F.abs(x) if x.dtype.is_complex else x
    if not x.dtype.is_float:
        raise DTypeError(f"[norm] expected floating-point values but got {x.dtype.name}; cast with .to(pf.float32)")
    axes = reduced_axes("norm", axis, x.ndim)
    order = 2.0 if p == "fro" else float(as_number(p))
    if (order < 0 or order == inf) and 0 in [x.shape[a] for a in axes]:
        raise ArgumentError(
            f"[norm] expected at least one element for p = {order} but got shape {x.shape} over axes {axes}"
        )
    return _shaped(F.reduce_norm(x, order, axes), x.shape, axes, keepdims)


@composite(
    reference=lambda x1, x2, axis=1, eps=1e-8: (
        (x1 * x2).sum(axis)
        / (np.maximum(np.sqrt((x1 * x1).sum(axis)), eps) * np.maximum(np.sqrt((x2 * x2).sum(axis)), eps))
    ),
    torch=lambda torch, x1, x2, axis=1, eps=1e-8: torch.nn.functional.cosine_similarity(x1, x2, axis, eps),
    samples=lambda: [Sample((_MATRIX, _MATRIX[::-1] * 2 + 1)), Sample((_MATRIX[0], _MATRIX + 0.3, -1))],
    autocast="high",
)
def cosine_similarity(x1: Node, x2: Node, axis: Any = 1, eps: float = 1e-8) -> Node:
    """The cosine of the angle between vectors along an axis; norms below eps count as eps.

    >>> pf.cosine_similarity(pf.tensor([[1.0, 0.0]]), pf.tensor([[1.0, 1.0]]))
    tensor([0.7071])
    """
    both = x1 * x2
    dot = F.sum(both, axis)
    shape = both.shape
    eps = want_number("cosine_similarity", "eps", eps)
    lengths = [F.maximum(F.norm(F.expand(x, shape), 2, axis), eps) for x in (x1, x2)]
    return dot / (lengths[0] * lengths[1])
