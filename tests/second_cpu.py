"""A second CPU device, for programs over several devices: as fast as the first, with memory of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pyflame.core.device import DeviceId
from pyflame.engine import copies, cross_device, devices, evaluate
from pyflame.engine.value import Value
from pyflame.runtime.base import Device
from pyflame.runtime.cpu.device import CPUDevice

SECOND = DeviceId("cpu", 1)


class SecondCPU(CPUDevice):
    id = SECOND


def _moved(value: Value, nbytes: int, here: Device, there: Device) -> Value:
    if here is there or {here.id.kind, there.id.kind} != {"cpu"}:
        return copies.moved(value, nbytes, here, there)
    storage = there.allocate(nbytes)
    ctypes.memmove(storage.address, value.host_address, nbytes)
    return Value(storage)


@contextmanager
def second_cpu() -> Iterator[DeviceId]:
    """Make it one of this machine's devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(devices._open, SECOND, SecondCPU())
        for module in (evaluate, cross_device):
            patch.setattr(module, "moved", _moved)
        yield SECOND
        evaluate.clear_plans()
