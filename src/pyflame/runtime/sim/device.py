"""Simulated AMD GPUs as devices: `simulated("gfx942").open(0)`. The host code and the compiler are ROCm's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflame.core import knobs
from pyflame.core.errors import AMDDeviceError, ArgumentError, DeviceError, ROCmMemoryError, suggest
from pyflame.core.locks import lock
from pyflame.runtime.gpu.vendor import Vendor
from pyflame.runtime.rocm.compiler import find_compiler
from pyflame.runtime.rocm.driver import HipDriver, no_device
from pyflame.runtime.sim.checks import RACES, SIMULATED, UNINITIALISED
from pyflame.runtime.sim.modes import wanted_modes

if TYPE_CHECKING:
    from pyflame.runtime.sim.hip.module import Hip

_CHECKS = {"uninitialised": UNINITIALISED, "races": RACES}

_vendors: dict[str, Vendor] = {}
_lock = lock()


def simulated(target: str) -> Vendor:
    """The simulated GPUs of a target, as many as PYFLAME_SIM_DEVICES says.

    >>> simulated("gfx942").count()
    1
    """
    if target not in SIMULATED:
        names, got = [f"sim:{t}" for t in SIMULATED], f"sim:{target}"
        raise DeviceError(f"[device] expected one of {', '.join(names)} but got {got!r}{suggest(got, names)}")
    with _lock:
        found = _vendors.get(target)
        if found is None:
            found = _vendors[target] = Vendor(
                lambda: HipDriver(_runtime(target), f"sim:{target}"),
                find_compiler,
                ROCmMemoryError,
                no_device,
                no_such=lambda text: AMDDeviceError(
                    f"{text}; {knobs.SIM_DEVICES.name} says how many there are when the program starts"
                ),
            )
        return found


def _runtime(target: str) -> Hip:
    """The simulated HIP of a target. Addresses of different targets differ."""
    from pyflame.runtime.sim.hip.module import (  # imported here: few programs simulate, all import this
        MOST_DEVICES,
        Hip,
    )

    return Hip(
        target,
        knobs.SIM_DEVICES.integer(),
        knobs.SIM_MEMORY_MB.integer() << 20,
        knobs.SIM_SEED.integer(),
        checks=wanted_checks(),
        modes=wanted_modes(),
        code_objects=knobs.SIM_CODE_OBJECTS.integer(),
        first=MOST_DEVICES * SIMULATED.index(target),
    )


def wanted_checks(text: str | None = None, asked_by: str = knobs.SIM_CHECKS.name) -> int:
    """What a text (PYFLAME_SIM_CHECKS) asks for, as bits of the interpreter."""
    text = knobs.SIM_CHECKS.text() if text is None else text
    names = {"all": list(_CHECKS), "none": []}.get(text, [n.strip() for n in text.split(",")])
    for name in names:
        if name not in _CHECKS:
            raise ArgumentError(
                f"[{asked_by}] expected all, none or some of {', '.join(_CHECKS)} but got {name!r}"
                f"{suggest(name, _CHECKS)}"
            )
    return sum(_CHECKS[n] for n in set(names))


def restart(target: str, index: int) -> None:
    """Reset a simulated device, so that it can be opened again after a fault. Its memory is freed."""
    vendor = simulated(target)
    driver = vendor.driver
    assert isinstance(driver, HipDriver)
    driver.set_device(index)
    driver.reset()
    vendor.forget(index)
