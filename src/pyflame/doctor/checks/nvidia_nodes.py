"""NVIDIA's device files."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.containers import container_kind
from pyflame.doctor.gpus import is_wsl
from pyflame.doctor.machine import Machine

_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
MODES = {
    "nvidia-container": "the container was started without the GPUs",
    "nvidia-no-nodes": "device files of NVIDIA's are missing",
    "nvidia-forbidden": "this process may not use them",
}


def look(machine: Machine) -> Findings:
    if is_wsl(machine):
        yield (
            fine("WSL2 has /dev/dxg instead")
            if machine.exists("/dev/dxg")
            else broken("nvidia-no-nodes", "WSL without /dev/dxg", "wsl --update")
        )
        return
    missing = [path for path in _NODES if not machine.exists(path)]
    cards = machine.glob("/dev/nvidia[0-9]*")
    if missing or not cards:
        what = ", ".join([*missing, *([] if cards else ["/dev/nvidia0"])])
        if kind := container_kind(machine):
            yield broken(
                "nvidia-container",
                f"this is a {kind} container without {what}",
                "docker run --gpus all ...   # on the host, with nvidia-container-toolkit",
            )
        else:
            yield broken("nvidia-no-nodes", f"there is no {what}", "sudo nvidia-modprobe -c 0 -u")
        return
    refused = [path for path in (*_NODES, *cards) if (s := machine.status(path)) and not machine.may_use(s)]
    if refused:
        yield broken(
            "nvidia-forbidden",
            f"this process may not use {refused[0]}",
            f"sudo chmod 666 {' '.join(refused)}   # or join the group that owns them",
        )
    else:
        yield fine(", ".join(cards))


CHECK = Check(
    "nvidia-nodes", "nvidia", "/dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm", look, MODES, ("nvidia-module",)
)
