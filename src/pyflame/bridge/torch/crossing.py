"""Tensors across the border, without a copy where both sides can use the same memory.

A torch tensor becomes a Value over its own memory, of any strides, and a result becomes a torch tensor over the memory
that the plan wrote. Most calls need neither: `bound.py` runs plans on addresses. On a GPU our work goes to torch's
current stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pyflame.core.device import CPU, DeviceId, parse_device
from pyflame.core.dtype import DType, as_dtype
from pyflame.core.errors import DeviceError, DTypeError, NotSupportedError
from pyflame.engine.memory import gpu_of
from pyflame.engine.value import Foreign, Value, to_numpy
from pyflame.ir import copy_to
from pyflame.tensor.creation import leaf
from pyflame.tensor.creation import tensor as make_tensor
from pyflame.tensor.modes import eval as compute
from pyflame.tensor.tensor import Tensor

if TYPE_CHECKING:
    from pyflame.engine.devices import GpuDevice

_DTYPES: dict[torch.dtype, DType] = {
    kind: as_dtype(str(kind).removeprefix("torch."))
    for kind in (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
        torch.uint64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
        torch.float8_e5m2,
    )
}  # fmt: skip
_BACK = {ours: theirs for theirs, ours in _DTYPES.items()}
# What NumPy does not know travels as integers of the same size.
DISGUISED = {kind: np.uint8 if kind.itemsize == 1 else np.int16 for kind in _BACK if kind.numpy.isbuiltin != 1}


_HOST = torch.device("cpu")


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


def gpu_at(device: torch.device) -> GpuDevice | None:
    """Our device for a torch device that is a GPU."""
    return None if device.type == "cpu" else gpu_of("torch.compile", device_of(device))


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
    address, nbytes = tensor.data_ptr(), tensor.numel() * dtype.itemsize
    gpu = gpu_at(tensor.device)
    memory = Foreign(address, nbytes, tensor) if gpu is None else gpu.foreign(address, nbytes, tensor)
    return Value(memory, 0, strides)


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its values in memory: not their conjugates or negatives."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def to_pyflame(tensor: torch.Tensor, device: DeviceId = CPU) -> Tensor:
    """A torch tensor as ours, on this device: over the same memory if it is there. On a GPU work must be given to
    torch's current stream (`TorchStream`), or nothing orders it."""
    dtype = dtype_of(tensor.dtype)
    if tensor.layout is not torch.strided:
        raise DTypeError(f"[bridge] expected a dense tensor but got layout {tensor.layout}; use .to_dense()")
    tensor, here = resolved(tensor), device_of(tensor.device)
    node = leaf(_shared_value(tensor, dtype), tuple(tensor.shape), dtype, here, here == device)
    return Tensor(node if here == device else copy_to(node, device, commit=True))


def copied(tensor: torch.Tensor) -> Tensor:
    """A torch tensor's values now, in memory of ours: what shares memory is read only when it is evaluated."""
    return make_tensor(tensor.detach().cpu(), device=None if tensor.device.type == "cpu" else device_of(tensor.device))


def to_torch(tensor: Tensor, device: torch.device = _HOST) -> torch.Tensor:
    """A result of a plan as a torch tensor that may be written to, on this device: over the same memory if it is there
    and nobody else reads it."""
    if tensor.device != str(device_of(device)):
        tensor = tensor.to(str(device_of(device)))
    compute(tensor)
    node = tensor._node
    value, dtype = node.data, node.dtype
    shared = value.strides is not None or getattr(value.storage, "read_only", False)  # a constant's, or an argument's
    if device.type != "cpu":
        out: torch.Tensor = tensor.to_torch()
        return out.clone(memory_format=torch.contiguous_format) if shared else out
    array = to_numpy(value, node.shape, dtype, read_only=False)
    if shared:
        array = array.copy()
    if dtype in DISGUISED:
        return torch.from_numpy(array.view(DISGUISED[dtype])).view(_BACK[dtype])
    return torch.from_numpy(array)


class TorchStream:
    """Gives our work on a GPU to torch's current stream for the duration of a `with` block.

    Torch's current device is the same behind it: we make ours current in the driver, which torch shares.
    """

    __slots__ = ("_before", "_chosen", "_gpu")

    def __init__(self, gpu: GpuDevice) -> None:
        self._gpu = gpu

    def __enter__(self) -> None:
        if torch._C._cuda_isCurrentStreamCapturing():
            raise NotSupportedError(
                "[torch.compile] expected a call outside of torch.cuda.graph but its stream is being captured; leave "
                "this model out of the capture"
            )
        gpu = self._gpu
        self._before = torch.cuda._exchange_device(gpu.index)
        self._chosen = gpu.follow(torch._C._cuda_getCurrentRawStream(gpu.index))

    def __exit__(self, *exc: object) -> None:
        self._gpu.unfollow(self._chosen)
        torch.cuda._maybe_exchange_device(self._before)


def example(shape: Iterable[Any], kind: torch.dtype, make: Any) -> Tensor:
    """A tensor to try ops on, with sizes that a dynamic shape stands for now."""
    return make(tuple(hint(n) for n in shape), dtype=dtype_of(kind))  # type: ignore[no-any-return]


def hint(value: Any) -> Any:
    """The number that a symbolic one stands for while it is compiled."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value
