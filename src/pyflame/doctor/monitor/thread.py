"""Samples taken in a thread while a program works."""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any, TextIO

from pyflame.core.errors import ArgumentError
from pyflame.doctor.monitor.sample import Sample
from pyflame.doctor.monitor.sampler import Sampler
from pyflame.doctor.monitor.summary import Summary, Totals

LONGEST = 86400.0  # seconds between samples


class Monitor:
    """Watches GPUs and the host every `interval` seconds, from `start` to `stop` or within `with`.

    Nothing that goes wrong reaches the program: samples that fail are counted, and `summary()` tells the last reason.
    The thread ends with the monitor, also where nobody stops it.

    >>> with pf.monitor(interval=0.5, log="run/gpu.jsonl") as watching:
    ...     train()
    >>> print(watching.summary())
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        log: str | os.PathLike[str] | None = None,
        keep: int = 3600,
        root: str | os.PathLike[str] = "/",
    ) -> None:
        if not 0 < interval <= LONGEST:
            raise ArgumentError(
                f"[monitor] expected an interval of more than 0 seconds, up to a day, but got {interval}"
            )
        self.interval = interval
        self._log = None if log is None else Path(log)
        self._kept: deque[Sample] = deque(maxlen=keep)
        self._root = Path(root)
        self._totals, self._window = Totals(), Totals()
        self._failures, self._error = 0, ""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Monitor:
        """Take samples from now on, the first one at once."""
        if self._thread is None:
            self._stop = threading.Event()
            args = (weakref.ref(self), self._stop, self._root, self._log, self.interval)
            self._thread = threading.Thread(target=_watch, args=args, name="pyflame monitor", daemon=True)
            weakref.finalize(self, self._stop.set)
            self._thread.start()
        return self

    def stop(self) -> Summary:
        """Take a last sample, end the thread, and give the summary."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(timeout=max(5.0, 2 * self.interval))  # a driver that hangs must not hold the program
        return self.summary()

    def __enter__(self) -> Monitor:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The newest samples as dicts, at most `keep`."""
        with self._lock:
            kept = list(self._kept)
        return [sample.to_json() for sample in kept]

    @property
    def latest(self) -> Sample | None:
        with self._lock:
            return self._kept[-1] if self._kept else None

    def summary(self) -> Summary:
        """Peak memory, mean use, energy and so on since the start."""
        with self._lock:
            return self._totals.summary(self._failures, self._error)

    def window(self) -> Summary:
        """The same since the last call of this."""
        with self._lock:
            done, self._window = self._window, Totals()
        return done.summary()

    def _take(self, sample: Sample) -> None:
        now = time.monotonic()
        with self._lock:
            self._kept.append(sample)
            self._totals.add(sample, now)
            self._window.add(sample, now)

    def _failed(self, error: Exception | str) -> None:
        with self._lock:
            self._failures += 1
            self._error = str(error) or type(error).__name__


def _watch(ref: weakref.ref[Monitor], stop: threading.Event, root: Path, log: Path | None, interval: float) -> None:
    """The thread. It holds the monitor only while it hands over a sample, so that a forgotten one can go."""
    file: TextIO | None = None
    with Sampler(root) as sampler:
        due, last = time.monotonic(), False
        while True:
            problem: Exception | str = ""
            sample: Sample | None = None
            try:
                sample = sampler.sample()
                problem = sampler.failed
                if log is not None:
                    file = _opened(log) if file is None else file
                    append(file, sample)
            except Exception as error:  # the program must not feel it: counted, and told by the summary
                problem = error
            monitor = ref()
            if monitor is None:
                break
            if sample is not None:
                monitor._take(sample)
            if problem:
                monitor._failed(problem)
            del monitor
            if last:
                break
            due = max(due + interval, time.monotonic())  # late ones are left out, not made up for
            last = stop.wait(due - time.monotonic())
    if file is not None:
        file.close()


def _opened(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a", encoding="utf-8")


def append(file: TextIO, sample: Sample) -> None:
    """A line of JSON, written through at once."""
    file.write(json.dumps(sample.to_json()) + "\n")
    file.flush()


def monitor(
    interval: float = 1.0,
    *,
    log: str | os.PathLike[str] | None = None,
    keep: int = 3600,
    root: str | os.PathLike[str] = "/",
) -> Monitor:
    """Watch GPUs, processes and the host in a thread: use as `with pf.monitor() as watching:`, or `start` and `stop`.

    `log` appends each sample as a line of JSON; `keep` bounds `samples`; `root` is for tests, a folder with another
    machine's /sys and /proc.

    >>> with monitor(interval=0.1) as watching:
    ...     work()
    >>> watching.summary().gpus
    ()
    """
    return Monitor(interval, log=log, keep=keep, root=root)
