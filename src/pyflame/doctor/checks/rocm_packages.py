"""Packages of ROCm that are half installed, as an interrupted amdgpu-install leaves them."""

from __future__ import annotations

import re

from pyflame.doctor.check import Check, Findings, fine, nothing, warning
from pyflame.doctor.machine import Machine

_OURS = re.compile(r"^(amdgpu|rocm|hip|hsa|rock-|miopen|rocblas)")
_GONE = ("rocm-dkms", "rock-dkms", "rocm-dev32")
MODES = {
    "half-installed": "packages of amdgpu or ROCm are unpacked, but not configured: amdgpu-install was interrupted",
    "gone-package": "a package that current ROCm no longer has (rocm-dkms) is installed and holds others back",
    "failed-dkms": "building amdgpu-dkms failed",
}


def packages(machine: Machine) -> dict[str, str]:
    """dpkg's packages of AMD's with their state: "install ok installed"."""
    found = {}
    for block in machine.read("/var/lib/dpkg/status").split("\n\n"):
        told = dict(re.findall(r"^(Package|Status): (.*)$", block, re.MULTILINE))
        if _OURS.match(told.get("Package", "")):
            found[told["Package"]] = told.get("Status", "")
    return found


def look(machine: Machine) -> Findings:
    found = packages(machine)
    half = sorted(n for n, s in found.items() if s.startswith("install") and not s.endswith(" installed"))
    if half:
        yield warning(
            "half-installed",
            f"half installed: {', '.join(half[:8])}",
            "sudo dpkg --configure -a && sudo apt -f install   # else: sudo amdgpu-install --uninstall",
        )
    if gone := [name for name in _GONE if found.get(name, "").endswith(" installed")]:
        yield warning(
            "gone-package", f"{', '.join(gone)}: current ROCm has no such package", f"sudo apt remove {' '.join(gone)}"
        )
    if logs := [p for p in machine.glob("/var/lib/dkms/amdgpu/*/build/make.log") if "Error" in machine.read(p)]:
        yield warning(
            "failed-dkms",
            f"building amdgpu failed: {logs[-1]}",
            f"tail {logs[-1]}   # often: a kernel newer than this ROCm supports",
        )
    yield fine(f"{len(found)} packages") if found else nothing("no packages of ROCm in dpkg's list")


CHECK = Check(
    "rocm-packages", "amd", "dpkg's states of ROCm's packages, and the log of amdgpu-dkms", look, MODES, ("amd-device",)
)
