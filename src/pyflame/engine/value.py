"""Value: the evaluated data of a Node, a view of a device's memory."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.dtype import DType, int16, uint8
from pyflame.core.errors import DeviceError
from pyflame.core.maker import Maker
from pyflame.core.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyflame.ir import Meta, Node, OpDef
    from pyflame.runtime.base import Storage


class Value:
    """Memory, where it starts (bytes) and its strides (elements; None: contiguous)."""

    __slots__ = ("offset", "storage", "strides")

    def __init__(self, storage: Storage | None, offset: int = 0, strides: tuple[int, ...] | None = None) -> None:
        self.storage = storage
        self.offset = offset
        self.strides = strides

    @property
    def address(self) -> int:
        if self.storage is None:
            raise DeviceError(
                "[numpy] expected a tensor with data but got one of the null device, which computes nothing"
            )
        return self.storage.address + self.offset

    @property
    def host_address(self) -> int:
        """The address for the host to follow. Arrays are made here only, so none lies over a GPU's memory."""
        storage = self.storage
        if storage is not None and storage.on_host:
            return storage.address + self.offset
        raise DeviceError(
            f"[numpy] expected memory of the host but got a GPU's at {self.address:#x}; copy the tensor with .cpu()"
        )


class Part(Value):
    """A part of what `source`, an evaluated Node, holds; None: it was that.

    `made`: (op, attributes, meta, signature) of the one or two ops that would give it; `serial`: one for the first.
    """

    __slots__ = ("made", "serial", "source")
    made: Sequence[tuple[OpDef, tuple[Any, ...], Meta, int]]
    serial: int
    source: Node | None

    def __init__(
        self, storage: Storage, offset: int, strides: tuple[int, ...] | None, source: Node, made: Any, serial: int
    ) -> None:
        super().__init__(storage, offset, strides)
        self.source = source
        self.made = made
        self.serial = serial


PARTS = Maker(Part, ("storage", "offset", "strides", "source", "made", "serial"))


class _Exported:
    """Lets NumPy see a Value's memory, and keeps that memory alive for as long as NumPy needs it."""

    def __init__(self, value: Value, address: int, shape: Shape, dtype: DType, read_only: bool = True) -> None:
        self.storage, strides = value.storage, value.strides
        self.__array_interface__ = {
            "version": 3,
            "data": (address, read_only),
            "shape": shape,
            "strides": strides if strides is None else tuple([s * dtype.itemsize for s in strides]),
            "typestr": _type_string(dtype),
        }


@cache
def _type_string(dtype: DType) -> str:
    """What NumPy shall take numbers for: bytes, where it does not know the dtype by itself."""
    return dtype.numpy.str if dtype.numpy.isbuiltin == 1 else f"|V{dtype.itemsize}"


def to_numpy(value: Value, shape: Shape, dtype: DType, read_only: bool = True) -> np.ndarray[Any, Any]:
    """A NumPy view of host memory."""
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    array = np.asarray(_Exported(value, value.host_address, shape, dtype, read_only))
    return array if array.dtype is dtype.numpy else array.view(dtype.numpy)


def lifetime_array(value: Value, shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
    """An array that stands for memory of a GPU in a DLPack capsule: it has shape, strides and what keeps the memory.
    Nobody may read it."""
    kind = dtype if dtype.numpy.isbuiltin == 1 else {1: uint8, 2: int16}[dtype.itemsize]
    return np.asarray(_Exported(value, value.address, shape, kind, read_only=False))


class Foreign:
    """Foreign memory as Storage: the owner is kept alive, and nothing is written to it."""

    __slots__ = ("address", "nbytes", "owner")
    on_host = read_only = True

    def __init__(self, address: int, nbytes: int, owner: Any = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner


def share_numpy(array: np.ndarray[Any, Any]) -> Value:
    """A Value over NumPy's own memory. Strides must be whole elements."""
    itemsize = array.dtype.itemsize
    if any(s % itemsize for s in array.strides) or not array.flags.aligned:
        array = array.copy()
    strides = None if array.flags.c_contiguous else tuple(s // itemsize for s in array.strides)
    return Value(Foreign(array.ctypes.data, array.nbytes, array), 0, strides)
