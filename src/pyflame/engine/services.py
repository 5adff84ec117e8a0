"""What users may ask of the machine through the engine: devices, counters of the compiler, and an empty cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyflame.core.device import CPU, DeviceId
from pyflame.core.errors import NotAvailableError, ROCmNotAvailableError
from pyflame.engine.default_device import ORDER
from pyflame.engine.devices import GPUS, cpu, get_device, opened, restart_simulated


def present() -> list[DeviceId]:
    """Devices of this machine that compute."""
    return [CPU, *[DeviceId(kind, index) for kind in ORDER for index in range(count(kind))]]


def opened_ids() -> list[DeviceId]:
    """Devices that were used so far."""
    return [device.id for device in opened()]


def count(kind: str) -> int:
    """How many devices of a kind can be used; 0 where something is missing or broken, which `why_absent` tells."""
    return 0 if why_absent(kind) else GPUS[kind].count()


def absent(kind: str, message: str) -> NotAvailableError:
    """The error of a kind of device that is not there."""
    return (ROCmNotAvailableError if kind == "rocm" else NotAvailableError)(message)


def why_absent(kind: str) -> str:
    """Why there is no device of a kind; empty where there is one."""
    try:
        return GPUS[kind].why_absent()
    except Exception as error:  # whatever bindings and drivers raise when they do not fit together
        return str(error) or type(error).__name__


def _forget_compiled() -> None:
    from pyflame.engine.evaluate import clear_plans  # not at the start: see engine/on_demand.py
    from pyflame.engine.user import kernels as user_kernels

    clear_plans()
    user_kernels.forget()


def reset_device(device: DeviceId) -> None:
    """Start a simulated device anew, after a fault. Tensors on it, and what was compiled for it by jit, are gone.

    >>> reset_device(parse_device("sim:gfx942"))    # doctest: +SKIP
    """
    _forget_compiled()
    restart_simulated(device)


def device_info(device: DeviceId) -> dict[str, Any]:
    """What a device tells of itself."""
    return get_device(device).info()


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
    from pyflame.engine.evaluate import plan_stats  # not at the start: these are for those who compile
    from pyflame.runtime.cache import stats

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
    _forget_compiled()
    compiler = cpu().compiler
    return compiler.forget() if compiler is not None else 0
