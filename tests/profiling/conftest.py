"""Where profiles are tried: the CPU, and a GPU that is emulated on the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pyflame as pf
from pyflame.core import trace
from pyflame.core.device import DeviceId
from pyflame.engine import devices
from pyflame.runtime.gpu.device import GpuDevice
from tests.emulated import emulated_device

GPU = DeviceId("rocm", 40)


def emulated() -> GpuDevice:
    if GPU not in devices._open:
        devices._open[GPU] = emulated_device(GPU.index)
    found = devices._open[GPU]
    assert isinstance(found, GpuDevice)
    return found


@pytest.fixture
def gpu() -> Iterator[GpuDevice]:
    device = emulated()
    with pf.device(str(GPU)):
        yield device


@pytest.fixture(params=["cpu", "gpu"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """The current device."""
    name = "cpu" if request.param == "cpu" else str(emulated().id)
    with pf.device(name):
        yield name


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """No test leaves a recording behind."""
    yield
    assert trace.recording is None
    assert not trace.thread.open
