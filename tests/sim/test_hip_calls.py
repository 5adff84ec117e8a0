"""Functions of the simulated HIP: memory, copies, modules, launches, peers, and the status of wrong use."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyflame.core.errors import ArgumentError
from pyflame.runtime.sim.hip.module import Hip
from pyflame.runtime.sim.hip.types import (
    HIP_LAUNCH_PARAM_BUFFER_POINTER,
    HIP_LAUNCH_PARAM_BUFFER_SIZE,
    HIP_LAUNCH_PARAM_END,
    hipDeviceAttribute_t,
    hipDeviceP2PAttr,
    hipError_t,
    hipFuncAttribute,
    hipFunction_attribute,
    hipMemcpyKind,
    hipMemoryType,
)
from tests.sim.machines import Host, fake_hip, image

E = hipError_t
H2H, H2D, D2H, D2D, ANY, NO_CU = hipMemcpyKind


@pytest.fixture
def host() -> Host:
    return Host(fake_hip(count=2, nbytes=1 << 20))


# --- devices ----------------------------------------------------------------------------------------------------------


def test_devices(host: Host) -> None:
    assert host.hipGetDeviceCount() == 2
    assert host.hipGetDevice() == 0
    host.hipSetDevice(1)
    assert host.hipGetDevice() == 1
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(host.hipGetDevice()))
    thread.start()
    thread.join()
    assert seen == [0]  # each thread begins with the first
    assert host.hip.hipSetDevice(2) == (E.hipErrorInvalidDevice,)
    assert host.hip.hipDeviceGet(-1) == (E.hipErrorInvalidDevice, None)
    assert host.hipDeviceGetByPCIBusId(host.hipDeviceGetPCIBusId(64, 1)) == 1
    assert host.hipDeviceTotalMem(0) == 1 << 20


@pytest.mark.parametrize(
    ("target", "wave", "arch", "units", "major"),
    [("gfx942", 64, "gfx942:sramecc+:xnack-", 304, 9), ("gfx1100", 32, "gfx1100", 48, 11)],
)
def test_properties(target: str, wave: int, arch: str, units: int, major: int) -> None:
    host = Host(Hip(target, 1, 1 << 20))
    p = host.hipGetDeviceProperties(0)
    assert (p.gcnArchName, p.warpSize, p.multiProcessorCount, p.sharedMemPerBlock) == (arch, wave, units, 65536)
    assert (p.maxThreadsPerBlock, p.totalGlobalMem, p.major) == (1024, 1 << 20, major)
    answers = {a: host.hipDeviceGetAttribute(a, 0) for a in hipDeviceAttribute_t}
    assert answers[hipDeviceAttribute_t.hipDeviceAttributeWarpSize] == wave
    assert answers[hipDeviceAttribute_t.hipDeviceAttributeMaxGridDimX] == 2**31 - 1
    assert answers[hipDeviceAttribute_t.hipDeviceAttributeMaxBlockDimZ] == 1024
    assert host.hip.hipDeviceGetAttribute(9999, 0) == (E.hipErrorInvalidValue, None)
    assert host.hipDeviceGetName(64, 0) == f"Simulated {target}"
    assert host.hipDeviceGetName(5, 0) == "Simu"
    assert host.hipDeviceComputeCapability(0)[0] == major


def test_errors_have_names(host: Host) -> None:
    assert host.hipGetErrorName(E.hipErrorIllegalAddress) == b"hipErrorIllegalAddress"
    assert b"memory" in host.hipGetErrorString(E.hipErrorOutOfMemory)
    assert host.hipDrvGetErrorName(E.hipErrorNotFound) == "hipErrorNotFound"
    assert host.hip.hipGetLastError() == (E.hipSuccess,)
    host.hip.hipFree(1)
    host.hipGetDevice()
    assert host.hip.hipPeekAtLastError() == (E.hipErrorInvalidValue,)
    assert host.hip.hipGetLastError() == (E.hipErrorInvalidValue,)
    assert host.hip.hipGetLastError() == (E.hipSuccess,)


@pytest.mark.parametrize("count", [0, 9])
def test_too_many_devices(count: int) -> None:
    with pytest.raises(ArgumentError, match="expected 1 to 8 simulated devices"):
        Hip("gfx942", count)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_allocations(host: Host) -> None:
    assert host.hipMemGetInfo() == (1 << 20, 1 << 20)
    x = host.hipMalloc(1000)
    assert x.__cuda_array_interface__["data"] == (int(x), False) and x.size == 1000
    assert host.hipMemGetInfo() == ((1 << 20) - 1000, 1 << 20)
    assert host.hipMemGetAddressRange(x + 999) == (x, 1000)
    assert host.hipMemPtrGetInfo(x) == 1000
    assert host.hipMalloc(0) is None
    host.hipFree(0)
    host.hipFree(x)
    assert host.hip.hipMemGetAddressRange(x) == (E.hipErrorNotFound, None, None)
    assert host.hip.hipMalloc((1 << 20) + 1) == (E.hipErrorOutOfMemory, None)
    assert "PYFLAME_SIM_MEMORY_MB" in host.hip.explain()
    with pytest.raises(OverflowError, match="size"):
        host.hip.hipMalloc(-1)
    host.hipSetDevice(1)
    y = host.hipMalloc(8)
    host.hipSetDevice(0)
    assert host.hipPointerGetAttributes(y).device == 1
    host.hipFree(y)  # from another device


def test_pinned_and_managed_memory(host: Host) -> None:
    address, view = host.pinned(4)
    view[:] = 7
    assert host.hipHostGetDevicePointer(address, 0) == address
    found = host.hipPointerGetAttributes(address + 4)
    assert (found.type, found.isManaged, found.hostPointer) == (hipMemoryType.hipMemoryTypeHost, 0, address + 4)
    host.launch(host.kernel("increment"), 0, address, 4)  # kernels reach it
    host.hipDeviceSynchronize()
    assert view.tolist() == [8] * 4
    managed = host.hipMallocManaged(4, 1)
    assert host.hipPointerGetAttributes(managed).type == hipMemoryType.hipMemoryTypeManaged
    host.hipMemset(managed, 3, 4)
    assert ctypes.string_at(managed, 4) == b"\3\3\3\3"
    assert host.hip.hipHostFree(managed) == (E.hipErrorInvalidValue,)
    host.hipFree(managed)
    assert host.hip.hipFree(address) == (E.hipErrorInvalidValue,)
    host.hipHostFree(address)
    assert host.hip.hipHostFree(address) == (E.hipErrorInvalidValue,)
    assert host.hip.hipHostMalloc(4, 0xC0000000) == (E.hipErrorInvalidValue, None)
    assert host.hipHostMalloc(0, 0) is None


def test_registered_memory(host: Host) -> None:
    data = np.arange(4, dtype=np.int32)
    x, stream = host.array([0] * 4), host.hipStreamCreate()
    host.hipHostRegister(data, data.nbytes, 0)
    assert host.hip.hipHostRegister(data, 4, 0) == (E.hipErrorHostMemoryAlreadyRegistered,)
    host.hipMemcpyHtoDAsync(x, data, data.nbytes, stream)
    host.hipHostUnregister(data)  # waits
    assert host.read(x, 4) == [0, 1, 2, 3]
    assert host.hip.hipHostUnregister(data) == (E.hipErrorHostMemoryNotRegistered,)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_and_fills(host: Host) -> None:
    x, y, out = host.array([1, 2, 3, 4]), host.array([0] * 4), np.zeros(4, np.int32)
    host.hipMemcpyDtoD(y, x, 16)
    host.hipMemcpy(y + 8, x, 4, D2D)
    host.hipMemcpyDtoH(out, y, 16)
    assert out.tolist() == [1, 2, 1, 4]
    host.hipMemcpy(out, x, 16, ANY)
    assert out.tolist() == [1, 2, 3, 4]
    host.hipMemcpy2D(y, 8, out, 4, 4, 2, H2D)
    host.hipDeviceSynchronize()
    assert host.read(y, 4) == [1, 2, 2, 4]
    host.hipMemsetD16(y, 0x10203, 3)
    host.hipMemset(y + 6, 9, 1)
    host.hipMemset2DAsync(y + 8, 4, 0, 2, 2, 0)
    host.hipDeviceSynchronize()
    raw = host.hip.gpus[0].memory.view(y, 16).tobytes()
    assert raw == bytes([3, 2, 3, 2, 3, 2, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0])


def test_copies_carry_what_was_written(host: Host) -> None:
    x, y = host.hipMalloc(8), host.hipMalloc(8)
    host.hipMemset(x, 0, 4)
    host.hipMemcpyDtoD(y, x, 8)
    assert host.hip.gpus[0].memory.written(y, 8).tolist() == [1] * 4 + [0] * 4


def test_peers(host: Host) -> None:
    x = host.array([5])
    host.hipSetDevice(1)
    y, increment = host.array([0]), host.kernel("increment")
    host.hipMemcpyPeer(y, 1, x, 0, 4)
    assert host.read(y, 1) == [5]
    assert host.hipDeviceCanAccessPeer(1, 0) == 1 and host.hipDeviceCanAccessPeer(1, 1) == 0
    assert host.hipDeviceGetP2PAttribute(hipDeviceP2PAttr.hipDevP2PAttrAccessSupported, 0, 1) == 1
    host.hipDeviceEnablePeerAccess(0, 0)
    assert host.hip.hipDeviceEnablePeerAccess(0, 0) == (E.hipErrorPeerAccessAlreadyEnabled,)
    assert host.hip.hipDeviceEnablePeerAccess(1, 0) == (E.hipErrorInvalidDevice,)
    assert x in [s.base for s in host.hip.gpus[1].memory.spans()[0]]
    host.hipDeviceDisablePeerAccess(0)
    assert host.hip.hipDeviceDisablePeerAccess(0) == (E.hipErrorPeerAccessNotEnabled,)
    assert x not in [s.base for s in host.hip.gpus[1].memory.spans()[0]]
    assert host.hip.hipMemcpyPeer(y, 0, x, 0, 4) == (E.hipErrorInvalidValue,)
    host.launch(increment, 0, x, 1)  # not enabled any more, and the memory of another device
    assert host.hip.hipDeviceSynchronize()[0] == E.hipErrorIllegalAddress


WRONG: dict[str, tuple[Callable[[Host, Any, Any], Any], hipError_t]] = {
    "free twice": (lambda h, x, d: [h.hip.hipFree(x), h.hip.hipFree(x)][1], E.hipErrorInvalidValue),
    "free inside": (lambda h, x, d: h.hip.hipFree(x + 4), E.hipErrorInvalidValue),
    "free of the host": (lambda h, x, d: h.hip.hipFree(d.ctypes.data), E.hipErrorInvalidValue),
    "copy over the end": (lambda h, x, d: h.hip.hipMemcpyHtoD(x + 12, d, 8), E.hipErrorInvalidValue),
    "copy before the start": (lambda h, x, d: h.hip.hipMemcpyHtoD(x - 4, d, 8), E.hipErrorInvalidValue),
    "copy from null": (lambda h, x, d: h.hip.hipMemcpyHtoD(x, None, 4), E.hipErrorInvalidValue),
    "copy to the host as a device": (lambda h, x, d: h.hip.hipMemcpyHtoD(d, d, 4), E.hipErrorInvalidValue),
    "copy from a device as the host": (lambda h, x, d: h.hip.hipMemcpy(x, x + 8, 4, H2D), E.hipErrorInvalidValue),
    "copy that overlaps": (lambda h, x, d: h.hip.hipMemcpyDtoD(x, x + 4, 8), E.hipErrorInvalidValue),
    "no direction": (lambda h, x, d: h.hip.hipMemcpy(x, d, 4, 9), E.hipErrorInvalidMemcpyDirection),
    "pitch": (lambda h, x, d: h.hip.hipMemcpy2D(x, 4, d, 8, 8, 1, H2D), E.hipErrorInvalidPitchValue),
    "fill over the end": (lambda h, x, d: h.hip.hipMemsetD32(x, 0, 5), E.hipErrorInvalidValue),
    "fill of the host": (lambda h, x, d: h.hip.hipMemset(d, 0, 4), E.hipErrorInvalidValue),
    "fill misaligned": (lambda h, x, d: h.hip.hipMemsetD32(x + 2, 0, 1), E.hipErrorInvalidValue),
    "unknown stream": (lambda h, x, d: h.hip.hipMemsetAsync(x, 0, 4, 0x99), E.hipErrorInvalidHandle),
    "unknown event": (lambda h, x, d: h.hip.hipEventRecord(0x99, 0), E.hipErrorInvalidHandle),
    "destroy the null stream": (lambda h, x, d: h.hip.hipStreamDestroy(0), E.hipErrorInvalidHandle),
    "stream flags": (lambda h, x, d: h.hip.hipStreamCreateWithFlags(8), E.hipErrorInvalidValue),
    "event flags": (lambda h, x, d: h.hip.hipEventCreateWithFlags(8), E.hipErrorInvalidValue),
    "unknown module": (lambda h, x, d: h.hip.hipModuleGetFunction(0x99, b"add"), E.hipErrorInvalidHandle),
    "unload unknown": (lambda h, x, d: h.hip.hipModuleUnload(0x99), E.hipErrorInvalidHandle),
    "no image": (lambda h, x, d: h.hip.hipModuleLoadData(0), E.hipErrorInvalidValue),
    "no file": (lambda h, x, d: h.hip.hipModuleLoad("/nowhere.hsaco"), E.hipErrorFileNotFound),
    "no function": (lambda h, x, d: h.hip.hipModuleLaunchKernel(0, *[1] * 6, 0, 0, 0, 0), E.hipErrorInvalidImage),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use(host: Host, what: str) -> None:
    x, data = host.array([1, 2, 3, 4]), np.zeros(64, np.int32)
    call, status = WRONG[what]
    assert call(host, x, data)[0] == status
    assert host.hip.explain()
    host.hipDeviceSynchronize()  # the device works on


def test_what_is_gone(host: Host) -> None:
    stream, event = host.hipStreamCreate(), host.hipEventCreate()
    host.hipStreamDestroy(stream)
    host.hipEventDestroy(event)
    assert host.hip.hipStreamSynchronize(stream) == (E.hipErrorInvalidHandle,)
    assert host.hip.hipEventSynchronize(event) == (E.hipErrorInvalidHandle,)
    host.hipSetDevice(1)
    event = host.hipEventCreate()
    host.hipSetDevice(0)
    assert host.hip.hipEventRecord(event, 0) == (E.hipErrorInvalidHandle,)  # of another device


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_modules(host: Host, tmp_path: Path) -> None:
    code = ctypes.create_string_buffer(image("add", "increment"))
    module = host.hipModuleLoadData(ctypes.addressof(code))
    assert host.hipModuleGetFunctionCount(module) == 2
    add = host.hipModuleGetFunction(module, "add")
    assert host.hipKernelNameRef(add) == b"add"
    kinds = hipFunction_attribute
    assert host.hipFuncGetAttribute(kinds.HIP_FUNC_ATTRIBUTE_NUM_REGS, add) == 24
    assert host.hipFuncGetAttribute(kinds.HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, add) == 16
    assert host.hipFuncGetAttribute(kinds.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add) == 1024
    assert host.hip.hipFuncGetAttribute(kinds.HIP_FUNC_ATTRIBUTE_PTX_VERSION, add)[0] == E.hipErrorInvalidValue
    most = hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize
    host.hipFuncSetAttribute(add, most, 65536)
    assert host.hip.hipFuncSetAttribute(add, most, 65537) == (E.hipErrorInvalidValue,)
    assert host.hip.hipModuleGetFunction(module, b"ad") == (E.hipErrorNotFound, None)
    assert "did you mean 'add'" in host.hip.explain()
    address, nbytes = host.hipModuleGetGlobal(module, b"counter")
    assert nbytes == 4 and host.hipMemPtrGetInfo(address) == 4
    assert host.hip.hipModuleGetGlobal(module, b"count") == (E.hipErrorNotFound, None, None)
    host.hipModuleUnload(module)
    assert host.hip.hipModuleLaunchKernel(add, *[1] * 6, 0, 0, 0, 0) == (E.hipErrorInvalidHandle,)
    (tmp_path / "code.hsaco").write_bytes(image("add"))
    assert host.hipModuleGetFunctionCount(host.hipModuleLoad(str(tmp_path / "code.hsaco"))) == 1
    damaged = ctypes.create_string_buffer(image("damaged"))
    assert host.hip.hipModuleLoadData(ctypes.addressof(damaged)) == (E.hipErrorInvalidImage, None)
    assert "got garbage" in host.hip.explain()
    text = ctypes.create_string_buffer(b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64))
    assert host.hip.hipModuleLoadData(ctypes.addressof(text)) == (E.hipErrorInvalidImage, None)


@pytest.mark.parametrize("form", ["pointers", "list", "values", "marked"])
def test_forms_of_arguments(host: Host, form: str) -> None:
    a, b, out, add = host.array([1, 2]), host.array([10, 20]), host.array([0, 0]), host.kernel("add")
    words = np.array([out, a, b, 2], np.int64)
    places = words.ctypes.data + 8 * np.arange(4, dtype=np.int64)
    size = ctypes.c_size_t(32)
    marked = np.array(
        [HIP_LAUNCH_PARAM_BUFFER_POINTER, words.ctypes.data, HIP_LAUNCH_PARAM_BUFFER_SIZE, ctypes.addressof(size),
         HIP_LAUNCH_PARAM_END], np.int64,
    )  # fmt: skip
    forms = {
        "pointers": (places.ctypes.data, 0),
        "list": ([int(p) for p in places], None),
        "values": (None, (out, a, ctypes.c_void_p(b), ctypes.c_int32(2), ctypes.c_int32(0))),
        "marked": (0, marked.ctypes.data),
    }
    host.hipModuleLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, 0, *forms[form])
    words[:] = 0  # they were taken at the call
    host.hipDeviceSynchronize()
    assert host.read(out, 2) == [11, 22]


def test_launches_that_cannot_be(host: Host) -> None:
    x, increment = host.array([0]), host.kernel("increment")
    kernel = host.hip.functions[increment][2]
    kernel.max_threads, kernel.static_lds = 256, 1024
    words = [ctypes.c_int64(x), ctypes.c_int64(1)]

    def status(
        grid: tuple[int, ...] = (1, 1, 1), block: tuple[int, ...] = (1, 1, 1), lds: int = 0, extra: Any = words
    ) -> Any:
        return host.hip.hipModuleLaunchKernel(increment, *grid, *block, lds, 0, 0, extra)[0]

    assert status() == status(block=(16, 16, 1)) == status(lds=63 * 1024) == E.hipSuccess
    assert status(block=(1025, 1, 1)) == status(block=(32, 32, 2)) == E.hipErrorInvalidValue
    assert "at most 1024 threads" in host.hip.explain()
    assert status(lds=63 * 1024 + 1) == E.hipErrorInvalidValue
    assert "1024 + 64513 bytes of LDS; a block has 65536" in host.hip.explain()
    assert status(block=(512, 1, 1)) == E.hipErrorLaunchFailure
    assert "__launch_bounds__" in host.hip.explain()
    assert status(grid=(0, 1, 1)) == status(grid=(1, 1 << 17, 1)) == E.hipErrorInvalidValue
    assert status(block=(0, 1, 1)) == status(grid=(1 << 30, 1, 1), block=(4, 1, 1)) == E.hipErrorInvalidConfiguration
    assert status(extra=0) == E.hipErrorInvalidValue
    both = host.hip.hipModuleLaunchKernel(increment, *[1] * 6, 0, 0, [x, x], words)
    assert both == (E.hipErrorInvalidValue,)
    with pytest.raises(TypeError, match="expected 16 bytes of kernel arguments but got 8"):
        status(extra=words[:1])
    with pytest.raises(OverflowError):
        status(grid=(-1, 1, 1))
    host.hipSetDevice(1)
    assert status() == E.hipErrorInvalidDevice  # the null stream is that of device 1
    host.hipSetDevice(0)
    host.hipDeviceSynchronize()
    assert host.read(x, 1) == [3]


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_fault_stays_until_the_device_is_reset(seed: int) -> None:
    host = Host(fake_hip(count=2, seed=seed))
    x, fault, stream = host.array([1]), host.kernel("fault"), host.hipStreamCreate()
    host.launch(fault, stream, x + 2, 4)
    host.hip.hipMemsetD32Async(x, 9, 1, stream)  # never runs; refused where the fault is known already
    assert host.hip.hipStreamSynchronize(stream) == (E.hipErrorIllegalAddress,)
    report = host.hip.explain()
    assert f"expected 4 bytes at {x + 2:#x} to lie in one allocation" in report
    assert "Device 0 stopped there" in report and "PYFLAME_SIM_DEVICES" in report
    for name, *args in (("hipMalloc", 4), ("hipDeviceSynchronize",), ("hipFree", x), ("hipStreamCreate",)):
        assert getattr(host.hip, str(name))(*args)[0] == E.hipErrorIllegalAddress
        assert host.hip.explain() == report
    assert host.hip.hipGetLastError() == host.hip.hipGetLastError() == (E.hipErrorIllegalAddress,)
    assert host.read(x, 1) == [1]
    host.hipSetDevice(1)  # the other device works
    y = host.array([2])
    host.hipSetDevice(0)
    host.hipDeviceReset()
    assert host.hip.hipStreamSynchronize(stream) == (E.hipErrorInvalidHandle,)
    assert host.hip.hipModuleLaunchKernel(fault, *[1] * 6, 0, 0, 0, 0) == (E.hipErrorInvalidHandle,)
    assert host.hipMemGetInfo()[0] == host.hipMemGetInfo()[1]
    assert host.hip.hipFree(x) == (E.hipErrorInvalidValue,)
    assert host.array([3]) != x and host.hip.hipGetLastError()[0] == E.hipErrorInvalidValue
    assert host.read(y, 1) == [2]


def test_work_behind_another_devices_fault_fails_with_it() -> None:
    tried = 0
    for seed in range(6):
        host = Host(fake_hip(count=2, seed=seed))
        x, fault, mark = host.array([1]), host.kernel("fault"), host.hipEventCreate()
        host.launch(fault, 0, x, 8)
        if host.hip.hipEventRecord(mark, 0)[0] != E.hipSuccess:
            continue  # the device was quick: the fault is known before the event
        tried += 1
        host.hipSetDevice(1)
        stream, y = host.hipStreamCreate(), host.array([2])
        host.hipStreamWaitEvent(stream, mark, 0)
        host.hipMemsetD32Async(y, 5, 1, stream)
        assert host.hip.hipStreamSynchronize(stream) == (E.hipErrorIllegalAddress,)
        assert "came behind work that failed" in host.hip.explain()
        assert host.read(y, 1) == [2]
        host.hipMemsetD32Async(y, 6, 1, stream)  # the device itself is whole
        host.hipStreamSynchronize(stream)
        assert host.read(y, 1) == [6]
    assert tried > 2
