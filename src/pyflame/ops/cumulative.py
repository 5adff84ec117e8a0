"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.core.shape import normalize_axis
from pyflame.ir import F, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import KERNEL


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
    zero = F.eq(x, 0.0)
    zeros = F.running_sum(cast(zero, g.dtype), axis, reverse)
    first = F.logical_and(zero, F.eq(zeros, 1.0))
    without = F.running_product(F.where(first, 1.0, x), axis, reverse)
    before = F.running_sum(g * out, axis, not reverse) / x
    return F.where(F.eq(zeros, 0.0), before, F.where(first, F.running_sum(g * without, axis, not reverse), 0.0))


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
    x = cast(x, as_dtype(dtype) if dtype is not None else (x.dtype if x.dtype.is_float else x.dtype.accumulate))
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
