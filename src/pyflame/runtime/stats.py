"""What a pool of memory tells of itself, the same for the host's and for a GPU's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStats:
    """A pool's state, in bytes, and what it has done since it was made or its counters were reset."""

    allocated: int  # in use
    reserved: int  # held from the driver or the system
    cached: int  # held and not in use
    peak_allocated: int
    peak_reserved: int
    allocations: int
    frees: int
    hits: int  # allocations that did not ask the driver
    borrowed: int  # blocks that one stream took over from another, behind an event
    driver_allocations: int
    driver_frees: int
    retries: int  # times that the cache was released because the driver had no more
    out_of_memory: int  # times that this did not help
    live_blocks: int
    free_blocks: int
    segments: int
    largest_free: int

    @property
    def fragmentation(self) -> float:
        """The share of the cached bytes that the largest free block does not hold: 0 is none."""
        return 1.0 - self.largest_free / self.cached if self.cached else 0.0

    # --- the same under the names of the ROCm backend -----------------------------------------------------------------

    @property
    def total_allocated(self) -> int:
        """Bytes in use."""
        return self.allocated

    @property
    def total_allocations(self) -> int:
        return self.allocations

    @property
    def total_deallocations(self) -> int:
        return self.frees

    @property
    def cache_hits(self) -> int:
        return self.hits

    @property
    def cache_misses(self) -> int:
        """Allocations that had to ask the driver or the system."""
        return self.allocations - self.hits
