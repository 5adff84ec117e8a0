"""The memory of a device as users see it, over the runtime's pools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError
from pyflame.core.sizes import human_bytes
from pyflame.engine.devices import get_device

if TYPE_CHECKING:
    from pyflame.runtime.base import Allocator
    from pyflame.runtime.gpu.device import GpuDevice
    from pyflame.runtime.gpu.pinned import PinnedBlock
    from pyflame.runtime.gpu.pinned import PinnedPool as PinnedMemoryPool
    from pyflame.runtime.gpu.stream import Stream
    from pyflame.runtime.stats import MemoryStats

# Types that are imported when they are first asked for, most of them of GPUs.
_LATER = {
    "MemoryStats": ("stats", "MemoryStats"),
    "PinnedBlock": ("gpu.pinned", "PinnedBlock"),
    "PinnedMemoryPool": ("gpu.pinned", "PinnedPool"),
    "Stream": ("gpu.stream", "Stream"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file, member = _LATER[name]
    return getattr(import_module(f"pyflame.runtime.{file}"), member)


def pool_of(op: str, device: DeviceId) -> Allocator:
    """The memory pool of a device. The null device has none."""
    pool = get_device(device).pool
    if pool is None:
        raise DeviceError(f"[{op}] expected a device with memory but got {device}, which computes nothing; use the CPU")
    return pool


def gpu_of(op: str, device: DeviceId) -> GpuDevice:
    """An opened GPU."""
    found = get_device(device).gpu
    if found is None:
        raise DeviceError(f"[{op}] expected a GPU but got {device}; name one, such as 'cuda:0' or 'rocm:0'")
    return cast("GpuDevice", found)


def summary(device: DeviceId) -> str:
    """A device's pool as a table."""
    opened = get_device(device)
    s = pool_of("memory_summary", device).stats
    free, total = opened.memory_info()
    rows = [
        ("in use", human_bytes(s.allocated), human_bytes(s.peak_allocated), f"{s.live_blocks:,} blocks"),
        ("cached", human_bytes(s.cached), "", f"{s.free_blocks:,} blocks, the largest {human_bytes(s.largest_free)}"),
        ("held", human_bytes(s.reserved), human_bytes(s.peak_reserved), f"{s.segments:,} segments"),
        ("free on the device", human_bytes(free), "", f"of {human_bytes(total)}"),
    ]
    if opened.gpu is not None:
        p = opened.gpu.pinned.stats
        rows.append(("pinned, in use", human_bytes(p.allocated), "", f"{human_bytes(p.cached)} cached"))
    head = (f"memory of {device}", "now", "peak", "")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in [head, *rows]]
    lines.append(
        f"{s.allocations:,} allocations, {s.hits:,} from the cache; {s.frees:,} given back; the driver was asked for "
        f"{s.driver_allocations:,} segments and got {s.driver_frees:,} back; {s.retries:,} retries, "
        f"{s.out_of_memory:,} times out of memory; fragmentation {s.fragmentation:.0%}"
    )
    return "\n".join(lines)


__all__ = ["MemoryStats", "PinnedBlock", "PinnedMemoryPool", "Stream", "gpu_of", "pool_of", "summary"]
