"""What `pf.device_info` and bug reports tell of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyflame.core.errors import PyFlameError

if TYPE_CHECKING:
    from pyflame.runtime.gpu.device import GpuDevice


def description(device: GpuDevice) -> dict[str, Any]:
    """Name, architecture, sizes and versions, by the names that all kinds of devices share."""
    p = device.properties
    free, total = device.memory_info()
    return {
        "type": device.id.kind,
        "device_id": device.index,
        "name": p.name,
        "architecture": p.arch,
        "arch": p.arch,
        "arch_full": p.arch_full,
        "compute_units": p.compute_units,
        "wave_size": p.wave_size,
        "lds_per_block": p.lds_per_block,
        "max_threads_per_block": p.max_threads,
        "clock_khz": p.clock_khz,
        "total_memory": total,
        "free_memory": free,
        "peak_bandwidth": p.peak_bandwidth,
        "pci_bus_id": p.pci_bus_id,
        "integrated": p.integrated,
        "matrix_core": device.target.matrix_core,
        "fp8": device.target.fp8,
        "driver": device.driver.version(),
        "compiler": _compiler(device),
    }


def _compiler(device: GpuDevice) -> str | None:
    """Also before it has built anything, as in a bug report of a fresh process."""
    try:
        return device.kernels.compiler.version
    except PyFlameError:  # there is none; the first kernel that needs it says what to do
        return None
