"""DLPack: memory that torch, JAX, CuPy and NumPy share with us, on the CPU and on GPUs.

NumPy's own DLPack code makes the capsules, in C: they may be released at any time, even while the interpreter ends,
which callbacks into Python may not. What NumPy does not know (bfloat16, fp8) travels as integers of the same size, with
the type code in the capsule rewritten; so is the device of a GPU's memory, which NumPy never looks at.

On a GPU nobody waits on the host. Out: the taker's stream waits for an event behind the work that computes the tensor,
and memory that the taker has dropped is used again behind what its stream was given by then. In: the producer lets our
stream wait for its work, and gets its memory back when an event behind our last use is done.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.device import CPU, DeviceId, parse_device
from pyflame.core.dtype import ALL, FLOAT8, DType, as_dtype, bfloat16, bool_
from pyflame.core.errors import DeviceError, DTypeError, PyFlameError
from pyflame.core.shape import contiguous_strides
from pyflame.engine.memory import gpu_of
from pyflame.engine.value import Value, lifetime_array, share_numpy, to_numpy
from pyflame.tensor.creation import leaf, on_device
from pyflame.tensor.modes import eval as compute
from pyflame.tensor.tensor import Tensor, read

if TYPE_CHECKING:
    from pyflame.ir import Node

_CPU = 1
_GPUS = {2: "cuda", 10: "rocm", 13: "cuda"}  # DLDeviceType; 13 is memory that CUDA manages
_HOST_DEVICES = (_CPU, 3, 11)  # also pinned memory of CUDA and ROCm
_READ_ONLY = 1
# DLDataTypeCode of the types that NumPy does not know.
_CODES = {bfloat16: 4, **dict(zip(FLOAT8, (10, 11, 12), strict=True))}
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of the others, by NumPy's letter
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
    `stream`: on a GPU the taker's, which waits for what computes the tensor; None: the default one, -1: none.
    """
    device = self.__dlpack_device__()
    if dl_device is not None and tuple(dl_device) != device:
        raise BufferError(
            f"[dlpack] expected the tensor's device {device} but got {tuple(dl_device)}; move it with .to(...)"
        )
    if device[0] == _CPU:
        if stream not in (None, -1):
            raise DeviceError(f"[dlpack] expected stream=None for a tensor on {self.device} but got {stream!r}")
        node = self._evaluated("__dlpack__()")
        # Writable only because NumPy exports nothing else; the flag below tells the taker.
        array = to_numpy(node.data, node.shape, node.dtype, read_only=False)
        array = array.copy() if copy else array
    else:
        dense = self.contiguous() if copy else self
        compute(dense)
        node = dense._node
        value = _copied(node) if copy else node.data
        _let_wait(node, value, stream)
        array = lifetime_array(value, node.shape, node.dtype)
    return _capsule(array, node.dtype, device, max_version, read_only=not copy)


def _capsule(array: Any, dtype: DType, device: tuple[int, int], max_version: Any, read_only: bool) -> Any:
    """A capsule over an array's memory, with what NumPy cannot say filled in."""
    if dtype in _CODES:
        array = array.view(np.uint16 if dtype.itemsize == 2 else np.uint8)
    try:
        capsule = array.__dlpack__(max_version=max_version) if max_version is not None else array.__dlpack__()
    except TypeError:  # NumPy before 2.1
        capsule = array.__dlpack__()
    described, versioned = _open(capsule)
    if dtype in _CODES:
        described.code = _CODES[dtype]
    described.device[0], described.device[1] = device
    if versioned is not None and read_only:
        versioned.flags |= _READ_ONLY
    return capsule


def _copied(node: Node) -> Value:
    """A GPU's dense values in memory of their own."""
    gpu, nbytes = gpu_of("dlpack", _device(node)), node.meta.size * node.dtype.itemsize
    fresh = gpu.allocate(nbytes)
    gpu.copy(fresh.address, node.data.address, nbytes)
    return Value(fresh)


def _let_wait(node: Node, value: Value, stream: Any) -> None:
    """Let the taker's stream wait for all that was given to ours, and note that it reads the memory."""
    gpu = gpu_of("dlpack", _device(node))
    if stream == -1:
        return
    if stream is not None and (isinstance(stream, bool) or not isinstance(stream, int) or stream < 0):
        raise DeviceError(f"[dlpack] expected a stream's handle, None or -1 but got {stream!r}")
    is_default = stream is None or (stream == 1 and gpu.id.kind == "cuda")  # 1 is CUDA's name for the default stream
    gpu.lend(value.storage, 0 if is_default else stream or 0)


def _device(node: Node) -> DeviceId:
    assert node.meta.device is not None  # it is evaluated
    return node.meta.device


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """(device type, number) in DLPack's terms. A constant that no device holds is the host's."""
    device = read(self).meta.device or CPU
    if device == CPU:
        return _CPU, 0
    for code, name in _GPUS.items():
        if name == device.kind:
            return code, device.index or 0
    raise DeviceError(
        f"[dlpack] expected a tensor on the CPU or a GPU but this one is on {self.device}; copy it with .cpu()"
    )


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
                f"[dlpack] expected memory of the host but got device type {device[0]}; use pf.from_dlpack"
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
        if isinstance(error, PyFlameError):
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

    On a GPU our stream waits for what the producer's was given, and the producer has its memory back when our last use
    of it is done.

    >>> pf.from_dlpack(np.arange(3))
    tensor([0, 1, 2])
    """
    if isinstance(source, Tensor):
        return source.detach()
    found = source.__dlpack_device__() if hasattr(source, "__dlpack_device__") else (_CPU, 0)
    if int(found[0]) in _GPUS:
        return _from_gpu(source, parse_device(f"{_GPUS[int(found[0])]}:{int(found[1])}"))
    array = array_from_dlpack(source)
    return on_device(share_numpy(array), array.shape, as_dtype(array.dtype), None, False)


def _from_gpu(source: Any, device: DeviceId) -> Tensor:
    """A GPU's memory. The capsule itself keeps it: whoever made it gives the memory back when nobody holds it."""
    gpu = gpu_of("from_dlpack", device)
    gpu.use()
    stream = gpu.chosen.handle or (1 if device.kind == "cuda" else 0)
    try:
        capsule = source.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # a producer from before DLPack 1.0
        capsule = source.__dlpack__(stream=stream)
    described, _ = _open(capsule)
    dtype = _dtype(described)
    shape = tuple(described.shape[a] for a in range(described.ndim))
    strides = tuple(described.strides[a] for a in range(described.ndim)) if described.strides else None
    if strides == contiguous_strides(shape) or 0 in shape:
        strides = None
    address, nbytes = (described.data or 0) + described.byte_offset, dtype.itemsize * int(np.prod(shape))
    if address % dtype.itemsize:
        raise DTypeError(f"[from_dlpack] expected memory aligned to {dtype.name} but got {address:#x}; copy it first")
    return Tensor(leaf(Value(gpu.foreign(address, nbytes, capsule), 0, strides), shape, dtype, device, True))


def _dtype(described: _DLTensor) -> DType:
    """Our dtype for a capsule's."""
    if described.lanes == 1:
        for dtype in ALL:
            code = _KINDS["b"] if dtype is bool_ else _CODES.get(dtype, _KINDS.get(dtype.numpy.kind))
            if described.code == code and described.bits == 8 * dtype.itemsize:
                return dtype
    raise DTypeError(
        f"[from_dlpack] expected a dtype that PyFlame has but got DLPack's code {described.code} with "
        f"{described.bits} bits and {described.lanes} lanes; cast it first"
    )
