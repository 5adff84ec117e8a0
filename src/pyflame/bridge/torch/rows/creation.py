"""Tensors made of nothing. Where they lie is the graph's device; the order of their memory is row-major."""

from __future__ import annotations

from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import row


@row("empty_strided", "empty_permuted")
def empty_in_order(size: Any, order: Any, dtype: Any = None) -> Any:
    return pf.empty(tuple(size), dtype=dtype)


@row("empty.memory_format")
def empty(size: Any, dtype: Any = None) -> Any:
    return pf.empty(tuple(size), dtype=dtype)


@row("new_empty", "new_empty_strided")
def new_empty(x: Any, size: Any, stride: Any = None, dtype: Any = None) -> Any:
    return pf.empty(tuple(size), dtype=dtype or x.dtype)


@row("new_zeros")
def new_zeros(x: Any, size: Any, dtype: Any = None) -> Any:
    return pf.zeros(tuple(size), dtype=dtype or x.dtype)


@row("_efficientzerotensor")
def zeros(size: Any, dtype: Any = None) -> Any:
    return pf.zeros(tuple(size), dtype=dtype)


@row("new_ones")
def new_ones(x: Any, size: Any, dtype: Any = None) -> Any:
    return pf.ones(tuple(size), dtype=dtype or x.dtype)


@row("new_full")
def new_full(x: Any, size: Any, value: Any, dtype: Any = None) -> Any:
    return pf.full(tuple(size), value, dtype=dtype or x.dtype)


@row("scalar_tensor")
def scalar_tensor(value: Any, dtype: Any = None) -> Any:
    return pf.full((), value, dtype=dtype)


@row("iota")
def iota(length: int, *, start: int, step: int, dtype: Any, requires_grad: bool = False) -> Any:
    return pf.arange(start, start + length * step, step, dtype=dtype)
