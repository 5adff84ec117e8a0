"""What kernels are built for: a device's own target, without its matrix cores where the thread's state forbids them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pyflame.core.device import Target
from pyflame.core.state import state
from pyflame.runtime.base import Device


@cache
def _without_matrix_cores(target: Target) -> Target:
    return replace(target, matrix_core="")


def planned_target(device: Device) -> Target:
    """The target of plans that are made now, in this thread."""
    target: Target = device.target
    return target if state.matrix_cores or not target.is_gpu else _without_matrix_cores(target)
