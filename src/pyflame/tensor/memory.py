"""How much memory a device's pool holds, and how to have it hold less. `device=None` means the current device.

The CPU answers for its caching pool, a GPU for its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.state import state
from pyflame.engine import memory
from pyflame.engine.devices import get_device

if TYPE_CHECKING:
    from pyflame.engine.memory import MemoryStats


def _named(device: object) -> DeviceId:
    return state.device if device is None else parse_device(device)


def memory_stats(device: object = None) -> MemoryStats:
    """The state and the counters of a device's memory pool: in use, held, cached, peaks, hits, fragmentation.

    >>> stats = pf.memory_stats("cpu")
    >>> stats.reserved == stats.allocated + stats.cached
    True
    """
    stats: MemoryStats = memory.pool_of("memory_stats", _named(device)).stats
    return stats


def memory_allocated(device: object = None) -> int:
    """Bytes that tensors and running plans hold.

    >>> before = pf.memory_allocated("cpu"); x = pf.rand(1000, device="cpu"); pf.eval(x)
    >>> pf.memory_allocated("cpu") - before >= 4000
    True
    """
    return memory_stats(device).allocated


def max_memory_allocated(device: object = None) -> int:
    """The most bytes ever in use, or since `reset_peak_memory_stats`."""
    return memory_stats(device).peak_allocated


def memory_reserved(device: object = None) -> int:
    """Bytes that the pool holds from the driver or the system, in use or not."""
    return memory_stats(device).reserved


def max_memory_reserved(device: object = None) -> int:
    """The most bytes ever held, or since `reset_peak_memory_stats`."""
    return memory_stats(device).peak_reserved


def reset_peak_memory_stats(device: object = None) -> None:
    """Measure peaks from here on.

    >>> pf.reset_peak_memory_stats("cpu")
    >>> pf.max_memory_allocated("cpu") == pf.memory_allocated("cpu")
    True
    """
    memory.pool_of("reset_peak_memory_stats", _named(device)).reset_peak()


def memory_info(device: object = None) -> tuple[int, int]:
    """Bytes free and in total, as the driver or the system sees them."""
    named = _named(device)
    memory.pool_of("memory_info", named)
    free, total = get_device(named).memory_info()
    return free, total


def memory_summary(device: object = None) -> str:
    """A table of what a device's memory is used for.

    >>> pf.memory_summary("cpu").splitlines()[0].startswith("memory of cpu")
    True
    """
    return memory.summary(_named(device))


def empty_cache(device: object = None) -> int:
    """Give unused memory back to the driver or the system; gives the bytes. On a GPU this waits for it.

    The pool asks for it again when it is needed, which is slow: this helps other programs, not this one.
    """
    named = _named(device)
    memory.pool_of("empty_cache", named)
    return int(get_device(named).empty_cache())


def set_memory_fraction(fraction: float, device: object = None) -> None:
    """Let a GPU's pool hold at most this share of its memory; more is an OutOfMemoryError. 1 is no limit."""
    memory.gpu_of("set_memory_fraction", _named(device)).pool.set_fraction(fraction)
