"""NVIDIA GPUs on the PCI bus, or in WSL2."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, nothing
from pyflame.doctor.gpus import NVIDIA, is_wsl, pci_gpus
from pyflame.doctor.machine import Machine


def look(machine: Machine) -> Findings:
    found = pci_gpus(machine, NVIDIA)
    if found:
        yield fine(", ".join(map(str, found)))
    elif machine.exists("/dev/nvidiactl"):
        yield fine("none on the PCI bus that is seen here, but there is /dev/nvidiactl")
    elif is_wsl(machine) and machine.glob("/usr/lib/wsl/lib/libcuda.so*"):
        yield fine("a GPU of Windows, with NVIDIA's driver for WSL2")
    else:
        yield nothing("no NVIDIA GPU found")


CHECK = Check("nvidia-device", "nvidia", "NVIDIA's GPUs in /sys/bus/pci/devices", look, {}, ("platform",))
