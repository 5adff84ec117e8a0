"""CPU and memory, from /proc."""

from __future__ import annotations

import re
from pathlib import Path

from pyflame.doctor.monitor.files import text
from pyflame.doctor.monitor.sample import Host


class HostFiles:
    """The second reading knows how busy the CPU was since the first.

    >>> HostFiles("/").read().memory_total > 0
    True
    """

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)
        self._before = self._times()

    def _times(self) -> tuple[int, int] | None:
        """Ticks of all cores: busy, and all."""
        found = re.match(r"cpu\s+([\d ]+)", text(self._root / "proc/stat") or "")
        ticks = [int(t) for t in found[1].split()][:8] if found else []  # what follows are guests, counted as users
        if len(ticks) < 5:
            return None
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # idle and waiting for disks are not busy

    def read(self) -> Host:
        now, before = self._times(), self._before
        use = None
        if now and before and now[1] > before[1]:
            use = 100.0 * (now[0] - before[0]) / (now[1] - before[1])
        self._before = now
        kib = dict(re.findall(r"^(\w+):\s+(\d+) kB", text(self._root / "proc/meminfo") or "", re.MULTILINE))
        total, free = kib.get("MemTotal"), kib.get("MemAvailable")
        if total is None or free is None:
            return Host(use)
        return Host(use, (int(total) - int(free)) << 10, int(total) << 10)
