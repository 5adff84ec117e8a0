"""Values between processes: the arrays inside them travel through shared memory, only the rest is pickled.

The memory is an anonymous file: a descriptor that is handed over, with no name in /dev/shm. The kernel frees it with
its last holder, so a process that is killed leaves nothing behind, and the small /dev/shm of containers is no limit.

Pickle's protocol 5 finds the arrays in any structure ("out-of-band buffers"); tensors are reduced to arrays here.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.tensor import Tensor
from pyflame.tensor.creation import from_numpy

ALIGNMENT = 64
Bytes = Any  # an array of uint8


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def anonymous_file(size: int) -> int:
    """Descriptor of a file in memory that has no name."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pyflame-data", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def map_file(fd: int, size: int, private: bool = False) -> mmap.mmap:
    """The file's memory. Private: what this process writes stays here."""
    return mmap.mmap(fd, size, mmap.MAP_PRIVATE if private else mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


def _tensor(array: np.ndarray[Any, Any], dtype: str, device: str | None) -> Tensor:
    out = from_numpy(array.view(as_dtype(dtype).numpy))
    return out if device is None else out.to(device)


class _Pickler(ForkingPickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or value.requires_grad:  # its own way to be pickled, or to refuse
            return NotImplemented
        meta = value._node.meta
        array = value.numpy()
        if array.dtype.isbuiltin != 1:  # NumPy sends bfloat16 and fp8 inside the pickle; integers travel beside it
            array = array.view(f"u{array.dtype.itemsize}")
        return _tensor, (np.ascontiguousarray(array), meta.dtype.name, str(meta.device) if meta.committed else None)


def dumps(value: Any) -> tuple[bytes, list[Bytes]]:
    """A pickle, and the memory of the arrays that are not in it."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL, True, buffers.append).dump(value)
    return file.getvalue(), [np.frombuffer(b.raw(), np.uint8) for b in buffers]


def parts_of(block: Bytes, sizes: list[int]) -> list[Bytes]:
    """A block that holds buffers of these sizes, each at the next aligned place, cut up."""
    parts, at = [], 0
    for size in sizes:
        parts.append(block[at : at + size])
        at += aligned(size)
    return parts
