"""Values between ONNX, the host and the engine.

Values of dtypes that the engine has not got (2- and 4-bit integers, some small floats) stay on the host. Where
they meet tensors they are held in a wider dtype, which is exact for each of them.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pyflame.bridge.onnx.table import Array
from pyflame.core.dtype import ALL, DType
from pyflame.core.errors import DTypeError
from pyflame.core.optional import optional
from pyflame.tensor import Tensor
from pyflame.tensor.creation import full, tensor

_HELD_AS: dict[Any, Any] = {
    "int2": np.int8,
    "uint2": np.uint8,
    "int4": np.int8,
    "uint4": np.uint8,
    "float8_e5m2fnuz": np.float32,
    "float8_e8m0fnu": np.float32,
    "float4_e2m1fn": np.float32,
}
_OURS = {d.numpy: d for d in ALL}


def numpy_dtype(code: int) -> np.dtype[Any]:
    """NumPy's dtype of one of ONNX's, which are numbered."""
    helper = optional("onnx.helper", "onnx", "onnx")
    try:
        found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(code))
        return found
    except (KeyError, ValueError):
        raise DTypeError(f"[onnx] expected the number of a dtype but got {code}") from None


def our_dtype(dtype: Any) -> DType | None:
    """The engine's dtype for one of NumPy's; None where it has none that is the same."""
    return _OURS.get(np.dtype(dtype))


def held_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the engine in which values of a dtype are held."""
    if dtype in _OURS:
        return dtype
    held = _HELD_AS.get(dtype.name)
    if held is None:
        raise DTypeError(f"[onnx] expected numbers but got {dtype.name}; strings are not supported")
    found: np.dtype[Any] = np.dtype(held)
    return found


def widened(array: Array) -> Array:
    """The array in a dtype that the engine has."""
    held = held_as(array.dtype)
    return array.astype(held, copy=False)


def to_tensor(array: Array, device: object = None) -> Tensor:
    """The array as a tensor; a single number costs no memory."""
    array = widened(np.asarray(array))
    ours = _OURS[array.dtype]
    if array.ndim == 0 and not ours.is_complex:
        return full((), array.item(), dtype=ours, device=device)
    return tensor(array, device=device)


def to_host(value: Tensor | Array) -> Array:
    """The value as an array. A tensor that is not there yet is computed now."""
    return value if isinstance(value, np.ndarray) else np.asarray(value.detach().numpy())


def cast_array(array: Array, dtype: Any) -> Array:
    """The array in a declared dtype, with integers that wrap."""
    wanted = np.dtype(dtype)
    if array.dtype == wanted:
        return array
    if array.dtype.kind in "iu" and wanted == np.dtype(ml_dtypes.int4):
        return array.astype(np.int8).astype(wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(wanted)
