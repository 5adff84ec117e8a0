"""Named ranges of a program, for profiles and for the vendors' own profilers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from pyflame.core import trace
from pyflame.core.errors import ArgumentError
from pyflame.core.trace import TraceEvent
from pyflame.engine.devices import opened

F = TypeVar("F", bound=Callable[..., Any])


class annotate:
    """Name what a `with` block or a function does: in profiles, and in rocprof and Nsight (roctx, nvtx).

    Launches count for the ranges of the thread that launched them. Ops are lazy: what shall run inside of a range must
    be evaluated there (`pf.eval`, a jitted function, `.numpy()`). Inside of a jitted function a range is seen only
    while it is traced.

    >>> with pf.profile() as p, pf.annotate("forward"):
    ...     pf.eval(pf.ones(3).exp())
    >>> p.ranges[0].path, p.ranges[0].launches
    (('forward',), 1)
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"[annotate] expected a name but got {name!r}; write @pf.annotate('forward')")
        self.name = name

    def __enter__(self) -> annotate:
        drivers = {id(d.gpu.driver): d.gpu.driver for d in opened() if d.gpu is not None}
        for driver in drivers.values():
            driver.range_push(self.name)
        trace.thread.open.append((self.name, time.perf_counter(), list(drivers.values())))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        name, begin, drivers = trace.thread.open.pop()
        if trace.recording is not None:
            trace.recording.add(TraceEvent("range", name, begin=begin, seconds=time.perf_counter() - begin))
        for driver in drivers:
            driver.range_pop()

    def __call__(self, fn: F) -> F:
        @functools.wraps(fn)
        def named(*args: Any, **kwargs: Any) -> Any:
            with annotate(self.name):
                return fn(*args, **kwargs)

        return named  # type: ignore[return-value]
