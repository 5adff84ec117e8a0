"""Modes that hold for the calling thread: gradient recording, the current device, tracing, eager and deterministic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyflame.core.device import CPU, DeviceId


class DefaultDevice:
    """The device that a thread starts on: what set_device chose last, in any thread; before that the machine's best.

    `choose` finds that one, when it is first asked for. The engine, which knows the machine, puts it here.
    """

    def __init__(self) -> None:
        self.chosen: DeviceId | None = None
        self.choose: Callable[[], DeviceId] = lambda: CPU
        self._lock = threading.RLock()

    def get(self) -> DeviceId:
        if self.chosen is None:
            with self._lock:  # two threads choose once, and warn once
                if self.chosen is None:
                    self.chosen = self.choose()
        return self.chosen


class State(threading.local):
    """One instance per thread; attributes are read on every op, so they are plain."""

    device: DeviceId  # the current one; missing until this thread first needs it

    def __init__(self) -> None:
        if default_device.chosen is not None:
            self.device = default_device.chosen
        self.grad_enabled = True
        self.eager = False
        self.deterministic = False
        self.autocast: Any = None  # the 16-bit DType inside pf.autocast
        self.recorder: list[Any] | None = None  # autograd replays a composite through this list
        self.tracer: Any = None  # transform.jit
        self.streams: Any = None  # core.generator.Streams: random streams that a checkpoint records or repeats
        self.rebinds: list[Any] | None = None  # what a checkpoint undoes: cells rebound while it computes again
        self.pending = 0  # nodes built since the last evaluation
        self.line: str | None = None  # the user's line, while a composite is being decomposed

    if not TYPE_CHECKING:  # to a type checker there are no other attributes than those above

        def __getattr__(self, name: str) -> DeviceId:
            if name != "device":
                raise AttributeError(f"the thread's state has no {name!r}")
            self.device = default_device.get()
            return self.device


_MISSING: Any = object()
default_device = DefaultDevice()
state = State()


@contextmanager
def mode(**changes: Any) -> Iterator[None]:
    """Set attributes of the thread's state for the duration of a with block."""
    here = vars(state)
    before = {name: here.get(name, _MISSING) for name in changes}  # a device that is not chosen yet stays that
    here.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is _MISSING:
                del here[name]
            else:
                here[name] = value
