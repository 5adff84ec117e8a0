"""A machine with GPUs that are not there: vendors over fake drivers, for as long as a `with` block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyflame.backend.rocm.memory import _managers
from pyflame.core.errors import (
    AMDDeviceError,
    DeviceError,
    NotAvailableError,
    OutOfMemoryError,
    ROCmMemoryError,
    ROCmNotAvailableError,
)
from pyflame.core.state import default_device, state
from pyflame.engine import devices
from pyflame.runtime.gpu.compiler import KernelCompiler
from pyflame.runtime.gpu.vendor import Vendor
from tests.emulated import EmulatedCompiler

MEMORY_ERRORS = {"cuda": OutOfMemoryError, "rocm": ROCmMemoryError}


def vendor(kind: str, driver: Any, compiler: Callable[[], KernelCompiler] = EmulatedCompiler, node: str = "") -> Vendor:
    """A vendor over a driver, or over a function that makes one or fails."""
    absent = ROCmNotAvailableError if kind == "rocm" else NotAvailableError
    make = driver if callable(driver) else lambda: driver
    no_such = AMDDeviceError if kind == "rocm" else DeviceError
    return Vendor(
        make, lambda target: compiler(), MEMORY_ERRORS[kind], lambda: absent(f"[{kind}] no GPU"), node, no_such
    )


@contextmanager
def machine(**vendors: Vendor) -> Iterator[None]:
    """These vendors' GPUs and no others, and no device chosen yet."""
    kinds = {"cuda": vendor("cuda", _nothing("cuda")), "rocm": vendor("rocm", _nothing("rocm")), **vendors}
    before = dict(devices.GPUS), dict(devices._open), default_device.chosen, vars(state)["device"]
    devices.GPUS.update(kinds)
    for device in list(devices._open):
        if device.kind in kinds:
            del devices._open[device]
    default_device.chosen = vars(state)["device"] = None
    try:
        yield
    finally:
        devices.GPUS.clear()
        devices.GPUS.update(before[0])
        devices._open.clear()
        devices._open.update(before[1])
        default_device.chosen = before[2]
        vars(state)["device"] = before[3]
        _managers.clear()


def _nothing(kind: str) -> Callable[[], Any]:
    def fail() -> Any:
        raise (ROCmNotAvailableError if kind == "rocm" else NotAvailableError)(f"[{kind}] no driver; install one")

    return fail
