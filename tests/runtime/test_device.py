"""A GPU device over the fake driver: kernels and their cache, copies, events, graphs and faults."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.device import DeviceId
from pyflame.core.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    DeviceFaultError,
    NotAvailableError,
    OutOfMemoryError,
)
from pyflame.core.targets import TARGETS
from pyflame.core.trace import TraceEvent
from pyflame.runtime.cache import DiskCache, stats
from pyflame.runtime.gpu.compiler import Function
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import KernelArguments, dimensions
from pyflame.runtime.gpu.graph import Graph
from pyflame.runtime.gpu.memory import Block
from pyflame.runtime.gpu.stream import Stream
from pyflame.runtime.gpu.transfer import IN_FLIGHT, PIECE
from pyflame.runtime.gpu.vendor import Vendor
from tests.runtime.fake import FakeCompiler, FakeDriver, fake_device

TEXT = "PF_GLOBAL(64) PF_KEY_0(float* x) {}"


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path)


@pytest.fixture
def device(driver: FakeDriver, cache: DiskCache) -> GpuDevice:
    return fake_device(driver, cache)


def numbers(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def fetched(device: GpuDevice, address: int, nbytes: int) -> np.ndarray[Any, Any]:
    out = np.zeros(nbytes, np.uint8)
    device.download(out.ctypes.data, address, nbytes)
    return out


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernel(number: int, ends: str = "_0") -> tuple[str, tuple[str, ...]]:
    return f"PF_GLOBAL(64) PF_KEY_0(float* x) {{ x[0] = {number}; }} PF_GLOBAL(64) PF_KEY_1() {{}}", (ends,)


def counted(device: GpuDevice, texts: list[tuple[str, tuple[str, ...]]]) -> tuple[int, int, int, int]:
    before = stats.memory_hits, stats.disk_hits, stats.misses, stats.compiles
    device.functions(texts)
    after = stats.memory_hits, stats.disk_hits, stats.misses, stats.compiles
    return after[0] - before[0], after[1] - before[1], after[2] - before[2], after[3] - before[3]


def test_kernels_are_compiled_once(driver: FakeDriver, cache: DiskCache) -> None:
    texts = [kernel(n) for n in range(10)]
    first = fake_device(driver, cache)
    assert counted(first, texts) == (0, 0, 10, 10)
    assert counted(first, texts) == (10, 0, 0, 0)
    assert counted(first, [kernel(3, "_1")]) == (0, 1, 0, 0)  # another function of a known text
    second = fake_device(driver, cache)
    assert counted(second, texts) == (0, 10, 0, 0)
    assert isinstance(second.kernels.compiler, FakeCompiler)
    assert not second.kernels.compiler.sources


def test_functions_of_a_text(device: GpuDevice) -> None:
    (both, one) = device.functions([(TEXT + " PF_GLOBAL(64) PF_KEY_1() {}", ("_0", "_1")), (TEXT, ("_0",))])
    assert [f.name[-2:] for f in both + one] == ["_0", "_1", "_0"]
    assert both[0].name != one[0].name
    assert device.attributes(one[0])["registers"] == 32


def test_a_text_with_macros_is_a_file_of_its_own(device: GpuDevice) -> None:
    device.functions([("#define N 3\n" + TEXT, ("_0",)), kernel(1), kernel(2)])
    assert isinstance(device.kernels.compiler, FakeCompiler)
    assert sorted("#define" in s for s in device.kernels.compiler.sources) == [False, True]


def test_everything_that_changes_code_changes_its_name(driver: FakeDriver, cache: DiskCache) -> None:
    gfx942, gfx1100 = TARGETS["gfx942"], TARGETS["gfx1100"]
    plain = FakeCompiler(cache)
    names = {
        plain.key(TEXT, gfx942),
        plain.key(TEXT + " ", gfx942),
        plain.key(TEXT, gfx1100),
        FakeCompiler(cache, version="fake 2").key(TEXT, gfx942),
        FakeCompiler(cache, flags="-O2").key(TEXT, gfx942),
    }
    assert len(names) == 5
    assert FakeCompiler(cache).key(TEXT, gfx942) in names


def test_damaged_code_is_made_anew(driver: FakeDriver, cache: DiskCache) -> None:
    fake_device(driver, cache).functions([kernel(1)])
    for _, _, path in cache.entries():
        if path.name.endswith(".fake"):
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert counted(fake_device(driver, cache), [kernel(1)]) == (0, 0, 1, 1)
    # Code that is intact and that the driver refuses is made anew too.
    driver.failures["load_module"] = CompileError("[fake] no binary for this GPU")
    assert counted(fake_device(driver, cache), [kernel(1)]) == (0, 0, 1, 1)


def test_build_of_a_whole_text(cache: DiskCache) -> None:
    compiler = FakeCompiler(cache)
    code = compiler.build(TEXT, TARGETS["gfx942"])
    assert FakeCompiler(cache).build(TEXT, TARGETS["gfx942"]) == code
    assert compiler.sources == [TEXT]
    with pytest.raises(CompileError, match="refused"):
        compiler.build("refuse", TARGETS["gfx942"])


def test_a_refused_kernel_leaves_the_others_possible(device: GpuDevice) -> None:
    with pytest.raises(CompileError, match="refused"):
        device.functions([kernel(1), ("refuse PF_KEY_0", ("_0",))])
    assert device.functions([kernel(1)])[0][0].name.endswith("_0")


# --- launches ---------------------------------------------------------------------------------------------------------


def test_launch_passes_its_words(device: GpuDevice, driver: FakeDriver) -> None:
    ((function,),) = device.functions([(TEXT, ("_0",))])
    block = device.allocate(8)
    driver.parameters["_0"] = 3
    driver.bodies["_0"] = lambda kernel_args: ctypes.memmove(
        kernel_args[0], ctypes.byref(ctypes.c_int64(kernel_args[1] - kernel_args[2])), 8
    )
    kernel_args = KernelArguments([0, 0, block.address, -5, 2])
    device.launch(function, 7, (32, 2), 128, kernel_args, start=2)
    kernel_args.array[3] = 0  # parameters were taken at the launch
    assert fetched(device, block.address, 8).view(np.int64)[0] == -7
    assert driver.launches == [(function.name, (7, 1, 1), (32, 2, 1), 128, [block.address, -5, 2])]


def test_a_grid_has_one_to_three_dimensions() -> None:
    assert dimensions(5) == (5, 1, 1) and dimensions([2, 3, 4]) == (2, 3, 4)
    for bad in (0, (), (1, 2, 3, 4), (1, -1)):
        with pytest.raises(ArgumentError, match="one to three dimensions"):
            dimensions(bad)


def test_a_refused_launch_names_its_kernel(device: GpuDevice, driver: FakeDriver) -> None:
    driver.failures["launch"] = DeviceError("[fake] out of resources")
    with pytest.raises(DeviceError, match=r"out of resources\. The kernel is softmax_0, grid \(4, 1, 1\), block"):
        device.launch(Function("softmax_0", "x_0"), 4, 64, 0, [1])
    device.synchronize()  # it works on


FINDERS: dict[str, Callable[[GpuDevice, Graph, Block], Any]] = {
    "synchronize": lambda device, graph, block: device.synchronize(),
    "launch": lambda device, graph, block: device.launch(Function("third_0", "x"), 1, 64, 0, [1]),
    "copy_h2d": lambda device, graph, block: device.upload(block.address, b"12345678"),
    "copy_d2h": lambda device, graph, block: fetched(device, block.address, 8),
    "memset": lambda device, graph, block: device.zero(block.address, 8),
    "graph_launch": lambda device, graph, block: graph.replay(),
    "stream_synchronize": lambda device, graph, block: device.stream.synchronize(),
    "alloc": lambda device, graph, block: device.allocate(1 << 30),
    "host_alloc": lambda device, graph, block: device.pinned.acquire(1 << 20),
    "event_create": lambda device, graph, block: device.event(),
    "event_record": lambda device, graph, block: device.event().record(),
    "load_module": lambda device, graph, block: device.functions([(TEXT, ("_0",))]),
}


@pytest.mark.parametrize("where", FINDERS)
def test_a_fault_names_the_last_kernels_and_ends_the_device(where: str, driver: FakeDriver, cache: DiskCache) -> None:
    """Whichever call finds it."""
    driver.devices = 2
    device, other = fake_device(driver, cache), fake_device(driver, cache, 1)
    with device.capture() as graph:
        pass
    for name in ("first_0", "second_0"):
        device.launch(Function(name, name), 1, 64, 0, [1])
    block = device.allocate(8)
    driver.failures[where] = DeviceFaultError("[fake] illegal address")
    with pytest.raises(DeviceFaultError, match=r"illegal address\. Kernels.* first: .*second_0, first_0$"):
        FINDERS[where](device, graph, block)
    for work in (device.synchronize, lambda: device.allocate(8), lambda: device.allocate(1 << 30), device.empty_cache):
        with pytest.raises(DeviceFaultError, match=r"expected fake:0 to work but it broke before: .*, first_0$"):
            work()
    del block  # gives no error
    where_to = other.allocate(3)
    other.upload(where_to.address, b"abc")
    assert fetched(other, where_to.address, 3).tobytes() == b"abc"


def test_a_fault_is_of_none_that_was_waited_for(device: GpuDevice, driver: FakeDriver) -> None:
    block = device.allocate(8)
    for wait in (device.synchronize, functools.partial(fetched, device, block.address, 8)):
        device.launch(Function("good_0", "x"), 1, 64, 0, [1])
        wait()
    with device.capture() as graph:
        for n in (1, 2, 1):
            device.launch(Function(f"captured_{n}", "x"), 1, 64, 0, [1])
    graph.replay()
    for n in range(30):
        device.launch(Function(f"later_{n % 15}", "x"), 1, 64, 0, [1])
    driver.failures["synchronize"] = DeviceFaultError("[fake] illegal address")
    with pytest.raises(DeviceFaultError, match=r": later_14, .*, later_0, a graph of 3 \(captured_1, captured_2\)$"):
        device.synchronize()


def test_a_fault_may_be_of_another_streams_kernel(device: GpuDevice, driver: FakeDriver) -> None:
    """Which was not waited for with the device's own stream."""
    side = device.make_stream()
    device.launch(Function("beside_0", "x"), 1, 64, 0, [1], stream=side)
    block = device.allocate(8)
    fetched(device, block.address, 8)
    driver.failures["synchronize"] = DeviceFaultError("[fake] illegal address")
    with pytest.raises(DeviceFaultError, match=r"first: beside_0$"):
        device.synchronize()


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 1, 1000, PIECE, PIECE + 1, (IN_FLIGHT + 2) * PIECE + 77])
def test_copies_through_pinned_memory(device: GpuDevice, driver: FakeDriver, nbytes: int) -> None:
    data = numbers(nbytes)
    block, copy = device.allocate(nbytes), device.allocate(nbytes)
    sent = data.copy()
    device.upload_from(block.address, sent.ctypes.data, nbytes)
    sent[:] = 0  # the caller's again
    device.copy(copy.address, block.address, nbytes)
    device.zero(block.address, nbytes // 2)
    np.testing.assert_array_equal(fetched(device, copy.address, nbytes), data)
    back = fetched(device, block.address, nbytes)
    assert not back[: nbytes // 2].any()
    np.testing.assert_array_equal(back[nbytes // 2 :], data[nbytes // 2 :])
    device.synchronize()
    device.empty_cache()  # what few bytes go by is kept until then
    assert device.pinned.stats.allocated == 0
    assert not [e for e in driver.events.values() if e.done < e.recorded]


def test_uploads_do_not_wait(device: GpuDevice, driver: FakeDriver) -> None:
    block = device.allocate(64)
    for n in range(20):
        device.upload(block.address, bytes([n]) * 64)
    assert driver.calls["event_synchronize"] == driver.calls["synchronize"] == 0
    assert fetched(device, block.address, 64)[0] == 19


def test_between_devices(driver: FakeDriver, cache: DiskCache) -> None:
    driver.devices = 2
    here, there = fake_device(driver, cache), fake_device(driver, cache, 1)
    source, target = here.allocate(1000), there.allocate(1000)
    data = numbers(1000)
    here.upload(source.address, data.tobytes())
    assert there.reaches(here) and (1, 0) in driver.enabled
    there.copy_from_peer(target.address, here, source.address, 1000)
    here.zero(source.address, 1000)  # behind the copy, although another stream's
    here.stream.synchronize()
    np.testing.assert_array_equal(fetched(there, target.address, 1000), data)
    driver.peer = False
    assert not here.reaches(there)


# --- events, streams, clocks ------------------------------------------------------------------------------------------


def test_events_order_streams(device: GpuDevice, driver: FakeDriver) -> None:
    side = Stream(device, priority=-1)
    ran: list[int] = []
    driver._queue(side.handle, lambda: not ran.append(1))
    event = device.event().record(side)
    device.stream.wait(event)
    driver._queue(device.stream.handle, lambda: not ran.append(2))
    assert not event.done
    device.stream.synchronize()
    assert event.done and ran == [1, 2]
    handle = side.handle
    del side
    assert Stream(device, priority=-1).handle == handle  # memory may still name it, so it is used again
    assert Stream(device).handle not in (handle, device.stream.handle)


def test_timings(device: GpuDevice, driver: FakeDriver) -> None:
    block = device.allocate(8)

    def twice() -> None:
        device.zero(block.address, 8)
        device.zero(block.address, 8)

    for _ in range(2):
        first, second = TraceEvent("fill", "once"), TraceEvent("fill", "twice")
        device.timings.around(first, lambda: device.zero(block.address, 8))
        device.timings.around(second, twice)
        assert first.seconds is None and second.seconds is None  # nobody has waited
        device.timings.resolve()
        assert first.seconds is not None and second.seconds is not None and second.seconds > first.seconds > 0
        assert first.device == str(device.id) and first.given is not None
    assert driver.calls["event_create"] <= 8  # events are used again


def test_watched_records_are_read_when_the_host_waits(device: GpuDevice, driver: FakeDriver) -> None:
    seen: list[bytes] = []

    def report(record: bytes) -> None:
        seen.append(record)
        if record[0]:
            raise IndexError("an index is bad")

    blocks = [device.allocate(3) for _ in range(3)]
    for n, block in enumerate(blocks):
        device.upload(block.address, bytes([n] * 3))
        device.watch(block, block.address, 3, report)
    assert not seen
    with pytest.raises(IndexError, match="an index is bad"):
        device.synchronize()
    assert seen == [b"\0\0\0", b"\1\1\1", b"\2\2\2"]  # all are shown, the first error is raised
    device.synchronize()  # said once
    seen.clear()
    for _ in range(300):
        device.watch(blocks[0], blocks[0].address, 3, seen.append)
    device.synchronize()
    assert seen == [b"\0\0\0"]  # what is watched already is looked at once
    blocks = [device.allocate(3) for _ in range(300)]
    for block in blocks:
        device.watch(block, block.address, 3, seen.append)
    assert 250 < len(seen) < 303  # they do not grow without end


# --- graphs -----------------------------------------------------------------------------------------------------------


def test_a_graph_replays(device: GpuDevice, driver: FakeDriver) -> None:
    ((function,),) = device.functions([(TEXT, ("_0",))])
    counter = device.allocate(8)
    device.zero(counter.address, 8)

    def add(kernel_args: list[int]) -> None:
        ctypes.c_int64.from_address(kernel_args[0]).value += kernel_args[1]

    driver.bodies["_0"] = add
    with device.capture() as graph:
        inside = device.allocate(100)
        address = inside.address
        del inside
        device.launch(function, 1, 64, 0, [counter.address, 3])
        for refused in (device.synchronize, lambda: fetched(device, counter.address, 8)):
            with pytest.raises(DeviceError, match="while a graph is captured"):
                refused()
        with pytest.raises(DeviceError, match="no capture inside of another"), device.capture():
            pass
    assert fetched(device, counter.address, 8).view(np.int64)[0] == 0  # nothing ran
    assert device.allocate(100).address != address  # its addresses are the graph's as long as it lives
    for _ in range(4):
        graph.replay()
    assert fetched(device, counter.address, 8).view(np.int64)[0] == 12
    assert len(driver.graphs) == 2
    del graph
    assert device.allocate(100).address == address
    device.synchronize()
    assert not driver.graphs


def test_a_capture_that_fails(device: GpuDevice, driver: FakeDriver) -> None:
    with pytest.raises(RuntimeError, match="mine"), device.capture() as graph:
        raise RuntimeError("mine")
    assert not driver.captured and not driver.graphs
    with pytest.raises(DeviceError, match="its capture did not end"):
        graph.replay()
    driver.failures["capture_end"] = DeviceError("[fake] the capture was spoiled")
    with pytest.raises(DeviceError, match="spoiled"), device.capture():
        pass
    driver.captured.clear()
    with device.capture() as again:
        pass
    again.replay()
    device.synchronize()


def test_work_of_other_threads_is_not_captured(device: GpuDevice, driver: FakeDriver) -> None:
    block = device.allocate(4)
    device.zero(block.address, 4)
    seen: list[bytes] = []

    def elsewhere() -> None:
        device.upload(block.address, b"abcd")
        seen.append(fetched(device, block.address, 4).tobytes())

    with device.capture() as graph:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        device.zero(block.address, 2)
    assert seen == [b"abcd"] == [fetched(device, block.address, 4).tobytes()]
    graph.replay()
    assert fetched(device, block.address, 4).tobytes() == b"\0\0cd"


def test_threads_capture_one_after_the_other(device: GpuDevice) -> None:
    order: list[str] = []

    def work(name: str) -> None:
        with device.capture():
            order.append(name)
            order.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(order) == 8 and order[::2] == order[1::2]


# --- opening ----------------------------------------------------------------------------------------------------------


def test_info(device: GpuDevice) -> None:
    info = device.info()
    assert device.id == DeviceId("fake", 0) and device.target is TARGETS["gfx942"]
    assert info["arch"] == "gfx942" and info["arch_full"] == "gfx942:xnack-" and info["compiler"] == "fake 1"
    assert info["free_memory"] == info["total_memory"] > 0


def test_info_without_a_compiler(device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise CompileError("[compile] expected a compiler but found none; install one")

    monkeypatch.setattr(device, "_find_compiler", missing)
    assert device.info()["compiler"] is None


def test_a_vendor_opens_each_device_once(cache: DiskCache) -> None:
    made: list[FakeDriver] = []

    def make() -> FakeDriver:
        made.append(FakeDriver(devices=2))
        return made[-1]

    vendor = Vendor(make, lambda target: FakeCompiler(cache), OutOfMemoryError, lambda: NotAvailableError("none"))
    assert not made
    assert vendor.count() == 2 and vendor.why_absent() == ""
    assert vendor.open(1) is vendor.open(1) is not vendor.open(0)
    assert len(made) == 1
    with pytest.raises(DeviceError, match="expected one of fake:0, fake:1 but got fake:2"):
        vendor.open(2)
    made[0].devices = 0
    assert vendor.why_absent() == "none"
    with pytest.raises(NotAvailableError, match="none"):
        vendor.open(5)


def test_importing_opens_nothing() -> None:
    code = """
import sys
import pyflame.runtime.rocm.device, pyflame.runtime.cuda.device, pyflame.runtime.gpu.device
found = sorted(m for m in sys.modules if m.split(".")[0] in ("rocm", "cuda"))
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
