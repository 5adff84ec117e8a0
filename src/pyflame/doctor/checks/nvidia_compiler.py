"""NVRTC, which builds kernels for NVIDIA's GPUs."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import folders

_FOLDERS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/*/lib",
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/opt/cuda/lib64",
    "nvidia/cuda_nvrtc/lib",
    "nvidia/cu*/lib",
)
MODES = {"no-nvrtc": "there is no libnvrtc.so: neither the CUDA toolkit nor NVIDIA's wheel is installed"}


def look(machine: Machine) -> Findings:
    found = [path for place in folders(machine, _FOLDERS) for path in machine.glob(f"{place}/libnvrtc.so*")]
    if found:
        yield fine(found[0])
    else:
        yield broken(
            "no-nvrtc", "there is no libnvrtc.so", "python -m pip install 'cuda-bindings[all]'   # or the CUDA toolkit"
        )


CHECK = Check(
    "nvidia-compiler",
    "nvidia",
    "libnvrtc in the CUDA toolkit's folders and NVIDIA's wheels",
    look,
    MODES,
    ("nvidia-driver",),
)
