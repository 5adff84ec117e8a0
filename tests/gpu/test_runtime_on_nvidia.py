"""The GPU runtime on a real NVIDIA GPU: driver, memory, copies, NVRTC, launches, clocks, graphs and faults."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import CompileError, DeviceError, OutOfMemoryError
from pyflame.core.trace import TraceEvent
from pyflame.runtime.cache import stats
from pyflame.runtime.cuda.device import CUDA
from pyflame.runtime.gpu.compiler import Function
from pyflame.runtime.gpu.device import GpuDevice
from pyflame.runtime.gpu.driver import KernelArguments
from pyflame.runtime.gpu.stream import Stream
from pyflame.runtime.gpu.transfer import IN_FLIGHT, PIECE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CUDA.count() == 0, reason=CUDA.why_absent() or "there is one"),
]

SCALE = """
PF_GLOBAL(256) PF_KEY_0(float* out, const float* x, int64_t n, int64_t factor) {
  int64_t i = (int64_t)pf_block() * 256 + pf_thread();
  if (i < n) out[i] = x[i] * (float)factor;
}
PF_GLOBAL(256) PF_KEY_1(int64_t* out, int64_t term) {
  if (pf_block() == 0 && pf_thread() == 0) *out += term;
}
"""
SPIN = """
PF_GLOBAL(32) PF_KEY_0(float* x, int64_t rounds) {
  float v = x[pf_thread()];
  for (int64_t i = 0; i < rounds; i++) v = v * 0.999f + 1.0f;
  x[pf_thread()] = v;
}
"""
FAULT = """
from pyflame.core.errors import DeviceFaultError
from pyflame.runtime.cuda.device import CUDA
device = CUDA.open(0)
((function,),) = device.functions([("PF_GLOBAL(32) PF_KEY_0(int64_t* x) { x[pf_thread()] = 1; }", ("_0",))])
device.launch(function, 1, 32, 0, [64])
try:
    device.synchronize()
except DeviceFaultError as error:
    assert function.name in str(error) and "memory that is not its own" in str(error), error
try:
    device.allocate(8)
    device.synchronize()
except DeviceFaultError as error:
    assert "broke before" in str(error)
    import pyflame as pf
    print((pf.ones(3, device="cpu") + 1).numpy())
"""


@pytest.fixture(scope="module")
def device() -> GpuDevice:
    return CUDA.open(0)


@pytest.fixture(scope="module")
def functions(device: GpuDevice) -> list[Function]:
    (found,) = device.functions([(SCALE, ("_0", "_1"))])
    return found


def sent(device: GpuDevice, array: np.ndarray[Any, Any]) -> Any:
    block = device.allocate(array.nbytes)
    device.upload_from(block.address, array.ctypes.data, array.nbytes)
    return block


def fetched(device: GpuDevice, address: int, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty_like(like)
    device.download(out.ctypes.data, address, out.nbytes)
    return out


def test_properties(device: GpuDevice) -> None:
    p = device.properties
    assert p.arch.startswith("sm_") and p.arch == device.target.name
    assert p.wave_size == 32 and p.max_threads == 1024 and p.compute_units == device.target.workers > 0
    assert p.lds_per_block >= 48 << 10 and p.clock_khz > 0 and p.pci_bus_id.count(":") == 2
    info = device.info()
    assert 0 < info["free_memory"] <= info["total_memory"] and info["driver"].count(".") == 1


@pytest.mark.parametrize("nbytes", [1, 4096, PIECE + 13, (IN_FLIGHT + 3) * PIECE + 5])
def test_copies(device: GpuDevice, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    block = sent(device, data.copy())
    other = device.allocate(nbytes)
    device.copy(other.address, block.address, nbytes)
    device.zero(block.address, nbytes)
    np.testing.assert_array_equal(fetched(device, other.address, data), data)
    assert not fetched(device, block.address, data).any()


def test_launch(device: GpuDevice, functions: list[Function]) -> None:
    x = np.arange(100_003, dtype=np.float32)
    block, out = sent(device, x), device.allocate(x.nbytes)
    kernel_args = KernelArguments([7, 7, out.address, block.address, len(x), -3])
    device.launch(functions[0], -(-len(x) // 256), 256, 0, kernel_args, start=2)
    kernel_args.array[5] = 100  # parameters were taken at the launch
    np.testing.assert_array_equal(fetched(device, out.address, x), x * -3)
    assert device.attributes(functions[0])["registers"] > 0 == device.attributes(functions[0])["local_bytes"]


def test_kernels_come_from_disk(device: GpuDevice) -> None:
    text = SCALE.replace("* (float)factor", "+ (float)factor")
    device.functions([(text, ("_0",))])
    before = stats.disk_hits, stats.compiles
    again = GpuDevice(device.driver, lambda: device.kernels.compiler, 0)
    again.functions([(text, ("_0",))])
    assert (stats.disk_hits, stats.compiles) == (before[0] + 1, before[1])


def test_a_refused_kernel_shows_its_line(device: GpuDevice) -> None:
    with pytest.raises(CompileError, match=r"(?s)NVRTC.*refused a kernel for sm_.*> +\d+ \|.*= wrong;"):
        device.functions([("PF_GLOBAL(32) PF_KEY_0(int64_t* x) {\n  x[0] = wrong;\n}", ("_0",))])


def test_timings(device: GpuDevice) -> None:
    ((spin,),) = device.functions([(SPIN, ("_0",))])
    block = sent(device, np.ones(32, np.float32))
    device.launch(spin, 1, 32, 0, [block.address, 1000])
    events = []
    for rounds in (100_000, 1_000_000):
        events.append(TraceEvent("kernel", "spin"))
        device.timings.around(events[-1], partial(device.launch, spin, 1, 32, 0, [block.address, rounds]))
    device.timings.resolve()
    short, long = (event.seconds for event in events)
    assert 4 < long / short < 20 and short > 1e-5


def test_streams_wait_for_events(device: GpuDevice, functions: list[Function]) -> None:
    ((spin,),) = device.functions([(SPIN, ("_0",))])
    side = Stream(device, priority=-1)
    x = sent(device, np.full(32, 5, np.float32))
    out = device.allocate(128)
    device.stream.synchronize()
    device.launch(spin, 1, 32, 0, [x.address, 3_000_000], stream=side)
    event = device.event().record(side)
    assert not event.done
    device.stream.wait(event)
    device.launch(functions[0], 1, 256, 0, [out.address, x.address, 32, 1])
    result = fetched(device, out.address, np.empty(32, np.float32))
    assert event.done
    np.testing.assert_allclose(result, 1000.0, rtol=1e-2)  # where the recurrence ends


def test_graph(device: GpuDevice, functions: list[Function]) -> None:
    counter = sent(device, np.zeros(1, np.int64))
    with device.capture() as graph:
        inside = device.allocate(8)
        device.zero(inside.address, 8)
        device.launch(functions[1], 1, 256, 0, [inside.address, 5])
        device.launch(functions[1], 1, 256, 0, [counter.address, 2])
        address = inside.address
        with pytest.raises(DeviceError, match="while a graph is captured"):
            device.synchronize()
    assert fetched(device, counter.address, np.zeros(1, np.int64))[0] == 0
    for _ in range(100):
        graph.replay()
    assert fetched(device, counter.address, np.zeros(1, np.int64))[0] == 200
    assert fetched(device, address, np.zeros(1, np.int64))[0] == 5
    del graph
    device.synchronize()


def test_capture_while_others_work(device: GpuDevice, functions: list[Function]) -> None:
    counter, other = sent(device, np.zeros(1, np.int64)), sent(device, np.zeros(1, np.int64))
    wrong: list[BaseException] = []

    def elsewhere() -> None:
        try:
            for _ in range(50):
                device.launch(functions[1], 1, 256, 0, [other.address, 1])
                fetched(device, other.address, np.zeros(1, np.int64))
                device.allocate(3 << 20)
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    for _ in range(20):
        with device.capture() as graph:
            device.launch(functions[1], 1, 256, 0, [counter.address, 1])
        graph.replay()
    thread.join()
    assert not wrong
    assert fetched(device, counter.address, np.zeros(1, np.int64))[0] == 20
    assert fetched(device, other.address, np.zeros(1, np.int64))[0] == 50


def test_a_capture_that_fails_leaves_the_device_usable(device: GpuDevice, functions: list[Function]) -> None:
    with pytest.raises(ValueError, match="mine"), device.capture():
        raise ValueError("mine")
    counter = sent(device, np.zeros(1, np.int64))
    with device.capture() as graph:
        device.launch(functions[1], 1, 256, 0, [counter.address, 1])
    graph.replay()
    assert fetched(device, counter.address, np.zeros(1, np.int64))[0] == 1


def test_memory(device: GpuDevice) -> None:
    """By the pool's own count: other processes may use the same GPU meanwhile."""
    device.empty_cache()
    before = device.pool.stats.reserved
    free, total = device.memory_info()
    assert 1 << 30 < free <= total
    block = device.allocate(1 << 30)
    assert device.pool.stats.reserved == before + (1 << 30)
    address = block.address
    del block
    assert device.allocate(1 << 30).address == address
    assert device.empty_cache() >= 1 << 30
    assert device.pool.stats.reserved == before
    device.allocate(1 << 30)
    with pytest.raises(OutOfMemoryError, match=r"Largest blocks in use"):
        device.allocate(2 * total)
    assert device.pool.stats.reserved == before  # what nobody used was given back first


def test_large_dynamic_lds(device: GpuDevice) -> None:
    text = """
extern __shared__ float pf_dynamic[];
PF_GLOBAL(256) PF_KEY_0(float* out, int64_t n) {
  for (int64_t i = pf_thread(); i < n; i += 256) pf_dynamic[i] = (float)i;
  pf_barrier();
  if (pf_thread() == 0) *out = pf_dynamic[n - 1];
}
"""
    ((function,),) = device.functions([(text, ("_0",))])
    nbytes = device.target.lds_bytes
    out = device.allocate(4)
    device.launch(function, 1, 256, nbytes, [out.address, nbytes // 4])
    assert fetched(device, out.address, np.zeros(1, np.float32))[0] == nbytes // 4 - 1
    with pytest.raises(DeviceError, match="expected cu"):
        device.launch(function, 1, 256, nbytes + 4096, [out.address, 1])
    device.synchronize()


def test_pinned_memory_is_the_hosts(device: GpuDevice) -> None:
    block = device.pinned.acquire(100)
    ctypes.memset(block.address, 3, 100)
    assert block.array()[:100].sum() == 300
    device.pinned.release(block)


def test_a_fault_names_the_kernel_and_the_process_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True, check=False)
    assert done.stdout == "[2. 2. 2.]\n", done.stderr[-3000:]
