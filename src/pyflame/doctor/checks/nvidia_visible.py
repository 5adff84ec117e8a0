"""Which of NVIDIA's GPUs the environment lets a process see."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, broken, fine
from pyflame.doctor.gpus import NVIDIA, pci_gpus
from pyflame.doctor.machine import Machine, as_number

MODES = {
    "nvidia-hidden": "CUDA_VISIBLE_DEVICES hides every GPU",
    "nvidia-outside": "CUDA_VISIBLE_DEVICES names a GPU that is not there: CUDA reads no further",
}


def look(machine: Machine) -> Findings:
    value, count = machine.env.get("CUDA_VISIBLE_DEVICES"), len(pci_gpus(machine, NVIDIA))
    names = [name.strip() for name in (value or "").split(",")]
    numbers = [n for name in names if (n := as_number(name)) is not None]
    if value is not None and names[0] in ("", "-1", "NoDevFiles"):
        yield broken("nvidia-hidden", f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    elif count and any(n >= count for n in numbers):
        yield broken(
            "nvidia-outside", f"CUDA_VISIBLE_DEVICES={value}, but there are {count} GPUs", "unset CUDA_VISIBLE_DEVICES"
        )
    else:
        yield fine(f"{count} GPUs" + (f" (CUDA_VISIBLE_DEVICES={value})" if value is not None else ""))


CHECK = Check("nvidia-visible", "nvidia", "CUDA_VISIBLE_DEVICES", look, MODES, ("nvidia-device",))
