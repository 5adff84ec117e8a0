"""NVIDIA's kernel module."""

from __future__ import annotations

import re

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.gpus import NVIDIA, is_wsl, pci_gpus
from pyflame.doctor.machine import Machine

MODES = {
    "nouveau": "the free driver nouveau holds the GPU, which computes nothing",
    "nvidia-not-loaded": "the kernel module nvidia is not loaded",
    "nvidia-other-driver": "another driver (vfio-pci) holds the GPU",
}
_INSTALL = "sudo apt install nvidia-driver   # or the distribution's name for it; then reboot"


def module_version(machine: Machine) -> str:
    """As 580.65.06, of the module that is loaded."""
    told = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", machine.line("/proc/driver/nvidia/version"))
    return machine.line("/sys/module/nvidia/version") or (told[1] if told else "")


def look(machine: Machine) -> Findings:
    if is_wsl(machine):
        yield fine("WSL2: Windows has the driver")
        return
    gpus = pci_gpus(machine, NVIDIA)
    drivers = {gpu.driver for gpu in gpus}
    version = module_version(machine)
    if "nouveau" in drivers and not version:
        yield broken("nouveau", "nouveau holds the GPU", _INSTALL)
    elif not version:
        yield broken(
            "nvidia-not-loaded",
            "an NVIDIA GPU is there, but the kernel module nvidia is not loaded",
            f"sudo modprobe nvidia   # if there is none: {_INSTALL}",
        )
    elif drivers and not drivers & {"nvidia", ""}:
        held = gpus[0]
        yield broken(
            "nvidia-other-driver",
            f"{', '.join(sorted(drivers))} holds the GPU",
            f"sudo driverctl unset-override {held.address}   # and take it out of vfio-pci.ids= in /etc/default/grub",
        )
    else:
        yield fine(f"nvidia {version}")


CHECK = Check(
    "nvidia-module", "nvidia", "the kernel module nvidia and what holds the GPU", look, MODES, ("nvidia-device",)
)
