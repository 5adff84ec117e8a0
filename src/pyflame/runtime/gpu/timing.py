"""When work ran on a GPU: events on both sides of each piece of it, read many at a time.

Recording an event costs the GPU next to nothing; reading one waits for it. So times are read when somebody needs them,
or when many events are out. A piece that the GPU could begin before the host had given it is measured from the moment
it was waited for: for kernels of a few microseconds on an idle GPU that is most of the time shown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyflame.core import trace
from pyflame.core.locks import lock
from pyflame.core.trace import TraceEvent
from pyflame.runtime import base
from pyflame.runtime.gpu.stream import Event

if TYPE_CHECKING:
    from pyflame.runtime.gpu.device import GpuDevice

MOST = 4096  # pieces whose events are out at once
_TRIES = 3  # at finding out what time it is on the GPU
T = TypeVar("T")


class Timings:
    """Takes the times of a device's work. Thread safe.

    >>> event = TraceEvent("kernel", "mine")                                  # doctest: +SKIP
    >>> device.timings.around(event, lambda: device.launch(function, ...))    # doctest: +SKIP
    >>> device.timings.resolve(); event.seconds                               # doctest: +SKIP
    1.2e-05
    """

    def __init__(self, device: GpuDevice) -> None:
        self._device = device
        self._lock = lock()
        self._pending: list[tuple[TraceEvent, Event, Event]] = []
        self._anchor: tuple[Event, float] | None = None  # a point in the stream, and when that was for the host
        self._inside = threading.local()

    def around(self, event: TraceEvent, work: Callable[[], T], stream: base.Stream | None = None) -> T:
        """Do work that is given to a stream; the event will hold its time, and joins the recording if there is one.

        Work inside of other work is part of that. What a graph captures does not run now and has no time.
        """
        device = self._device
        if device.capturing or getattr(self._inside, "busy", False):
            return work()
        if trace.recording is not None and self._anchor is None:
            self._drop_anchor()
        stream = stream or device.stream
        event.device, event.stream = str(device.id), stream.handle
        self._inside.busy = True
        try:
            began = time.perf_counter()
            start = Event(device, timing=True).record(stream)
            result = work()
            end = Event(device, timing=True).record(stream)
            event.given = began, time.perf_counter() - began
            event.begin = began
        finally:
            self._inside.busy = False
        with self._lock:
            self._pending.append((event, start, end))
        recording = trace.recording
        if recording is not None:
            recording.add(event)
            recording.clocks.add(self)
        if len(self._pending) >= MOST:
            self.resolve()
        return result

    def wait(self) -> None:
        """Wait for all that was timed."""
        with self._lock:
            last = {event.stream: end for event, _, end in self._pending}
        for end in last.values():
            end.synchronize()

    def resolve(self) -> None:
        """Wait for all that was timed, and read its times."""
        self.wait()
        with self._lock:
            pending, self._pending = self._pending, []
            anchor, self._anchor = self._anchor, None
        for event, start, end in pending:
            event.seconds = end.seconds_since(start)
            if anchor is not None and event.given is not None:
                begin = anchor[1] + start.seconds_since(anchor[0])
                event.begin = max(begin, event.given[0])  # the clocks are known to agree within microseconds only

    def _drop_anchor(self) -> None:
        """Find a moment that both clocks know: that of the try which took the least time."""
        best = None
        for _ in range(_TRIES):
            event = Event(self._device, timing=True)
            before = time.perf_counter()
            event.record().synchronize()
            width = time.perf_counter() - before
            if best is None or width < best[0]:
                best = width, event, before + width / 2
        assert best is not None
        self._anchor = best[1:]
