"""A worker's way to its parent: values go into segments of shared memory, which the parent hands back after use.

Segments are used again and again: fresh pages cost more than a copy. The arrays of a batch are made in the segment that
it will be sent in, if its size could be foreseen (from the batch before); what lies elsewhere is copied.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any

import numpy as np

from pyflame.data.shared import Bytes, aligned, anonymous_file, dumps, map_file

_INLINE = 4096  # bytes that are cheaper to send than to share
_STEPS = 4  # sizes are rounded up to this many steps per power of two, so that a segment fits again
_SMALLEST = 1 << 16


@dataclass
class Message:
    """One value. Its arrays lie in a segment at `spans`, and its pickle too where that is long; or all is inline."""

    run: int
    number: int
    pickled: bytes = b""
    inline: list[bytes] = field(default_factory=list)
    segment: int | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)
    new_size: int = 0  # of a segment that the parent does not know yet: its descriptor follows
    dropped: list[int] = field(default_factory=list)  # segments that will not come again


class _Segment:
    """Shared memory. `lease` is all of it as bytes: arrays over parts of it keep that one alive, and so in use."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.fd: int | None = anonymous_file(size)
        self.map = map_file(self.fd, size)
        self.away = False  # with the parent
        self._lease: Any = lambda: None

    def lease(self) -> Bytes:
        block = np.frombuffer(self.map, np.uint8)
        self._lease = weakref.ref(block)
        return block

    def is_free(self) -> bool:
        """Nobody can see it: not the parent, and no array that user code kept."""
        return not self.away and self._lease() is None


class Outbox:
    """Sends values over a connection."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel
        self._segments: dict[int, _Segment] = {}
        self._made = 0
        self._open: tuple[_Segment, Bytes] | None = None  # where the batch in the making goes
        self._used = 0
        self._expected = 0

    def take_back(self, numbers: list[int]) -> None:
        """The parent is done with these segments."""
        for number in numbers:
            if number in self._segments:
                self._segments[number].away = False

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """An array for the batch in the making."""
        dtype = np.dtype(dtype)
        size = dtype.itemsize * int(np.prod(shape))
        if self._open is None and self._expected:
            self._begin(self._expected)
        if self._open is None or not size or self._used + size > self._open[0].size:
            return np.empty(shape, dtype)
        start, self._used = self._used, self._used + aligned(size)
        return self._open[1][start : start + size].view(dtype).reshape(shape)  # type: ignore[no-any-return]

    def _begin(self, size: int) -> None:
        """Open a segment with this much room."""
        free = sorted((s for s in self._segments.values() if s.is_free()), key=lambda s: s.size)
        segment = next((s for s in free if s.size >= size), None)
        if segment is None:
            step = max(1 << max(size.bit_length() - 1, 0), _SMALLEST) // _STEPS
            segment = _Segment(self._made, -(-size // step) * step)
            self._made += 1
            self._segments[segment.number] = segment
        self._open, self._used = (segment, segment.lease()), 0

    def send(self, run: int, number: int, value: Any) -> None:
        """Send a value under the number of its batch."""
        pickled, buffers = dumps(value)
        long = len(pickled) > _INLINE
        sizes = [b.nbytes for b in buffers] + [len(pickled)] * long
        if sum(sizes) <= _INLINE:
            self._expected = 0
            self._post(Message(run, number, pickled, [b.tobytes() for b in buffers]))
        else:
            if long:
                buffers.append(np.frombuffer(pickled, np.uint8))
            segment, spans = self._fill(buffers)
            message = Message(run, number, b"" if long else pickled, [], segment.number, spans)
            message.dropped = self._drop_small(segment.size)
            segment.away = True
            self._post(message, segment)
        self._open = None

    def _fill(self, buffers: list[Bytes]) -> tuple[_Segment, list[tuple[int, int]]]:
        """Put what is not there yet into the open segment; where it does not fit, all into a larger one."""
        spans = self._spans(buffers)
        if spans is None:
            self._begin(sum(aligned(b.nbytes) for b in buffers))
            spans = self._spans(buffers)
        assert spans is not None and self._open is not None
        segment, block = self._open
        for buffer, (at, size, there) in zip(buffers, spans, strict=True):
            if not there:
                block[at : at + size] = buffer
        self._expected = max(at + aligned(size) for at, size, _ in spans)
        return segment, [(at, size) for at, size, _ in spans]

    def _spans(self, buffers: list[Bytes]) -> list[tuple[int, int, bool]] | None:
        """(offset, size, whether it lies there already) of each in the open segment; None if one has no room."""
        if self._open is None:
            return None
        segment, block = self._open
        base, free, spans = block.ctypes.data, self._used, []
        for buffer in buffers:
            size, at = buffer.nbytes, buffer.ctypes.data - base
            there = size > 0 and 0 <= at < segment.size
            if not there:
                at, free = free, free + aligned(size)
                if at + size > segment.size:
                    return None
            spans.append((at, size, there))
        return spans

    def _drop_small(self, size: int) -> list[int]:
        """Forget free segments that batches have outgrown."""
        small = [s.number for s in self._segments.values() if s.is_free() and s.size < size // 2 and s.fd is None]
        for number in small:
            del self._segments[number]
        return small

    def _post(self, message: Message, segment: _Segment | None = None) -> None:
        if segment is None or segment.fd is None:
            self._channel.send(message)
            return
        message.new_size = segment.size
        self._channel.send(message)
        send_handle(self._channel, segment.fd, os.getppid())
        os.close(segment.fd)
        segment.fd = None

    def reset(self) -> None:
        """Begin a batch anew: the one before was not sent."""
        self._open = None
