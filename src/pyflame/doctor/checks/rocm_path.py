"""Variables and PATH that point at ROCm: at one that is there, and all at the same."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import dotted, version_in

_VARIABLES = ("ROCM_PATH", "HIP_PATH", "ROCM_HOME")
MODES = {
    "rocm-path-missing": "ROCM_PATH, HIP_PATH or ROCM_HOME names a folder that is not there",
    "not-in-path": "ROCm is installed, but its programs (rocminfo, hipcc) are not in PATH",
    "library-path-mixed": "LD_LIBRARY_PATH leads to another ROCm than /opt/rocm",
    "opt-rocm-dangling": "/opt/rocm is a link that leads nowhere",
}


def look(machine: Machine) -> Findings:
    for name in _VARIABLES:
        folder = machine.env.get(name, "")
        if folder and not machine.exists(folder):
            yield warning("rocm-path-missing", f"{name}={folder}, which is not there", f"unset {name}")
    if machine.link("/opt/rocm") and not machine.exists("/opt/rocm"):
        others = [path for path in machine.glob("/opt/rocm-*") if machine.exists(f"{path}/lib")]
        mend = f"sudo ln -sfn {others[-1]} /opt/rocm" if others else "sudo rm /opt/rocm"
        yield warning("opt-rocm-dangling", "/opt/rocm leads nowhere", mend)
    if machine.exists("/opt/rocm/bin/rocminfo") and not machine.which("rocminfo"):
        yield warning("not-in-path", "/opt/rocm/bin is not in PATH", "export PATH=$PATH:/opt/rocm/bin")
    yield from _mixed(machine)
    yield fine(", ".join(machine.glob("/opt/rocm*")) or "no ROCm in /opt")


def _mixed(machine: Machine) -> Findings:
    system = version_in(machine.line("/opt/rocm/.info/version"))
    for place in machine.env.get("LD_LIBRARY_PATH", "").split(":"):
        named = version_in(machine.line(f"{place}/../.info/version")) if place else ()
        if named and system and named[:2] != system[:2]:
            yield warning(
                "library-path-mixed",
                f"LD_LIBRARY_PATH has {place} of ROCm {dotted(named)}; /opt/rocm is {dotted(system)}",
                "unset LD_LIBRARY_PATH",
            )


CHECK = Check(
    "rocm-path", "amd", "PATH, LD_LIBRARY_PATH, ROCM_PATH, HIP_PATH and /opt/rocm", look, MODES, ("amd-device",)
)
