"""Opens devices, once each, when first used."""

from __future__ import annotations

import threading
from typing import Any

from pyflame.core.device import CPU, DeviceId
from pyflame.core.errors import DeviceError
from pyflame.runtime.cpu.device import CPUDevice
from pyflame.runtime.null.device import NullDevice

_open: dict[DeviceId, Any] = {}
_lock = threading.Lock()


def get_device(device: DeviceId) -> Any:
    """The opened device, or an error that says what is missing."""
    found = _open.get(device)
    if found is None:
        with _lock:
            found = _open.get(device)
            if found is None:
                found = _open[device] = _make(device)
    return found


def _make(device: DeviceId) -> Any:
    if device == CPU:
        return CPUDevice()
    if device.kind == "null":
        return NullDevice(device.target)
    if device.kind == "rocm":
        raise DeviceError(
            f"[device] {device} is not available: PyFlame has no ROCm runtime yet. Its kernels can be planned and "
            "built without a GPU: "
            "set_device('null:gfx942')"
        )
    raise DeviceError(f"[device] {device} is not available: PyFlame has no CUDA runtime yet; use 'cpu'")


def cpu() -> CPUDevice:
    """The host."""
    device = get_device(CPU)
    assert isinstance(device, CPUDevice)
    return device
