"""Known faults of this ROCm on these GPUs."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.gpus import agents
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import dotted, rocm_version
from pyflame.runtime.rocm.troubles import TROUBLES

_PARTS = ("graphs", "libraries")  # the rest is found by checks that look at what leads to it
_ABORT, _CORE = "HIP_SKIP_ABORT_ON_GPU_ERROR", "Max core file size"
MODES = {
    "known": "this ROCm, on one of these GPUs, is known for a fault; the table is in docs/gpu.md",
    "fault-aborts": "before ROCm 7.0 a kernel that faults ends the process, and no error can be caught",
    "core-dumps": "from ROCm 7.0 on it does so where core dumps are on, or HIP_SKIP_ABORT_ON_GPU_ERROR is 0",
}


def _core_dumps(machine: Machine) -> bool:
    """Whether the process leaves a core file when it ends by a signal."""
    rows = [row for row in machine.read("/proc/self/limits").splitlines() if row.startswith(_CORE)]
    return bool(rows) and rows[0].removeprefix(_CORE).split()[:1] not in ([], ["0"])


def look(machine: Machine) -> Findings:
    version, targets = rocm_version(machine), {agent.gfx for agent in agents(machine)}
    if not version:
        yield fine("ROCm's version is not known")
        return
    pair = (version[0], version[1] if len(version) > 1 else 0)
    if pair < (7, 0):
        yield warning(
            "fault-aborts",
            f"ROCm {dotted(version)}: a kernel that faults aborts the process",
            "# install ROCm 7.0 or newer, where it is an error that can be caught",
        )
    elif machine.env.get(_ABORT) == "0":
        yield warning("core-dumps", f"{_ABORT}=0: a kernel that faults aborts the process", f"unset {_ABORT}")
    elif _core_dumps(machine):
        yield warning("core-dumps", "core dumps are on: a kernel that faults aborts the process", "ulimit -c 0")
    count = 0
    for trouble in TROUBLES:
        if trouble.part not in _PARTS or not any(trouble.concerns(pair, t) for t in targets):
            continue
        count += 1
        yield warning("known", f"{trouble.symptom} ({trouble.source}). {trouble.answer}", trouble.mend)
    if not count:
        yield fine(f"none known of ROCm {dotted(version)} on {', '.join(sorted(targets))}")


CHECK = Check("amd-troubles", "amd", "the table of known faults, by HIP's version and gfx", look, MODES, ("amd-hip",))
