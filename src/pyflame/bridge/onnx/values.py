"""Values between ONNX, the host and the engine.

Integers that the engine has no dtype for are held in wider ones, small floats in larger ones: each value is exact.
What is computed then is right as long as no result passes the range of the narrower type, except that additions,
subtractions and products wrap when they leave the model.
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
    "uint16": np.int32,
    "uint32": np.int64,
    "uint64": np.int64,
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
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError):
        raise DTypeError(f"[onnx] expected the number of a dtype but got {code}") from None


def our_dtype(dtype: Any) -> DType | None:
    """The engine's dtype for one of NumPy's; None where it has none that is the same."""
    return _OURS.get(np.dtype(dtype))


def widened(array: Array) -> Array:
    """The array in a dtype that the engine has."""
    if array.dtype in _OURS:
        return array
    held = _HELD_AS.get(array.dtype.name)
    if held is None:
        raise DTypeError(f"[onnx] expected numbers but got {array.dtype.name}; strings are not supported")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise DTypeError("[onnx] expected uint64 values below 2**63 but got a larger one")
    return array.astype(held)


def is_float_dtype(dtype: Any) -> bool:
    """Whether NumPy's dtype, ml_dtypes' small ones included, is a float."""
    return _OURS[widened(np.zeros(0, dtype)).dtype].is_float


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
