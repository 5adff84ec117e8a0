"""Copies between a GPU and ordinary host memory, in pieces through pinned memory.

A driver copies from ordinary memory through small buffers of its own while the caller waits. Through a pinned piece the
caller waits for its own memory copy only; the GPU fetches the piece while the next one is filled. A few bytes, as
numbers and indices are, lie side by side in one piece, or come by one that is kept for them: the pool takes longer.
"""

from __future__ import annotations

import ctypes
from collections import deque

from pyflame.core.locks import lock
from pyflame.runtime.gpu.driver import Driver
from pyflame.runtime.gpu.pinned import PinnedBlock, PinnedPool

PIECE = 8 << 20
IN_FLIGHT = 4  # pieces
FEW = 4096  # bytes
_SIDE_BY_SIDE = 64 * FEW
_ALIGNMENT = 16


class Transfers:
    """Copies of one device. The caller has made it current."""

    def __init__(self, driver: Driver, pinned: PinnedPool) -> None:
        self._driver = driver
        self._pinned = pinned
        self._lock = lock()
        self._sending: tuple[PinnedBlock | None, int] = None, 0  # sends few bytes, and how much of it is used
        self._landings: deque[tuple[PinnedBlock, int]] = deque()  # what few bytes are fetched by, with an event each

    def empty_cache(self) -> None:
        """Keep no memory for a few bytes."""
        with self._lock:
            self._sending = None, 0
        while self._landings:
            self._end([self._landings.pop()])

    def stage(self, nbytes: int, stream: int) -> tuple[PinnedBlock, int]:
        """Room for a few bytes that a stream shall be sent, and where: the caller holds it until the copy is given."""
        with self._lock:
            block, used = self._sending
            if block is None or used + nbytes > block.nbytes:  # the one before comes back when its streams are done
                block, used = self._pinned.acquire(_SIDE_BY_SIDE), 0
            self._sending = block, used + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        block.used_on(stream)
        return block, block.address + used

    def _fetch_few(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        try:
            landing = self._landings.pop()  # nobody else takes it meanwhile
        except IndexError:
            landing = self._pinned.acquire(FEW), self._driver.event_create(timing=False)
        busy = deque([landing])
        try:
            landing[0].used_on(stream)
            self._driver.copy_d2h(landing[0].address, src, nbytes, stream)
            self._driver.event_record(landing[1], stream)
            self._landings.append(self._arrive(busy, dst, nbytes))
        finally:
            self._end(busy)

    def upload(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Host to device. The source may be changed when this returns; the device has it when the stream gets there."""
        if 0 < nbytes <= FEW:
            _held, at = self.stage(nbytes, stream)
            ctypes.memmove(at, src, nbytes)
            self._driver.copy_h2d(dst, at, nbytes, stream)
            return
        driver = self._driver
        many = nbytes > IN_FLIGHT * PIECE
        busy: deque[tuple[PinnedBlock, int]] = deque()
        try:
            for at in range(0, nbytes, PIECE):
                size = min(PIECE, nbytes - at)
                if len(busy) == IN_FLIGHT:
                    driver.event_synchronize(busy[0][1])
                    pair = busy.popleft()
                else:
                    pair = self._pinned.acquire(size), driver.event_create(timing=False) if many else 0
                    pair[0].used_on(stream)
                busy.append(pair)
                ctypes.memmove(pair[0].address, src + at, size)
                driver.copy_h2d(dst + at, pair[0].address, size, stream)
                if many:
                    driver.event_record(pair[1], stream)
        finally:
            self._end(busy)

    def download(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        """Device to host. Waits until the bytes are there."""
        if 0 < nbytes <= FEW:
            self._fetch_few(dst, src, nbytes, stream)
            return
        driver = self._driver
        busy: deque[tuple[PinnedBlock, int]] = deque()
        free: list[tuple[PinnedBlock, int]] = []
        arrived = 0
        try:
            for at in range(0, nbytes, PIECE):
                size = min(PIECE, nbytes - at)
                if len(busy) == IN_FLIGHT:
                    free.append(self._arrive(busy, dst + arrived, min(PIECE, nbytes - arrived)))
                    arrived += PIECE
                pair = free.pop() if free else (self._pinned.acquire(size), driver.event_create(timing=False))
                busy.append(pair)
                pair[0].used_on(stream)
                driver.copy_d2h(pair[0].address, src + at, size, stream)
                driver.event_record(pair[1], stream)
            while arrived < nbytes:
                free.append(self._arrive(busy, dst + arrived, min(PIECE, nbytes - arrived)))
                arrived += PIECE
        finally:
            self._end([*busy, *free])

    def _arrive(self, busy: deque[tuple[PinnedBlock, int]], dst: int, size: int) -> tuple[PinnedBlock, int]:
        """Wait for the oldest piece and put it where it belongs."""
        block, event = busy[0]
        self._driver.event_synchronize(event)
        block.idle()
        ctypes.memmove(dst, block.address, size)
        return busy.popleft()

    def _end(self, pairs: deque[tuple[PinnedBlock, int]] | list[tuple[PinnedBlock, int]]) -> None:
        for block, event in pairs:
            if event:
                self._driver.event_destroy(event)
            self._pinned.release(block)
