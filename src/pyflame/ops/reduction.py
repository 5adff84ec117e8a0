"""Reductions over any axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype
from pyflame.core.shape import Shape, normalize_axes
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import REDUCE


def _kept(shape: Shape, axes: Shape) -> Shape:
    return tuple(s for a, s in enumerate(shape) if a not in axes)


def _with_ones(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if a in axes else s for a, s in enumerate(shape))


def _reduce(name: str, c: str, identity: str, reference: Callable[..., Any], grad: Callable[..., Any] | None) -> Callable[..., Node]:
    """Declare the primitive behind a public reduction: axes are normalised and dropped."""

    @primitive(
        REDUCE,
        infer=lambda m, axes: (_kept(m.shape, axes), m.dtype),
        attrs=("axes",),
        reference=reference,
        grad=grad,
        name=name,
        c=c,
        identity=identity,
        public=False,
    )
    def fn(x: Node, axes: Shape) -> Any:
        return (x,), (axes,)

    return fn  # type: ignore[return-value]


def _expand_back(g: Node, x_meta: Meta, axes: Shape) -> Node:
    return F.expand(F.reshape(g, _with_ones(x_meta.shape, axes)), x_meta.shape)


def _extreme_grad(g: Node, x: Node, out: Node, axes: Shape) -> tuple[Node]:
    # Equal extremes share the gradient evenly, as PyTorch's amax does.
    chosen = cast(F.eq(x, _expand_back(out, x.meta, axes)), g.dtype)
    count = F.reduce_sum(chosen, axes)
    return (chosen * _expand_back(g / count, x.meta, axes),)


_reduce("reduce_sum", "{a} + {b}", "zero", lambda x, axes: x.sum(axis=axes, dtype=x.dtype), lambda g, x_meta, axes: (_expand_back(g, x_meta, axes),))
_reduce("reduce_max", "pf_max({a}, {b})", "lowest", lambda x, axes: np.max(x, axis=axes), _extreme_grad)


@composite(
    reference=lambda x, axis=None, keepdims=False: x.sum(axis=axis, keepdims=keepdims),
    torch="sum",
    samples=lambda: [Sample((np.arange(24.0).reshape(2, 3, 4), 1)), Sample((np.arange(6.0),)), Sample((np.ones((3, 1, 5)), (0, 2), True))],
)
def sum(x: Node, axis: Any = None, keepdims: bool = False, dtype: object = None) -> Node:
    """Sum over axes; integers and bools are summed as int64.

    >>> pf.ones(2, 3).sum(axis=1)
    tensor([3., 3.])
    """
    axes = normalize_axes("sum", axis, x.ndim)
    result: DType = as_dtype(dtype) if dtype is not None else (x.dtype if x.dtype.is_float else x.dtype.accumulate)
    out = F.reduce_sum(cast(x, result), axes)
    return F.reshape(out, _with_ones(x.shape, axes)) if keepdims else out


@composite(torch="amax", reference=lambda x, axis=None, keepdims=False: x.max(axis=axis, keepdims=keepdims))
def max(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The largest element over axes; NaN where there is one."""
    axes = normalize_axes("max", axis, x.ndim)
    out = F.reduce_max(x, axes)
    return F.reshape(out, _with_ones(x.shape, axes)) if keepdims else out
