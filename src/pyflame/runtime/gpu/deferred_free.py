"""Blocks on their way back to a pool.

A block is given up at any moment, in any thread, even in the middle of the pool's own work when the garbage collector
runs; so giving up only puts it into a queue, and the pool looks there when it next needs memory. What a stream may
still use comes back when an event behind that use is done. A block that ended in a circle of garbage may be brought
back to life by a finaliser behind its own: it has a `holder`, and waits here for as long as that lives.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from pyflame.core.errors import DeviceError, DeviceFaultError
from pyflame.runtime.gpu.driver import Driver
from pyflame.runtime.pool import LISTED

T = TypeVar("T")


class DeferredFrees(Generic[T]):
    """The queue. `give` may be called from anywhere; all else under the pool's lock."""

    def __init__(self, driver: Driver, index: int) -> None:
        self._driver = driver
        self._index = index
        self._given: deque[tuple[T, tuple[int, ...], object]] = deque()
        self._waiting: list[tuple[T, list[int]]] = []
        self._events: list[int] = []  # for use again

    def give(self, item: T, streams: Iterable[int] = (), holder: object = None) -> None:
        """Give a block up. `streams`: those whose work so far may still use it. `holder`: what only the block holds."""
        self._given.append((item, tuple(streams), holder))

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def pending(self) -> bool:
        """Whether anything was given up that has not come back."""
        return bool(self._given or self._waiting)

    def taken_in(self) -> list[T]:
        """What no stream can use any more. Others begin to wait: for events recorded now, behind every earlier use."""
        ready: list[T] = []
        for _ in range(len(self._given)):
            item, streams, *holders = self._given.popleft()
            if holders[0] is not None and max(map(sys.getrefcount, holders)) > LISTED:
                self._given.append((item, streams, holders[0]))
            elif streams and (events := self._mark_all(streams)):
                self._waiting.append((item, events))
            else:
                ready.append(item)
        return ready

    def _mark_all(self, streams: Iterable[int]) -> list[int]:
        """Events behind what these streams were given so far; none where all of it is done."""
        self._driver.set_device(self._index)
        try:
            return [self._mark(s) for s in streams]
        except DeviceFaultError:
            raise
        except DeviceError:  # a stream of another library's, which has destroyed it meanwhile
            self._driver.synchronize()
            return []

    def _mark(self, stream: int) -> int:
        event = self._events.pop() if self._events else self._driver.event_create(timing=False)
        self._driver.event_record(event, stream)
        return event

    def settled(self, wait: bool = False) -> list[T]:
        """What has waited long enough; with `wait`, all of it, after waiting for the streams."""
        ready: list[T] = []
        still: list[tuple[T, list[int]]] = []
        for item, events in self._waiting:
            if wait:
                for event in events:
                    self._driver.event_synchronize(event)
            if wait or all(map(self._driver.event_query, events)):
                ready.append(item)
                self._events += events
            else:
                still.append((item, events))
        self._waiting = still
        return ready

    def order(self, before: int, after: int) -> None:
        """Let what a stream does from now on wait for all that another was given so far."""
        event = self._mark(before)
        self._driver.stream_wait_event(after, event)
        self._events.append(event)  # recording it again does not disturb a wait that was asked for
