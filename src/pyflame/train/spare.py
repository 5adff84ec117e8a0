"""Writes that a run can do without: logs, curves, progress."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


class SpareWrites:
    """Lets a run go on when a log cannot be written, as on a full disk: says so once, and at the end what was lost.

    >>> writes = SpareWrites("run/log.jsonl")
    >>> with writes.step(3):
    ...     append_line()
    """

    def __init__(self, what: object) -> None:
        self._what = what
        self._lost: list[int] = []

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Around a write that belongs to a step of the run."""
        try:
            yield
        except OSError as error:
            self._lost.append(step)
            if len(self._lost) == 1:
                self._warn(f"{self._what} cannot be written ({error}); the run goes on without it")

    def report(self) -> None:
        """At the end of a run: what was lost."""
        if self._lost:
            steps = f"{len(self._lost)} writes to {self._what}, of steps {self._lost[0]} to {self._lost[-1]}"
            self._lost = []
            self._warn(f"{steps}, failed and are lost")

    def _warn(self, words: str) -> None:
        warnings.warn(f"[fit] {words}", RuntimeWarning, stacklevel=4)
