"""Host memory that a GPU reads and writes directly: pinned, so costly to make, so kept for use again."""

from __future__ import annotations

import ctypes
import math
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyflame.core.checks import natural
from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.core.locks import rlock
from pyflame.runtime.gpu.deferred_free import DeferredFrees
from pyflame.runtime.gpu.driver import Driver

_SMALLEST = 4096  # a page


@dataclass
class PinnedStats:
    """Bytes in use and in the cache, and how often a cached block could be used."""

    allocated: int = 0
    cached: int = 0
    acquired: int = 0
    hits: int = 0


class PinnedBlock:
    """Pinned host memory. Returned to its pool by `release`, or when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_deferred", "_holder", "_streams", "address", "nbytes")
    on_host, read_only = True, False

    def __init__(self, address: int, nbytes: int, returns: DeferredFrees[tuple[int, int]]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._deferred: DeferredFrees[tuple[int, int]] | None = returns
        self._holder = object()
        self._streams: tuple[int, ...] = ()

    def used_on(self, stream: int) -> None:
        """Tell that work on a stream uses it, so that nobody gets it before that is done."""
        if stream not in self._streams:
            self._streams = (*self._streams, stream)

    def idle(self) -> None:
        """Tell that the host has waited for all of that work."""
        self._streams = ()

    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Its bytes, as long as the block is held."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))

    @property
    def given_up(self) -> bool:
        return self._deferred is None

    def give_up(self, holder: object = None) -> None:
        """Return it to its pool, once."""
        returns, self._deferred = self._deferred, None
        if returns is not None:
            returns.give((self.address, self.nbytes), self._streams, holder)

    def __del__(self) -> None:
        self.give_up(self._holder)


class _Owned:
    """Lets NumPy see a block, and keeps the block for as long as an array over it lives."""

    def __init__(self, block: PinnedBlock, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.block = block
        kind = dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}"  # bfloat16 and fp8 are bytes to NumPy
        self.__array_interface__ = {"version": 3, "data": (block.address, False), "shape": shape, "typestr": kind}


class PinnedPool:
    """Hands out pinned memory in powers of two. Thread safe.

    >>> pool.warmup([1 << 20]); block = pool.acquire(1000); pool.release(block)  # doctest: +SKIP
    """

    def __init__(self, driver: Driver, index: int = 0) -> None:
        self._driver = driver
        self._index = index
        self._lock = rlock()
        self._free: dict[int, list[int]] = {}
        self._out: dict[int, weakref.ref[PinnedBlock]] = {}  # by address
        self._starts: list[int] = []  # their addresses, sorted
        self._deferred: DeferredFrees[tuple[int, int]] = DeferredFrees(driver, index)
        self._stats = PinnedStats()

    def acquire(self, nbytes: int) -> PinnedBlock:
        """A block of at least that size."""
        nbytes = natural("pinned memory", "a size", nbytes)
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length() if nbytes else 0)
        with self._lock:
            self._take_in()
            free = self._free.get(size)
            if free:
                self._stats.hits += 1
                self._stats.cached -= size
                address = free.pop()
            else:
                self._driver.set_device(self._index)
                address = self._driver.host_alloc(size)
            self._stats.acquired += 1
            self._stats.allocated += size
            block = PinnedBlock(address, size, self._deferred)
            self._out[address] = weakref.ref(block)
            insort(self._starts, address)
        return block

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An uninitialised array; its memory comes back when no array over it is left, and no copy reads it."""
        dtype = np.dtype(dtype)
        block = self.acquire(dtype.itemsize * math.prod(shape))
        array = np.asarray(_Owned(block, tuple(shape), dtype))
        return array if array.dtype == dtype else array.view(dtype)

    def holding(self, address: int, nbytes: int) -> PinnedBlock | None:
        """The block in use that holds these bytes; None where they are not pinned by this pool."""
        if not nbytes:
            return None
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            block = self._out[self._starts[at]]() if at >= 0 else None
        if block is None or block.given_up or address + nbytes > block.address + block.nbytes:
            return None
        return block

    def release(self, block: PinnedBlock | int) -> None:
        """Give a block, or that of an address, back now rather than when it is forgotten. It must not be touched
        afterwards."""
        if isinstance(block, PinnedBlock):
            block.give_up()
            return
        address = natural("release", "a block of this pool or its address", block)
        with self._lock:
            known = self._out.get(address)
        held = None if known is None else known()
        if held is None or held.given_up:
            raise ArgumentError(
                f"[release] expected a block of this pool or its address but got {address:#x}; it may be released "
                "already, or forgotten: hold what acquire gives"
            )
        held.give_up()

    def _take_in(self) -> None:
        self._keep(self._deferred.taken_in())
        if self._deferred.waiting:
            self._driver.set_device(self._index)
            self._keep(self._deferred.settled())

    def _keep(self, blocks: Iterable[tuple[int, int]]) -> None:
        for address, size in blocks:
            del self._out[address]
            del self._starts[bisect_left(self._starts, address)]
            self._free.setdefault(size, []).append(address)
            self._stats.allocated -= size
            self._stats.cached += size

    def warmup(self, sizes: Iterable[int]) -> None:
        """Make blocks of these sizes ahead of their use."""
        if not isinstance(sizes, Iterable):
            raise ArgumentTypeError(f"[warmup] expected a list of sizes but got {sizes!r}; put it in brackets")
        blocks = [self.acquire(size) for size in sizes]
        for block in blocks:
            self.release(block)

    @property
    def stats(self) -> PinnedStats:
        with self._lock:
            self._take_in()
            return PinnedStats(**vars(self._stats))

    def empty_cache(self) -> int:
        """Give unused blocks back to the system; gives their bytes. Waits for the streams that use them."""
        with self._lock:
            self._take_in()
            self._driver.set_device(self._index)
            self._keep(self._deferred.settled(wait=True))
            freed = self._stats.cached
            for addresses in self._free.values():
                for address in addresses:
                    self._driver.host_free(address)
            self._free.clear()
            self._stats.cached = 0
            return freed

    def clear(self) -> None:
        """Give unused blocks back to the system."""
        self.empty_cache()
