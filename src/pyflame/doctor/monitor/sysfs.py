"""AMD GPUs as the kernel module amdgpu shows them: /sys/class/drm/card*/device."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from pyflame.doctor.monitor.files import entries, number, text, whole
from pyflame.doctor.monitor.processes import ProcessFiles
from pyflame.doctor.monitor.sample import Gpu, Process

_AMD = "0x1002"
_CARD = re.compile(r"card\d+")
# Where `gpu_metrics` holds the reasons of throttling that are the same on all GPUs, by its (format, content) revision.
_THROTTLE_AT = {(1, 3): 112, (2, 2): 120, (2, 3): 120, (2, 4): 120}
_REASONS = {"power": 0xFFFF, "current": 0xFFFF << 16, "temperature": 0xFFFF << 32, "other": 0xFFFF << 48}


class AmdgpuFiles:
    """Reads GPUs and the processes on them from files below a root.

    >>> AmdgpuFiles("/").read()[0]
    []
    """

    name = "sysfs"

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)
        self._processes = ProcessFiles(self._root)

    def read(self) -> tuple[list[Gpu], list[Process]]:
        cards = [c for c in entries(self._root / "sys/class/drm") if _CARD.fullmatch(c.name)]
        devices = [card / "device" for card in cards if text(card / "device/vendor") == _AMD]
        gpus = sorted((_gpu(device) for device in devices), key=lambda gpu: gpu.bus)
        return gpus, self._processes.read({gpu.bus for gpu in gpus}) if gpus else []

    def close(self) -> None:
        """Nothing is held open."""


def _gpu(device: Path) -> Gpu:
    sensors = next((f for f in entries(device / "hwmon") if f.name.startswith("hwmon")), device / "hwmon")
    power = number(sensors / "power1_average", 1e-6)
    clock = number(sensors / "freq1_input", 1e-6)
    corrected, uncorrected = _errors(device / "ras")
    return Gpu(
        _bus(device),
        text(device / "product_name") or f"AMD {text(device / 'device') or 'GPU'}",
        number(device / "gpu_busy_percent"),
        whole(device / "mem_info_vram_used"),
        whole(device / "mem_info_vram_total"),
        whole(device / "mem_info_gtt_used"),
        whole(device / "mem_info_gtt_total"),
        number(sensors / "power1_input", 1e-6) if power is None else power,
        number(sensors / "power1_cap", 1e-6),
        _dpm_clock(text(device / "pp_dpm_sclk")) if clock is None else clock,
        _temperature(sensors),
        throttling(device / "gpu_metrics"),
        corrected,
        uncorrected,
    )


def _bus(device: Path) -> str:
    found = re.search(r"^PCI_SLOT_NAME=(\S+)", text(device / "uevent") or "", re.MULTILINE)
    return found[1] if found else device.resolve().name


def _dpm_clock(states: str | None) -> float | None:
    """The line with a star of `0: 500Mhz`, `1: 2400Mhz *`."""
    found = re.search(r"(\d+)\s*mhz\s*\*", states or "", re.IGNORECASE)
    return float(found[1]) if found else None


def _temperature(sensors: Path) -> float | None:
    """Of the junction, the hottest place, where it is told; else of the first sensor."""
    labels = {
        f.name.removesuffix("_label"): text(f) for f in entries(sensors) if re.fullmatch(r"temp\d+_label", f.name)
    }
    hottest = next((name for name, label in labels.items() if label == "junction"), "temp1")
    return number(sensors / f"{hottest}_input", 1e-3)


def _errors(folder: Path) -> tuple[int | None, int | None]:
    """Corrected and uncorrected errors of all parts: files of `ue: 0` and `ce: 0`."""
    counts: dict[str, int | None] = {"ce": None, "ue": None}
    for file in entries(folder):
        if file.name.endswith("_err_count"):
            for kind, count in re.findall(r"^(ue|ce):\s*(\d+)", text(file) or "", re.MULTILINE):
                counts[kind] = (counts[kind] or 0) + int(count)
    return counts["ce"], counts["ue"]


def reasons(status: int) -> tuple[str, ...]:
    """The kinds of limits in the driver's 64 bits of throttling.

    >>> reasons(1 | 1 << 36)
    ('power', 'temperature')
    """
    return tuple(name for name, mask in _REASONS.items() if status & mask)


def throttling(metrics: Path) -> tuple[str, ...] | None:
    """What holds the clock down, from the driver's table; None for a form of it that is not known."""
    try:
        content = metrics.read_bytes()
    except OSError:
        return None
    if len(content) < 4:
        return None
    _, form, revision = struct.unpack_from("<HBB", content)
    at = _THROTTLE_AT.get((form, revision))
    if at is None or len(content) < at + 8:
        return None
    status = struct.unpack_from("<Q", content, at)[0]
    return None if status == 0xFFFFFFFFFFFFFFFF else reasons(status)
