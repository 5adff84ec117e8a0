"""torch.accelerator by its path: the GPUs that a program runs on, whoever made them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from pyflame.tensor import devices, streams
from pyflame.tensor.torch_cuda import cuda as _gpus

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


def is_available() -> bool:
    """Whether there is a GPU.

    >>> pf.accelerator.is_available() == (pf.accelerator.device_count() > 0)
    True
    """
    return _gpus.is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return _gpus.device_count()


def current_accelerator(check_available: bool = False) -> devices.device | None:
    """The kind of GPU of this machine, as a device; None where there is none.

    >>> accelerator = pf.accelerator.current_accelerator()
    >>> model_device = accelerator.type if accelerator is not None else "cpu"
    """
    return devices.named(_gpus.id_of("current_accelerator")) if is_available() else None


def current_device_index() -> int:
    """The number of the current GPU; -1 where the current device is none."""
    return _gpus.current_device()


def set_device_index(device: Any) -> None:
    """Make a GPU the current device."""
    _gpus.set_device(device)


def device_index(device: int | None) -> Any:
    """A GPU as the current device within a `with` block; None changes nothing.

    >>> with pf.accelerator.device_index(None):
    ...     pass
    """
    return nullcontext() if device is None else _gpus.device(device)


def get_memory_info(device: Any = None) -> tuple[int, int]:
    """Bytes free and in total, as the driver sees them."""
    return _gpus.mem_get_info(device)


def synchronize(device: Any = None) -> None:
    """Wait until a device has finished what it was given."""
    devices.synchronize(_gpus.id_of("synchronize", device) if isinstance(device, int) else device)


def current_stream(device: Any = None) -> streams.Stream:
    """The stream that this thread's work goes to."""
    return _gpus.current_stream(device)


def empty_cache() -> None:
    """Give unused memory back to the driver."""
    _gpus.empty_cache()


memory_allocated = _gpus.memory_allocated
max_memory_allocated = _gpus.max_memory_allocated
memory_reserved = _gpus.memory_reserved
max_memory_reserved = _gpus.max_memory_reserved
memory_stats = _gpus.memory_stats
reset_peak_memory_stats = _gpus.reset_peak_memory_stats
current_device_idx = current_device_index
set_device_idx = set_device_index
