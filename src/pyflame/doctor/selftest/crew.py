"""Cases on several workers at once: most of a case's time goes into planning and compiling, while the device waits.

A process that is lost may have taken the others with it, since some drivers reset the device for all. So the crew stops
there, the lost case is tried again by itself, and a device that does not even copy after it is told as broken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from pyflame.core.device import DeviceId
from pyflame.doctor.selftest.bench import Case, Result
from pyflame.doctor.selftest.cases import find_case

Run = Callable[[Case], Result]
Tell = Callable[[Result], object]

MOST = 8  # each has a context of its own, some hundred MB of a GPU's memory
SIMPLE = "copies/bytes"  # what a device must still be able to do


def workers_for(device: DeviceId) -> int:
    """How many workers suit a device: one for the CPU, whose kernels use all cores themselves."""
    return 1 if device.kind == "cpu" else min(MOST, len(os.sched_getaffinity(0)))


def run_all(due: Iterator[Case], runs: Sequence[Run], tell: Tell) -> str:
    """Run what is due, one case on each worker at a time; gives what is wrong with the device if it broke for good."""
    for some in (islice(due, 1), due):  # one first: it compiles what all of them need, as a simulator is
        while lost := _run_until_lost(some, runs, tell):
            for case, result in lost:
                again = runs[0](case) if len(runs) > 1 else result
                if not again.fault:
                    again.notes.append(f"only beside other cases: {result.failures[0]}")
                tell(again)
                if again.fault and not runs[0](find_case(SIMPLE)).passed:
                    return f"the device does not even copy any more since {case.id}"
    return ""


def _run_until_lost(due: Iterator[Case], runs: Sequence[Run], tell: Tell) -> list[tuple[Case, Result]]:
    """Run cases until none is due, or until a process is lost; gives those that lost theirs, which are not yet told."""
    lost: list[tuple[Case, Result]] = []
    guard, stopped = threading.Lock(), threading.Event()

    def next_case() -> Case | None:
        with guard:
            return None if lost or stopped.is_set() else next(due, None)

    def work(run: Run) -> None:
        while case := next_case():
            result = run(case)
            with guard:
                if result.fault:
                    lost.append((case, result))
                else:
                    tell(result)

    with ThreadPoolExecutor(len(runs)) as pool:
        try:
            for done in [pool.submit(work, run) for run in runs]:
                done.result()
        finally:
            stopped.set()  # an interrupt or an error: the others end with the case at hand
    return lost
