"""`pf.profile`: what a piece of a program launched, how long each launch took, and how fast that was."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Callable
from dataclasses import fields
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from pyflame.core.atomic import write_atomic
from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.locks import rlock
from pyflame.core.trace import TraceEvent
from pyflame.engine import recording
from pyflame.engine.compile_stats import CompileStats
from pyflame.engine.recording import MemoryUse, Window
from pyflame.profiling import render
from pyflame.profiling.chrome import chrome_trace
from pyflame.profiling.kernels import KernelTime, RangeTime, by_kernel, by_range, device_seconds
from pyflame.profiling.limits import limits

F = TypeVar("F", bound=Callable[..., Any])


class Profile:
    """What `pf.profile()` gives. Read it behind its `with` block; used again, it adds up.

    All threads and devices are recorded. Times of GPU launches are taken by events on both sides of each, on the GPU,
    and read together at the end.
    """

    def __init__(self, graphs: bool = False) -> None:
        self.graphs = graphs
        self._lock = rlock()
        self._depth = 0
        self._window: Window | None = None
        self._windows: list[Window] = []

    # --- recording ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Profile:
        with self._lock:
            if not self._depth:
                self._window = recording.begin(self.graphs)
            self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            window, self._window = self._window, None
            assert window is not None
            self._windows.append(window)
            recording.end(window, failed=error is not None)

    def __call__(self, fn: F) -> F:
        """As a decorator: every call of the function is recorded. Its `profile` is this object."""

        @functools.wraps(fn)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        profiled.profile = self  # type: ignore[attr-defined]
        return profiled  # type: ignore[return-value]

    def _done(self) -> list[Window]:
        with self._lock:
            if not self._windows:
                what = "is still running" if self._depth else "has not begun"
                raise ArgumentError(
                    f"[profile] expected a profile that has ended but this one {what}; read it behind its with block"
                )
            return list(self._windows)

    # --- what was recorded --------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[TraceEvent]:
        """Everything that was recorded, in order of time."""
        return sorted((e for w in self._done() for e in w.events), key=lambda e: e.begin)

    @property
    def seconds(self) -> float:
        """From begin to end, the devices' last work included."""
        return sum(w.seconds for w in self._done())

    @property
    def device_seconds(self) -> dict[str, float]:
        """How long each device was at work."""
        return device_seconds(self.events)

    @property
    def kernels(self) -> list[KernelTime]:
        """Launches by kernel, and copies, the longest first."""
        return by_kernel(self.events)

    @property
    def ranges(self) -> list[RangeTime]:
        """The ranges of `pf.annotate`."""
        return by_range(self.events)

    @property
    def memory(self) -> dict[str, MemoryUse]:
        """Bytes in use on each device: before, after, and the most meanwhile."""
        found: dict[str, MemoryUse] = {}
        for window in self._done():
            for name, use in window.memory.items():
                first = found.get(name, use)
                found[name] = MemoryUse(first.before, use.after, max(first.peak, use.peak))
        return found

    @property
    def compile(self) -> CompileStats:
        """What was planned and compiled meanwhile, and what was found in the caches."""
        parts = [w.compile for w in self._done() if w.compile is not None]
        return CompileStats(*[sum(getattr(part, f.name) for part in parts) for f in fields(CompileStats)])

    @property
    def limits(self) -> dict[str, tuple[float, str]]:
        """By device: the bytes per second that its memory can do, where they are known, and how they are known."""
        return limits({k: v for w in self._done() for k, v in w.bandwidth.items()})

    @property
    def notes(self) -> list[str]:
        """What a reader of the times should know."""
        return list(dict.fromkeys(note for w in self._done() for note in w.notes))

    # --- telling ------------------------------------------------------------------------------------------------------

    def table(self, rows: int = 30, shapes: bool = False) -> str:
        """Kernels as text, the longest first. `shapes`: launches with results of different shapes apart.

        >>> with pf.profile() as p:
        ...     pf.eval(pf.randn(64, 64).exp().sum())
        >>> print(p.table())   # doctest: +SKIP
        """
        return render.text(self, rows, shapes)

    def __str__(self) -> str:
        return self.table() if self._windows else f"profile(graphs={self.graphs})"

    def trace(self) -> dict[str, Any]:
        """A trace in the format of Chrome and Perfetto; `save` writes it."""
        windows = self._done()
        threads = {k: v for w in windows for k, v in w.threads.items()}
        return chrome_trace(self.events, windows[0].begin, threads, render.Found(self).facts())

    def html(self, title: str = "Profile") -> str:
        """A page of its own: facts, timeline, kinds of work, kernels, ranges."""
        return render.page(self, title)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write `.json` or `.json.gz` (a trace for ui.perfetto.dev), `.html` (a report) or `.txt` (the table).

        >>> p.save("trace.json")   # doctest: +SKIP
        """
        to = Path(path)
        content: str | bytes
        if to.suffix == ".html":
            content = self.html()
        elif to.suffix == ".txt":
            content = self.table(rows=10**6)
        elif to.suffix == ".json":
            content = json.dumps(self.trace())
        elif to.suffixes[-2:] == [".json", ".gz"]:
            content = gzip.compress(json.dumps(self.trace()).encode())
        else:
            raise ArgumentError(
                f"[profile] expected a file .json, .json.gz, .html or .txt but got {to.name!r}"
                f"{suggest(to.suffix, ('.json', '.html', '.txt'))}"
            )
        write_atomic(to, content)
        return to


def profile(*, graphs: bool = False) -> Profile:
    """Record what runs in a `with` block, or in every call of a function that it decorates.

    With `graphs` jitted functions go on being replayed as captured graphs and each replay is timed as one; else their
    launches are given one by one, so that each is seen.

    >>> with pf.profile() as p:
    ...     pf.eval(pf.softmax(pf.randn(8, 8) @ pf.randn(8, 8), -1))
    >>> sum(k.calls for k in p.kernels) > 0 and p.seconds > 0
    True
    """
    return Profile(graphs)
