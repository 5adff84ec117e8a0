"""The device and memory API for users: by name, without a GPU, and over GPUs that fakes and the emulation stand for."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.backend import rocm
from pyflame.core.errors import ArgumentError, NotAvailableError
from pyflame.runtime.stats import MemoryStats
from tests.runtime.fake import GIB, FakeDriver
from tests.runtime.machine import machine

MIB = 1 << 20


# --- by name ----------------------------------------------------------------------------------------------------------

# What the documents of the ROCm backend name: functions and classes with the parameters or members they must have.
NAMED: dict[str, str] = {
    "is_available": "",
    "get_device_count": "",
    "get_current_device": "",
    "set_device": "device_id",
    "synchronize": "",
    "get_device_info": "device_id",
    "DeviceInfo": "device_id name architecture total_memory free_memory compute_units",
    "MemoryStats": "total_allocated peak_allocated total_allocations total_deallocations cache_hits cache_misses",
    "ROCmMemoryManager": "allocate allocate_async deallocate deallocate_async copy_host_to_device copy_device_to_host "
    "copy_device_to_device copy_host_to_device_async copy_device_to_host_async copy_device_to_device_async memset "
    "memset_async allocate_pinned deallocate_pinned get_stats reset_stats clear_pool get_memory_info",
    "ROCmMemoryManager.Config": "enable_pooling pool_size_mb max_pool_size_mb use_pinned_host",
    "get_memory_manager": "",
    "ROCmBLAS": "set_stream handle gemm gemm_strided_batched geam",
    "get_blas": "",
    "ConvParams": "padding stride dilation groups Conv2D",
    "PoolParams": "kernel_size padding stride ceil_mode Pool2D",
    "BatchNormParams": "epsilon momentum training",
    "ROCmDNN": "set_stream handle conv2d_forward conv2d_forward_workspace_size pooling2d_forward "
    "batchnorm_forward_training batchnorm_forward_inference activation_forward softmax_forward reduce",
    "get_dnn": "",
    "ROCmExecutor": "execute get_device_info get_memory_stats",
    "ROCmExecutor.Config": "device_id enable_profiling sync_after_launch workspace_size_mb",
    "MIOpenTuningCache": "enable_exhaustive_search set_cache_file clear get_stats",
    "MIOpenTuningCache.Config": "enable_exhaustive_search enable_caching enable_persistence cache_file",
    "MIOpenTuningCache.Stats": "hits misses entries",
    "get_tuning_cache": "",
    "PinnedMemoryPool": "acquire release warmup clear",
    "get_pinned_pool": "",
    "warmup_memory_pool": "batch_size model_size",
    "launch_gelu_forward": "output input numel stream",
    "launch_silu_forward": "output input numel stream",
    "launch_elementwise_binary": "op output a b numel stream",
    "launch_elementwise_unary": "op output input numel stream",
    "launch_comparison": "op output a b numel stream",
    "launch_where": "output condition x y numel stream",
    "launch_clamp": "output input min_val max_val numel stream",
    "launch_mse_loss": "output predictions targets numel stream",
    "launch_bce_loss": "output predictions targets numel stream",
    "launch_cross_entropy_loss": "output logits targets N C stream",
    "FusedOpType": "MATMUL_BIAS MATMUL_BIAS_RELU MATMUL_BIAS_GELU CONV_BIAS CONV_BIAS_RELU CONV_BN_RELU ADD_RELU "
    "MUL_ADD",
    "can_fuse": "ops",
    "rocm_is_available": "",
    "rocm_device_count": "",
    "rocm_get_device_info": "device_id",
    "rocm_set_device": "device_id",
    "rocm_get_device": "",
    "rocm_synchronize": "",
    "AMDBackendError": "",
    "ROCmNotAvailableError": "",
    "AMDDeviceError": "",
    "AMDDeviceFaultError": "",
    "HIPCompilationError": "",
    "ROCmMemoryError": "",
    "MatrixCoreError": "",
    "AMDOptimizationError": "",
    "AMDConfigurationError": "",
}
KIND = """set_device device synchronize get_device_name get_device_properties get_arch_name device_info Stream Event
current_stream default_stream pinned_pool memory_stats reset_peak_memory_stats mem_get_info memory_summary"""
DEFAULTS = {
    "ROCmMemoryManager.Config": dict(
        enable_pooling=True, pool_size_mb=256, max_pool_size_mb=4096, use_pinned_host=True
    ),
    "ROCmExecutor.Config": dict(device_id=0, enable_profiling=False, sync_after_launch=False, workspace_size_mb=256),
    "BatchNormParams": dict(epsilon=1e-5, momentum=0.1, training=True),
    "MIOpenTuningCache.Config": dict(
        enable_exhaustive_search=True, enable_caching=True, enable_persistence=False, cache_file=""
    ),
}


def found(path: str) -> Any:
    value: Any = rocm
    for part in path.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("path", NAMED)
def test_what_the_rocm_backend_names(path: str) -> None:
    value, wanted = found(path), NAMED[path].split()
    assert path.split(".")[0] in rocm.__all__
    assert inspect.getdoc(value)
    if inspect.isclass(value):
        fields = {f.name for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
        assert [name for name in wanted if name not in fields and not hasattr(value, name)] == []
    else:
        assert [name for name in wanted if name not in inspect.signature(value).parameters] == []
    if path in DEFAULTS:
        assert {f.name: getattr(value(), f.name) for f in dataclasses.fields(value)} == DEFAULTS[path]


# --- without a GPU ----------------------------------------------------------------------------------------------------


def test_without_a_gpu_all_say_what_is_missing() -> None:
    with machine():
        for kind, title in ((pf.rocm, "an AMD GPU"), (pf.cuda, "an NVIDIA GPU")):
            assert (kind.is_available(), kind.device_count(), kind.current_device()) == (False, 0, -1)
            assert kind.why_absent() == f"[{kind.kind}] no driver; install one"
            kind.empty_cache()  # nothing to do, as in PyTorch
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
                assert getattr(kind, name)() == 0
                with pytest.raises(NotAvailableError, match="none is available"):
                    getattr(kind, name)(0)
            for name in KIND.split():
                call = getattr(kind, name)
                with pytest.raises(
                    NotAvailableError, match=rf"expected {title} but none is available: \[{kind.kind}\]"
                ):
                    call(0) if name == "set_device" else call()
            with pytest.raises(NotAvailableError, match=r"\[set_per_process_memory_fraction\]"):
                kind.set_per_process_memory_fraction(0.5)
        for call in (rocm.get_memory_manager, rocm.get_pinned_pool, lambda: rocm.warmup_memory_pool(8)):
            with pytest.raises(rocm.ROCmNotAvailableError, match="expected an AMD GPU but none is available"):
                call()
        for make in (rocm.ROCmMemoryManager, rocm.ROCmExecutor):
            with pytest.raises(rocm.ROCmNotAvailableError, match=r"\[rocm\] no driver"):
                make()


def test_the_cpu_tells_of_its_pool() -> None:
    with pf.device("cpu"):
        pf.empty_cache()
        pf.reset_peak_memory_stats()
        before = pf.memory_allocated()
        x = pf.tensor(np.zeros(MIB, np.uint8)) + 1
        pf.eval(x)
        assert pf.memory_allocated() == before + MIB
        del x
        stats = pf.memory_stats()
        assert isinstance(stats, MemoryStats)
        assert stats.allocated == before and stats.cached >= MIB and stats.largest_free >= MIB
        assert pf.max_memory_allocated() >= before + MIB and pf.max_memory_reserved() >= pf.memory_reserved()
        assert pf.memory_reserved() == stats.reserved == stats.allocated + stats.cached
        assert stats.cache_hits + stats.cache_misses == stats.total_allocations
        free, total = pf.memory_info()
        assert 0 < free < total == pf.device_info()["total_memory"]
        assert pf.memory_summary().startswith("memory of cpu")
        assert pf.empty_cache() >= MIB
        assert pf.memory_stats().cached == 0
        pf.reset_peak_memory_stats()
        assert pf.max_memory_allocated() == pf.memory_allocated()


def test_what_the_cpu_and_null_do_not_have() -> None:
    for call in (lambda: pf.set_memory_fraction(0.5, "cpu"), lambda: pf.Stream("cpu"), lambda: pf.Event("cpu")):
        with pytest.raises(pf.DeviceError, match="expected a GPU but got cpu"):
            call()
    for call in (pf.memory_stats, pf.memory_summary, pf.memory_info, pf.empty_cache, pf.reset_peak_memory_stats):
        with pytest.raises(pf.DeviceError, match="got null:gfx942, which computes nothing"):
            call("null:gfx942")


# --- devices ----------------------------------------------------------------------------------------------------------


def test_properties(gpus: FakeDriver) -> None:
    gpus.arch = "gfx90a"
    assert pf.rocm_is_available() and pf.rocm_device_count() == 2 == pf.rocm.device_count()
    assert pf.rocm.get_device_name(1) == pf.rocm.get_device_name("rocm:1") == "Fake 1"
    pf.rocm_set_device(1)
    assert (pf.get_device(), pf.rocm_get_device(), rocm.get_current_device()) == ("rocm:1", 1, 1)
    assert pf.rocm.get_device_name() == "Fake 1"
    assert (pf.rocm.get_arch_name(), pf.rocm.get_arch_name(features=True)) == ("gfx90a", "gfx90a:xnack-")
    properties = pf.rocm.get_device_properties("rocm:1")
    assert (properties.gcnArchName, properties.multi_processor_count, properties.warp_size) == ("gfx90a:xnack-", 8, 64)
    info = pf.rocm_get_device_info(1)
    assert info == pf.device_info() == pf.rocm.device_info(1)
    wanted = {"device_id": 1, "name": "Fake 1", "architecture": "gfx90a", "total_memory": 4 * GIB, "compute_units": 8}
    assert {**info, **wanted, "type": "rocm"} == info and 0 < info["free_memory"] <= 4 * GIB
    assert rocm.get_device_info(1) == rocm.DeviceInfo(**{**wanted, "free_memory": info["free_memory"]})
    pf.set_device("rocm:0")
    assert pf.device_info()["name"] == "Fake 0"


def test_wrong_numbers(gpus: FakeDriver) -> None:
    for wrong in (2, -1, "rocm:5"):
        with pytest.raises(pf.DeviceError, match="expected the number of an AMD GPU, 0 to 1, but got"):
            pf.rocm.get_device_name(wrong)
    with pytest.raises(pf.DeviceError, match=r"\[rocm_set_device\] expected the number of an AMD GPU, 0 to 1"):
        pf.rocm_set_device(2)
    with pytest.raises(rocm.AMDDeviceError, match=r"\[rocm_get_device_info\] expected the number of an AMD GPU"):
        pf.rocm_get_device_info(9)
    with pytest.raises(pf.DeviceNameError, match="expected a rocm device but got 'cpu'"):
        pf.rocm.set_device("cpu")
    with pytest.raises(pf.DeviceError, match=r"expected one of rocm:0, rocm:1 but got rocm:2"):
        pf.set_device("rocm:2")
    assert pf.get_device() == "rocm:0"


def test_the_current_gpu_is_meant(gpus: FakeDriver) -> None:
    pf.rocm_set_device(1)
    assert rocm.ROCmMemoryManager(rocm.ROCmMemoryManager.Config(pool_size_mb=0)).device.index == 1
    kernel = rocm.ROCmCompiler().compile_kernel('extern "C" __global__ void f(float* x) {}', "f")
    assert kernel.device == "rocm:1"
    pf.set_device("cpu")
    assert rocm.ROCmCompiler().compile_kernel('extern "C" __global__ void f(float* x) {}', "f").device == "rocm:0"


def test_synchronize_waits(gpus: FakeDriver) -> None:
    for wait in (pf.synchronize, pf.rocm_synchronize, pf.rocm.synchronize, lambda: pf.synchronize("rocm:0")):
        x = pf.zeros(5000, device="rocm:0").to("rocm:0")
        pf.eval(pf.tensor(np.ones(5000, np.float32), device="rocm:0"))
        assert any(gpus.streams.values())
        wait()
        assert not any(gpus.streams.values()) and x.device == "rocm:0"


def test_devices_within_a_block(gpus: FakeDriver) -> None:
    with pf.device("rocm:1"):
        assert pf.zeros(2).device == "rocm:1"
        with pf.rocm.device(0):
            assert (pf.get_device(), pf.rocm.current_device()) == ("rocm:0", 0)
        assert pf.get_device() == "rocm:1"
    assert pf.get_device() == "rocm:0"


@pytest.mark.slow
def test_two_gpus_compute(two: None) -> None:
    a = pf.tensor(np.arange(6, dtype=np.float32), device="cuda:0")
    with pf.device("cuda:1"):
        b = pf.tensor(np.ones(6, np.float32)) + 1.0
        assert b.device == "cuda:1"
        there = a.to("cuda:1")
        np.testing.assert_array_equal((there + b).numpy(), np.arange(6) + 2)
    with pytest.raises(pf.DeviceError, match="expected all tensors on one device but got cuda:0 and cuda:1"):
        a + there
    np.testing.assert_array_equal((there.to("cuda:0") + a).numpy(), np.arange(6) * 2)
    assert there.cuda(0).device == "cuda:0" and there.cpu().tolist() == list(range(6))
    assert pf.cuda.can_device_access_peer(0, 1) and not pf.cuda.can_device_access_peer(1, 1)


@pytest.mark.parametrize("peer", [True, False])
def test_copies_between_gpus(gpus: FakeDriver, peer: bool) -> None:
    gpus.peer = peer
    data = np.random.default_rng(0).random(1000, np.float32)
    moved = pf.tensor(data, device="rocm:0").to("rocm:1")
    np.testing.assert_array_equal(moved.numpy(), data)
    assert gpus.calls["copy_peer"] == peer
    assert pf.rocm.can_device_access_peer(1, 0) is peer
    assert gpus.enabled == ({(1, 0)} if peer else set())


# --- streams and events -----------------------------------------------------------------------------------------------


def test_streams_and_events(gpus: FakeDriver) -> None:
    stream = pf.Stream("rocm:1", priority=-1)
    assert stream.device == "rocm:1" and "Stream('rocm:1'" in repr(stream) and stream.query()
    assert pf.rocm.current_stream(1) == pf.rocm.default_stream(1) == pf.current_stream("rocm:1") != stream
    start, end = pf.rocm.Event(True, 1), pf.Event("rocm:1", enable_timing=True)
    assert end.query()  # never recorded: nothing to wait for
    manager = rocm.get_memory_manager(1)
    address = manager.allocate_async(256, stream)
    start.record(stream)
    manager.memset_async(address, 1, 256, stream)
    end.record(stream)
    assert not end.query() and not stream.query()
    assert start.elapsed_time(end) > 0  # waits
    assert end.query() and stream.query()
    with pytest.raises(ArgumentError, match="was not recorded"):
        start.elapsed_time(pf.rocm.Event(True, 1))
    with pytest.raises(ArgumentError, match="does not take the time"):
        pf.rocm.Event(False, 1).elapsed_time(end)
    with pytest.raises(ArgumentError, match=r"expected a stream of rocm:0 but got one of rocm:1"):
        pf.Event("rocm:0").record(stream)


def test_streams_wait_for_each_other(gpus: FakeDriver) -> None:
    first, second = pf.rocm.Stream(), pf.rocm.Stream()
    ran: list[str] = []
    gpus._queue(first.stream.handle, lambda: not ran.append("first"))
    second.wait_stream(first)
    gpus._queue(second.stream.handle, lambda: not ran.append("second"))
    event = second.record_event()
    event.wait()
    gpus._queue(pf.current_stream().stream.handle, lambda: not ran.append("third"))
    pf.current_stream().synchronize()
    assert ran == ["first", "second", "third"]


def test_work_within_a_stream(gpus: FakeDriver) -> None:
    stream, main = pf.rocm.Stream(), pf.current_stream()
    before = pf.tensor(np.arange(5000, dtype=np.float32))
    pf.eval(before)
    with pf.rocm.stream(stream):
        assert pf.current_stream() == stream
        inside = pf.tensor(np.ones(5000, np.float32))
        pf.eval(inside)
        assert len(gpus.streams[stream.stream.handle]) >= 2  # the wait for what was given before, and the copy
    assert pf.current_stream() == main
    block = inside._node.data.storage
    assert block.stream == stream.stream.handle
    gpus.run(main.stream.handle)  # what comes after the block waits for what was given inside
    assert not gpus.streams[stream.stream.handle]
    np.testing.assert_array_equal(inside.numpy(), np.ones(5000))
    with pytest.raises(ZeroDivisionError), stream:
        raise ZeroDivisionError
    assert pf.current_stream() == main


def test_memory_used_on_two_streams_waits_for_both(two: None) -> None:
    """A tensor of one stream that a plan reads on another comes back to the pool behind that other one."""
    x = pf.tensor(np.ones(300, np.float32), device="cuda:0")
    pf.eval(x)
    stream = pf.cuda.Stream(0)
    stream.stream.handle = 77  # the emulation has one stream for all; the pool goes by the number
    with stream:
        y = x + 1.0
        pf.eval(y)
    assert x._node.data.storage._streams == [77]
    assert y._node.data.storage.stream == 77
    np.testing.assert_array_equal((y * 2).numpy(), np.full(300, 4))
    assert y._node.data.storage._streams == [1]
    stream.stream.handle = 1


def test_on_the_simulated_gpu() -> None:
    """The same through the HIP of the simulator, whose streams run in any order that they may."""
    name = "sim:gfx942"
    with pf.device(name), rocm.ROCmMemoryManager(device=pf.device(name).id) as manager:
        assert name in pf.memory_summary()  # its memory is exact: none is reserved
        address, start, end = manager.allocate(4096), pf.Event(name, True), pf.Event(name, True)
        start.record()
        manager.memset_async(address, 3, 4096, None)
        end.record()
        assert start.elapsed_time(end) >= 0
        back = np.zeros(4096, np.uint8)
        manager.copy_device_to_host(back, address, 4096)
        assert (back == 3).all()
        stream = pf.Stream(priority=-1)
        with stream:
            inside = pf.tensor(np.arange(5000))
            pf.eval(inside)
        np.testing.assert_array_equal(inside.numpy(), np.arange(5000))
        stream.synchronize()
        assert stream.query()
