"""In a container: whether AMD's devices were handed in."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.containers import amd_options, container_kind
from pyflame.doctor.gpus import is_wsl
from pyflame.doctor.machine import Machine

MODES = {
    "docker-desktop": "Docker Desktop runs containers in a virtual machine that has no GPU of AMD's",
    "no-kfd": "the container was started without /dev/kfd",
    "no-dri": "the container was started without /dev/dri",
}


def look(machine: Machine) -> Findings:
    kind = container_kind(machine)
    if not kind:
        yield fine("not in a container")
        return
    line = amd_options(machine, kind)
    kernel = machine.kernel()
    missing = not machine.exists("/dev/kfd")
    if "linuxkit" in kernel and missing:
        yield broken(
            "docker-desktop",
            f"Docker Desktop's virtual machine (Linux {kernel}) hands no GPU in",
            "# use the Docker engine of Linux: https://docs.docker.com/engine/install/",
        )
    elif missing and not is_wsl(machine):
        yield broken("no-kfd", f"this is a {kind} container without /dev/kfd", f"{line}   # on the host")
    elif not machine.glob("/dev/dri/renderD*") and not is_wsl(machine):
        yield broken("no-dri", f"this is a {kind} container without /dev/dri/renderD*", f"{line}   # on the host")
    else:
        yield fine(f"a {kind} container with the devices of AMD's GPUs")


CHECK = Check(
    "amd-container", "amd", "whether this is a container, and which devices it was given", look, MODES, ("amd-module",)
)
