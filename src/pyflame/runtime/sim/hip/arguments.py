"""How Python values become the C arguments of HIP, by the rules of AMD's bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pyflame.runtime.sim.hip.types import (
    HIP_LAUNCH_PARAM_BUFFER_POINTER,
    HIP_LAUNCH_PARAM_BUFFER_SIZE,
    HIP_LAUNCH_PARAM_END,
)


class Handle(int):
    """An address or a handle, as the bindings give it: an object that `int()` and their functions take.

    >>> Handle(16).as_c_void_p
    c_void_p(16)
    """

    @property
    def as_c_void_p(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(int(self))

    @property
    def is_ptr_null(self) -> bool:
        return not self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self):#x})"


class DeviceArray(Handle):
    """The address of device memory, with its size. Describes itself by the CUDA array interface."""

    size: int

    def __new__(cls, address: int, size: int) -> DeviceArray:
        made = super().__new__(cls, address)
        made.size = size
        return made

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "|u1", "data": (int(self), False), "version": 3, "strides": None}


def address_of(value: Any) -> int:
    """The address that an argument stands for: a number, a pointer, a buffer, or an array of a device."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    if isinstance(value, ctypes._SimpleCData | ctypes.Array | ctypes.Structure):
        return ctypes.addressof(value)
    if hasattr(value, "__int__") and not isinstance(value, np.ndarray):
        return int(value)
    try:
        return np.frombuffer(value, np.uint8).ctypes.data
    except (TypeError, ValueError):
        raise TypeError(
            f"[hip] expected an address, a ctypes object, a contiguous buffer or an array of a device but got {value!r}"
        ) from None


def text_of(value: Any) -> str:
    """The text that an argument stands for."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).split(b"\0")[0].decode()
    return ctypes.string_at(address_of(value)).decode()


def unsigned(value: Any, name: str, bits: int = 64) -> int:
    """A whole number that fits into an unsigned C type."""
    number = int(value)
    if not 0 <= number < 1 << bits:
        raise OverflowError(f"[hip] expected {name} to fit into {bits} bits without a sign but got {number}")
    return number


class Param(Protocol):
    """One explicit argument of a kernel: where it lies among them."""

    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


def explicit_bytes(params: Sequence[Param]) -> int:
    """The size of a kernel's explicit arguments, laid out."""
    return max((p.offset + p.nbytes for p in params), default=0)


def gather(params: Sequence[Param], pointers: Any) -> bytes:
    """The arguments of a launch that names where each lies. Read now: the caller may change them afterwards."""
    if isinstance(pointers, list | tuple):
        places = [address_of(p) for p in pointers]
        if len(places) != len(params):
            raise TypeError(f"[hip] expected {len(params)} kernel arguments but got {len(places)}")
    else:
        places = [p or 0 for p in (ctypes.c_void_p * len(params)).from_address(address_of(pointers))]
    out = bytearray(explicit_bytes(params))
    for param, place in zip(params, places, strict=True):
        out[param.offset : param.offset + param.nbytes] = ctypes.string_at(place, param.nbytes)
    return bytes(out)


def packed(params: Sequence[Param], extra: Any) -> bytes:
    """The arguments of a launch that gives them as one block: a sequence of values, or HIP's marked list."""
    if isinstance(extra, list | tuple):
        block = _aligned(extra)
    else:
        block = _marked(address_of(extra))
    size = explicit_bytes(params)
    if len(block) < size:
        raise TypeError(f"[hip] expected {size} bytes of kernel arguments but got {len(block)}")
    return block[:size]


def _aligned(values: Sequence[Any]) -> bytes:
    """Values behind each other, each at a multiple of its alignment, as the bindings lay them out."""
    out = bytearray()
    for value in values:
        if isinstance(value, ctypes._SimpleCData | ctypes.Structure | ctypes.Array):
            raw, alignment = bytes(value), ctypes.alignment(value)
        else:
            raw, alignment = address_of(value).to_bytes(8, "little"), 8
        out += bytes(-len(out) % alignment) + raw
    return bytes(out)


def _marked(place: int) -> bytes:
    """The block that {BUFFER_POINTER, block, BUFFER_SIZE, &size, END} describes."""
    found: dict[int, int] = {}
    words = ctypes.cast(place, ctypes.POINTER(ctypes.c_uint64))
    for at in range(0, 4, 2):
        if words[at] == HIP_LAUNCH_PARAM_END:
            break
        found[words[at]] = words[at + 1]
    if set(found) != {HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE}:
        raise TypeError("[hip] expected HIP_LAUNCH_PARAM_BUFFER_POINTER and HIP_LAUNCH_PARAM_BUFFER_SIZE in extra")
    size = ctypes.c_size_t.from_address(found[HIP_LAUNCH_PARAM_BUFFER_SIZE]).value
    return ctypes.string_at(found[HIP_LAUNCH_PARAM_BUFFER_POINTER], size)
