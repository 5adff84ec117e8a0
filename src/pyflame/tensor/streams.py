"""Streams and events of GPUs, for programs that order or time work themselves."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.errors import ArgumentError
from pyflame.core.state import state
from pyflame.engine.memory import gpu_of


def _gpu(op: str, device: object) -> Any:
    return gpu_of(op, state.device if device is None else parse_device(device))


class Stream:
    """A queue of work of a GPU: what is in one runs in order, two run side by side. Below 0 a priority is more urgent.

    Within `with stream:` what this thread evaluates runs there, behind all that its former stream was given; that one
    goes on behind it. Other threads wait for it only where they are told to (`wait_event`, `synchronize`).

    >>> stream = pf.Stream("cuda:0")                        # doctest: +SKIP
    >>> with stream:                                        # doctest: +SKIP
    ...     pf.eval(y)
    """

    def __init__(self, device: object = None, priority: int = 0, *, _stream: Any = None) -> None:
        gpu = _gpu("Stream", device)
        self.stream: Any = _stream or gpu.make_stream(priority)
        self.priority = priority
        self._within: list[AbstractContextManager[None]] = []

    @property
    def device(self) -> str:
        return str(self.stream.device.id)

    def synchronize(self) -> None:
        """Wait for everything that it was given so far."""
        self.stream.synchronize()

    def query(self) -> bool:
        """Whether it has nothing left to do."""
        return bool(self.stream.idle)

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind what it was given so far."""
        found = event or Event(self.device)
        found.record(self)
        return found

    def wait_event(self, event: Event) -> None:
        """Let what comes next wait for an event, perhaps of another stream or GPU."""
        self.stream.wait(event.event)

    def wait_stream(self, other: Stream) -> None:
        """Let what comes next wait for all that another stream was given so far."""
        self.wait_event(other.record_event())

    def __enter__(self) -> Stream:
        context = self.stream.device.using(self.stream)
        context.__enter__()
        self._within.append(context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._within.pop().__exit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream is other.stream

    def __hash__(self) -> int:
        return hash(self.stream)

    def __repr__(self) -> str:
        return f"Stream({self.device!r}, handle={self.stream.handle:#x})"


class Event:
    """A point in a stream, to wait for or, with `enable_timing`, to measure from and to.

    >>> start, end = pf.Event("cuda:0", True), pf.Event("cuda:0", True)     # doctest: +SKIP
    >>> start.record(); pf.eval(y); end.record(); start.elapsed_time(end)   # doctest: +SKIP
    0.42
    """

    def __init__(self, device: object = None, enable_timing: bool = False) -> None:
        gpu = _gpu("Event", device)
        self.id: DeviceId = gpu.id
        self.enable_timing = enable_timing
        self.event: Any = gpu.event(enable_timing)
        self._recorded = False

    @property
    def device(self) -> str:
        return str(self.id)

    def record(self, stream: Stream | None = None) -> None:
        """Put it behind what a stream, or this thread's, was given so far."""
        if stream is not None and stream.stream.device.id != self.id:
            raise ArgumentError(f"[Event] expected a stream of {self.id} but got one of {stream.device}")
        self.event.record(None if stream is None else stream.stream)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let what a stream, or this thread's, is given next wait for it."""
        (current_stream(self.device) if stream is None else stream).wait_event(self)

    def query(self) -> bool:
        """Whether the work before it is done; so is that of an event that was never recorded."""
        return not self._recorded or bool(self.event.done)

    def synchronize(self) -> None:
        """Wait for it."""
        if self._recorded:
            self.event.synchronize()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds on the GPU from this event to another. Waits for that one."""
        for event in (self, end):
            if not event.enable_timing or not event._recorded:
                raise ArgumentError(
                    "[elapsed_time] expected two recorded events made with enable_timing=True but one "
                    + ("was not recorded" if event.enable_timing else "does not take the time")
                )
        return 1e3 * float(end.event.seconds_since(self.event))

    def __repr__(self) -> str:
        return f"Event({self.device!r}{', enable_timing=True' if self.enable_timing else ''})"


def current_stream(device: object = None) -> Stream:
    """The stream that this thread's work goes to."""
    gpu = _gpu("current_stream", device)
    return Stream(gpu.id, _stream=gpu.chosen)


def default_stream(device: object = None) -> Stream:
    """The stream that work goes to where none was chosen."""
    gpu = _gpu("default_stream", device)
    return Stream(gpu.id, _stream=gpu.main)
