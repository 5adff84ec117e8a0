"""What users may ask of the machine through the engine: devices, and an empty cache."""

from __future__ import annotations

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


def clear_cache() -> int:
    """Forget all plans and compiled kernels, in memory and on disk; gives the bytes freed on disk.

    Plans that are running in other threads end undisturbed: code stays loaded until the process ends.
    """
    _forget_compiled()
    compiler = cpu().compiler
    return compiler.forget() if compiler is not None else 0
