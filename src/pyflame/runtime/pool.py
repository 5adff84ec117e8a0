"""A caching pool of host memory.

Fresh pages cost more than the kernels that fill them, so freed blocks are kept and handed out again. Sizes are rounded
up to a class (eight steps per power of two), which wastes at most 1/8 and lets blocks of similar sizes stand in for
each other. A block returns to the pool when the last object that holds it is gone: at any moment, in any thread, even
in the middle of the pool's own work. So it is only put into a queue then, in C, where no interrupt can lose it. What
ends in a circle of garbage may be brought back to life by a finaliser behind its own; in the queue it waits for its
second end, which nothing tells of but the count of references.

PYFLAME_MEMORY_POOL=exact turns this off: each block is an allocation of the system with exactly its bytes, freed when
it is given up, so that an address sanitizer sees where it ends. It holds bytes of 0xFF until somebody writes to it.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core import knobs
from pyflame.core.errors import OutOfMemoryError
from pyflame.core.locks import rlock
from pyflame.core.undo import Undo
from pyflame.runtime.stats import MemoryStats

ALIGNMENT = 64
_SMALLEST = 256
POISON = 0xFF  # NaN as any float, -1 as an integer: nobody takes it for a result
_system = ctypes.CDLL(None)
_system.free.argtypes = (ctypes.c_void_p,)
_system.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
Part = tuple[int, int, Any]  # size, address, and what owns the memory
(LISTED,) = map(sys.getrefcount, [object()])  # what it says of an object that only a list holds


class Block(Undo):
    """Memory at `address`. Its call, when nothing refers to it any more, gives (size, address, memory) to its pool."""

    __slots__ = ("address", "memory", "nbytes")
    on_host, read_only = True, False

    def __init__(self, give: Callable[[Part], None], part: Part) -> None:
        self.nbytes, self.address, self.memory = part


def exact_wanted(kind: str) -> bool:
    """Whether each block of a kind of device shall be an allocation of its own: PYFLAME_MEMORY_POOL."""
    wanted = knobs.MEMORY_POOL.choice("cached", "exact")
    return wanted == "exact" or (not wanted and kind.startswith("sim:"))


def _exactly(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Aligned, poisoned memory that ends where its bytes end. NumPy's own has room behind them, and may be reused."""
    found = ctypes.c_void_p()
    if _system.posix_memalign(ctypes.byref(found), ALIGNMENT, size) or found.value is None:
        raise MemoryError
    memory = (ctypes.c_uint8 * size).from_address(found.value)
    weakref.finalize(memory, _system.free, found.value).atexit = False  # what lives then may still be used
    ctypes.memset(memory, POISON, size)
    return np.ctypeslib.as_array(memory)


class HostPool:
    """Hands out aligned host memory. Thread safe. `exact`: as PYFLAME_MEMORY_POOL says unless given."""

    def __init__(self, exact: bool | None = None) -> None:
        self.exact = exact_wanted("cpu") if exact is None else exact
        self.limit: int | None = None  # bytes to hold at most, in use and cached
        self._free: dict[int, list[Part]] = {}
        self._given: deque[Part] = deque()  # blocks on their way back
        self._live: dict[int, int] = {}  # address -> size
        self._lock = rlock()  # re-entrant: the garbage collector may run anything
        # bytes; an interrupt may leave the first one wrong until somebody asks for `stats`
        self._allocated = self._peak = self._recent_peak = self._peak_reserved = 0
        self._reset()

    def _reset(self) -> None:
        self._live_before, self._allocations = len(self._live), 0
        self._fresh_blocks = self._dropped = self._retries = self._failures = 0

    def size_class(self, nbytes: int) -> int:
        if self.exact:
            return max(nbytes, 1)
        if nbytes <= _SMALLEST:
            return _SMALLEST
        step = 1 << max((nbytes - 1).bit_length() - 4, 6)
        return -(-nbytes // step) * step

    def allocate(self, nbytes: int) -> Block:
        return self.take(self.size_class(nbytes))

    def take(self, size: int) -> Block:
        """A block of exactly a size class."""
        return self.take_all((size,))[0]

    def take_all(self, sizes: Sequence[int]) -> list[Block]:
        """Blocks of exactly these size classes."""
        with self._lock:
            if self._given:
                self._take_back()
            give, free, live = self._given.append, self._free, self._live
            blocks: list[Block] = []
            for size in sizes:
                parts = free.get(size)
                block = Block(give, parts.pop() if parts else self._fresh(size))
                live[block.address] = size
                blocks.append(block)
                self._allocated += size
            self._allocations += len(blocks)
            if self._allocated > self._recent_peak:
                self._recent_peak = self._allocated
                self._peak = max(self._peak, self._allocated)
            return blocks

    @property
    def parts(self) -> tuple[Any, ...]:
        """What `take_all` works with, for what does the same in C (engine/known.c)."""
        return self, self._lock, self._free, self._live, self._given, self._given.append

    def _take_back(self) -> None:
        """Put what was given up among the free blocks. Whatever is interrupted here, or lost by that, is not live."""
        given, live = self._given, self._live
        for _ in range(len(given)):
            if not given:  # the collector has run, and with it this
                return
            if sys.getrefcount(given[0]) > LISTED:  # its block lives again
                given.rotate(-1)
                continue
            part = given[0]
            self._allocated -= live.pop(part[1], 0)
            if not given or given[0] is not part:
                continue
            given.popleft()
            if self.exact:
                self._dropped += 1
                continue
            self._free.setdefault(part[0], []).append(part)

    def _fresh(self, size: int) -> Part:
        for attempt in range(2):
            try:
                if self.limit is not None and self._allocated + self._cached() + size > self.limit:
                    raise MemoryError
                memory = _exactly(size) if self.exact else np.empty(size + ALIGNMENT, np.uint8)
            except MemoryError:
                if attempt:
                    self._failures += 1
                    most = "the system has no more" if self.limit is None else f"the limit is {self.limit:,}"
                    raise OutOfMemoryError(
                        f"[memory] expected to allocate {size:,} bytes on the CPU but {most}; "
                        f"held {self._allocated:,}, "
                        f"cached {self._cached():,}. Delete tensors you no longer need, or use a smaller batch or dtype"
                    ) from None
                self._retries += 1
                self.empty_cache()
                continue
            self._fresh_blocks += 1
            self._peak_reserved = max(self._peak_reserved, self._allocated + size + self._cached())
            return size, -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT, memory
        raise AssertionError

    def empty_cache(self) -> int:
        """Give cached blocks back to the system; gives their bytes."""
        with self._lock:
            self._count()
            freed = self._cached()
            self._dropped += sum(map(len, self._free.values()))
            self._free.clear()
            return freed

    def _count(self) -> None:
        """See what is there."""
        self._take_back()
        self._allocated = sum(self._live.values())

    def _cached(self) -> int:
        return sum([size * len(parts) for size, parts in self._free.items()])

    @property
    def stats(self) -> MemoryStats:
        with self._lock:
            self._count()
            free, cached = sum(map(len, self._free.values())), self._cached()
            return MemoryStats(
                allocated=self._allocated,
                reserved=self._allocated + cached,
                cached=cached,
                peak_allocated=self._peak,
                peak_reserved=self._peak_reserved,
                allocations=self._allocations,
                frees=self._live_before + self._allocations - len(self._live),
                hits=self._allocations - self._fresh_blocks,
                borrowed=0,
                driver_allocations=self._fresh_blocks,
                driver_frees=self._dropped,
                retries=self._retries,
                out_of_memory=self._failures,
                live_blocks=len(self._live),
                free_blocks=free,
                segments=len(self._live) + free,
                largest_free=max((size for size, blocks in self._free.items() if blocks), default=0),
            )

    def reset_peak(self) -> None:
        """Measure peaks from here on."""
        with self._lock:
            self._count()
            self._peak, self._peak_reserved = self._allocated, self._allocated + self._cached()
            self._recent_peak = self._allocated

    def take_recent_peak(self) -> int:
        """The most bytes in use since this was last asked."""
        with self._lock:
            self._count()
            found, self._recent_peak = self._recent_peak, self._allocated
            return found

    def reset_stats(self) -> None:
        """Measure peaks and count from here on. What is in use stays in use."""
        with self._lock:
            self.reset_peak()
            self._reset()
