"""Host memory that a GPU reads and writes directly: pinned, so costly to make, so kept for use again."""

from __future__ import annotations

import ctypes
import math
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from pyflame.core.checks import natural
from pyflame.core.errors import ArgumentError, ArgumentTypeError
from pyflame.core.locks import rlock
from pyflame.core.undo import Undo
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


Given = tuple[int, int, int]  # address, bytes, and the number of the request that gives them up


class PinnedBlock(Undo):
    """Pinned host memory. Returned to its pool by `release`, or by its call when nothing refers to it any more."""

    __slots__ = ("_streams", "address", "given_up", "nbytes")
    on_host, read_only = True, False

    def __init__(self, give: Callable[[tuple[Given, list[int]]], None], given: tuple[Given, list[int]]) -> None:
        (self.address, self.nbytes, _), self._streams = given
        self.given_up = False

    def used_on(self, stream: int) -> None:
        """Tell that work on a stream uses it, so that nobody gets it before that is done."""
        if stream not in self._streams:
            self._streams.append(stream)

    def idle(self) -> None:
        """Tell that the host has waited for all of that work."""
        self._streams.clear()

    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Its bytes, as long as the block is held."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))

    def give_up(self) -> None:
        """Return it to its pool now. Its end returns it once more, which the pool takes no notice of."""
        if not self.given_up:
            given, streams = self.args[0]
            self.func((given, list(streams)))
            self.given_up = True


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
        # by address: the number of the request, bytes, and the block
        self._out: dict[int, tuple[int, int, weakref.ref[PinnedBlock]]] = {}
        self._numbers = count(1).__next__
        self._starts: list[int] = []  # their addresses, sorted
        self._deferred: DeferredFrees[Given] = DeferredFrees(driver, index)
        self._stats = PinnedStats()

    def acquire(self, nbytes: int) -> PinnedBlock:
        """A block of at least that size."""
        nbytes = natural("pinned memory", "a size", nbytes)
        size = max(_SMALLEST, 1 << (nbytes - 1).bit_length() if nbytes else 0)
        with self._lock:
            self._take_in()
            free = self._free.setdefault(size, [])
            if free:
                self._stats.hits += 1
            else:
                self._driver.set_device(self._index)
                free.append(self._driver.host_alloc(size))
            self._stats.acquired += 1
            address, number = free[-1], self._numbers()
            block = PinnedBlock(self._deferred.give, ((address, size, number), []))
            self._out[address] = number, size, weakref.ref(block)
            insort(self._starts, address)
            free.pop()  # behind that: an interrupt leaves it in one place at least
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
            block = self._out[self._starts[at]][2]() if at >= 0 else None
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
        held = None if known is None else known[2]()
        if held is None or held.given_up:
            raise ArgumentError(
                f"[release] expected a block of this pool or its address but got {address:#x}; it may be released "
                "already, or forgotten: hold what acquire gives"
            )
        held.give_up()

    def _take_in(self, wait: bool = False) -> None:
        self._deferred.take_in(self._keep)
        if self._deferred.waiting:
            self._driver.set_device(self._index)
            self._deferred.settle(self._keep, wait)

    def _keep(self, given: Given) -> None:
        """Put a block among the free ones. An interrupted call is made again, and does the rest."""
        address, size, number = given
        if self._out.get(address, (0,))[0] != number:
            return
        free = self._free.setdefault(size, [])
        if address not in free:
            free.append(address)
        at = bisect_left(self._starts, address)
        if self._starts[at : at + 1] == [address]:
            del self._starts[at]
        self._out.pop(address, None)

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
            cached = sum(size * len(free) for size, free in self._free.items())
            allocated = sum(size for _, size, _ in self._out.values())
            return replace(self._stats, cached=cached, allocated=allocated)

    def empty_cache(self) -> int:
        """Give unused blocks back to the system; gives their bytes. Waits for the streams that use them."""
        with self._lock:
            self._take_in(wait=True)
            self._driver.set_device(self._index)
            freed = 0
            for size, addresses in self._free.items():
                while addresses:
                    self._driver.host_free(addresses.pop())
                    freed += size
            return freed

    def clear(self) -> None:
        """Give unused blocks back to the system."""
        self.empty_cache()
