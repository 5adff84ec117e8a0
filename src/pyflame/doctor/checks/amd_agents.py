"""The GPUs that the compute driver offers (HSA agents), from its topology in sysfs."""

from __future__ import annotations

from pyflame.core.sizes import human_bytes
from pyflame.core.targets import TARGETS
from pyflame.doctor.check import Check, Findings, broken, fine, warning
from pyflame.doctor.gpus import AMD, agents, is_wsl, pci_gpus
from pyflame.doctor.machine import Machine

_OLDEST = 9  # gfx generation that kernels are written for
MODES = {
    "no-agents": "the compute driver offers no GPU: PCIe without atomics, a GPU too old or too new for this kernel",
    "missing-agent": "the compute driver offers fewer GPUs than the PCI bus has",
    "old-gpu": "a GPU before gfx900, which neither ROCm nor PyFlame computes on",
    "unknown-gpu": "a gfx that PyFlame has no figures of: its relative's are taken",
}


def look(machine: Machine) -> Findings:
    found, gpus = agents(machine), pci_gpus(machine, AMD)
    if not found:
        if is_wsl(machine):
            yield fine("WSL2 tells nothing of its GPUs in sysfs")
        else:
            yield broken(
                "no-agents",
                "KFD's topology has no GPU",
                "sudo dmesg | grep -i -E 'kfd|atomics'   # PCIe atomics: another slot; else a newer kernel",
            )
        return
    if len(found) < len(gpus):
        yield warning(
            "missing-agent",
            f"{len(gpus)} AMD GPUs on the PCI bus, but {len(found)} compute",
            "sudo dmesg | grep -i -E 'kfd|atomics'",
        )
    for agent in found:
        if int(agent.gfx[3:-2] or 0) < _OLDEST:
            yield warning("old-gpu", f"{agent.gfx} (node {agent.node}) is older than gfx900")
        elif agent.gfx not in TARGETS:
            yield warning("unknown-gpu", f"PyFlame has no figures of {agent.gfx} and takes those of its family")
    yield fine(", ".join(f"{a.gfx} ({a.compute_units} CUs, {human_bytes(a.memory)})" for a in found))


CHECK = Check(
    "amd-agents",
    "amd",
    "the GPUs in /sys/class/kfd/kfd/topology: gfx, compute units, memory",
    look,
    MODES,
    ("amd-permission",),
)
