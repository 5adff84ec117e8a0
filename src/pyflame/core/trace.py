"""What ran, as events: engine and runtime record them, profiling reads them.

Nothing is recorded until a profile begins. Until then whoever launches something looks at `recording`, finds None, and
does nothing else.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

DEVICE_KINDS = ("kernel", "graph", "copy", "fill")  # what a device spends its time on
HOST_KINDS = ("range", "evaluate", "trace", "plan", "compile", "run")


@dataclass(slots=True)
class TraceEvent:
    """Something that happened. Times are seconds, on the clock of `time.perf_counter`.

    Kinds: those of DEVICE_KINDS and HOST_KINDS, and "memory", which says that `nbytes` were in use at `begin`.
    """

    kind: str
    name: str
    device: str = ""  # where it ran; empty: on the host
    begin: float = 0.0
    seconds: float | None = None  # None: not known
    nbytes: int = 0  # that it must move
    flops: int = 0
    ops: tuple[str, ...] = ()  # fused into it
    shape: tuple[int, ...] = ()  # of its result
    implementation: str = ""
    why: str = ""
    stream: int = 0
    given: tuple[float, float] | None = None  # when the host began to give it to the device, and how long that took
    thread: int = 0
    ranges: tuple[str, ...] = ()  # that were open in the thread, outermost first


class Recording:
    """Events of all threads, in the order in which they became known."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.threads: dict[int, str] = {}  # names
        self.clocks: set[Any] = set()  # of devices: they still have times to tell
        self.graphs = False  # whether captured graphs are replayed as such
        self.notes: dict[str, None] = {}  # what a reader of the times should know; in order

    def add(self, event: TraceEvent) -> None:
        """Record something of the calling thread."""
        event.thread = thread.number
        event.ranges = tuple(name for name, _, _ in thread.open)
        if event.thread not in self.threads:
            self.threads[event.thread] = threading.current_thread().name
        self.events.append(event)


recording: Recording | None = None


class Thread(threading.local):
    """What is known of the calling thread."""

    def __init__(self) -> None:
        self.number = next(_numbers)  # its own: Python gives the numbers of threads that have ended to others
        self.open: list[tuple[str, float, list[Any]]] = []  # ranges: name, begin, and the drivers that were told


_numbers = itertools.count(1)
thread = Thread()


class span:
    """A `with` block of the host as an event, if there is a recording when it ends.

    >>> with span("plan", "planning"):
    ...     pass
    """

    __slots__ = ("_begin", "_kind", "_name")

    def __init__(self, kind: str, name: str) -> None:
        self._kind = kind
        self._name = name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if recording is not None:
            seconds = time.perf_counter() - self._begin
            recording.add(TraceEvent(self._kind, self._name, begin=self._begin, seconds=seconds))
