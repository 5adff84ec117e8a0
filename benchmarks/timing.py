"""Fair timing: contenders take turns in short rounds, so that a busy moment of the machine hits all of them.

Where other programs run all the time, `one_thread` tells how fast the code is rather than what the scheduler gave it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

SETTLE = 0.1
_ONE_THREAD = False
_SCALES = {"GB/s": 1e9, "GFLOP/s": 1e9, "TFLOP/s": 1e12}
_COSTS = {"s": 1.0, "us": 1e6, "MB": 1e-6}  # units of which fewer are better


@dataclass
class Result:
    """One line of a benchmark: what was done, how much of it, and seconds per contender."""

    work: str
    amount: float  # bytes or flops of one call
    unit: str  # "GB/s", "GFLOP/s", "TFLOP/s", "s", "us", "MB" (of bytes in `seconds`), or things per second
    seconds: dict[str, float]
    reach: float | None = None  # wanted ratio of the best peer's time to ours

    @property
    def ours(self) -> float:
        return self.seconds["pyflame"]

    @property
    def best_peer(self) -> tuple[str, float] | None:
        peers = {k: v for k, v in self.seconds.items() if not k.startswith("pyflame")}
        return min(peers.items(), key=lambda p: p[1]) if peers else None

    @property
    def ratio(self) -> float | None:
        """How many times faster we are than the best peer."""
        return self.best_peer[1] / self.ours if self.best_peer else None

    def rate(self, name: str) -> float:
        seconds = self.seconds[name]
        if self.unit in _COSTS:
            return seconds * _COSTS[self.unit]
        return self.amount / seconds / _SCALES.get(self.unit, 1)


def one_thread() -> None:
    """Measure the CPU time of the shortest round, with one thread for everybody. Call it before they are imported."""
    global _ONE_THREAD
    _ONE_THREAD = True
    for variable in ("PYFLAME_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"


def clock_and_summary() -> tuple[Callable[[], float], Callable[[list[float]], float]]:
    """What to measure with, and what to make of several measurements."""
    return (time.process_time, min) if _ONE_THREAD else (time.perf_counter, statistics.median)


def measure(contenders: dict[str, Callable[[], object]], *, rounds: int = 7, budget: float = 0.25) -> dict[str, float]:
    """Median seconds per call of each contender. Every round gives each of them about `budget` / rounds seconds."""
    clock, summary = clock_and_summary()
    repeats = {}
    for name, fn in contenders.items():
        for _ in range(3):
            fn()
        started = clock()
        fn()
        once = max(clock() - started, 1e-7)
        repeats[name] = max(1, int(budget / rounds / once))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, fn in contenders.items():
            # Thread pools spin for a while after their last job: let the one before come to rest, wake the own one.
            time.sleep(SETTLE)
            fn()
            started = clock()
            for _ in range(repeats[name]):
                fn()
            times[name].append((clock() - started) / repeats[name])
    return {name: summary(t) for name, t in times.items()}


def show(results: list[Result]) -> None:
    """Print a table: rates of all, and our ratio to the best peer."""
    from rich.console import Console
    from rich.table import Table

    names = list(dict.fromkeys(n for r in results for n in r.seconds))
    table = Table()
    table.add_column("work")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("ratio to best", justify="right")
    table.add_column("reach", justify="right")
    for r in results:
        cells = [f"{r.rate(n):.4g}" if n in r.seconds else "-" for n in names]
        ratio = f"{r.ratio:.2f}x ({r.best_peer[0]})" if r.ratio is not None and r.best_peer is not None else "-"
        table.add_row(f"{r.work} [{r.unit}]", *cells, ratio, f"{r.reach:.2f}x" if r.reach else "-")
    Console(width=160).print(table)
