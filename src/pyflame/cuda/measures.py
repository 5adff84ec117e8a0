"""How busy, hot and fast a GPU is now, by torch.cuda's names: one sample of `pf.monitor`."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import NotAvailableError
from pyflame.doctor.monitor import Gpu, Sample, Sampler
from pyflame.tensor.torch_cuda import cuda as _gpus

__all__ = ["clock_rate", "device_memory_used", "list_gpu_processes", "power_draw", "temperature", "utilization"]


def _seen(op: str, device: Any) -> tuple[Gpu, Sample]:
    """What the monitor sees of a GPU, which it knows by its PCI address."""
    bus = str(_gpus.get_device_properties(device).pci_bus_id).lower()
    with Sampler() as sampler:
        sample = sampler.sample()
        for gpu in sample.gpus:
            if gpu.bus.lower() == bus:
                return gpu, sample
        raise NotAvailableError(f"[{op}] expected the GPU at {bus} in {[g.bus for g in sample.gpus]}: {sampler.notes}")


def _value(op: str, device: Any, name: str) -> float:
    found = getattr(_seen(op, device)[0], name)
    if found is None:
        raise NotAvailableError(f"[{op}] expected the driver to tell {name} of this GPU but it does not")
    return float(found)


def utilization(device: Any = None) -> int:
    """Percent of the last moments in which a GPU worked.

    >>> pf.cuda.utilization()                                                        # doctest: +SKIP
    97
    """
    return round(_value("utilization", device, "use"))


def temperature(device: Any = None) -> int:
    """Degrees Celsius, of the hottest spot where that is told."""
    return round(_value("temperature", device, "temperature"))


def power_draw(device: Any = None) -> int:
    """Milliwatts."""
    return round(1e3 * _value("power_draw", device, "power"))


def clock_rate(device: Any = None) -> int:
    """MHz of the compute units now."""
    return round(_value("clock_rate", device, "clock"))


def device_memory_used(device: Any = None) -> int:
    """Bytes in use on a GPU, by all processes."""
    return round(_value("device_memory_used", device, "memory_used"))


def list_gpu_processes(device: Any = None) -> str:
    """A line for each process on a GPU, with its memory."""
    gpu, sample = _seen("list_gpu_processes", device)
    lines = [f"GPU:{_gpus.id_of('list_gpu_processes', device).index}"]
    for p in sample.processes:
        if p.bus == gpu.bus:
            used = "?" if p.memory is None else f"{p.memory / 1024**2:.3f}"
            lines.append(f"process {p.pid:>10d} uses {used:>12} MB GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])
