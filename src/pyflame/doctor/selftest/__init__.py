"""`pyflame selftest`: whether a device computes rightly, in about two minutes.

In goes a device, out comes an `Outcome` with the result of every case that was tried. Cases are visited family by
family in turns, so a short time still touches all of them; the first turn is always finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from pyflame.core.device import parse_device
from pyflame.core.errors import ArgumentError, suggest
from pyflame.core.state import state
from pyflame.doctor.selftest.bench import Case, Result, run_case
from pyflame.doctor.selftest.cases import all_cases, families, find_case, rounds
from pyflame.doctor.selftest.crew import run_all, workers_for
from pyflame.doctor.selftest.outcome import Outcome
from pyflame.doctor.selftest.worker import Worker
from pyflame.engine import services


def selftest(
    device: object = None,
    seconds: float = 120.0,
    *,
    only: Sequence[str] = (),
    case: str | None = None,
    seed: int = 0,
    isolate: bool = True,
    tell: Callable[[Result, float], object] = lambda result, share: None,
) -> Outcome:
    """Try a device, the current one unless named, for so many seconds.

    `only`: families; `case`: just this one, as "reduction/sum". `isolate`: cases run in child processes, so that an
    abort of the driver is a failure and not the end. `tell` is called after each case, with the share of the time gone.

    >>> selftest("cpu", 0, only=["copies"], isolate=False).failed
    0
    """
    place = parse_device(state.device if device is None else device)
    if place.kind == "null":
        raise ArgumentError("[selftest] expected a device that computes but got null, which only plans")
    services.device_info(place)  # raises where it is not there: that is no failure of a case
    turns = _turns(only, case, seed)
    found = Outcome(str(place), seed, seconds, sum(map(len, turns)))
    begin = time.monotonic()

    def keep(result: Result) -> None:
        found.results.append(result)
        tell(result, min(1.0, (time.monotonic() - begin) / seconds) if seconds else 1.0)

    with ExitStack() as stack:
        runs: list[Callable[[Case], Result]] = [lambda c: run_case(c, place, seed)]
        if isolate:
            count = 1 if case is not None else workers_for(place)
            runs = [stack.enter_context(Worker(str(place), seed)).run for _ in range(count)]
        found.broken = run_all(_due(turns, begin + seconds), runs, keep)
    found.spent = time.monotonic() - begin
    return found


def _turns(only: Sequence[str], case: str | None, seed: int) -> list[list[Case]]:
    """What is asked for, in turns."""
    known = families()
    for name in only:
        if name not in known:
            raise ArgumentError(f"[selftest] expected a family but got {name!r}{suggest(name, known)}")
    return list(rounds(only or known, seed)) if case is None else [[find_case(case)]]


def _due(turns: list[list[Case]], end: float) -> Iterator[Case]:
    """The cases of the first turn, then those that there is time for."""
    for number, turn in enumerate(turns):
        for case in turn:
            if number and time.monotonic() >= end:
                return
            yield case


__all__ = ["Outcome", "Result", "all_cases", "families", "selftest"]
