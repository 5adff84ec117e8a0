"""An integrated GPU beside a real one: libraries without kernels for it crash, and `device 0` may be the wrong one."""

from __future__ import annotations

from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.checks.amd_visible import visible
from pyflame.doctor.gpus import Agent, agents
from pyflame.doctor.machine import Machine

MODES = {
    "igpu-visible": "HIP sees the integrated GPU beside the discrete one; PyFlame passes it over, others may not",
}


def _names(known: list[Agent]) -> str:
    """How ROCR_VISIBLE_DEVICES names the discrete GPUs: by their own ids, since numbers change with BIOS settings."""
    return ",".join(
        f"GPU-{agent.unique_id:016x}" if agent.unique_id else str(index)
        for index, agent in enumerate(known)
        if not agent.integrated
    )


def look(machine: Machine) -> Findings:
    known = agents(machine)
    small = [agent for agent in known if agent.integrated]
    if not small or len(small) == len(known):
        yield fine("no integrated GPU beside a discrete one")
        return
    seen = [agent for _, agent in visible(machine)]
    if any(agent.integrated for agent in seen) and any(not agent.integrated for agent in seen):
        which = f"{small[0].gfx}, number {known.index(small[0])}"
        yield warning(
            "igpu-visible",
            f"the integrated GPU ({which}) is seen beside the discrete one",
            f"export ROCR_VISIBLE_DEVICES={_names(known)}",
        )
    else:
        yield fine("the environment leaves one kind of GPU")


CHECK = Check("amd-igpu", "amd", "integrated GPUs beside discrete ones in KFD's topology", look, MODES, ("amd-agents",))
