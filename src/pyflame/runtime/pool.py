"""A caching pool of host memory.

Fresh pages cost more than the kernels that fill them, so freed blocks are kept and handed out again. Sizes are rounded
up to a class (eight steps per power of two), which wastes at most 1/8 and lets blocks of similar sizes stand in for
each other. A block returns to the pool when the last object that holds it is gone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyflame.core.errors import OutOfMemoryError

ALIGNMENT = 64
_SMALLEST = 256


@dataclass
class PoolStats:
    """Bytes in use and in the cache, the most ever in use, and how often a cached block could be used."""

    allocated: int = 0
    cached: int = 0
    peak: int = 0
    allocations: int = 0
    hits: int = 0


class Block:
    """Memory at `address`, returned to its pool when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_memory", "_pool", "address", "nbytes")
    read_only = False

    def __init__(self, address: int, nbytes: int, memory: Any, pool: HostPool | None) -> None:
        self.address = address
        self.nbytes = nbytes
        self._memory = memory
        self._pool = pool

    def __del__(self) -> None:
        if self._pool is not None:
            self._pool._release(self.nbytes, self.address, self._memory)


class HostPool:
    """Hands out aligned host memory. Thread safe."""

    def __init__(self) -> None:
        self._free: dict[int, list[tuple[int, Any]]] = {}
        # Re-entrant: a release may run in the middle of an allocation, when the garbage collector frees a block.
        self._lock = threading.RLock()
        self.stats = PoolStats()

    @staticmethod
    def size_class(nbytes: int) -> int:
        if nbytes <= _SMALLEST:
            return _SMALLEST
        step = 1 << max((nbytes - 1).bit_length() - 4, 6)
        return -(-nbytes // step) * step

    def allocate(self, nbytes: int) -> Block:
        return self.take(self.size_class(nbytes))

    def take(self, size: int) -> Block:
        """A block of exactly a size class."""
        stats = self.stats
        with self._lock:
            stats.allocations += 1
            stats.allocated += size
            if stats.allocated > stats.peak:
                stats.peak = stats.allocated
            free = self._free.get(size)
            if free:
                stats.hits += 1
                stats.cached -= size
                address, memory = free.pop()
                return Block(address, size, memory, self)
        try:
            memory = self._fresh(size)
        except OutOfMemoryError:
            with self._lock:
                stats.allocated -= size
            raise
        return Block(-(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT, size, memory, self)

    def _fresh(self, size: int) -> Any:
        for attempt in range(2):
            try:
                return np.empty(size + ALIGNMENT, np.uint8)
            except MemoryError:
                if attempt:
                    s = self.stats
                    raise OutOfMemoryError(
                        f"[memory] expected to allocate {size:,} bytes on the CPU but the system has no more; "
                        f"held {s.allocated - size:,}, "
                        f"cached {s.cached:,}. Delete tensors you no longer need, or use a smaller batch or dtype"
                    ) from None
                self.empty_cache()
        raise AssertionError

    def _release(self, size: int, address: int, memory: Any) -> None:
        with self._lock:
            self.stats.allocated -= size
            self.stats.cached += size
            self._free.setdefault(size, []).append((address, memory))

    def empty_cache(self) -> None:
        """Give cached blocks back to the system."""
        with self._lock:
            self._free.clear()
            self.stats.cached = 0
