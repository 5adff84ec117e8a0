"""AMD GPUs on the PCI bus, or behind WSL2's own device."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, nothing
from pyflame.doctor.gpus import AMD, NVIDIA, agents, is_wsl, pci_gpus
from pyflame.doctor.machine import Machine
from pyflame.doctor.rocm_files import libraries


def look(machine: Machine) -> Findings:
    found, known = pci_gpus(machine, AMD), agents(machine)
    idle = known and all(agent.integrated for agent in known) and not libraries(machine, "amdhip64")
    if idle and pci_gpus(machine, NVIDIA):
        yield nothing(f"only the processor's own ({known[0].gfx}), beside NVIDIA's and without ROCm")
    elif found:
        yield fine(", ".join(map(str, found)))
    elif machine.exists("/dev/kfd"):
        yield fine("none on the PCI bus that is seen here, but there is /dev/kfd")
    elif is_wsl(machine) and machine.exists("/dev/dxg") and not machine.glob("/usr/lib/wsl/lib/libcuda.so*"):
        yield fine("a GPU of Windows behind /dev/dxg, and no driver of NVIDIA's: taken for AMD's")
    else:
        yield nothing("no AMD GPU found")


CHECK = Check(
    "amd-device", "amd", "AMD's display controllers and accelerators in /sys/bus/pci/devices", look, {}, ("platform",)
)
