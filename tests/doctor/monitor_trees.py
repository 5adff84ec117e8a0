"""Built /sys and /proc trees of machines with AMD GPUs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

BUS = "0000:03:00.0"


def write(root: Path, files: dict[str, str | int | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())


def gpu_metrics(status: int, form: tuple[int, int] = (1, 3)) -> bytes:
    """The driver's table, empty but for the reasons of throttling."""
    at = {1: 112, 2: 120}[form[0]]
    return struct.pack("<HBB", at + 8, *form) + bytes(at - 4) + struct.pack("<Q", status)


def card(root: Path, number: int = 0, bus: str = BUS, **changed: str | int | bytes | None) -> Path:
    """A GPU's folder; files by name, None leaves one out."""
    files: dict[str, str | int | bytes | None] = {
        "vendor": "0x1002", "device": "0x744c", "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={bus}", "gpu_busy_percent": 42,
        "product_name": "Radeon RX 7900 XTX",
        "mem_info_vram_used": 3 << 30, "mem_info_vram_total": 24 << 30, "mem_info_gtt_used": 1 << 20,
        "mem_info_gtt_total": 16 << 30, "hwmon/hwmon4/power1_average": 210_000_000,
        "hwmon/hwmon4/power1_cap": 327_000_000,
        "hwmon/hwmon4/freq1_input": 2_304_000_000, "hwmon/hwmon4/temp1_label": "edge",
        "hwmon/hwmon4/temp1_input": 61_000,
        "hwmon/hwmon4/temp2_label": "junction", "hwmon/hwmon4/temp2_input": 74_000, "gpu_metrics": gpu_metrics(0),
        "ras/umc_err_count": "ue: 0\nce: 2", "ras/gfx_err_count": "ue: 1\nce: 3", "ras/features": "feature mask: 0x1",
        **changed,
    }  # fmt: skip
    folder = root / f"sys/class/drm/card{number}/device"
    write(folder, {name: content for name, content in files.items() if content is not None})
    write(root, {f"sys/class/drm/card{number}-DP-1/status": "connected"})
    return folder


def process(root: Path, pid: int, name: str, clients: list[tuple[str, int, int]], bus: str = BUS) -> None:
    """A process with handles of a GPU: (client, KiB, nanoseconds of work)."""
    folder = root / f"proc/{pid}"
    write(folder, {"comm": name, "fdinfo/0": "pos: 0"})
    (folder / "fd").mkdir(exist_ok=True)
    for number, (client, kib, spent) in enumerate(clients, 5):
        link = folder / f"fd/{number}"
        if not link.is_symlink():
            os.symlink("/dev/dri/renderD128", link)
        text = (
            f"pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{bus}\n"
            f"drm-memory-vram:\t{kib} KiB\ndrm-engine-gfx:\t{spent // 2} ns\n"
            f"drm-engine-compute:\t{spent - spent // 2} ns"
        )
        write(folder, {f"fdinfo/{number}": text})


def host(root: Path, busy: int = 100, idle: int = 300) -> None:
    write(root, {"proc/stat": f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4"})
    write(root, {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   12582912 kB"})
