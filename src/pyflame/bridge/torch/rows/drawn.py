"""Random ops, drawn by our Philox. The generator is the program's: each run seeds it from torch's generator."""

from __future__ import annotations

from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import row


@row("native_dropout", random=True)
def native_dropout(x: Any, p: float, train: bool | None, generator: Any = None) -> tuple[Any, Any]:
    if train is False or p == 0.0:
        return x, pf.ones(x.shape, dtype=pf.bool_)
    if p == 1.0:
        return pf.zeros_like(x), pf.zeros(x.shape, dtype=pf.bool_)
    mask = pf.rand(x.shape, generator=generator) < 1.0 - p
    return x * mask.to(x.dtype) * (1.0 / (1.0 - p)), mask


@row("bernoulli", "bernoulli.p", random=True)
def bernoulli(x: Any, p: float | None = None, generator: Any = None) -> Any:
    drawn = pf.rand(x.shape, generator=generator)
    return (drawn < (x.to(pf.float32) if p is None else p)).to(x.dtype)


@row("rand", random=True)
def rand(size: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.rand(tuple(size), dtype=dtype, generator=generator)


@row("randn", random=True)
def randn(size: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.randn(tuple(size), dtype=dtype, generator=generator)


@row("rand_like", random=True)
def rand_like(x: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.rand(x.shape, dtype=dtype or x.dtype, generator=generator)


@row("randn_like", random=True)
def randn_like(x: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.randn(x.shape, dtype=dtype or x.dtype, generator=generator)


@row("randint", random=True)
def randint(high: int, size: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.randint(0, high, tuple(size), dtype=dtype or pf.int64, generator=generator)


@row("randint.low", random=True)
def randint_low(low: int, high: int, size: Any, dtype: Any = None, generator: Any = None) -> Any:
    return pf.randint(low, high, tuple(size), dtype=dtype or pf.int64, generator=generator)


@row("uniform", random=True)
def uniform(x: Any, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Any:
    return pf.rand(x.shape, dtype=x.dtype, generator=generator) * (high - low) + low


@row("normal_functional", random=True)
def normal(x: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    return pf.randn(x.shape, dtype=x.dtype, generator=generator) * std + mean
