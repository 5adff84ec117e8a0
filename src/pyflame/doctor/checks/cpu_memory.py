"""How much memory the host has left, and what the container allows of it."""

from __future__ import annotations

from pyflame.core.sizes import human_bytes
from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.machine import Machine, as_number
from pyflame.runtime.cpu.cgroup import limit_bytes

_LITTLE, _LOW_LIMIT = 1 << 30, 4 << 30
MODES = {
    "little-memory": "less than 1 GiB of memory is available",
    "memory-limit": "the container may use less than 4 GiB: the kernel ends a process that goes beyond",
}


def look(machine: Machine) -> Findings:
    told = machine.pairs("/proc/meminfo")
    total, free = ((as_number(told.get(name, "").split(" ")[0]) or 0) << 10 for name in ("MemTotal", "MemAvailable"))
    limit = limit_bytes(machine.root)
    if limit and limit < min(total, _LOW_LIMIT):
        mend = "docker run --memory=...   # where a model needs more"
        yield warning("memory-limit", f"the container may use {human_bytes(limit)} of {human_bytes(total)}", mend)
    if total and free < _LITTLE:
        yield warning(
            "little-memory", f"{human_bytes(free)} of {human_bytes(total)} are available", "ps aux --sort=-rss | head"
        )
    within = f"; the container may use {human_bytes(limit)}" if limit and limit < total else ""
    yield fine(f"{human_bytes(free)} of {human_bytes(total)} available{within}")


CHECK = Check("cpu-memory", "cpu", "the host's available memory and the container's limit", look, MODES, ("platform",))
