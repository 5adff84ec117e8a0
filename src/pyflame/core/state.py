"""Modes that hold for the calling thread: gradient recording, the current device, tracing, eager and deterministic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.core.device import CPU, DeviceId


class State(threading.local):
    """One instance per thread; attributes are read on every op, so they are plain."""

    def __init__(self) -> None:
        self.device: DeviceId = DEFAULT_DEVICE[0]
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


# A new thread starts on the device that set_device chose last, in any thread.
DEFAULT_DEVICE: list[DeviceId] = [CPU]
state = State()


@contextmanager
def mode(**changes: Any) -> Iterator[None]:
    """Set attributes of the thread's state for the duration of a with block."""
    before = {name: getattr(state, name) for name in changes}
    for name, value in changes.items():
        setattr(state, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(state, name, value)
