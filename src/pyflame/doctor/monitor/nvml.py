"""NVML by ctypes, for machines that have NVIDIA's driver but not the package nvidia-ml-py. It has `pynvml`'s names for
what the monitor asks, so that either may be asked. Structs and constants are those of nvml.h.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_uint, c_ulonglong
from typing import Any

from pyflame.core.errors import NotAvailableError

FILE = "libnvidia-ml.so.1"  # the driver's own
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_UNKNOWN = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_SPARE = 8  # processes that may begin between two calls


class NVMLError(Exception):
    """What a call gave in place of success."""


class PciInfo(ctypes.Structure):
    _fields_ = (
        ("busIdLegacy", c_char * 16), ("domain", c_uint), ("bus", c_uint), ("device", c_uint), ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint), ("busId", c_char * 32),
    )  # fmt: skip


class Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint), ("usedGpuMemory", c_ulonglong), ("gpuInstanceId", c_uint), ("computeInstanceId", c_uint),
    )  # fmt: skip


class ProcessUse(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint), ("timeStamp", c_ulonglong), ("smUtil", c_uint), ("memUtil", c_uint), ("encUtil", c_uint),
        ("decUtil", c_uint),
    )  # fmt: skip


class Running:
    """A process on a GPU, and its bytes; None where they are not told."""

    def __init__(self, told: ProcessInfo) -> None:
        self.pid = int(told.pid)
        self.usedGpuMemory = None if told.usedGpuMemory == _UNKNOWN else int(told.usedGpuMemory)


class Nvml:
    """The library. `file`: another than the driver's, for tests."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = NVML_VOLATILE_ECC = NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_CLOCK_SM = 1

    def __init__(self, file: str = FILE) -> None:
        try:
            self._library = ctypes.CDLL(file)
        except OSError as error:
            raise NotAvailableError(f"[monitor] expected NVIDIA's driver but got: {error}") from None

    def _status(self, name: str, *args: Any) -> int:
        try:
            return int(getattr(self._library, name)(*args))
        except AttributeError:
            raise NVMLError(f"{name} is not in this driver's NVML") from None

    def _call(self, name: str, *args: Any) -> None:
        status = self._status(name, *args)
        if status:
            explain = getattr(self._library, "nvmlErrorString", None)
            if explain is None:
                raise NVMLError(f"{name} gave {status}")
            explain.restype = ctypes.c_char_p
            raise NVMLError(f"{name}: {(explain(status) or b'').decode(errors='replace')}")

    def _told(self, name: str, kind: type[Any], *args: Any) -> Any:
        found = kind()
        self._call(name, *args, ctypes.byref(found))
        return found

    def nvmlInit(self) -> None:
        self._call("nvmlInit_v2")

    def nvmlShutdown(self) -> None:
        self._call("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:
        return int(self._told("nvmlDeviceGetCount_v2", c_uint).value)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._told("nvmlDeviceGetHandleByIndex_v2", ctypes.c_void_p, c_uint(index))

    def nvmlDeviceGetName(self, handle: Any) -> str:
        text = ctypes.create_string_buffer(96)
        self._call("nvmlDeviceGetName", handle, text, c_uint(len(text)))
        return text.value.decode(errors="replace")

    def nvmlDeviceGetPciInfo(self, handle: Any) -> PciInfo:
        return self._told("nvmlDeviceGetPciInfo_v3", PciInfo, handle)  # type: ignore[no-any-return]

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Utilization:
        return self._told("nvmlDeviceGetUtilizationRates", Utilization, handle)  # type: ignore[no-any-return]

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Memory:
        return self._told("nvmlDeviceGetMemoryInfo", Memory, handle)  # type: ignore[no-any-return]

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        return int(self._told("nvmlDeviceGetTotalEccErrors", c_ulonglong, handle, kind, counter).value)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return int(self._told("nvmlDeviceGetPowerUsage", c_uint, handle).value)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return int(self._told("nvmlDeviceGetEnforcedPowerLimit", c_uint, handle).value)

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        return int(self._told("nvmlDeviceGetClockInfo", c_uint, handle, kind).value)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        return int(self._told("nvmlDeviceGetTemperature", c_uint, handle, sensor).value)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return int(self._told("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong, handle).value)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Running]:
        name, count = "nvmlDeviceGetComputeRunningProcesses_v3", c_uint(0)
        if self._status(name, handle, ctypes.byref(count), None) != _TOO_SMALL:
            return []
        count.value += _SPARE
        found = (ProcessInfo * count.value)()
        self._call(name, handle, ctypes.byref(count), found)
        return [Running(one) for one in found[: count.value]]

    def nvmlDeviceGetProcessUtilization(self, handle: Any, since: int) -> list[ProcessUse]:
        name, count = "nvmlDeviceGetProcessUtilization", c_uint(0)
        if self._status(name, handle, None, ctypes.byref(count), c_ulonglong(since)) != _TOO_SMALL:
            return []
        found = (ProcessUse * count.value)()
        self._call(name, handle, found, ctypes.byref(count), c_ulonglong(since))
        return list(found[: count.value])
