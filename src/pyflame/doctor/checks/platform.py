"""The operating system and the processor's architecture."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.machine import Machine

MODES = {
    "windows": "PyFlame runs on Linux only; on Windows it runs in WSL2",
    "not-linux": "PyFlame runs on Linux only",
    "architecture": "neither x86-64 nor aarch64: nothing was tested there",
}


def look(machine: Machine) -> Findings:
    if machine.system == "Windows":
        mend = "wsl --install   # then install AMD's Adrenalin driver for WSL2 on Windows, and PyFlame within WSL2"
        yield broken("windows", "this is Windows; the HIP SDK for Windows is not supported", mend)
    elif machine.system != "Linux":
        yield broken("not-linux", f"this is {machine.system}; PyFlame needs Linux")
    elif machine.arch not in ("x86_64", "aarch64"):
        yield warning("architecture", f"Linux on {machine.arch}, which nobody has tested")
    else:
        yield fine(f"Linux {machine.kernel()} on {machine.arch}")


CHECK = Check("platform", "system", "the operating system and the processor's architecture", look, MODES)
