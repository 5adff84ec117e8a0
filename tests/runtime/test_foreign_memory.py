"""Memory that other libraries share with a GPU: order of streams and lifetimes, over the fake driver."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError, DTypeError
from pyflame.engine import devices
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.tensor.dlpack import _open as opened
from tests.runtime.fake import FakeDriver, fake_device

ROCM = 10  # DLDeviceType
DEFAULT = 0  # the stream of a library that uses none of its own


@pytest.fixture
def driver() -> FakeDriver:
    found = FakeDriver(kind="rocm")
    found.streams[DEFAULT] = deque()
    return found


@pytest.fixture
def gpu(driver: FakeDriver, tmp_path: Path) -> Iterator[GpuDevice]:
    device = devices._open[DeviceId("rocm", 0)] = fake_device(driver, DiskCache(tmp_path))
    yield device
    del devices._open[DeviceId("rocm", 0)]


class Producer:
    """Another library's array on the GPU. `asked`: the streams that it was told."""

    def __init__(self, array: np.ndarray[Any, Any], bits: int = 0) -> None:
        """`bits`: of an element, as it says, if not those of the array's."""
        self.array = array
        self.bits = bits
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        self.asked.append(stream)
        capsule = self.array.__dlpack__()
        described, _ = opened(capsule)
        described.device[0] = ROCM
        described.bits = self.bits or described.bits
        return capsule


def ended(thing: weakref.ref[Any]) -> bool:
    gc.collect()
    return thing() is None


def test_imported_memory_is_shared_in_its_layout(gpu: GpuDevice) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (array, array.T, array[:, ::2], array[:0]):
        producer = Producer(view)
        found = pf.from_dlpack(producer)
        assert found.device == "rocm:0" and found.shape == view.shape and found.dtype is pf.float32
        assert producer.asked == [gpu.main.handle]  # ours, which waits for the producer's
        if view.size:
            assert found._node.data.address == view.ctypes.data
        strides = found._node.data.strides
        assert (strides is None) == (view.flags.c_contiguous or not view.size)
    with pytest.raises(DTypeError, match="code 1 with 4 bits"):
        pf.from_dlpack(Producer(array.view(np.uint8), bits=4))


@pytest.mark.slow
def test_an_owner_is_kept_until_our_last_use_is_done(gpu: GpuDevice, driver: FakeDriver) -> None:
    array = np.ones(1000, np.uint8)
    alive = weakref.ref(array)
    found = pf.from_dlpack(Producer(array))
    gpu.zero(gpu.allocate(8).address, 8)  # work that may read it
    del array, found
    gpu.allocate(64)
    assert not ended(alive)
    gpu.allocate(64)  # the stream has done nothing since
    assert not ended(alive)
    driver.run(gpu.main.handle)
    gpu.allocate(64)
    assert ended(alive)


@pytest.mark.slow
def test_an_owner_is_kept_for_streams_that_somebody_chose(gpu: GpuDevice, driver: FakeDriver) -> None:
    array = np.ones(16, np.uint8)
    alive = weakref.ref(array)
    found = pf.from_dlpack(Producer(array))
    gpu.unfollow(gpu.follow(DEFAULT))
    chosen = gpu.follow(DEFAULT)
    gpu.note_uses([found._node.data.storage])
    gpu.zero(gpu.allocate(8).address, 8)
    gpu.unfollow(chosen)
    del array, found
    gpu.allocate(8)
    driver.run(gpu.main.handle)
    gpu.allocate(8)
    assert not ended(alive)  # torch's stream may still read it
    driver.run(DEFAULT)
    gpu.allocate(8)
    assert ended(alive)


def test_the_taker_waits_for_our_work_and_the_host_does_not(gpu: GpuDevice, driver: FakeDriver) -> None:
    block = gpu.allocate(4)
    gpu.fill(block.address, 7, 4)
    found = pf.from_dlpack(Producer(np.zeros(1, np.int32)))
    found._node.data.storage = block
    del block
    waited = driver.calls["stream_synchronize"] + driver.calls["synchronize"] + driver.calls["event_synchronize"]
    capsule = found.__dlpack__(stream=None)
    described, _ = opened(capsule)
    assert (described.device[0], described.device[1], described.code, described.bits) == (ROCM, 0, 0, 32)
    assert found.__dlpack_device__() == (ROCM, 0)
    now = driver.calls["stream_synchronize"] + driver.calls["synchronize"] + driver.calls["event_synchronize"]
    assert now == waited and driver.streams[gpu.main.handle]
    driver.run(DEFAULT)  # runs ours first
    assert np.ctypeslib.as_array(described.shape, (1,))[0] == 1
    assert not driver.streams[gpu.main.handle]


@pytest.mark.slow
def test_exported_memory_comes_back_behind_the_takers_work(gpu: GpuDevice, driver: FakeDriver) -> None:
    found = pf.from_dlpack(Producer(np.zeros(1, np.int32)))
    found._node.data.storage = gpu.allocate(4)
    address = found._node.data.address
    capsule = found.__dlpack__(stream=DEFAULT)
    del found
    gc.collect()
    assert gpu.allocate(4).address != address  # the capsule holds it
    driver.run(gpu.main.handle)
    driver._queue(DEFAULT, lambda: True)  # the taker's work
    del capsule
    gc.collect()
    kept = [gpu.allocate(4)]
    assert kept[0].address != address
    driver.run(DEFAULT)
    assert gpu.stream.idle
    assert gpu.pool.stats.allocated == kept[0].nbytes


def test_no_event_is_needed_on_the_same_stream_or_where_none_is_wanted(gpu: GpuDevice, driver: FakeDriver) -> None:
    found = pf.from_dlpack(Producer(np.zeros(1, np.int32)))
    for stream in (-1, gpu.main.handle):
        found.__dlpack__(stream=stream)
    assert not driver.calls["event_record"]
    with pytest.raises(DeviceError, match="expected a stream's handle"):
        found.__dlpack__(stream="main")
    with pytest.raises(BufferError, match="expected the tensor's device"):
        found.__dlpack__(dl_device=(1, 0))


def test_a_stream_that_was_destroyed_is_waited_for_with_the_device(gpu: GpuDevice, driver: FakeDriver) -> None:
    array = np.ones(16, np.uint8)
    alive = weakref.ref(array)
    found = pf.from_dlpack(Producer(array))
    del array, found
    driver.failures["event_record"] = DeviceError("an invalid handle")
    gpu.allocate(8)
    assert ended(alive) and driver.calls["synchronize"] == 1


def test_a_copy_is_made_on_the_gpu(gpu: GpuDevice, driver: FakeDriver) -> None:
    block = gpu.allocate(4)
    gpu.fill(block.address, 7, 4)
    found = pf.from_dlpack(Producer(np.zeros(4, np.bool_)))
    found._node.data.storage = block
    described, _ = opened(capsule := found.__dlpack__(copy=True))
    assert described.data != block.address and (described.code, described.bits) == (6, 8)
    driver.run(DEFAULT)
    assert (np.ctypeslib.as_array((ctypes.c_uint8 * 4).from_address(described.data)) == 7).all()
    del capsule
