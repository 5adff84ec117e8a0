"""The device files through which a process reaches an AMD GPU."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.gpus import is_wsl
from pyflame.doctor.machine import Machine

MODES = {
    "no-kfd": "no /dev/kfd though amdgpu is loaded: a kernel without CONFIG_HSA_AMD, or a GPU it cannot compute on",
    "no-render": "there is no /dev/dri/renderD*",
}


def look(machine: Machine) -> Findings:
    if is_wsl(machine):
        yield fine("WSL2 has /dev/dxg instead")
        return
    nodes = machine.glob("/dev/dri/renderD*")
    if not machine.exists("/dev/kfd"):
        yield broken(
            "no-kfd",
            "there is no /dev/kfd",
            "grep HSA_AMD /boot/config-$(uname -r)   # must be y; else another kernel, or amdgpu-dkms",
        )
    elif not nodes:
        yield broken(
            "no-render",
            "there is no /dev/dri/renderD*",
            "sudo modprobe -r amdgpu && sudo modprobe amdgpu   # or reboot",
        )
    else:
        yield fine(f"/dev/kfd, {', '.join(nodes)}")


CHECK = Check("amd-nodes", "amd", "/dev/kfd and /dev/dri/renderD*", look, MODES, ("amd-module", "amd-container"))
