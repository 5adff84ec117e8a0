"""What users may ask of the machine through the engine: devices, counters of the compiler, and an empty cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyflame.core.device import CPU, DeviceId
from pyflame.engine.devices import GPUS, cpu, get_device
from pyflame.engine.evaluate import clear_plans, plan_stats
from pyflame.runtime.cache import stats


def present() -> list[DeviceId]:
    """Devices of this machine that compute."""
    return [CPU, *[DeviceId(kind, index) for kind, vendor in GPUS.items() for index in range(vendor.count())]]


def why_absent(kind: str) -> str:
    """Why there is no device of a kind; empty where there is one."""
    return GPUS[kind].why_absent()


def device_info(device: DeviceId) -> dict[str, Any]:
    """What a device tells of itself."""
    info: dict[str, Any] = get_device(device).info()
    return info


@dataclass(frozen=True)
class CompileStats:
    """Counters of this process since it started."""

    compiles: int  # kernels compiled
    compile_seconds: float
    memory_hits: int  # kernels that were loaded already
    disk_hits: int  # kernels found in the cache folder
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


def clear_cache() -> int:
    """Forget all plans and compiled kernels, in memory and on disk; gives the bytes freed on disk.

    Plans that are running in other threads end undisturbed: code stays loaded until the process ends.
    """
    clear_plans()
    compiler = cpu().compiler
    return compiler.forget() if compiler is not None else 0
