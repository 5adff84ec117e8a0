"""AMD GPUs through AMD's library amdsmi (`rocm.bindings.amdsmi` of rocm-bindings-systems; x86-64 only).

Functions give (status, value), or (status,) and fill memory of the caller. What the library does not know is the
largest number of its type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflame.core.errors import NotAvailableError
from pyflame.core.optional import optional
from pyflame.doctor.monitor.sample import Gpu, Process
from pyflame.doctor.monitor.sysfs import AmdgpuFiles, reasons

_UNKNOWN = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
# Times that limits were in force, by what the limit is of: where they have grown, the GPU was throttled since.
_RESIDENCIES = {
    "prochot_residency_acc": "temperature", "ppt_residency_acc": "power", "socket_thm_residency_acc": "temperature",
    "vr_thm_residency_acc": "temperature", "hbm_thm_residency_acc": "temperature",
}  # fmt: skip


class AmdSmi:
    """What amdsmi tells; processes, and what it leaves open, come from the driver's files."""

    name = "amdsmi"

    def __init__(self, root: str | Path = "/") -> None:
        self._smi: Any = optional("rocm.bindings.amdsmi", "rocm", "monitor")
        flags = int(self._smi.amdsmi_init_flags_t.AMDSMI_INIT_AMD_GPUS)
        if not self._succeeded(self._smi.amdsmi_init(flags)):
            raise NotAvailableError("[monitor] expected amdsmi to find the driver but it does not; see pyflame doctor")
        self._files = AmdgpuFiles(root)
        self._before: dict[int, dict[str, int]] = {}
        self._handles = self._find()

    def _succeeded(self, result: tuple[Any, ...]) -> bool:
        return bool(result[0] == self._smi.amdsmi_status_t.AMDSMI_STATUS_SUCCESS)

    def _value(self, call: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
        """What a call gives beside its status, or None where it does not work on this GPU."""
        result = call(*args)
        return result[1] if self._succeeded(result) else None

    def _list(self, call: Callable[..., tuple[Any, ...]], *args: int) -> list[int]:
        """Handles: first how many, then which."""
        count = (ctypes.c_uint32 * 1)()
        if not self._succeeded(call(*args, count, None)) or not count[0]:
            return []
        handles = (ctypes.c_void_p * count[0])()
        return [h for h in handles if h] if self._succeeded(call(*args, count, handles)) else []

    def _find(self) -> list[int]:
        sockets = self._list(self._smi.amdsmi_get_socket_handles)
        return [gpu for socket in sockets for gpu in self._list(self._smi.amdsmi_get_processor_handles, socket)]

    def read(self) -> tuple[list[Gpu], list[Process]]:
        below, processes = self._files.read()
        by_bus = {gpu.bus: gpu for gpu in below}
        told = sorted((self._gpu(handle) for handle in self._handles), key=lambda gpu: gpu.bus)
        return [gpu.filled_from(by_bus.get(gpu.bus, gpu)) for gpu in told], processes

    def _gpu(self, handle: int) -> Gpu:
        smi = self._smi
        asic = self._value(smi.amdsmi_get_gpu_asic_info, handle)
        activity = self._value(smi.amdsmi_get_gpu_activity, handle)
        memory = self._value(smi.amdsmi_get_gpu_vram_usage, handle)  # MB
        power = self._value(smi.amdsmi_get_power_info, handle)  # W, its limit in µW
        clock = self._value(smi.amdsmi_get_clock_info, handle, smi.amdsmi_clk_type_t.AMDSMI_CLK_TYPE_GFX)
        errors = self._value(smi.amdsmi_get_gpu_total_ecc_count, handle)
        return Gpu(
            self._bus(handle),
            getattr(asic, "market_name", "") or "AMD GPU",
            _known(activity, "gfx_activity"),
            _bytes(memory, "vram_used"),
            _bytes(memory, "vram_total"),
            power=_first(power, "current_socket_power", "socket_power", "average_socket_power"),
            power_limit=_known(power, "power_limit", 1e-6),
            clock=_known(clock, "clk"),
            temperature=self._temperature(handle),
            throttled=self._throttled(handle),
            ecc_corrected=_count(errors, "correctable_count"),
            ecc_uncorrected=_count(errors, "uncorrectable_count"),
        )

    def _bus(self, handle: int) -> str:
        """Function in 3 bits, device in 5, bus in 8, then the domain."""
        bdf = self._smi.amdsmi_bdf_t.allocate()
        if not self._succeeded(self._smi.amdsmi_get_gpu_device_bdf(handle, bdf)):
            return f"{handle:x}"
        bits = int(bdf.as_uint)
        return f"{bits >> 16:04x}:{bits >> 8 & 0xFF:02x}:{bits >> 3 & 0x1F:02x}.{bits & 7}"

    def _temperature(self, handle: int) -> float | None:
        found = (ctypes.c_int64 * 1)()
        kind, metric = self._smi.amdsmi_temperature_type_t, self._smi.amdsmi_temperature_metric_t
        sensor, now = kind.AMDSMI_TEMPERATURE_TYPE_HOTSPOT, metric.AMDSMI_TEMP_CURRENT
        if not self._succeeded(self._smi.amdsmi_get_temp_metric(handle, sensor, now, found)):
            return None
        return float(found[0])

    def _throttled(self, handle: int) -> tuple[str, ...] | None:
        metrics = self._smi.amdsmi_gpu_metrics_t.allocate()
        if not self._succeeded(self._smi.amdsmi_get_gpu_metrics_info(handle, metrics)):
            return None
        status = _count(metrics, "indep_throttle_status")
        if status is not None:
            return reasons(status)
        now = {name: _count(metrics, name) for name in _RESIDENCIES}
        known = {name: count for name, count in now.items() if count is not None}
        before, self._before[handle] = self._before.get(handle, known), known
        if not known:
            return None
        return tuple(dict.fromkeys(_RESIDENCIES[n] for n, count in known.items() if count > before.get(n, count)))

    def close(self) -> None:
        self._smi.amdsmi_shut_down()


def _known(value: Any, field: str, scale: float = 1.0) -> float | None:
    found = None if value is None else getattr(value, field)
    return None if found is None or int(found) in _UNKNOWN else float(found) * scale


def _first(value: Any, *fields: str) -> float | None:
    """The first that is known and not 0: which one a GPU fills depends on its generation."""
    return next((found for field in fields if (found := _known(value, field))), None)


def _bytes(value: Any, field: str) -> int | None:
    megabytes = _known(value, field)
    return None if megabytes is None else int(megabytes) << 20


def _count(value: Any, field: str) -> int | None:
    """A counter of 64 bits: only its own largest number means that it is not known."""
    found = None if value is None else int(getattr(value, field))
    return None if found is None or found == _UNKNOWN[-1] else found
