"""How much was compiled and planned in this process: counters of the engine and of the runtime in one."""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.engine.evaluate import plan_stats
from pyflame.runtime.cache import stats


@dataclass(frozen=True)
class CompileStats:
    """Counters of this process since it started."""

    compiles: int  # kernels compiled
    compile_seconds: float
    memory_hits: int  # kernels that were loaded already
    disk_hits: int  # kernels found in the cache folder, or compiled in the wheel
    misses: int  # kernels found nowhere
    damaged: int  # entries of the cache folder that were thrown away
    plan_hits: int  # evaluations whose plan was known
    plan_misses: int  # evaluations that had to be planned
    plan_seconds: float


def compile_stats() -> CompileStats:
    """How much was compiled and planned, and how often that was not necessary.

    >>> before = pf.compile_stats(); _ = (pf.ones(3) + 1).numpy()
    >>> pf.compile_stats().plan_hits + pf.compile_stats().plan_misses > before.plan_hits + before.plan_misses
    True
    """
    return CompileStats(
        stats.compiles,
        stats.compile_seconds,
        stats.memory_hits,
        stats.disk_hits,
        stats.misses,
        stats.damaged,
        plan_stats.hits,
        plan_stats.misses,
        plan_stats.seconds,
    )
