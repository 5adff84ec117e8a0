"""A caching pool of host memory.

Fresh pages cost more than the kernels that fill them, so freed blocks are kept and handed out again. Sizes are rounded
up to a class (eight steps per power of two), which wastes at most 1/8 and lets blocks of similar sizes stand in for
each other. A block returns to the pool when the last object that holds it is gone.

PYFLAME_MEMORY_POOL=exact turns this off: each block is an allocation of the system with exactly its bytes, freed when
it is given up, so that an address sanitizer sees where it ends. It holds bytes of 0xFF until somebody writes to it.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import numpy as np

from pyflame.core import knobs
from pyflame.core.errors import OutOfMemoryError
from pyflame.runtime.stats import MemoryStats

ALIGNMENT = 64
_SMALLEST = 256
POISON = 0xFF  # NaN as any float, -1 as an integer: nobody takes it for a result
_system = ctypes.CDLL(None)
_system.free.argtypes = (ctypes.c_void_p,)
_system.posix_memalign.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class Block:
    """Memory at `address`, returned to its pool when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_memory", "_pool", "address", "nbytes")
    on_host, read_only = True, False

    def __init__(self, address: int, nbytes: int, memory: Any, pool: HostPool | None) -> None:
        self.address = address
        self.nbytes = nbytes
        self._memory = memory
        self._pool = pool

    def __del__(self) -> None:
        if self._pool is not None:
            self._pool._release(self.nbytes, self.address, self._memory)


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
        self._free: dict[int, list[tuple[int, Any]]] = {}
        # Re-entrant: a release may run in the middle of an allocation, when the garbage collector frees a block.
        self._lock = threading.RLock()
        self._allocated = self._cached = self._peak = self._recent_peak = self._peak_reserved = 0  # bytes
        self._live = 0  # blocks
        self._reset()

    def _reset(self) -> None:
        self._allocations = self._frees = self._hits = 0
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
        with self._lock:
            self._allocations += 1
            self._live += 1
            self._allocated += size
            if self._allocated > self._recent_peak:
                self._recent_peak = self._allocated
                self._peak = max(self._peak, self._allocated)
            free = self._free.get(size)
            if free:
                self._hits += 1
                self._cached -= size
                address, memory = free.pop()
                return Block(address, size, memory, self)
        try:
            memory = self._fresh(size)
        except OutOfMemoryError:
            with self._lock:
                self._allocated -= size
                self._live -= 1
            raise
        return Block(-(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT, size, memory, self)

    def _fresh(self, size: int) -> Any:
        for attempt in range(2):
            try:
                memory = _exactly(size) if self.exact else np.empty(size + ALIGNMENT, np.uint8)
            except MemoryError:
                if attempt:
                    self._failures += 1
                    raise OutOfMemoryError(
                        f"[memory] expected to allocate {size:,} bytes on the CPU but the system has no more; "
                        f"held {self._allocated - size:,}, "
                        f"cached {self._cached:,}. Delete tensors you no longer need, or use a smaller batch or dtype"
                    ) from None
                self._retries += 1
                self.empty_cache()
                continue
            with self._lock:
                self._fresh_blocks += 1
                self._peak_reserved = max(self._peak_reserved, self._allocated + self._cached)
            return memory
        raise AssertionError

    def _release(self, size: int, address: int, memory: Any) -> None:
        with self._lock:
            self._allocated -= size
            self._live -= 1
            self._frees += 1
            if self.exact:
                self._dropped += 1
                return
            self._cached += size
            self._free.setdefault(size, []).append((address, memory))

    def empty_cache(self) -> int:
        """Give cached blocks back to the system; gives their bytes."""
        with self._lock:
            freed = self._cached
            self._dropped += sum(map(len, self._free.values()))
            self._free.clear()
            self._cached = 0
            return freed

    @property
    def stats(self) -> MemoryStats:
        with self._lock:
            free = sum(map(len, self._free.values()))
            return MemoryStats(
                allocated=self._allocated,
                reserved=self._allocated + self._cached,
                cached=self._cached,
                peak_allocated=self._peak,
                peak_reserved=self._peak_reserved,
                allocations=self._allocations,
                frees=self._frees,
                hits=self._hits,
                borrowed=0,
                driver_allocations=self._fresh_blocks,
                driver_frees=self._dropped,
                retries=self._retries,
                out_of_memory=self._failures,
                live_blocks=self._live,
                free_blocks=free,
                segments=self._live + free,
                largest_free=max((size for size, blocks in self._free.items() if blocks), default=0),
            )

    def reset_peak(self) -> None:
        """Measure peaks from here on."""
        with self._lock:
            self._peak, self._peak_reserved = self._allocated, self._allocated + self._cached
            self._recent_peak = self._allocated

    def take_recent_peak(self) -> int:
        """The most bytes in use since this was last asked."""
        with self._lock:
            found, self._recent_peak = self._recent_peak, self._allocated
            return found

    def reset_stats(self) -> None:
        """Measure peaks and count from here on. What is in use stays in use."""
        with self._lock:
            self.reset_peak()
            self._reset()
