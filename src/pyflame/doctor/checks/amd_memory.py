"""The memory of AMD GPUs: what is free, and what an integrated GPU may take of the host's."""

from __future__ import annotations

from pyflame.core.sizes import human_bytes
from pyflame.doctor.check import Check, Findings, fine, warning
from pyflame.doctor.gpus import Agent, agents
from pyflame.doctor.machine import Machine, as_number

MODES = {
    "memory-used": "another process holds more than nine tenths of a GPU's memory",
    "small-gtt": "an integrated GPU may take less than half of the host's memory (GTT)",
}


def look(machine: Machine) -> Findings:
    told = []
    for agent in agents(machine):
        folder = f"/sys/class/drm/{agent.render}/device"
        vram = machine.number(f"{folder}/mem_info_vram_total") or agent.memory
        used = machine.number(f"{folder}/mem_info_vram_used") or 0
        gtt = machine.number(f"{folder}/mem_info_gtt_total") or 0
        if agent.integrated:
            yield from _gtt(machine, agent, gtt)
            told.append(f"{agent.gfx}: {human_bytes(vram)} of its own, {human_bytes(gtt)} of the host's")
            continue
        if vram and used > 0.9 * vram:
            yield warning(
                "memory-used",
                f"{human_bytes(used)} of {human_bytes(vram)} on {agent.gfx} (node {agent.node}) are in use",
                "amd-smi process   # shows whose",
            )
        told.append(f"{agent.gfx}: {human_bytes(max(vram - used, 0))} of {human_bytes(vram)} free")
    yield fine("; ".join(told) or "not told in sysfs")


def _gtt(machine: Machine, agent: Agent, gtt: int) -> Findings:
    total = (as_number(machine.pairs("/proc/meminfo").get("MemTotal", "").split(" ")[0]) or 0) << 10
    if gtt and total and gtt < 0.45 * total:
        pages = total * 3 // 4 // 4096
        option = f"echo 'options ttm pages_limit={pages}' | sudo tee /etc/modprobe.d/ttm.conf"
        mend = f"{option} && sudo update-initramfs -u   # then reboot"
        yield warning("small-gtt", f"{agent.gfx} may use {human_bytes(gtt)} of the host's {human_bytes(total)}", mend)


CHECK = Check("amd-memory", "amd", "mem_info_vram_* and mem_info_gtt_total in sysfs", look, MODES, ("amd-agents",))
