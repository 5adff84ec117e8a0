"""NVIDIA GPUs through NVIDIA's library NVML: by `pynvml` of nvidia-ml-py where that is installed, else by ctypes. A
call that a GPU does not support raises."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflame.core.errors import NotAvailableError
from pyflame.doctor.monitor.nvml import Nvml
from pyflame.doctor.monitor.processes import ProcessFiles
from pyflame.doctor.monitor.sample import Gpu, Process

_REASONS = {"power": 0x04 | 0x80, "temperature": 0x20 | 0x40, "other": 0x08 | 0x10}  # idle and set clocks are none


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return Nvml()


class NvidiaSmi:
    """What NVML tells."""

    name = "NVML"

    def __init__(self, root: str | Path = "/") -> None:
        self._nvml: Any = _library()
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NotAvailableError(f"[monitor] expected NVIDIA's driver but got: {error}") from None
        self._names = ProcessFiles(Path(root))
        self._seen: dict[str, int] = {}  # time of the newest use of processes that was told, in µs

    def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None  # not supported by this GPU, or not allowed

    def _number(self, scale: float, call: Callable[..., Any], *args: Any) -> float | None:
        found = self._ask(call, *args)
        return None if found is None else float(found) * scale

    def read(self) -> tuple[list[Gpu], list[Process]]:
        gpus, processes = [], []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            handle = self._ask(self._nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None:  # None: it has fallen off the bus
                gpus.append(self._gpu(handle, index))
                processes += self._processes(handle, gpus[-1].bus)
        return gpus, processes

    def _gpu(self, handle: Any, index: int) -> Gpu:
        n = self._nvml
        place, use = self._ask(n.nvmlDeviceGetPciInfo, handle), self._ask(n.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(n.nvmlDeviceGetMemoryInfo, handle)
        corrected, uncorrected = (
            self._ask(n.nvmlDeviceGetTotalEccErrors, handle, kind, n.NVML_VOLATILE_ECC)
            for kind in (n.NVML_MEMORY_ERROR_TYPE_CORRECTED, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        )
        return Gpu(
            f"cuda:{index}" if place is None else f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.0",
            self._ask(n.nvmlDeviceGetName, handle) or "NVIDIA GPU",
            None if use is None else float(use.gpu),
            None if memory is None else memory.used,
            None if memory is None else memory.total,
            power=self._number(1e-3, n.nvmlDeviceGetPowerUsage, handle),
            power_limit=self._number(1e-3, n.nvmlDeviceGetEnforcedPowerLimit, handle),
            clock=self._number(1.0, n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            temperature=self._temperature(handle),
            throttled=self._throttled(handle),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
        )

    def _either(self, names: tuple[str, str], *args: Any) -> Any:
        """By the new function, or by the old one where the package or the driver is older."""
        for name in names:
            found = self._ask(getattr(self._nvml, name), *args) if hasattr(self._nvml, name) else None
            if found is not None:
                return found
        return None

    def _temperature(self, handle: Any) -> float | None:
        names = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
        found = self._either(names, handle, self._nvml.NVML_TEMPERATURE_GPU)
        return None if found is None else float(found)

    def _throttled(self, handle: Any) -> tuple[str, ...] | None:
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        status = self._either(names, handle)
        return None if status is None else tuple(name for name, mask in _REASONS.items() if status & mask)

    def _processes(self, handle: Any, bus: str) -> list[Process]:
        running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        uses = self._ask(self._nvml.nvmlDeviceGetProcessUtilization, handle, self._seen.get(bus, 0)) or []
        self._seen[bus] = max([u.timeStamp for u in uses], default=self._seen.get(bus, 0))
        latest = {u.pid: float(u.smUtil) for u in sorted(uses, key=lambda u: int(u.timeStamp))}
        return [Process(bus, p.pid, self._names.name_of(p.pid), p.usedGpuMemory, latest.get(p.pid)) for p in running]

    def close(self) -> None:
        self._nvml.nvmlShutdown()
