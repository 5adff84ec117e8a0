"""What a device's memory can do: what a kernel that only moves bytes is compared with."""

from __future__ import annotations

from collections.abc import Mapping

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.state import state
from pyflame.engine import recording
from pyflame.engine.services import device_info
from pyflame.tensor.creation import ones
from pyflame.tensor.devices import device as on_device
from pyflame.tensor.modes import eval as evaluate

_HOST_BYTES = 256 << 20  # of one buffer: more than the caches hold
_GPU_BYTES = 1 << 30
_TIMES = 5

_measured: dict[DeviceId, float] = {}


def measure_limit(device: object = None) -> float:
    """Bytes per second (read and written) of the best copy of a large tensor on a device; measured once per process.

    Profiles then show each kernel's speed as a share of it.

    >>> profiling.measure_limit("cpu") > 1e9
    True
    """
    name = state.device if device is None else parse_device(device)
    if name not in _measured:
        _measured[name] = _measure(name)
    return _measured[name]


def _measure(name: DeviceId) -> float:
    whole = int(device_info(name).get("total_memory", 0)) or _GPU_BYTES * 16
    nbytes = min(_HOST_BYTES if name.kind == "cpu" else _GPU_BYTES, whole // 16)
    with on_device(name):
        source = ones(nbytes // 4)
        evaluate(source)
        window = recording.begin(graphs=False)
        try:
            for _ in range(_TIMES):
                evaluate(source.clone())
        finally:
            recording.end(window)
    return max((e.nbytes / e.seconds for e in window.events if e.kind == "kernel" and e.seconds), default=0.0)


def limits(bandwidth: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    """By device: bytes per second and where they are from. `bandwidth`: what devices say of themselves."""
    told = {
        name: (value, "what its memory's clock and width allow")
        for name, value in bandwidth.items()
        if not name.startswith("sim:")  # whose kernels take the time of this machine
    }
    return told | {str(name): (value, "measured by a copy") for name, value in _measured.items() if value}
