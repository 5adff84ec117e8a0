"""Tensors to and from NumPy, DLPack (torch, JAX, CuPy, ...), pickle and copy.

NumPy's own DLPack code does the work in C: its capsules may be released at any time, even while the interpreter ends,
which callbacks into Python may not. What NumPy does not know (bfloat16, fp8) travels as integers of the same size, with
the type code in the capsule rewritten.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pyflame.core.dtype import FLOAT8, DType, as_dtype, bfloat16
from pyflame.core.errors import DeviceError, DTypeError, GradientError, type_name
from pyflame.core.optional import optional
from pyflame.engine.value import share_numpy, to_numpy
from pyflame.tensor.creation import on_device, tensor
from pyflame.tensor.devices import synchronize
from pyflame.tensor.modes import eval as compute
from pyflame.tensor.tensor import Tensor, read

_CPU = 1
_HOST_DEVICES = (_CPU, 3, 11)  # also pinned memory of CUDA and ROCm
_READ_ONLY = 1
# DLDataTypeCode of the types that NumPy does not know.
_CODES = {bfloat16: 4, **dict(zip(FLOAT8, (10, 11, 12), strict=True))}
_NAMES = (b"dltensor", b"dltensor_versioned")


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _open(capsule: Any) -> tuple[_DLTensor, _Versioned | None]:
    """What a capsule describes; the second is None before DLPack 1.0."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            address = _pointer(capsule, name)
            if name == _NAMES[0]:
                return _DLTensor.from_address(address), None
            versioned = _Versioned.from_address(address)
            return versioned.tensor, versioned
    raise DTypeError(f"[from_dlpack] expected an unused DLPack capsule but got {capsule!r}")


# --- out --------------------------------------------------------------------------------------------------------------


def dlpack(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A DLPack capsule over the tensor's memory, without a copy. Whoever takes it must not write to it.

    The memory is pinned for as long as the capsule's taker needs it: in-place ops on the tensor no longer change it.
    """
    if stream not in (None, -1):
        raise DeviceError(f"[dlpack] expected stream=None for a tensor on {self.device} but got {stream!r}")
    if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
        raise BufferError(
            f"[dlpack] expected the tensor's device {self.__dlpack_device__()} but got {tuple(dl_device)}; move it "
            "with .to(...)"
        )
    node = self._evaluated("__dlpack__()")
    # Writable only because NumPy exports nothing else; the flag below tells the taker.
    array = to_numpy(node.data, node.shape, node.dtype, read_only=False)
    if copy:
        array = array.copy()
    if node.dtype in _CODES:
        array = array.view(np.uint16 if node.dtype.itemsize == 2 else np.uint8)
    try:
        capsule = array.__dlpack__(max_version=max_version) if max_version is not None else array.__dlpack__()
    except TypeError:  # NumPy before 2.1
        capsule = array.__dlpack__()
    described, versioned = _open(capsule)
    if node.dtype in _CODES:
        described.code = _CODES[node.dtype]
    if versioned is not None and not copy:
        versioned.flags |= _READ_ONLY
    return capsule


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """(device type, number) in DLPack's terms."""
    kind = self.device.partition(":")[0]
    if kind != "cpu":
        raise DeviceError(
            f"[dlpack] expected a tensor on the CPU but this one is on {self.device}; copy it with .cpu()"
        )
    return _CPU, 0


# --- in ---------------------------------------------------------------------------------------------------------------


class _Readable:
    """Hands a foreign object to NumPy, with types that NumPy does not know disguised as integers."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.dtype: DType | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = tuple(int(d) for d in self.source.__dlpack_device__())  # type: ignore[assignment]
        if device[0] not in _HOST_DEVICES:
            raise DeviceError(
                f"[from_dlpack] expected memory of the host but got device type {device[0]}; copy it to the CPU first"
            )
        return _CPU, 0

    def __dlpack__(self, **options: Any) -> Any:
        options.pop("stream", None)  # memory of the host: nothing to wait for
        try:
            capsule = self.source.__dlpack__(**options)
        except TypeError:  # a producer from before DLPack 1.0
            capsule = self.source.__dlpack__()
        described, _ = _open(capsule)
        described.device[0], described.device[1] = _CPU, 0
        for dtype, code in _CODES.items():
            if described.code == code and described.bits == 8 * dtype.itemsize:
                self.dtype = dtype
                described.code = 1  # unsigned integer
        return capsule


def array_from_dlpack(source: Any) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of any object with __dlpack__."""
    if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
        raise DTypeError(
            f"[from_dlpack] expected an object with __dlpack__ but got {type(source).__name__}; use pf.tensor"
        )
    reader = _Readable(source)
    try:
        array = np.from_dlpack(reader)
    except (BufferError, RuntimeError) as error:
        if isinstance(error, DeviceError):
            raise
        raise DTypeError(
            f"[from_dlpack] expected memory that can be shared but {type(source).__name__} says: {error}"
        ) from None
    if reader.dtype is not None:
        array = array.view(reader.dtype.numpy)
    elif array.dtype == np.uint8 and _is_bool(source):
        array = array.view(np.bool_)
    return array


def _is_bool(source: Any) -> bool:
    return str(getattr(source, "dtype", "")).endswith("bool")


def from_dlpack(source: Any) -> Tensor:
    """A tensor over another library's memory, without a copy. It is never written to: an in-place op copies.

    >>> pf.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(source, Tensor):
        return source.detach()
    array = array_from_dlpack(source)
    return on_device(share_numpy(array), array.shape, as_dtype(array.dtype), None, False)


def from_torch(source: Any) -> Tensor:
    """A torch tensor of the CPU as ours, over the same memory, which is never written to. It is a leaf: torch's tape
    stays in torch.

    >>> pf.from_torch(torch.arange(3))  # doctest: +SKIP
    tensor([0, 1, 2])
    """
    if type_name(source) != "torch.Tensor" and type(source).__module__ != "torch.nn.parameter":
        raise DTypeError(f"[from_torch] expected a torch tensor but got {type_name(source)}; use pf.tensor")
    plain = source.detach()
    return from_dlpack(plain.resolve_conj().resolve_neg() if plain.dtype.is_complex or plain.is_neg() else plain)


def to_torch(self: Tensor) -> Any:
    """A torch tensor with this tensor's values, over the same memory, on the CPU: read it, or `.clone()` it to write.

    >>> pf.arange(3).to_torch()  # doctest: +SKIP
    tensor([0, 1, 2])
    """
    torch = optional("torch", "torch", "to_torch")
    return torch.from_dlpack(self.detach().cpu())


def cuda_array_interface(self: Tensor) -> dict[str, Any]:
    """A GPU's memory for Numba, CuPy and others, without a copy. What computes it is done: no stream to wait for."""
    if self.device.partition(":")[0] not in ("cuda", "rocm"):
        raise AttributeError(f"[__cuda_array_interface__] expected a tensor on a GPU but this one is on {self.device}")
    compute(self)
    node = self._node
    if node.dtype.numpy.isbuiltin != 1:
        raise AttributeError(
            f"[__cuda_array_interface__] expected a dtype that NumPy has but got {node.dtype.name}; cast it first"
        )
    synchronize(node.meta.device)
    strides = node.data.strides
    return {
        "version": 3,
        "shape": tuple(node.shape),
        "typestr": node.dtype.numpy.str,
        "data": (node.data.address, True),
        "strides": strides and tuple(s * node.dtype.itemsize for s in strides),
        "stream": None,
    }


# --- copies -----------------------------------------------------------------------------------------------------------


def _restored(array: np.ndarray[Any, Any], dtype: DType, device: str | None, requires_grad: bool) -> Tensor:
    return tensor(array, dtype=dtype, device=device, requires_grad=requires_grad)


def reduce(self: Tensor) -> tuple[Any, ...]:
    """Pickle: the values, and the device it is committed to."""
    _check_leaf(self, "pickle")
    meta = self._node.meta
    array = self._snapshot().numpy()
    return _restored, (np.array(array), self.dtype, str(meta.device) if meta.committed else None, self.requires_grad)


def copy(self: Tensor) -> Tensor:
    """Another cell with the same value: part of the same tape, or a leaf of its own."""
    out = self.detach().requires_grad_(self.requires_grad) if self.is_leaf else Tensor(read(self), self._tape)
    out.grad = self.grad
    return out


def deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """An independent tensor. It may share memory until one of both is changed in place."""
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    _check_leaf(self, "deepcopy")
    out = self._snapshot().requires_grad_(self.requires_grad)
    memo[id(self)] = out
    if self.grad is not None:
        out.grad = deepcopy(self.grad, memo)
    return out


def _check_leaf(self: Tensor, op: str) -> None:
    if not self.is_leaf:
        raise GradientError(
            f"[{op}] expected a leaf tensor but this one was computed and holds a tape; use .detach() first"
        )


METHODS = {
    "__copy__": copy,
    "__cuda_array_interface__": property(cuda_array_interface, doc=cuda_array_interface.__doc__),
    "__deepcopy__": deepcopy,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__reduce__": reduce,
    "to_torch": to_torch,
}
