"""Streams and events of a device.

Their handles are never destroyed but used again: memory that belongs to a stream keeps naming it, and an object may be
forgotten at a moment when no call to the driver is allowed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pyflame.runtime import base

if TYPE_CHECKING:
    from pyflame.runtime.gpu.device import GpuDevice


class Stream:
    """A queue of work. Work of one stream runs in order; streams wait for each other by events only."""

    def __init__(self, device: GpuDevice, priority: int = 0) -> None:
        self.device = device
        self._spare = device.spare_streams.setdefault(priority, deque())
        try:
            self.handle = self._spare.popleft()
        except IndexError:
            device.use()
            self.handle = device.guard.stream_create(priority)

    def synchronize(self) -> None:
        """Wait for everything given to it so far."""
        self.device.use()
        self.device.guard.stream_synchronize(self.handle)

    @property
    def idle(self) -> bool:
        """Whether it has nothing left to do."""
        self.device.use()
        return self.device.guard.stream_query(self.handle)

    def wait(self, event: base.Event) -> None:
        """Let what comes next wait for an event, perhaps of another device."""
        self.device.use()
        self.device.guard.stream_wait_event(self.handle, event.handle)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._spare.append(self.handle)


class ForeignStream(Stream):
    """A stream that somebody else made and keeps, as torch does its own. 0 is the device's default stream."""

    def __init__(self, device: GpuDevice, handle: int) -> None:
        self.device = device
        self._spare = deque()
        self.handle = handle


class Event:
    """A point in a stream."""

    def __init__(self, device: GpuDevice, timing: bool = False) -> None:
        self.device = device
        self._spare = device.spare_events.setdefault(timing, deque())
        try:
            self.handle = self._spare.popleft()
        except IndexError:
            device.use()
            self.handle = device.guard.event_create(timing)

    def record(self, stream: base.Stream | None = None) -> Event:
        """Put it behind what the stream (the default one) was given so far."""
        self.device.use()
        self.device.guard.event_record(self.handle, (stream or self.device.stream).handle)
        return self

    @property
    def done(self) -> bool:
        self.device.use()
        return self.device.guard.event_query(self.handle)

    def synchronize(self) -> None:
        """Wait for it."""
        self.device.use()
        self.device.guard.event_synchronize(self.handle)

    def seconds_since(self, start: base.Event) -> float:
        """Time on the GPU between two events made with `timing`; waits for this one."""
        self.synchronize()
        return self.device.guard.event_elapsed(start.handle, self.handle)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._spare.append(self.handle)
