"""Small products, attention, convolutions and norms in 16 bits against float64: nothing is rounded on the way.

The result is rounded once, so it is off by at most one unit in the last place of its largest element; gradients, which
read rounded results, by a few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.nn import functional as F

EPS = {pf.float16: 2.0**-10, pf.bfloat16: 2.0**-7}


def some(*shape: int, scale: float = 2.0, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape) * scale


def heads(queries: int, keys: int, scale: float) -> list[Any]:
    return [some(1, 2, n, 16, scale=scale, seed=i) for i, n in enumerate((queries, keys, keys))]


def causal(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    **{
        f"attention of {n} queries, scale {scale}": (F.scaled_dot_product_attention, heads(n, 33, scale))
        for n in (1, 5, 8)
        for scale in (1.0, 4.0)
    },
    **{f"causal attention of {n}": (causal, heads(n, n, 2.0)) for n in (5, 9)},
    "matmul": (pf.matmul, [some(3, 70), some(70, 5)]),
    "one row": (pf.matmul, [some(1, 300), some(300, 5)]),
    "linear": (F.linear, [some(2, 33), some(4, 33), some(4)]),
    "einsum": (lambda x, y: pf.einsum("ij,kj->ik", x, y), [some(3, 33), some(4, 33)]),
    "conv1d": (F.conv1d, [some(1, 8, 9), some(4, 8, 3)]),
    "conv2d": (F.conv2d, [some(1, 8, 5, 5), some(4, 8, 3, 3), some(4)]),
    "conv_transpose2d": (F.conv_transpose2d, [some(1, 8, 3, 3), some(8, 4, 3, 3)]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (33,), w), [some(3, 33) + 3, some(33)]),
    "group_norm": (lambda x: F.group_norm(x, 2), [some(2, 4, 5) + 3]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [some(6, 4) + 3]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (33,), w), [some(3, 33), some(33)]),
}


def results(fn: Callable[..., Any], arrays: list[Any], dtype: pf.DType) -> list[Any]:
    """The result of a function and its gradients, in a dtype, as float64."""
    leaves = [pf.tensor(a.astype(dtype.numpy)).requires_grad_() for a in arrays]
    out = fn(*leaves)
    assert out.dtype is dtype
    out.backward(pf.tensor(np.round(some(*out.shape, seed=9) * 4) / 4).to(dtype))
    return [t.detach().to(pf.float64).numpy() for t in (out, *(leaf.grad for leaf in leaves))]


@pytest.mark.share(6)
@pytest.mark.parametrize("dtype", EPS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", CASES)
def test_against_float64(name: str, dtype: pf.DType) -> None:
    fn, arrays = CASES[name]
    rounded = [a.astype(dtype.numpy) for a in arrays]
    for number, (got, want) in enumerate(
        zip(results(fn, rounded, dtype), results(fn, rounded, pf.float64), strict=True)
    ):
        units = np.abs(got - want).max() / np.abs(want).max() / EPS[dtype]
        assert units <= (8 if number else 1), f"result {number} is off by {units:.1f} units"
