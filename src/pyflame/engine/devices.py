"""Opens devices, once each, when first used."""

from __future__ import annotations

from pyflame.core.device import CPU, DeviceId
from pyflame.core.errors import DeviceError
from pyflame.core.locks import lock
from pyflame.core.state import state
from pyflame.runtime.base import Device, GpuDevice
from pyflame.runtime.cpu.device import CPUDevice
from pyflame.runtime.cuda.device import CUDA
from pyflame.runtime.null.device import NullDevice
from pyflame.runtime.rocm.device import ROCM
from pyflame.runtime.sim.device import restart, simulated

# Kinds of GPUs, in the order in which one is chosen.
GPUS = {"cuda": CUDA, "rocm": ROCM}

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
        return CPUDevice()
    if device.kind == "null":
        return NullDevice(device.target)
    if device.kind == "sim":
        return simulated(device.target).open(device.index)
    return GPUS[device.kind].open(device.index)


def restart_simulated(device: DeviceId) -> None:
    """Open a simulated device anew when it is next used: what it held is gone."""
    if device.kind != "sim":
        raise DeviceError(f"[device] expected a simulated device but got {device}; restart the process for a GPU")
    with _lock:
        _open.pop(device, None)
        restart(device.target, device.index)


def opened() -> list[Device]:
    """The devices that were used so far."""
    return list(_open.values())


def cpu() -> CPUDevice:
    """The host."""
    device = get_device(CPU)
    assert isinstance(device, CPUDevice)
    return device


__all__ = ["GPUS", "Device", "GpuDevice", "cpu", "current_of", "get_device", "opened", "restart_simulated"]
