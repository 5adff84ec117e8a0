"""The memory of a simulated GPU: allocations with exact bounds, at addresses that the host cannot dereference.

Addresses fit into the 48 bits that AMD's buffer descriptors hold, and into 47, as GFX12 extends the sign of the address
of its code. A host that follows one stops at once: they begin at bit 44, where Linux has nothing of a program (x86-64
loads programs from 0x5555_5555_4000 up, aarch64 from 0xaaaa_aaaa_a000, and both map memory from the top down).
Allocations lie at least 64 KiB apart and an address is not handed out again soon, so that neither a run over an end nor
a use after free hits a neighbour. New memory holds a pattern that is a NaN in every float format and far out of range
as an index; `written` keeps a byte for each byte of data that says whether anything was ever stored there.
"""

from __future__ import annotations

import ctypes
import random
from bisect import bisect_left, bisect_right, insort
from collections import deque
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.core.locks import rlock
from pyflame.runtime.sim.faults import SimulationFault

BASE = 1 << 44
WINDOW = 1 << 40  # addresses of one device
WINDOWS = 40  # devices: they end at 0x3800_0000_0000
ALIGNMENT = 256
GUARD = 64 * 1024
_REMEMBERED = 256  # freed allocations that an error can still name

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Span(ctypes.Structure):
    """A live allocation, as the interpreter reads it: `struct pf_span`."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("data", ctypes.POINTER(ctypes.c_uint8)),
        ("written", ctypes.POINTER(ctypes.c_uint8)),
    ]


class Allocation:
    """Bytes of the host that stand for memory at `base`."""

    __slots__ = ("base", "charged", "data", "row", "size", "written")

    def __init__(self, base: int, data: Bytes, written: Bytes, charged: bool = False) -> None:
        self.base = base
        self.size = len(data)
        self.data = data
        self.written = written
        self.charged = charged
        self.row = (base, self.size, data.ctypes.data, written.ctypes.data)  # as a Span holds it

    def __str__(self) -> str:
        return f"the allocation of {self.size} bytes at {self.base:#x}"


class Memory:
    """`nbytes` of simulated memory. `index`: which device's addresses it hands out.

    >>> memory = Memory(1 << 20, seed=0)
    >>> address = memory.allocate(12)
    >>> memory.view(address, 12, write=True)[:] = 7
    >>> int(memory.view(address + 4, 8).sum())
    56
    """

    def __init__(self, nbytes: int, seed: int = 0, index: int = 0) -> None:
        if nbytes < 0 or not 0 <= index < WINDOWS:
            raise ArgumentError(
                f"[sim] expected a size of 0 or more and a device below {WINDOWS} but got {nbytes} and {index}"
            )
        self.nbytes = nbytes
        self.window = index
        self.used = 0
        self._random = random.Random(f"{seed}:{index}")
        self._first = BASE + index * WINDOW
        self._end = self._first + WINDOW
        self._next = self._first + GUARD
        self._live: dict[int, Allocation] = {}
        self._bases: list[int] = []  # of what lives, sorted
        self._freed: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)
        self._peers: list[Memory] = []
        self._version = 0
        self._spans: tuple[Any, int] = ((Span * 0)(), 0)
        self._spans_of: tuple[int, ...] = (-1,)
        self._lock = rlock()

    # --- allocating ---------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, charged: bool = True) -> int:
        """The address of new, poisoned memory. `charged`: to the device; a runtime's own is not."""
        if nbytes <= 0:
            raise ArgumentError(f"[sim] expected to allocate at least one byte but got {nbytes}")
        with self._lock:
            if charged and self.used + nbytes > self.nbytes:
                raise OutOfMemoryError(
                    f"[sim] expected {nbytes} bytes but {self.nbytes - self.used} of {self.nbytes} are free; "
                    "PYFLAME_SIM_MEMORY_MB sets how much a simulated GPU has"
                )
            base = self._place(nbytes)
            self._next = base + nbytes + GUARD
            self._add(Allocation(base, self._poison(nbytes), np.zeros(nbytes, np.uint8), charged))
            self.used += nbytes * charged
            return base

    def _place(self, nbytes: int) -> int:
        """The next address that is free with a gap around it; from the start again when all have been handed out."""
        base = -(-self._next // ALIGNMENT) * ALIGNMENT
        for _ in range(2):
            while base + nbytes + GUARD <= self._end:
                at = bisect_right(self._bases, base + nbytes + GUARD) - 1
                below = self._live[self._bases[at]] if at >= 0 else None
                if below is None or below.base + below.size + GUARD <= base:
                    return base
                base = -(-(below.base + below.size + GUARD) // ALIGNMENT) * ALIGNMENT
            base = self._first + GUARD
        raise OutOfMemoryError(f"[sim] expected room for {nbytes} bytes but its addresses are used up; free some")

    def _poison(self, nbytes: int) -> Bytes:
        # 0x7ff1 ... 0x7fff and 0xfff1 ... 0xffff: a NaN as float16, bfloat16, float32 and float64.
        word = self._random.choice((0x7FF0, 0xFFF0)) | self._random.randint(1, 15)
        return np.full(nbytes // 2 + 1, word, np.uint16).view(np.uint8)[:nbytes]

    def free(self, address: int) -> None:
        """Give an allocation up. Its address means nothing from here on."""
        with self._lock:
            found = self._live.get(address)
            if found is None or not self._first <= address < self._end:
                raise ArgumentError(f"[sim] expected the address of an allocation but got {self.describe(address)}")
            self._remove(found)
            self._freed.append((found.base, found.size))
            self.used -= found.size * found.charged

    def clear(self) -> None:
        """Free everything, as a reset does. Addresses go on from where they were."""
        for base in [b for b in self._live if self._first <= b < self._end]:
            self.free(base)

    def share(self, address: int, data: Bytes) -> None:
        """Let the device reach memory of the host, at the host's own address. What the host wrote is not tracked."""
        with self._lock:
            self._add(Allocation(address, data, np.ones(len(data), np.uint8)))

    def unshare(self, address: int) -> None:
        """Take back what was shared."""
        with self._lock:
            self._remove(self._live[address])

    def _add(self, allocation: Allocation) -> None:
        self._live[allocation.base] = allocation
        insort(self._bases, allocation.base)
        self._version += 1

    def _remove(self, allocation: Allocation) -> None:
        del self._live[allocation.base]
        del self._bases[bisect_left(self._bases, allocation.base)]
        self._version += 1

    def reach(self, peer: Memory, on: bool = True) -> None:
        """Let kernels here use the memory of another device, or no longer."""
        with self._lock:
            if on and peer not in self._peers:
                self._peers.append(peer)
            elif not on and peer in self._peers:
                self._peers.remove(peer)
            self._spans_of = (-1,)

    def reaches(self, peer: Memory) -> bool:
        return peer in self._peers

    # --- looking ------------------------------------------------------------------------------------------------------

    def find(self, address: int) -> Allocation | None:
        """What lives at an address; nothing of a peer's."""
        with self._lock:
            at = bisect_right(self._bases, address) - 1
            if at < 0:
                return None
            found = self._live[self._bases[at]]
            return found if address < found.base + found.size else None

    def view(self, address: int, nbytes: int, write: bool = False) -> Bytes:
        """The bytes at an address, to read or to write; `write` marks them as written."""
        found, start = self._inside(address, nbytes)
        if write:
            found.written[start : start + nbytes] = 1
        return found.data[start : start + nbytes]

    def written(self, address: int, nbytes: int) -> Bytes:
        """For each of the bytes at an address, whether it was ever written: 0 or 1."""
        found, start = self._inside(address, nbytes)
        return found.written[start : start + nbytes]

    def _inside(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        found = self.find(address)
        if found is None or address + nbytes > found.base + found.size:
            raise SimulationFault(
                "illegal address",
                f"[sim] expected {nbytes} bytes at {address:#x} to lie in one allocation but got "
                f"{self.describe(address)}; check the address and the size",
            )
        return found, address - found.base

    def spans(self) -> tuple[Any, int]:
        """What kernels may touch, as a C array of `Span` sorted by base, and how many there are."""
        with self._lock:
            memories = [self, *self._peers]
            versions = tuple(m._version for m in memories)
            if versions != self._spans_of:
                rows = sorted({a.base: a.row for m in memories for a in m._live.values()}.values())
                table = np.array(rows, np.uint64).reshape(-1, 4)
                array = (Span * len(rows))()
                ctypes.memmove(array, table.ctypes.data, table.nbytes)
                self._spans, self._spans_of = (array, len(rows)), versions
            return self._spans

    def describe(self, address: int) -> str:
        """An address in words: inside of which allocation it lies, or how far from the nearest one.

        >>> memory = Memory(1 << 20)
        >>> memory.describe(memory.allocate(64) + 64)
        '0x100000010040, 1 byte past the end of the allocation of 64 bytes at 0x100000010000'
        """
        with self._lock:
            inside = self.find(address)
            if inside is not None:
                return f"{address:#x}, byte {address - inside.base} of {inside}"
            for base, size in reversed(self._freed):
                if base <= address < base + size:
                    return f"{address:#x}, byte {address - base} of {size} that were allocated at {base:#x} and freed"
            return f"{address:#x}, {self._nearest(address)}"

    def _nearest(self, address: int) -> str:
        at = bisect_right(self._bases, address)
        near = [self._live[b] for b in self._bases[max(at - 1, 0) : at + 1]]
        if not near:
            return "where nothing is allocated"
        # Distance to what ends below, or begins above.
        gap, past, which = min(
            (address - a.base - a.size + 1, True, a) if a.base <= address else (a.base - address, False, a)
            for a in near
        )
        counted = f"{gap} byte{'s' if gap != 1 else ''}"
        return f"{counted} past the end of {which}" if past else f"{counted} before {which}"
