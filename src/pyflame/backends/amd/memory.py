"""AMDMemoryManager: what a GPU's memory is used for, and memory by address, over the pool that tensors use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyflame as pf
from pyflame.backend.rocm.memory import ROCmMemoryManager
from pyflame.backends.amd.backend import AMDBackend
from pyflame.core.config import AMDConfig
from pyflame.core.errors import AMDDeviceError

_MIB = 1 << 20


@dataclass(frozen=True)
class AMDMemoryStats:
    """A device's memory in MiB: `total`, `free` as the driver sees them; `allocated` by tensors and running plans,
    `reserved` by the pool, of which `cached` is unused; `peak` of what was allocated."""

    total_mb: float
    free_mb: float
    allocated_mb: float
    reserved_mb: float
    cached_mb: float
    peak_mb: float


class AMDMemoryManager:
    """The memory of an AMD GPU; on the CPU, which stands in for one, that of the host, which cannot be asked for here.

    >>> manager = AMDMemoryManager(AMDConfig(device="cpu"))
    >>> manager.get_memory_stats().total_mb > 0
    True
    """

    def __init__(self, config: AMDConfig | None = None) -> None:
        self.backend = AMDBackend(config)
        self._manager: ROCmMemoryManager | None = None
        if self.backend.is_available():
            chosen, most = self.backend.config, int(self.backend.config.memory_pool_size_gb * 1024)
            options = ROCmMemoryManager.Config(chosen.enable_memory_pooling, pool_size_mb=0, max_pool_size_mb=most)
            self._manager = ROCmMemoryManager(options, self.backend.id)

    def get_memory_stats(self) -> AMDMemoryStats:
        """What is used and free now, measured."""
        free, total = pf.memory_info(self.backend.id)
        stats = pf.memory_stats(self.backend.id)
        amounts = total, free, stats.allocated, stats.reserved, stats.cached, stats.peak_allocated
        return AMDMemoryStats(*[amount / _MIB for amount in amounts])

    def get_allocation_summary(self) -> dict[str, Any]:
        """Counters of the pool, and `text`: a table of them."""
        stats = pf.memory_stats(self.backend.id)
        names = ("allocations", "frees", "hits", "live_blocks", "free_blocks", "segments", "retries", "out_of_memory")
        counts = {name: getattr(stats, name) for name in names}
        text = pf.memory_summary(self.backend.id)
        return {"device": str(self.backend.id), **counts, "fragmentation": stats.fragmentation, "text": text}

    def allocate(self, nbytes: int) -> int:
        """The address of new memory of the GPU."""
        return self._gpu("allocate").allocate(nbytes)

    def deallocate(self, address: int) -> None:
        """Give memory up that `allocate` gave."""
        self._gpu("deallocate").deallocate(address)

    def clear_pool(self) -> int:
        """Give unused memory back to the driver or the system; gives the bytes."""
        return pf.empty_cache(self.backend.id)

    def cleanup(self) -> None:
        """Give up all that was allocated here, and what the pool does not use."""
        if self._manager is not None:
            self._manager.close()
        self.clear_pool()

    def _gpu(self, op: str) -> ROCmMemoryManager:
        if self._manager is None:
            raise AMDDeviceError(
                f"[{op}] expected an AMD GPU but models run on the CPU, whose memory has no addresses for kernels; use "
                "tensors, or name a device such as 'sim:gfx942'"
            )
        return self._manager
