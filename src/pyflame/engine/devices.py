"""Opens devices, once each, when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pyflame.core.device import CPU, DeviceId
from pyflame.core.errors import DeviceError
from pyflame.core.locks import lock
from pyflame.core.state import state

if TYPE_CHECKING:
    from pyflame.runtime.base import Device as Device
    from pyflame.runtime.base import GpuDevice as GpuDevice
    from pyflame.runtime.cpu.device import CPUDevice
    from pyflame.runtime.gpu.vendor import Vendor


class _Vendors(dict[str, "Vendor"]):
    """Kinds of GPUs. Their rooms are imported when one is asked for: a tenth of what importing pyflame would cost."""

    def __missing__(self, kind: str) -> Vendor:
        found: Vendor = getattr(import_module(f"pyflame.runtime.{kind}.device"), kind.upper())
        return self.setdefault(kind, found)


GPUS = _Vendors()

_open: dict[DeviceId, Device] = {}
_lock = lock()


def get_device(device: DeviceId) -> Device:
    """The opened device, or an error that says what is missing."""
    found = _open.get(device)
    if found is None:
        with _lock:
            found = _open.get(device)
            if found is None:
                found = _open[device] = _make(device)
    return found


def current_of(kind: str) -> DeviceId:
    """The current device where it is of a kind, else the first of that kind."""
    return state.device if state.device.kind == kind else DeviceId(kind)


def _make(device: DeviceId) -> Device:
    if device == CPU:
        return cast("Device", import_module("pyflame.runtime.cpu.device").CPUDevice())
    if not device.computes:
        return cast("Device", import_module("pyflame.runtime.null.device").NullDevice(device.target, device.kind))
    if device.kind == "sim":
        return cast("Device", _simulator().simulated(device.target).open(device.index))
    return GPUS[device.kind].open(device.index)


def _simulator() -> Any:
    return import_module("pyflame.runtime.sim.device")


def restart_simulated(device: DeviceId) -> None:
    """Open a simulated device anew when it is next used: what it held is gone."""
    if device.kind != "sim":
        raise DeviceError(f"[device] expected a simulated device but got {device}; restart the process for a GPU")
    with _lock:
        _open.pop(device, None)
        _simulator().restart(device.target, device.index)


def opened() -> list[Device]:
    """The devices that were used so far."""
    return list(_open.values())


def cpu() -> CPUDevice:
    """The host."""
    return cast("CPUDevice", get_device(CPU))


__all__ = ["GPUS", "cpu", "current_of", "get_device", "opened", "restart_simulated"]
