"""PyTorch's `out=`: results go into tensors that are there."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import outranks
from pyflame.core.errors import ArgumentTypeError, DTypeError, GradientError, type_name
from pyflame.core.state import state
from pyflame.tensor.tensor import Tensor, read


def into(op: str, out: Any, result: Any) -> Any:
    """PyTorch's `out=`: tensors that take the result; one without elements takes any shape."""
    if out is None:
        return result
    if isinstance(result, tuple) and isinstance(out, (tuple, list)) and len(out) == len(result):
        values = [into(op, o, r) for o, r in zip(out, result, strict=True)]
        return type(result)(*values) if hasattr(result, "_fields") else tuple(values)
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        raise ArgumentTypeError(f"[{op}] expected a tensor for each result as out but got {type_name(out)}")
    if state.grad_enabled and (out.requires_grad or result.requires_grad):
        raise GradientError(f"[{op}] expected no tensors that require grad with out=; use the result instead")
    if outranks(result.dtype, out.dtype):
        raise DTypeError(f"[{op}] expected an out that can hold {result.dtype.name} but got {out.dtype.name}")
    value = result if result.dtype is out.dtype else result.to(out.dtype)
    if out.numel() or out.shape == value.shape:
        return out._rebind(value)
    out._put(read(value), None)
    return out
