"""Several GPUs: whether they may reach each other's memory, and an IOMMU that stands between."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.gpus import agents
from pyflame.doctor.machine import Machine

MODES = {
    "iommu": "the IOMMU translates (no iommu=pt): copies between GPUs hang or fault, RCCL warns of it",
    "no-links": "KFD shows no way from one GPU to another: copies go through the host",
}
_GRUB = "sudo sed -i 's/GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && sudo update-grub   # then reboot"


def links(machine: Machine, node: int) -> int:
    """How many other nodes a GPU reaches without the host."""
    folder = f"/sys/class/kfd/kfd/topology/nodes/{node}"
    found = [*machine.glob(f"{folder}/io_links/*/properties"), *machine.glob(f"{folder}/p2p_links/*/properties")]
    ends = {machine.pairs(path).get("node_to", "") for path in found}
    return len(ends & {str(agent.node) for agent in agents(machine)})


def look(machine: Machine) -> Findings:
    known = [agent for agent in agents(machine) if not agent.integrated]
    if len(known) < 2:
        yield fine("one GPU")
        return
    words = machine.read("/proc/cmdline").split()
    modes = [word.partition("=")[2] for word in words if word.startswith(("iommu=", "amd_iommu=", "intel_iommu="))]
    through = machine.line("/sys/kernel/iommu_groups/0/type") == "identity"
    if machine.glob("/sys/class/iommu/*") and not through and not {"pt", "off"} & set(modes):
        yield warning("iommu", f"{len(known)} GPUs, and the IOMMU is on without iommu=pt", _GRUB)
    alone = [agent for agent in known if not links(machine, agent.node)]
    if alone:
        yield warning(
            "no-links",
            f"{alone[0].gfx} (node {alone[0].node}) reaches no other GPU",
            "# turn on Resizable BAR and Above 4G Decoding in the BIOS; ACS off for the slots' bridges",
        )
    yield fine(f"{len(known)} GPUs")


CHECK = Check("amd-peers", "amd", "the IOMMU's mode and KFD's links between GPUs", look, MODES, ("amd-agents",))
