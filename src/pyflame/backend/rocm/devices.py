"""The `rocm_*` functions: AMD GPUs by number. `pf.rocm` offers the same and more."""

from __future__ import annotations

from typing import Any

from pyflame.engine import services
from pyflame.tensor.devices import set_device, synchronize
from pyflame.tensor.torch_cuda import rocm


def rocm_device_count() -> int:
    """How many AMD GPUs can be used; 0 where there is none."""
    return rocm.device_count()


def rocm_is_available() -> bool:
    """Whether an AMD GPU can be used.

    >>> pf.rocm_is_available() == (pf.rocm_device_count() > 0)
    True
    """
    return rocm.is_available()


def rocm_get_device_info(device_id: int = 0) -> dict[str, Any]:
    """device_id, name, architecture, total_memory, free_memory, compute_units and more of an AMD GPU."""
    return services.device_info(rocm.id_of("rocm_get_device_info", device_id))


def rocm_set_device(device_id: int) -> None:
    """Make an AMD GPU the current device, by number."""
    set_device(rocm.id_of("rocm_set_device", device_id))


def rocm_get_device() -> int:
    """Number of the current AMD GPU; -1 if the current device is none.

    >>> pf.rocm_get_device()
    -1
    """
    return rocm.current_device()


def rocm_synchronize() -> None:
    """Wait for the current AMD GPU."""
    synchronize(rocm.id_of("rocm_synchronize"))
