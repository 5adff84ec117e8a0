"""The simulated HIP: streams and events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from pyflame.runtime.sim.hip.arguments import Handle, address_of
from pyflame.runtime.sim.hip.state import HipState, Refused, hip
from pyflame.runtime.sim.hip.types import (
    hipError_t,
    hipEventBlockingSync,
    hipEventDisableTiming,
    hipEventInterprocess,
    hipEventReleaseToDevice,
    hipEventReleaseToSystem,
    hipGraphNodeType,
    hipStreamDefault,
    hipStreamNonBlocking,
)
from pyflame.runtime.sim.hip.work import Event, Stream

_LEAST, _GREATEST = 1, -1  # priorities
_EVENT_FLAGS = (
    hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess | hipEventReleaseToDevice
) | hipEventReleaseToSystem & 0xFFFFFFFF
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class StreamCalls(HipState):
    """Functions of streams and events."""

    # --- streams ------------------------------------------------------------------------------------------------------

    @hip(1)
    def hipStreamCreate(self) -> Handle:
        return self._new(hipStreamDefault, 0)

    @hip(1)
    def hipStreamCreateWithFlags(self, flags: int) -> Handle:
        return self._new(flags, 0)

    @hip(1)
    def hipStreamCreateWithPriority(self, flags: int, priority: int) -> Handle:
        return self._new(flags, max(_GREATEST, min(_LEAST, priority)))

    def _new(self, flags: int, priority: int) -> Handle:
        if flags not in (hipStreamDefault, hipStreamNonBlocking):
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags {flags} mean nothing")
        return Handle(self.new_stream(flags, priority).handle)

    @hip(2, anyway=True)
    def hipDeviceGetStreamPriorityRange(self) -> tuple[int, int]:
        return _LEAST, _GREATEST

    @hip()
    def hipStreamDestroy(self, stream: Any) -> None:
        """What it was given still runs."""
        if address_of(stream) == 0:
            raise Refused(hipError_t.hipErrorInvalidHandle, "the null stream cannot be destroyed")
        found = self.stream(stream)
        if found.capture is not None:
            found.capture.valid = False
            if found.capture.origin is found:
                self.captures.remove(found.capture)
                found.capture.leave()
        if found.blocking and found.tail is not None:
            self.gpus[found.device].orphans.append(found.tail)
        del self.streams[found.handle]

    @hip()
    def hipStreamSynchronize(self, stream: Any) -> None:
        self.finish(self._goals(self._waitable(stream, "hipStreamSynchronize")))

    @hip()
    def hipStreamQuery(self, stream: Any) -> None:
        goals = self._goals(self._waitable(stream, "hipStreamQuery"))
        self.scheduler.nudge(goals)
        if not all(g is None or g.done for g in goals):
            raise Refused(hipError_t.hipErrorNotReady, "the stream has not done all that it was given")
        self.finish(goals)

    def _waitable(self, stream: Any, what: str) -> Stream:
        found = self.stream(stream)
        if found.capture is not None:
            self.invalidate(
                [found.capture],
                hipError_t.hipErrorStreamCaptureUnsupported,
                f"{what} is not allowed on a stream that is captured",
            )
        return found

    def _goals(self, stream: Stream) -> list[Any]:
        """What waiting for a stream waits for."""
        return self.leaders(stream) if stream.null else [stream.tail]

    @hip()
    def hipStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        waiting, found = self.stream(stream), self.event(event)
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags must be 0 but are {flags}")
        theirs = found.capture
        if theirs is None:
            if waiting.capture is not None and found.work is not None:
                self.invalidate(
                    [waiting.capture],
                    hipError_t.hipErrorStreamCaptureIsolation,
                    "the event was recorded outside of the capture",
                )
            if waiting.capture is None and found.work is not None:
                self.queue(waiting, "a wait for an event", behind=[found.work])
            return
        self.valid(theirs)
        if waiting.null:
            self.invalidate(
                [theirs], hipError_t.hipErrorStreamCaptureImplicit, "the null stream cannot take part in a capture"
            )
        if waiting.capture not in (None, theirs):
            assert waiting.capture is not None
            self.invalidate(
                [theirs, waiting.capture],
                hipError_t.hipErrorStreamCaptureMerge,
                "the event and the stream belong to different captures",
            )
        theirs.join(waiting, theirs.marks[found.handle])

    @hip(1)
    def hipStreamGetFlags(self, stream: Any) -> int:
        return self.stream(stream).flags

    @hip(1)
    def hipStreamGetPriority(self, stream: Any) -> int:
        return self.stream(stream).priority

    @hip(1)
    def hipStreamGetDevice(self, stream: Any) -> int:
        return self.stream(stream).device

    @hip()
    def hipLaunchHostFunc(self, stream: Any, fn: Any, userData: Any) -> None:
        """`fn`: a function of `ctypes`, or its address. It runs when the stream gets there."""
        data, function = address_of(userData), _function(fn, _HOST_FUNCTION)
        kind = hipGraphNodeType.hipGraphNodeTypeHost
        self.submit(self.stream(stream), kind, "a function of the host", lambda: function(data))

    @hip()
    def start_library(self, stream: Any, what: str, run: Callable[[], None], handle: int) -> None:
        """No function of HIP: a library that stands in for a vendor's gives work of one of its handles to a stream."""
        self.submit(self.stream(stream), hipGraphNodeType.hipGraphNodeTypeHost, what, run, handle)

    @hip()
    def hipStreamAddCallback(self, stream: Any, callback: Any, userData: Any, flags: int) -> None:
        found = self.stream(stream)
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags must be 0 but are {flags}")
        if found.capture is not None:
            self.invalidate(
                [found.capture], hipError_t.hipErrorStreamCaptureUnsupported, "a callback cannot be captured"
            )
        data, function, handle = address_of(userData), _function(callback, _CALLBACK), found.handle
        self.queue(found, "a callback", lambda: function(handle, 0, data))

    # --- events -------------------------------------------------------------------------------------------------------

    @hip(1)
    def hipEventCreate(self) -> Handle:
        return self._new_event(0)

    @hip(1)
    def hipEventCreateWithFlags(self, flags: int) -> Handle:
        return self._new_event(flags & 0xFFFFFFFF)

    def _new_event(self, flags: int) -> Handle:
        between = flags & hipEventInterprocess and not flags & hipEventDisableTiming
        if flags & ~_EVENT_FLAGS or between:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags {flags:#x} mean nothing")
        made = self.handle()
        self.events[made] = Event(made, self.current, flags)
        return made

    @hip()
    def hipEventDestroy(self, event: Any) -> None:
        del self.events[self.event(event).handle]

    @hip()
    def hipEventRecord(self, event: Any, stream: Any) -> None:
        self._record(event, stream)

    @hip()
    def hipEventRecordWithFlags(self, event: Any, stream: Any, flags: int) -> None:
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, "the simulator records events with flags 0 only")
        self._record(event, stream)

    def _record(self, event: Any, stream: Any) -> None:
        found, queue = self.event(event), self.stream(stream)
        if queue.capture is not None:
            capture = self.valid(queue.capture)
            capture.marks[found.handle] = list(capture.tails[queue])
            found.capture = capture
            return
        if found.device != queue.device:
            raise Refused(
                hipError_t.hipErrorInvalidHandle,
                f"an event of device {found.device} cannot be recorded on a stream of device {queue.device}",
            )
        found.capture = None
        found.work = self.queue(queue, "an event", found.stamp)

    def _known(self, event: Any) -> Event:
        """An event that the host may ask for: not one of a capture."""
        found = self.event(event)
        if found.capture is not None:
            self.invalidate(
                [found.capture],
                hipError_t.hipErrorCapturedEvent,
                "the event was recorded in a capture, which never runs",
            )
        return found

    @hip()
    def hipEventSynchronize(self, event: Any) -> None:
        self.finish([self._known(event).work])

    @hip()
    def hipEventQuery(self, event: Any) -> None:
        found = self._known(event)
        self.scheduler.nudge([found.work])
        if found.work is not None and not found.work.done:
            raise Refused(hipError_t.hipErrorNotReady, "the event was not reached yet")
        self.finish([found.work])

    @hip(1)
    def hipEventElapsedTime(self, start: Any, stop: Any) -> float:
        """In milliseconds, of the host's clock: what a simulation took says nothing of a GPU."""
        first, last = self._known(start), self._known(stop)
        for event in (first, last):
            if event.work is None or not event.timing:
                raise Refused(hipError_t.hipErrorInvalidHandle, "an event was not recorded, or takes no time")
            if not event.work.done:
                raise Refused(hipError_t.hipErrorNotReady, "an event was not reached yet; synchronise with it")
        return (last.at - first.at) * 1e3


def _function(given: Any, prototype: Any) -> Any:
    """A function of C that an argument names."""
    if isinstance(given, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        return given
    address = address_of(given)
    if not address:
        raise Refused(hipError_t.hipErrorInvalidValue, "the function is null")
    return prototype(address)
