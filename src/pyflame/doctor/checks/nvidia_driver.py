"""NVIDIA's user-space driver, libcuda, and whether it fits the kernel module."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.checks.nvidia_module import module_version
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import folders

_FOLDERS = (
    "/usr/lib/wsl/lib", "/usr/lib/*-linux-gnu", "/usr/lib/*-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib",
    "/usr/lib64/nvidia", "/usr/local/nvidia/lib64", "/usr/local/cuda*/compat",
)  # fmt: skip
MODES = {
    "no-libcuda": "there is no libcuda.so.1",
    "driver-mismatch": "libcuda and the kernel module are of different versions, as after an update without a reboot",
}


def look(machine: Machine) -> Findings:
    found = [path for folder in folders(machine, _FOLDERS) for path in machine.glob(f"{folder}/libcuda.so.*")]
    if not found:
        yield broken(
            "no-libcuda",
            "there is no libcuda.so.1",
            "sudo apt install libcuda1   # Ubuntu: libnvidia-compute-580; in a container: docker run --gpus all ...",
        )
        return
    module = module_version(machine)
    versions = {path.rpartition(".so.")[2] for path in found if path.count(".") > 2 and "/compat/" not in path}
    if module and versions and module not in versions:
        yield broken(
            "driver-mismatch",
            f"libcuda is {', '.join(sorted(versions))}, the kernel module is {module}",
            "reboot   # or: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
        )
    yield fine(found[0])


CHECK = Check(
    "nvidia-driver", "nvidia", "libcuda.so.1 and its version beside the kernel module's", look, MODES, ("nvidia-nodes",)
)
