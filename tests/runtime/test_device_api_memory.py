"""The memory API for users: pools, the memory manager, pinned memory, and kernels over addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend import rocm
from pyflame.core.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError, ROCmMemoryError
from tests.emulated import EmulatedDriver
from tests.runtime.fake import GIB, FakeDriver
from tests.runtime.machine import machine, vendor

MIB = 1 << 20


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_of_a_gpu(gpus: FakeDriver) -> None:
    x = pf.tensor(np.zeros(3 * MIB, np.uint8))
    pf.eval(x)
    assert pf.memory_allocated() == pf.rocm.memory_allocated(0) == 3 * MIB
    assert pf.memory_allocated("rocm:1") == 0
    assert pf.memory_reserved() == 20 * MIB == gpus.held[0] == pf.rocm.max_memory_reserved()
    assert pf.rocm.mem_get_info() == (4 * GIB - 20 * MIB, 4 * GIB)
    table = pf.memory_summary().splitlines()
    assert table[0].split() == ["memory", "of", "rocm:0", "now", "peak"]
    assert table[1].split() == ["in", "use", "3", "MiB", "3", "MiB", "1", "blocks"]
    assert table[4].split()[4:] == ["3.98", "GiB", "of", "4", "GiB"]
    assert "pinned" in table[5] and "1 allocations" in table[6]
    del x
    assert pf.rocm.max_memory_allocated() == 3 * MIB and pf.memory_allocated() == 0
    pf.rocm.reset_peak_memory_stats()
    assert pf.max_memory_allocated() == 0
    assert pf.memory_stats().fragmentation == 0.0
    pf.synchronize()
    assert pf.empty_cache() >= 20 * MIB and gpus.held[0] == 0
    pf.eval(pf.tensor(np.zeros(10, np.uint8), device="rocm:1"))
    pf.rocm.empty_cache()  # of every GPU in use
    assert gpus.held[0] == gpus.held[1] == 0


def test_fraction(gpus: FakeDriver) -> None:
    pf.rocm.set_per_process_memory_fraction(0.01)
    with pytest.raises(ROCmMemoryError, match=r"the limit set for this pool is 41 MiB"):
        pf.eval(pf.tensor(np.zeros(50 * MIB, np.uint8)))
    pf.set_memory_fraction(1.0)
    pf.eval(pf.tensor(np.zeros(50 * MIB, np.uint8)))
    with pytest.raises(ArgumentError, match="expected a fraction above 0 and up to 1 but got 2"):
        pf.set_memory_fraction(2)


def test_warmup(gpus: FakeDriver) -> None:
    held = rocm.warmup_memory_pool(batch_size=16, model_size="small")
    assert held == gpus.held[0] >= 32 * MIB
    asked = gpus.calls["alloc"]
    pf.eval(*[pf.tensor(np.zeros(n, np.uint8)) for n in (100, MIB // 2, 5 * MIB, 20 * MIB)])
    assert gpus.calls["alloc"] == asked  # nothing more was asked of the driver
    assert rocm.warmup_memory_pool(10**6, "large") <= 2 * GIB + 40 * MIB  # half of what was free
    with pytest.raises(ArgumentError, match="expected a model_size of small, medium, large but got 'meduim'; did you"):
        rocm.warmup_memory_pool(32, "meduim")
    with pytest.raises(ArgumentError, match="expected a batch_size of at least 1 but got 0"):
        rocm.warmup_memory_pool(0, "small")


def test_pinned_pool(gpus: FakeDriver) -> None:
    pool = rocm.get_pinned_pool()
    assert pool is pf.rocm.pinned_pool(0) and pool is not rocm.get_pinned_pool(1)
    pool.warmup([32 * 3 * 8 * 8 * 4])
    assert gpus.calls["host_alloc"] == 1
    block = pool.acquire(1000)
    pool.release(block)
    pool.clear()
    assert gpus.held[-1] == 0
    block = pool.acquire(1000)
    pool.release(block.address)  # as with the pointer that other pools give
    assert pool.stats.allocated == 0
    for call, error, message in (
        (lambda: pool.release(block.address), ArgumentError, "it may be released already"),
        (lambda: pool.release("x"), ArgumentTypeError, "expected a block of this pool or its address"),
        (lambda: pool.acquire(1.5), ArgumentTypeError, "expected a size, a whole number, but got 1.5"),
        (lambda: pool.warmup(5), ArgumentTypeError, "expected a list of sizes but got 5; put it in brackets"),
    ):
        with pytest.raises(error, match=message):
            call()
    pool.clear()
    array = pool.empty((3, 5), np.float16)
    array[...] = 7
    assert array.shape == (3, 5) and pool.holding(array.ctypes.data, array.nbytes) is not None
    assert pool.holding(array.ctypes.data + 5000, 10) is None and pool.holding(array.ctypes.data, 0) is None
    half = array[1:]
    del array
    assert pool.stats.allocated > 0  # a view holds it
    del half
    assert pool.stats.allocated == 0


def test_manager(gpus: FakeDriver) -> None:
    manager = rocm.get_memory_manager()
    assert manager is rocm.get_memory_manager(0) and manager is not rocm.get_memory_manager(1)
    assert gpus.held[0] == 0  # it is asked for when memory is short: nothing is reserved ahead
    data = np.arange(1000, dtype=np.float32)
    a, b = manager.allocate(4000), manager.allocate(4000)
    manager.copy_host_to_device(a, data, 4000)
    manager.copy_device_to_device(b, a, 4000)
    manager.memset(a, 0, 2000)
    back = np.empty_like(data)
    manager.copy_device_to_host(back, b, 4000)
    np.testing.assert_array_equal(back, data)
    manager.copy_device_to_host(back, a, 4000)
    np.testing.assert_array_equal(back, np.where(np.arange(1000) < 500, 0, data))
    stats = manager.get_stats()
    assert (stats.total_allocated, stats.total_allocations, stats.cache_hits, stats.cache_misses) == (8192, 2, 1, 1)
    assert manager.get_memory_info() == (4 * GIB - 2 * MIB, 4 * GIB)
    manager.deallocate(a)
    manager.deallocate(b)
    for twice in (a, 12345):
        with pytest.raises(ArgumentError, match=r"\[deallocate\] expected an address that allocate gave"):
            manager.deallocate(twice)
    manager.reset_stats()
    stats = manager.get_stats()
    assert (stats.peak_allocated, stats.total_allocations, stats.total_deallocations) == (0, 0, 0)
    manager.clear_pool()
    assert gpus.held[0] == 0


def test_manager_on_streams(gpus: FakeDriver) -> None:
    manager, stream = rocm.get_memory_manager(), pf.rocm.Stream()
    handle = stream.stream.handle
    address, host = manager.allocate_async(4096, stream), manager.allocate_pinned(4096)
    words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 4096).from_address(host))
    words[:] = 5
    manager.copy_host_to_device_async(address, host, 4096, stream)
    manager.memset_async(address, 9, 2048, stream)
    words[:2048] = 6  # the stream has not come to the copy: it takes what is there then
    manager.copy_device_to_host_async(host, address, 4096, stream)
    assert words[2048] == 5 and words[0] == 6 and len(gpus.streams[handle]) == 3
    manager.deallocate_pinned(host)
    manager.deallocate_async(address, stream)
    assert manager.allocate_pinned(4096) != host  # it is still read
    stream.synchronize()
    assert (words[0], words[2048]) == (9, 5)
    assert manager.allocate_pinned(4096) == host
    manager.close()
    assert manager.get_stats().allocated == 0


def test_manager_refuses_what_would_corrupt(gpus: FakeDriver) -> None:
    with rocm.ROCmMemoryManager(rocm.ROCmMemoryManager.Config(pool_size_mb=64)) as manager:
        assert gpus.held[0] == 64 * MIB
        address = manager.allocate(4096)
        for call in (
            lambda: manager.memset(address + 4000, 0, 200),
            lambda: manager.copy_host_to_device(address, np.zeros(9000, np.uint8), 9000),
            lambda: manager.copy_device_to_device(address, address + 256, 4096),
        ):
            with pytest.raises(ArgumentError, match="the end of its block, but got"):
                call()
        with pytest.raises(ArgumentError, match="expected contiguous memory of 100 bytes but got 10"):
            manager.copy_host_to_device(address, b"0123456789", 100)
        with pytest.raises(ArgumentError, match="expected writable, contiguous memory"):
            manager.copy_device_to_host(b"0123456789", address, 10)
        with pytest.raises(ArgumentError, match="expected a byte"):
            manager.memset(address, 256, 1)
        for call in (
            lambda: manager.allocate("x"),
            lambda: manager.allocate(1.5),
            lambda: manager.allocate(True),
            lambda: manager.deallocate("x"),
            lambda: manager.memset(address, "x", 1),
            lambda: manager.memset(address, 0, None),
            lambda: manager.copy_device_to_device("x", address, 1),
            lambda: manager.allocate_pinned("x"),
            lambda: manager.deallocate_pinned("x"),
        ):
            with pytest.raises(ArgumentTypeError, match=", a whole number, but got"):
                call()
        with pytest.raises(ArgumentError, match="expected a size of 0 or more"):
            manager.allocate(-1)
        with pytest.raises(ArgumentError, match="expected a size"):
            manager.memset(address, 0, -1)
        with pytest.raises(ArgumentError, match="expected a Stream"):
            manager.memset_async(address, 0, 1, "fast")
    assert manager.get_stats().allocated == 0


def test_manager_options(gpus: FakeDriver) -> None:
    config = rocm.ROCmMemoryManager.Config
    plain = rocm.ROCmMemoryManager(config(enable_pooling=False, use_pinned_host=False))
    assert gpus.held[0] == 0
    plain.deallocate(plain.allocate(4096))
    assert gpus.held[0] == 0
    with pytest.raises(rocm.AMDConfigurationError, match="use_pinned_host=True"):
        plain.allocate_pinned(10)
    small = rocm.ROCmMemoryManager(config(pool_size_mb=0, max_pool_size_mb=50))
    small.deallocate(small.allocate(40 * MIB))
    assert gpus.held[0] == 40 * MIB
    small.deallocate(small.allocate(60 * MIB))
    assert gpus.held[0] == 0
    with pytest.raises(rocm.AMDConfigurationError, match="expected 0 <= pool_size_mb <= max_pool_size_mb"):
        rocm.ROCmMemoryManager(config(pool_size_mb=5000))


def test_executor_tells_of_memory(gpus: FakeDriver) -> None:
    executor = rocm.ROCmExecutor()
    assert executor.get_memory_stats() == pf.memory_stats("rocm:0")
    info = executor.get_device_info()
    assert info == rocm.get_device_info(0) and info.device_id == info["device_id"] == 0
    assert dict(info)["name"] == info.name == "Fake 0" and len(info) == 6


def test_executor_on_another_gpu() -> None:
    """What is not committed is computed on the executor's GPU, whichever was current when it was written down."""
    with machine(rocm=vendor("rocm", EmulatedDriver(("gfx1100", "gfx1100")))):
        pf.set_device("rocm:0")
        x = pf.tensor(np.arange(6, dtype=np.float32)) + 1.0
        y, committed = x * x + pf.arange(6), pf.ones(6, device="rocm:0") + 1.0
        second = rocm.ROCmExecutor(rocm.ROCmExecutor.Config(device_id=1))
        before = pf.memory_allocated("rocm:0")
        assert second.execute([x, y], [1]).outputs == [y]
        assert y.device == "rocm:1" and pf.memory_allocated("rocm:0") == before
        np.testing.assert_array_equal(y.numpy(), (np.arange(6) + 1) ** 2 + np.arange(6))
        with pytest.raises(pf.DeviceError, match="expected nodes on rocm:1 but got one on rocm:0; move it there"):
            second.execute([committed], [0])


def test_out_of_memory_is_typed(gpus: FakeDriver) -> None:
    gpus.total = 8 * MIB
    with pytest.raises(OutOfMemoryError, match=r"expected 52 MiB on rocm:0 but there is no room; held") as caught:
        pf.eval(pf.tensor(np.zeros(50 * MIB, np.uint8)))
    assert isinstance(caught.value, ROCmMemoryError) and isinstance(caught.value, MemoryError)


# --- kernels over addresses -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_launches_over_addresses() -> None:
    a, b = np.linspace(-2, 2, 12, dtype=np.float32), np.linspace(0.5, 1.5, 12, dtype=np.float32)
    p, t = np.linspace(0.1, 0.9, 12, dtype=np.float32), (np.arange(12) % 2).astype(np.float32)
    labels = np.array([2, 0, 1], np.int32)
    want = {
        "gelu": pf.gelu(pf.tensor(a)),
        "silu": pf.silu(pf.tensor(a)),
        "pow": b**a,
        "max": np.maximum(a, b),
        "tanh": np.tanh(a),
        "le": (a <= b).astype(np.float32),
        "where": np.where(t != 0, a, b),
        "clamp": np.clip(a, -1, 0.5),
        "mse": np.mean((a - b) ** 2),
        "bce": -np.mean(t * np.log(p) + (1 - t) * np.log(1 - p)),
        "ce": pf.cross_entropy(pf.tensor(a.reshape(3, 4)), pf.tensor(labels.astype(np.int64))),
    }
    with machine(rocm=vendor("rocm", EmulatedDriver())), rocm.ROCmMemoryManager() as manager:

        def sent(array: np.ndarray[Any, Any]) -> int:
            address = manager.allocate(array.nbytes)
            manager.copy_host_to_device(address, array, array.nbytes)
            return address

        A, B, P, T, L, out = *map(sent, (a, b, p, t, labels)), manager.allocate(48)
        stream = pf.rocm.Stream()
        calls: dict[str, Any] = {
            "gelu": lambda s: rocm.launch_gelu_forward(out, A, 12, s),
            "silu": lambda s: rocm.launch_silu_forward(out, A, 12, s),
            "pow": lambda s: rocm.launch_elementwise_binary("pow", out, B, A, 12, s),
            "max": lambda s: rocm.launch_elementwise_binary("MAX", out, A, B, 12, s),
            "tanh": lambda s: rocm.launch_elementwise_unary("tanh", out, A, 12, s),
            "le": lambda s: rocm.launch_comparison("le", out, A, B, 12, s),
            "where": lambda s: rocm.launch_where(out, T, A, B, 12, s),
            "clamp": lambda s: rocm.launch_clamp(out, A, -1.0, 0.5, 12, s),
            "mse": lambda s: rocm.launch_mse_loss(out, A, B, 12, s),
            "bce": lambda s: rocm.launch_bce_loss(out, P, T, 12, s),
            "ce": lambda s: rocm.launch_cross_entropy_loss(out, A, L, 3, 4, s),
        }
        for number, (name, call) in enumerate(calls.items()):
            call(stream if number % 2 else None)
            expected = np.asarray(want[name], np.float32).ravel()
            back = np.empty(expected.size, np.float32)
            manager.copy_device_to_host(back, out, back.nbytes)
            np.testing.assert_allclose(back, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        with pytest.raises(ArgumentError, match=r"expected one of add, sub, .* but got 'ad'; did you mean 'add'"):
            rocm.launch_elementwise_binary("ad", out, A, B, 12)
        with pytest.raises(ArgumentError, match="expected a size of 0 or more"):
            rocm.launch_gelu_forward(out, A, -1)
        for wrong in ((out, A, 2.5), (out, "A", 12), (None, A, 12)):
            with pytest.raises(
                ArgumentTypeError, match=r"\[launch_gelu_forward\] expected .*, a whole number, but got"
            ):
                rocm.launch_gelu_forward(*wrong)
        short, end = manager.allocate(256), "the end of its block, but got"
        for call in (
            lambda: rocm.launch_gelu_forward(out, short, 1000),
            lambda: rocm.launch_gelu_forward(short + 250, A, 12),
            lambda: rocm.launch_mse_loss(short + 254, A, B, 12),
            lambda: rocm.launch_cross_entropy_loss(out, A, short, 100, 4),
        ):
            with pytest.raises(ArgumentError, match=end):
                call()
