"""The GPUs of a machine as Linux tells of them: on the PCI bus, and as agents of AMD's compute driver (KFD)."""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.doctor.machine import Machine, as_number

AMD, NVIDIA = 0x1002, 0x10DE
_DISPLAY, _ACCELERATOR = 0x03, 0x12  # PCI classes
# GPUs that are a part of a processor and share its memory. MI300A is one too, but no poor relation of another GPU.
INTEGRATED = {
    "gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103", "gfx1150",
    "gfx1151", "gfx1152", "gfx1153",
}  # fmt: skip


@dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus."""

    address: str  # "0000:03:00.0"
    device: int
    driver: str  # the kernel module that holds it; empty: none

    def __str__(self) -> str:
        return f"{self.address} ({self.device:04x})"


@dataclass(frozen=True)
class Agent:
    """A GPU that the compute driver offers."""

    node: int
    gfx: str
    compute_units: int
    memory: int  # bytes of its own memory; 0: not told
    render: str  # "renderD128"
    unique_id: int  # 0: it has none

    @property
    def integrated(self) -> bool:
        return self.gfx in INTEGRATED


def pci_gpus(machine: Machine, vendor: int) -> list[PciGpu]:
    """Display controllers and accelerators of a vendor."""
    found = []
    for folder in machine.glob("/sys/bus/pci/devices/*"):
        kind = (machine.number(f"{folder}/class") or 0) >> 16
        if machine.number(f"{folder}/vendor") == vendor and kind in (_DISPLAY, _ACCELERATOR):
            device = machine.number(f"{folder}/device") or 0
            found.append(PciGpu(folder.rpartition("/")[2], device, machine.link(f"{folder}/driver")))
    return found


def gfx_name(version: int) -> str:
    """The gfx name of KFD's number for it.

    >>> gfx_name(90402), gfx_name(90010), gfx_name(110000)
    ('gfx942', 'gfx90a', 'gfx1100')
    """
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def agents(machine: Machine) -> list[Agent]:
    """The GPUs of KFD's topology, in the order in which ROCr and HIP count them."""
    found = []
    for folder in machine.glob("/sys/class/kfd/kfd/topology/nodes/*"):
        node = as_number(folder.rpartition("/")[2])
        told = {name: as_number(value) or 0 for name, value in machine.pairs(f"{folder}/properties").items()}
        version = told.get("gfx_target_version", 0)
        if node is None or not version or not told.get("simd_count"):
            continue  # a CPU
        units = told["simd_count"] // max(told.get("simd_per_cu", 4), 1)
        render = f"renderD{told.get('drm_render_minor', 0)}"
        memory = machine.number(f"/sys/class/drm/{render}/device/mem_info_vram_total") or _bank(machine, folder)
        found.append(Agent(node, gfx_name(version), units, memory, render, told.get("unique_id", 0)))
    return sorted(found, key=lambda agent: agent.node)


def _bank(machine: Machine, folder: str) -> int:
    """Bytes of the node's frame buffers, by KFD's own count."""
    banks = [machine.pairs(path) for path in machine.glob(f"{folder}/mem_banks/*/properties")]
    return sum(as_number(bank.get("size_in_bytes", "")) or 0 for bank in banks if bank.get("heap_type") in ("1", "2"))


def is_wsl(machine: Machine) -> bool:
    return "microsoft" in machine.kernel().lower()
