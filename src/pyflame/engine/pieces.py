"""What lies in a GPU's memory, for the host to look at: all of it, or pieces from its begin to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.runtime.base import GpuDevice


def pieces(nbytes: int, size: int, most: int) -> list[tuple[int, int]]:
    """Where pieces of about `size` bytes begin, and how long they are: all of it, or `most` of them evenly spread.

    >>> pieces(100, 64, 4), pieces(1000, 64, 2)
    ([(0, 64), (32, 68)], [(0, 64), (936, 64)])
    """
    count = min(-(-nbytes // size), most)
    starts = [(nbytes - min(nbytes, size)) * n // max(count - 1, 1) // 8 * 8 for n in range(count)]
    ends = [start + size for start in starts[:-1]] + [nbytes] * (count > 0)
    return [(start, end - start) for start, end in zip(starts, ends, strict=True)]


def fetched(device: GpuDevice, address: int, nbytes: int) -> np.ndarray[Any, Any]:
    """The bytes from an address on."""
    out = np.empty(nbytes, np.uint8)
    device.download(out.ctypes.data, address, nbytes)
    return out


def gathered(device: GpuDevice, address: int, parts: Sequence[tuple[int, int]]) -> np.ndarray[Any, Any]:
    """The bytes of parts behind an address, put together on the device: each fetch waits for it."""
    if len(parts) == 1:
        ((start, nbytes),) = parts
        return fetched(device, address + start, nbytes)
    together, end = device.allocate(sum(nbytes for _, nbytes in parts)), 0
    for start, nbytes in parts:
        device.copy(together.address + end, address + start, nbytes)
        end += nbytes
    return fetched(device, together.address, end)
