"""Blocks on their way back to a pool.

A block is given up at any moment, in any thread, even in the middle of the pool's own work when the garbage collector
runs; so giving up only puts it into a queue, and the pool looks there when it next needs memory. What a stream may
still use comes back when an event behind that use is done. A block that ended in a circle of garbage may be brought
back to life by a finaliser behind its own: as long as it lives it holds what lies in the queue, which waits.

An interrupt (Ctrl-C) may come between any two bytecodes. So a block gives itself up in C (`core/undo.py`), and leaves
the queue behind the call that frees it: nothing is lost, but that call may come twice.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
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
        self._given: deque[tuple[T, list[int]]] = deque()
        self._waiting: list[tuple[T, list[int]]] = []
        self._events: list[int] = []  # for use again
        # Takes what is given up, and the streams whose work so far may still use it.
        self.give: Callable[[tuple[T, list[int]]], None] = self._given.append

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def pending(self) -> bool:
        """Whether anything was given up that has not come back."""
        return bool(self._given or self._waiting)

    def take_in(self, free: Callable[[T], None]) -> None:
        """Free what no stream can use any more. Others begin to wait: for events recorded now, behind every earlier
        use."""
        given = self._given
        for _ in range(len(given)):
            if not given:  # the collector has run, and with it this
                return
            if sys.getrefcount(given[0]) > LISTED:  # its block lives again
                given.rotate(-1)
                continue
            entry = given[0]
            item, streams = entry
            if streams and (events := self._mark_all(streams)):
                self._waiting.append((item, events))
            else:
                free(item)
            if given and given[0] is entry:
                given.popleft()

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

    def settle(self, free: Callable[[T], None], wait: bool = False) -> None:
        """Free what has waited long enough; with `wait`, all of it, after waiting for the streams."""
        for entry in list(self._waiting):
            item, events = entry
            if wait:
                for event in events:
                    self._driver.event_synchronize(event)
            if wait or all(map(self._driver.event_query, events)):
                free(item)
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    self._events += events

    def order(self, before: int, after: int) -> None:
        """Let what a stream does from now on wait for all that another was given so far."""
        event = self._mark(before)
        self._driver.stream_wait_event(after, event)
        self._events.append(event)  # recording it again does not disturb a wait that was asked for
