"""Functions that make tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.device import parse_device
from pyflame.core.dtype import as_dtype, bool_, float32, int64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import check_shape
from pyflame.core.state import state
from pyflame.engine.devices import cpu
from pyflame.engine.value import Value, share_numpy
from pyflame.ir import OPS, F, Meta, Node, const, copy_to, signature
from pyflame.core.device import CPU
from pyflame.tensor.tensor import Tensor


def leaf(value: Value, shape: tuple[int, ...], dtype: Any, device: Any, committed: bool) -> Node:
    """A Node over evaluated data."""
    meta = Meta(shape, dtype, device, committed)
    return Node(OPS["leaf"], (), (), meta, signature("leaf", meta, value.strides), value)


def _array(data: Any) -> np.ndarray[Any, Any]:
    """What a user gave as data, as an array with the dtype PyTorch would choose."""
    if isinstance(data, np.ndarray):
        array = data
    elif isinstance(data, np.generic):
        array = np.asarray(data)
    else:
        try:
            array = np.array(data)
        except ValueError as error:
            raise ShapeError(f"[tensor] expected nested lists of equal lengths but got ragged data: {error}") from None
        except OverflowError:
            raise ArgumentError("[tensor] expected integers that fit in 64 bits but got a larger one") from None
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.size == 0 and array.dtype == np.float64:
            array = array.astype(np.float32)
    if array.dtype == object or array.dtype.kind in "USMm":
        raise DTypeError(f"[tensor] expected numbers but got an array of {array.dtype}; ragged lists and strings have no tensor form")
    return array


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of the data: a number, nested lists, a NumPy array or another tensor.

    >>> pf.tensor([[1, 2], [3, 4]], dtype=pf.float32)
    tensor([[1., 2.],
            [3., 4.]])
    """
    if isinstance(data, Tensor):
        node = F.clone(data._node)
        if dtype is not None:
            node = F.cast(node, as_dtype(dtype))
    else:
        array = _array(data)
        wanted = as_dtype(dtype) if dtype is not None else as_dtype(array.dtype)
        block = cpu().allocate(array.size * wanted.itemsize)
        flat = np.ndarray(array.shape, wanted.numpy, buffer=block._memory, offset=block.address - block._memory.ctypes.data)
        with np.errstate(all="ignore"):
            flat[...] = array
        node = leaf(Value(block), array.shape, wanted, CPU, False)
    target = parse_device(device) if device is not None else state.device
    node = copy_to(node, target, commit=device is not None)
    out = Tensor(node)
    return out.requires_grad_() if requires_grad else out


def full(*shape: Any, fill_value: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor filled with one number: full((2, 3), 7.0).

    >>> pf.full((2,), 7.0)
    tensor([7., 7.])
    """
    if fill_value is None:
        *shape, fill_value = shape  # type: ignore[assignment]
    return _filled("full", tuple(shape), fill_value, dtype, device, requires_grad)


def _filled(op: str, shape: tuple[Any, ...], value: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    dims = check_shape(op, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
    default = bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else float32
    target = parse_device(device) if device is not None else state.device
    node = const(value, as_dtype(dtype) if dtype is not None else default)
    # A constant is at home anywhere; the clone gives it a device.
    node = F.expand(F.clone(node), dims) if device is None else F.expand(copy_to(F.clone(node), target, commit=True), dims)
    out = Tensor(node)
    return out.requires_grad_() if requires_grad else out


def zeros(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros.

    >>> pf.zeros(2, 3).shape
    (2, 3)
    """
    return _filled("zeros", shape, 0.0, dtype, device, requires_grad)


def ones(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones."""
    return _filled("ones", shape, 1.0, dtype, device, requires_grad)
