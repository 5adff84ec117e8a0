"""The memory of a GPU: a pool that asks the driver rarely, since allocating there is slow and freeing waits.

The driver gives segments. A segment is cut into chunks. Sizes are rounded up to classes (eight steps per power of two),
which wastes at most 1/8. A chunk that is given up is ready for the next block of its class, as loops ask for the same
sizes again and again; where no free chunk is large enough for a class, all that are ready merge with their free
neighbours. Small blocks have segments of their own, so that they do not hold on to large ones.

Memory belongs to a stream. What is given up on a stream may be used on it again at once, because the new work comes
behind the old. Another stream gets it only behind an event; `Block.used_on` tells of streams that read a block too.

PYFLAME_MEMORY_POOL=exact turns all of this off: each block is an allocation of the driver with exactly its bytes, freed
when it is given up. That is slow on a GPU, and shows a simulator, which has it so from the start, or a sanitizer where
every tensor begins and ends.

An interrupt may leave the pool's lists half written. What is in use is then known all the same: the chunks in `_live`
that have the number of an allocation. All else in the segments is free, and the lists are made anew from that.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from pyflame.core.device import DeviceId
from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.core.locks import rlock
from pyflame.core.sizes import human_bytes
from pyflame.core.undo import Undo
from pyflame.runtime.gpu.deferred_free import DeferredFrees
from pyflame.runtime.gpu.driver import Driver
from pyflame.runtime.pool import exact_wanted
from pyflame.runtime.stats import MemoryStats

ALIGNMENT = 256
MIB = 1 << 20
SMALL = MIB  # largest block of a small segment
_SMALL_SEGMENT = 2 * MIB
_MEDIUM = 10 * MIB  # largest block of a shared large segment
_MEDIUM_SEGMENT = 20 * MIB
_SHOWN = 5  # sizes named when memory runs out


def size_class(nbytes: int) -> int:
    """The size that a request is rounded up to: eight steps per power of two, of at least 256 bytes.

    >>> size_class(1), size_class(5000), size_class(1 << 20)
    (256, 5120, 1048576)
    """
    step = 1 << max((nbytes - 1).bit_length() - 4, 8)
    return max(-(-nbytes // step) * step, ALIGNMENT)


def segment_size(size: int) -> int:
    """What the driver is asked for when a block of a class finds no room."""
    if size <= SMALL:
        return _SMALL_SEGMENT
    if size <= _MEDIUM:
        return _MEDIUM_SEGMENT
    return -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT


class _Segment:
    """Memory from the driver, and how many of its chunks are in use or wait for a stream."""

    __slots__ = ("address", "first", "held", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.held = 0
        self.first: _Chunk


class _Chunk:
    """A piece of a segment, between its neighbours."""

    __slots__ = ("address", "free", "next", "note", "number", "previous", "segment", "size", "stream", "wanted")

    def __init__(self, segment: _Segment, address: int, size: int, stream: int) -> None:
        self.segment = segment
        self.address = address
        self.size = size
        self.stream = stream
        self.free = True
        self.number = 0  # of the allocation that has it
        self.wanted = 0  # the size class that it was last taken for
        self.note = ""
        self.previous: _Chunk | None = None
        self.next: _Chunk | None = None


Given = tuple[_Chunk, int]  # a chunk and the number of the allocation that gives it up


class Block(Undo):
    """Memory of a GPU at `address`. Its call, when nothing refers to it any more, gives it back to its pool."""

    __slots__ = ("_chunk", "_streams", "address", "nbytes")
    on_host = read_only = False

    def __init__(self, give: Callable[[tuple[Given, list[int]]], None], given: tuple[Given, list[int]]) -> None:
        (self._chunk, _), self._streams = given
        self.address = self._chunk.address
        self.nbytes = self._chunk.size

    @property
    def stream(self) -> int:
        """The stream it belongs to."""
        return self._chunk.stream

    def used_on(self, stream: int) -> None:
        """Tell that work on another stream uses it, so that nobody gets it before that is done."""
        if stream != self._chunk.stream and stream not in self._streams:
            self._streams.append(stream)

    def note(self, text: str) -> None:
        """Say what it holds, for the message when memory runs out."""
        self._chunk.note = text


def _let_go(owner: object) -> None:
    """Of foreign memory: it is its owner's, who ends with the queue's entry."""


class DevicePool:
    """Hands out memory of one device. Thread safe.

    `fraction` of the device's memory is the most it holds; `error` is what it raises when there is no more; `exact`:
    as PYFLAME_MEMORY_POOL says unless given.
    """

    def __init__(
        self,
        driver: Driver,
        index: int = 0,
        fraction: float = 1.0,
        error: type[OutOfMemoryError] = OutOfMemoryError,
        exact: bool | None = None,
    ) -> None:
        self.exact = exact_wanted(driver.kind) if exact is None else exact
        self._driver = driver
        self._index = index
        self._error = error
        self._lock = rlock()
        self._deferred: DeferredFrees[Given] = DeferredFrees(driver, index)
        self.foreign: DeferredFrees[Any] = DeferredFrees(driver, index)  # owners of memory that is not the pool's
        # (stream, small) -> (size, address) of free chunks, sorted: the first that is large enough fits best
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        self._chunks: dict[int, _Chunk] = {}  # free ones, by address
        self._ready: dict[tuple[int, int], list[_Chunk]] = {}  # given up and as they were, by stream and class
        self._live: dict[int, _Chunk] = {}
        self._segments: dict[int, _Segment] = {}
        self._numbers = count(1).__next__
        self._torn = False  # by an interrupt
        self.captures = 0  # under way
        self.limit: int | None = None  # bytes to hold at most, in use and cached
        self._allocated = self._reserved = self._peak_allocated = self._peak_reserved = self._recent_peak = 0
        self._count: Counter[str] = Counter()
        self.set_fraction(fraction)

    # --- asking -------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        """Memory for work on a stream. Its content is undefined."""
        if nbytes < 0:
            raise ArgumentError(f"[memory] expected a size of 0 or more but got {nbytes}")
        return self.take_all((self.size_class(nbytes),), stream)[0]

    def size_class(self, nbytes: int) -> int:
        """The size of a block that is asked for."""
        return max(nbytes, 1) if self.exact else size_class(nbytes)

    def take_all(self, sizes: Sequence[int], stream: int) -> list[Block]:
        """Blocks of exactly these size classes."""
        with self._lock:
            self._take_in()
            try:
                return [self._allocate(size, stream) for size in sizes]
            except OutOfMemoryError:
                raise
            except BaseException:
                self._mend()
                raise

    def _allocate(self, size: int, stream: int) -> Block:
        self._count["allocations"] += 1
        if ready := self._ready.get((stream, size)):
            self._count["hits"] += 1
            chunk = ready.pop()
        else:
            chunk = self._fitting(stream, size) or self._obtain(size, stream)
            self._cut(chunk, size)
            chunk.wanted = size
        number = self._numbers()
        block = Block(self._deferred.give, ((chunk, number), []))
        block.nbytes = size
        chunk.segment.held += 1
        self._live[chunk.address] = chunk
        self._allocated += chunk.size
        if self._allocated > self._recent_peak:
            self._recent_peak = self._allocated
            self._peak_allocated = max(self._peak_allocated, self._allocated)
        chunk.number = number
        return block

    def _fitting(self, stream: int, size: int) -> _Chunk | None:
        """The smallest free chunk of a stream that is large enough, taken out of its list."""
        entries = self._free.get((stream, size <= SMALL))
        if not entries:
            return None
        at = bisect_left(entries, (size, 0))
        if at == len(entries):
            return None
        self._count["hits"] += 1
        chunk = self._chunks.pop(entries.pop(at)[1])
        chunk.free = False
        return chunk

    def _obtain(self, size: int, stream: int) -> _Chunk:
        """A chunk from elsewhere: what is ready for other classes, what other streams have finished with, the driver,
        or what others do not use."""
        self._join_ready()
        chunk = self._fitting(stream, size)
        if chunk is not None:
            return chunk
        quiet = self.captures == 0  # events of other streams, and waiting, would spoil a capture
        if quiet and self._deferred.waiting:
            self._deferred.settle(self._give_back)
            self._join_ready()
            chunk = self._fitting(stream, size)
            if chunk is not None:
                return chunk
        try:
            return self._grow(size, stream, size if self.exact else segment_size(size))
        except OutOfMemoryError as error:
            failed = error
        if quiet:
            chunk = self._borrow(size, stream)
            if chunk is not None:
                return chunk
            self._count["retries"] += 1
            self.empty_cache()
            try:
                return self._grow(size, stream, size if self.exact else -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT)
            except OutOfMemoryError as error:
                failed = error
        self._count["out_of_memory"] += 1
        raise self._error(self._no_more(size, failed)) from None

    def _grow(self, size: int, stream: int, nbytes: int) -> _Chunk:
        """A new segment as one chunk."""
        if self.limit is not None and self._reserved + nbytes > self.limit:
            raise OutOfMemoryError(f"the limit set for this pool is {human_bytes(self.limit)}")
        self._driver.set_device(self._index)
        address = self._driver.alloc(nbytes)
        self._count["driver_allocations"] += 1
        segment = _Segment(address, nbytes, size <= SMALL)
        segment.first = _Chunk(segment, address, nbytes, stream)
        segment.first.free = False
        self._segments[address] = segment
        self._reserved += nbytes
        self._peak_reserved = max(self._peak_reserved, self._reserved)
        return segment.first

    def _borrow(self, size: int, stream: int) -> _Chunk | None:
        """What another stream has given up, behind an event that its last use comes before."""
        for other, small in list(self._free):
            if other == stream or small != (size <= SMALL):
                continue
            chunk = self._fitting(other, size)
            if chunk is not None:
                self._driver.set_device(self._index)
                self._deferred.order(before=other, after=stream)
                self._cut(chunk, size)
                chunk.stream = stream
                self._count["borrowed"] += 1
                return chunk
        return None

    def _cut(self, chunk: _Chunk, size: int) -> None:
        """Leave what a block does not need to others, unless it is too little to be of use."""
        rest = chunk.size - size
        if rest < (ALIGNMENT if chunk.segment.small else MIB):
            return
        tail = _Chunk(chunk.segment, chunk.address + size, rest, chunk.stream)
        tail.previous, tail.next = chunk, chunk.next
        if chunk.next is not None:
            chunk.next.previous = tail
        chunk.next = tail
        chunk.size = size
        self._list(tail)

    # --- giving back --------------------------------------------------------------------------------------------------

    def _take_in(self, settle: bool = False, wait: bool = False) -> None:
        """Look at what was given up since, and at what waits for streams. While a capture runs, what other streams use
        is left for later."""
        if self.captures:
            return
        try:
            if self._torn:
                self._mend()
            if self._deferred.pending:
                self._deferred.take_in(self._give_back)
            if settle or wait:
                self._deferred.settle(self._give_back, wait)
                self._join_ready()
            if self.foreign.pending:
                self.foreign.take_in(_let_go)
                self.foreign.settle(_let_go, wait)
        except BaseException:
            self._mend()
            raise

    def _give_back(self, given: Given) -> None:
        chunk, number = given
        if chunk.number != number:
            return  # it was free when an interrupt came, or never was given out
        chunk.number = 0
        self._count["frees"] += 1
        self._allocated -= chunk.size
        chunk.segment.held -= 1
        chunk.note = ""
        del self._live[chunk.address]
        if not self.exact:
            self._ready.setdefault((chunk.stream, chunk.wanted), []).append(chunk)
            return
        self._join(chunk)
        self._driver.set_device(self._index)
        self._driver.synchronize()  # work that was given before may still use it
        self._release(chunk.segment)

    def merge(self) -> None:
        """Merge what is free, so that the next blocks lie as close together as they can."""
        with self._lock:
            self._take_in(settle=True)

    def _join_ready(self) -> None:
        """Merge what is ready with its free neighbours."""
        ready = [chunk for chunks in self._ready.values() for chunk in chunks]
        self._ready.clear()
        for chunk in ready:
            self._join(chunk)

    def _mend(self) -> None:
        """Make all lists anew of what is in use. Free memory may be any stream's then, so the device must be idle: in a
        capture there is none until that ends."""
        self._torn = True
        self._free.clear()
        self._chunks.clear()
        self._ready.clear()
        self._live = {address: chunk for address, chunk in self._live.items() if chunk.number}
        self._allocated = sum(chunk.size for chunk in self._live.values())
        self._reserved = sum(segment.size for segment in self._segments.values())
        if self.captures:
            return
        self._driver.set_device(self._index)
        self._driver.synchronize()
        for segment in self._segments.values():
            self._relink(segment, sorted(address for address, c in self._live.items() if c.segment is segment))
        self._torn = False

    def _relink(self, segment: _Segment, live: list[int]) -> None:
        """Chain a segment's chunks in use to each other, with free ones in between."""
        stream = segment.first.stream
        segment.held = len(live)
        chain: list[_Chunk] = []
        at = segment.address
        for address in [*live, segment.address + segment.size]:
            if address > at:
                chain.append(_Chunk(segment, at, address - at, stream))
                self._list(chain[-1])
            if address in self._live and self._live[address].segment is segment:
                chain.append(self._live[address])
                at = address + chain[-1].size
        for chunk, previous, following in zip(chain, [None, *chain], [*chain[1:], None], strict=False):
            chunk.previous, chunk.next = previous, following
        segment.first = chain[0]

    def _join(self, chunk: _Chunk) -> None:
        """Merge a chunk with free neighbours of its stream, and list the result."""
        follower = chunk.next
        if follower is not None and follower.free and follower.stream == chunk.stream:
            self._unlist(follower)
            self._absorb(chunk, follower)
        leader = chunk.previous
        if leader is not None and leader.free and leader.stream == chunk.stream:
            self._unlist(leader)
            self._absorb(leader, chunk)
            chunk = leader
        self._list(chunk)

    @staticmethod
    def _absorb(chunk: _Chunk, follower: _Chunk) -> None:
        chunk.size += follower.size
        chunk.next = follower.next
        if chunk.next is not None:
            chunk.next.previous = chunk

    def _list(self, chunk: _Chunk) -> None:
        chunk.free = True
        self._chunks[chunk.address] = chunk
        insort(self._free.setdefault((chunk.stream, chunk.segment.small), []), (chunk.size, chunk.address))

    def _unlist(self, chunk: _Chunk) -> None:
        entries = self._free[chunk.stream, chunk.segment.small]
        del entries[bisect_left(entries, (chunk.size, chunk.address))]
        del self._chunks[chunk.address]

    def empty_cache(self) -> int:
        """Give segments that nobody uses back to the driver; gives their bytes. Waits for the device."""
        with self._lock:
            if self.captures:
                return 0
            self._take_in(wait=True)
            self._driver.set_device(self._index)
            unused = [s for s in self._segments.values() if s.held == 0]
            if unused:
                self._driver.synchronize()
            try:
                for segment in unused:
                    self._release(segment)
            except BaseException:
                self._mend()
                raise
            return sum(s.size for s in unused)

    def _release(self, segment: _Segment) -> None:
        """Give a segment that nobody uses back to the driver. The device is idle."""
        chunk: _Chunk | None = segment.first
        while chunk is not None:
            self._unlist(chunk)
            chunk = chunk.next
        del self._segments[segment.address]
        self._reserved -= segment.size
        self._count["driver_frees"] += 1
        self._driver.free(segment.address)

    # --- telling ------------------------------------------------------------------------------------------------------

    def set_fraction(self, fraction: float) -> None:
        """Hold at most this share of the device's memory from now on."""
        if not 0.0 < fraction <= 1.0:
            raise ArgumentError(f"[memory] expected a fraction above 0 and up to 1 but got {fraction}")
        if fraction == 1.0:
            self.limit = None
            return
        self._driver.set_device(self._index)
        self.limit = int(self._driver.mem_info()[1] * fraction)

    def capturing(self, begins: bool) -> None:
        """A graph capture begins or ends: until then no stream is asked or waited for."""
        with self._lock:
            if begins:
                self._take_in()
            self.captures += 1 if begins else -1

    @property
    def stats(self) -> MemoryStats:
        with self._lock:
            self._take_in(settle=True)
            tally = self._count
            return MemoryStats(
                allocated=self._allocated,
                reserved=self._reserved,
                cached=self._reserved - self._allocated,
                peak_allocated=self._peak_allocated,
                peak_reserved=self._peak_reserved,
                allocations=tally["allocations"],
                frees=tally["frees"],
                hits=tally["hits"],
                borrowed=tally["borrowed"],
                driver_allocations=tally["driver_allocations"],
                driver_frees=tally["driver_frees"],
                retries=tally["retries"],
                out_of_memory=tally["out_of_memory"],
                live_blocks=len(self._live),
                free_blocks=len(self._chunks),
                segments=len(self._segments),
                largest_free=max((c.size for c in self._chunks.values()), default=0),
            )

    def reset_peak(self) -> None:
        """Measure peaks from here on."""
        with self._lock:
            self._take_in()
            self._peak_allocated, self._peak_reserved = self._allocated, self._reserved
            self._recent_peak = self._allocated

    def take_recent_peak(self) -> int:
        """The most bytes in use since this was last asked."""
        with self._lock:
            self._take_in()
            found, self._recent_peak = self._recent_peak, self._allocated
            return found

    def reset_stats(self) -> None:
        """Measure peaks and count from here on. What is in use stays in use."""
        with self._lock:
            self.reset_peak()
            self._count.clear()

    def largest(self, count: int = _SHOWN) -> list[tuple[int, int, str]]:
        """(bytes, how many, what they hold) of the largest blocks in use, equal ones together."""
        with self._lock:
            self._take_in()
            kinds = Counter((c.size, c.note) for c in self._live.values())
        return [(size, n, note) for (size, note), n in sorted(kinds.items(), reverse=True)[:count]]

    def _no_more(self, size: int, reason: OutOfMemoryError) -> str:
        free, total = self._driver.mem_info()
        blocks = ", ".join(f"{n} x {human_bytes(s)}{f' ({note})' if note else ''}" for s, n, note in self.largest())
        cached = self._reserved - self._allocated
        device = DeviceId.of(self._driver.kind, self._index)
        return (
            f"[memory] expected {human_bytes(size)} on {device} but there is no room; held "
            f"{human_bytes(self._allocated)}, cached {human_bytes(cached)} in pieces that are too small, free "
            f"{human_bytes(free)} of {human_bytes(total)}. Largest blocks in use: {blocks or 'none'}. Delete tensors "
            f"you no longer need, or use a smaller batch or dtype. ({reason})"
        )
