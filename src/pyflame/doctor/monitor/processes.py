"""Processes on AMD GPUs: what they hold open of /dev/dri (fdinfo's drm-* keys), and what /dev/kfd counts for them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from pyflame.doctor.monitor.files import entries, text, whole
from pyflame.doctor.monitor.sample import Process

_ENGINES = ("drm-engine-gfx", "drm-engine-compute")
_MEMORY = ("drm-memory-vram", "drm-total-vram", "drm-resident-vram")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class ProcessFiles:
    """Reads them; the second reading knows how busy each was since the first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before: dict[tuple[str, int], int] = {}  # nanoseconds of GPU time
        self._at = 0.0

    def read(self, buses: set[str]) -> list[Process]:
        now = time.monotonic()
        held = self._kfd()
        busy: dict[tuple[str, int], int] = {}
        for pid in self._pids():
            for bus, (memory, spent) in self._clients(pid).items():
                held[bus, pid] = max(memory, held.get((bus, pid), 0))
                busy[bus, pid] = spent
        found = [
            Process(bus, pid, self.name_of(pid), memory, self._use((bus, pid), busy, now))
            for (bus, pid), memory in sorted(held.items())
            if bus in buses
        ]
        self._before, self._at = busy, now
        return found

    def _use(self, key: tuple[str, int], busy: dict[tuple[str, int], int], now: float) -> float | None:
        if key not in busy or key not in self._before or now <= self._at:
            return None
        return min(100.0, max(0.0, (busy[key] - self._before[key]) / 1e9 / (now - self._at) * 100))

    def _pids(self) -> Iterator[int]:
        return (int(f.name) for f in entries(self._root / "proc") if f.name.isdigit())

    def name_of(self, pid: int) -> str:
        return text(self._root / f"proc/{pid}/comm") or "?"

    def _clients(self, pid: int) -> dict[str, tuple[int, int]]:
        """Bytes and nanoseconds by GPU. Several handles may be of one client, which counts once."""
        found: dict[str, tuple[int, int]] = {}
        seen = set()
        for link in entries(self._root / f"proc/{pid}/fd"):
            if not _leads_to_gpu(link):
                continue
            keys = _keys(text(self._root / f"proc/{pid}/fdinfo/{link.name}") or "")
            bus, client = keys.get("drm-pdev"), keys.get("drm-client-id")
            if bus is None or keys.get("drm-driver") != "amdgpu" or (bus, client) in seen:
                continue
            seen.add((bus, client))
            memory, spent = found.get(bus, (0, 0))
            here = max((_amount(keys.get(key, "")) for key in _MEMORY), default=0)
            found[bus] = memory + here, spent + sum(_amount(keys.get(key, "")) for key in _ENGINES)
        return found

    def _kfd(self) -> dict[tuple[str, int], int]:
        """Memory of compute processes as /dev/kfd counts it, which knows a GPU by a number of its own."""
        buses = {}
        folder = self._root / "sys/class/kfd/kfd"
        for node in entries(folder / "topology/nodes"):
            identity, properties = whole(node / "gpu_id"), text(node / "properties") or ""
            location = re.search(r"^location_id\s+(\d+)", properties, re.MULTILINE)
            domain = re.search(r"^domain\s+(\d+)", properties, re.MULTILINE)
            if identity and location:
                buses[identity] = _address(int(domain[1]) if domain else 0, int(location[1]))
        found = {}
        for process in entries(folder / "proc"):
            for identity, bus in buses.items():
                memory = whole(process / f"vram_{identity}")
                if process.name.isdigit() and memory is not None:
                    found[bus, int(process.name)] = memory
        return found


def _address(domain: int, location: int) -> str:
    """`0000:03:00.0` of bus << 8 | device << 3 | function."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _leads_to_gpu(link: Path) -> bool:
    try:
        return os.readlink(link).startswith("/dev/dri/")
    except OSError:
        return False


def _keys(content: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in content.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _amount(value: str) -> int:
    """`12 KiB` or `3400 ns`."""
    found = re.match(r"(\d+)\s*(\w*)", value)
    return int(found[1]) * _UNITS.get(found[2], 1) if found else 0
