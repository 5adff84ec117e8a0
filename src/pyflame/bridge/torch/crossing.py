"""Tensors across the border, without a copy where both sides can use the same memory.

On the CPU a torch tensor becomes a Value over its own memory, of any strides, and a result becomes a torch tensor over
the memory that the plan wrote. That is what DLPack does, without its capsules: it costs a third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from pyflame.core.device import CPU, DeviceId, parse_device
from pyflame.core.dtype import DType, as_dtype
from pyflame.core.errors import DeviceError, DTypeError
from pyflame.engine.value import Foreign, Value, to_numpy
from pyflame.ir import copy_to
from pyflame.tensor.creation import leaf
from pyflame.tensor.creation import tensor as make_tensor
from pyflame.tensor.tensor import Tensor

_DTYPES: dict[torch.dtype, DType] = {
    kind: as_dtype(str(kind).removeprefix("torch."))
    for kind in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
        torch.float8_e5m2,
    )
}  # fmt: skip
_BACK = {ours: theirs for theirs, ours in _DTYPES.items()}
# What NumPy does not know travels as integers of the same size.
_DISGUISED = {kind: np.uint8 if kind.itemsize == 1 else np.int16 for kind in _BACK if kind.numpy.isbuiltin != 1}


def dtype_of(kind: torch.dtype) -> DType:
    """Our dtype for one of torch's, or an error that names it."""
    if kind not in _DTYPES:
        raise DTypeError(f"[bridge] expected a dtype that PyFlame has but got {kind}")
    return _DTYPES[kind]


def torch_dtype_of(kind: DType) -> torch.dtype:
    """torch's dtype for one of ours."""
    return _BACK[kind]


def device_of(device: torch.device) -> DeviceId:
    """Our name of a torch device. On AMD's GPUs torch says cuda, too."""
    if device.type == "cpu":
        return CPU
    if device.type == "cuda":
        return parse_device(f"{'rocm' if torch.version.hip else 'cuda'}:{device.index or 0}")
    raise DeviceError(f"[bridge] expected tensors on cpu or cuda (ROCm too) but got {device}; move them first")


def only_device(devices: Iterable[torch.device]) -> torch.device:
    """The one device of a graph; several are refused."""
    found = sorted({str(d) for d in devices if d.type != "meta"})
    if len(found) > 1:
        raise DeviceError(
            f"[torch.compile] expected a graph on one device but got tensors on {' and '.join(found)}; move them to "
            "one, or compile the parts of the model on their own"
        )
    return torch.device(found[0] if found else "cpu")


def _shared_value(tensor: torch.Tensor, dtype: DType) -> Value:
    """torch's memory as a Value, which keeps the tensor alive."""
    if tensor.data_ptr() % dtype.itemsize:
        tensor = tensor.clone()
    strides = None if tensor.is_contiguous() else tensor.stride()
    return Value(Foreign(tensor.data_ptr(), tensor.numel() * dtype.itemsize, tensor), 0, strides)


def to_pyflame(tensor: torch.Tensor, device: DeviceId = CPU) -> Tensor:
    """A torch tensor as ours, on this device: over the same memory if it is there."""
    dtype = dtype_of(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise DTypeError(f"[bridge] expected a dense tensor but got layout {tensor.layout}; use .to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type != "cpu":
        raise DeviceError(f"[bridge] expected a torch tensor on the CPU but got one on {tensor.device}; use .cpu()")
    node = leaf(_shared_value(tensor, dtype), tuple(tensor.shape), dtype, CPU, device == CPU)
    return Tensor(node if device == CPU else copy_to(node, device, commit=True))


def copied(tensor: torch.Tensor) -> Tensor:
    """A torch tensor's values now, in memory of ours: what shares memory is read only when it is evaluated."""
    return make_tensor(tensor.detach())


def to_torch(tensor: Tensor) -> torch.Tensor:
    """A result of a plan as a torch tensor that may be written to, over the same memory if nobody else reads that."""
    if tensor.device != "cpu":
        tensor = tensor.cpu()
    node = tensor._evaluated("to_torch()")
    value, dtype = node.data, node.dtype
    array = to_numpy(value, node.shape, dtype, read_only=False)
    if value.strides is not None or getattr(value.storage, "read_only", False):  # a constant's, or an argument's memory
        array = array.copy()
    if dtype in _DISGUISED:
        return torch.from_numpy(array.view(_DISGUISED[dtype])).view(_BACK[dtype])
    return torch.from_numpy(array)


def example(shape: Iterable[Any], kind: torch.dtype, make: Any) -> Tensor:
    """A tensor to try ops on, with sizes that a dynamic shape stands for now."""
    return make(tuple(hint(n) for n in shape), dtype=dtype_of(kind))  # type: ignore[no-any-return]


def hint(value: Any) -> Any:
    """The number that a symbolic one stands for while it is compiled."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value
