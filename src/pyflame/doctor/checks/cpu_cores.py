"""How many cores this process may use, and what limits it."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.machine import Machine, as_number
from pyflame.runtime.cpu.cgroup import granted_cores

MODES = {
    "quota": "the container's CPU quota is below the cores that are seen: threads wait for each other",
    "threads": "PYFLAME_THREADS is no number, or asks for more threads than there are cores",
}


def cores(machine: Machine) -> int:
    """Cores this process may run on, by its affinity mask, else by /proc/cpuinfo."""
    allowed = machine.pairs("/proc/self/status").get("Cpus_allowed_list", "")
    count = 0
    for part in allowed.split(","):
        first, dash, last = part.partition("-")
        low, high = as_number(first), as_number(last if dash else first)
        if low is not None and high is not None and 0 <= high - low < 1 << 16:
            count += high - low + 1
    return count or machine.read("/proc/cpuinfo").count("processor\t")


def look(machine: Machine) -> Findings:
    seen, granted, asked = cores(machine), granted_cores(machine.root), machine.env.get("PYFLAME_THREADS", "")
    if granted is not None and granted < seen:
        mend = f"export PYFLAME_THREADS={max(int(granted), 1)}   # or start the container with more --cpus"
        if as_number(asked) is None or (as_number(asked) or 0) > granted:
            yield warning("quota", f"{seen} cores are seen, but the container may use {granted:.1f}", mend)
    wanted = as_number(asked)
    if asked and (wanted is None or wanted < 0 or (seen and wanted > seen)):
        yield warning("threads", f"PYFLAME_THREADS is {asked!r} on {seen} cores", "unset PYFLAME_THREADS")
    yield fine(f"{seen} cores")


CHECK = Check(
    "cpu-cores",
    "cpu",
    "the cores this process may use: affinity, the container's quota, PYFLAME_THREADS",
    look,
    MODES,
    ("platform",),
)
