"""NVIDIA GPUs through the driver API of NVIDIA's `cuda.bindings`, imported when first called."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from typing import Any

from pyflame.core.device import Target
from pyflame.core.errors import DeviceError, NotAvailableError
from pyflame.core.locks import lock
from pyflame.runtime.cuda.errors import CAUSES
from pyflame.runtime.cuda.targets import target_of
from pyflame.runtime.gpu.driver import (
    Bindings,
    DeviceProperties,
    GraphTrouble,
    Grid,
    KernelArguments,
    NativeCalls,
    address_of,
    clamp_priority,
    describe,
)
from pyflame.runtime.gpu.ranges import Ranges

_NO_DEVICE = 100
_NOT_READY = 600
_PEER_ALREADY_ENABLED = 704
_ATTRIBUTES = {
    "registers": "CU_FUNC_ATTRIBUTE_NUM_REGS",
    "lds_bytes": "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
    "local_bytes": "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES",
    "max_threads": "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
}


def load_cuda() -> Any:
    """NVIDIA's bindings to the driver."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise NotAvailableError(
            f"[cuda] expected NVIDIA's bindings to the driver but got: {error}; pip install 'pyflame-rocm[cuda]'"
        ) from error


def no_device() -> NotAvailableError:
    """What to say where the driver works and finds nothing."""
    return NotAvailableError(describe("cuda", "cuInit", CAUSES[_NO_DEVICE]))


class CudaDriver:
    """The CUDA driver, over primary contexts: memory and streams are those that CUDA's runtime API sees too.

    >>> CudaDriver().count()  # doctest: +SKIP
    1
    """

    kind = "cuda"

    def __init__(self, cuda: Any = None) -> None:
        load = load_cuda if cuda is None else lambda: cuda
        self._call = Bindings("cuda", load, CAUSES, DeviceError, NotAvailableError)
        self._lock = lock()
        self._started = False
        self._contexts: dict[int, Any] = {}
        self._opted: dict[int, int] = {}  # function -> dynamic LDS it may use
        # the second since CUDA 12.9, which has no other library of NVTX
        names = ["libnvToolsExt.so.1", "libnvtx3interop.so.1", "libnvtx3interop.so"]
        self._ranges = Ranges("nvtx", names, ["nvidia/*/lib", "/usr/local/cuda/lib64"])
        self.range_push, self.range_pop = self._ranges.push, self._ranges.pop

    # --- devices ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._started:
            self._call("cuInit", 0)
            self._started = True

    def _context(self, index: int) -> Any:
        found = self._contexts.get(index)
        if found is None:
            with self._lock:
                self._start()
                if index not in self._contexts:
                    self._contexts[index] = self._call("cuDevicePrimaryCtxRetain", self._call("cuDeviceGet", index))
                found = self._contexts[index]
        return found

    def count(self) -> int:
        if not self._started:
            (status,) = self._call.raw("cuInit", 0)
            if int(status) == _NO_DEVICE:
                return 0
            if status:
                raise self._call.failure("cuInit", status)
            self._started = True
        return int(self._call("cuDeviceGetCount"))

    def properties(self, index: int) -> DeviceProperties:
        self._start()
        device = self._call("cuDeviceGet", index)
        kinds = self._call.module.CUdevice_attribute

        def read(name: str) -> int:
            return int(self._call("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

        arch = f"sm_{read('COMPUTE_CAPABILITY_MAJOR')}{read('COMPUTE_CAPABILITY_MINOR')}"
        return DeviceProperties(
            name=_text(self._call("cuDeviceGetName", 256, device)),
            arch=arch,
            arch_full=arch,
            total_memory=int(self._call("cuDeviceTotalMem", device)),
            compute_units=read("MULTIPROCESSOR_COUNT"),
            wave_size=read("WARP_SIZE"),
            lds_per_block=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            max_threads=read("MAX_THREADS_PER_BLOCK"),
            clock_khz=read("CLOCK_RATE"),
            pci_bus_id=_text(self._call("cuDeviceGetPCIBusId", 32, device)),
            integrated=bool(read("INTEGRATED")),
            l2_bytes=read("L2_CACHE_SIZE"),
            memory_clock_khz=read("MEMORY_CLOCK_RATE"),
            memory_bus_bits=read("GLOBAL_MEMORY_BUS_WIDTH"),
        )

    def target(self, index: int) -> Target:
        return target_of(self.properties(index))

    def version(self) -> str:
        """As 13.0: the newest CUDA that the driver serves."""
        number = int(self._call("cuDriverGetVersion"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def graph_troubles(self, index: int) -> Sequence[GraphTrouble]:
        return ()  # none is known

    def set_device(self, index: int) -> None:
        self._call("cuCtxSetCurrent", self._context(index))

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def can_access_peer(self, index: int, peer: int) -> bool:
        self._start()
        devices = self._call("cuDeviceGet", index), self._call("cuDeviceGet", peer)
        return bool(self._call("cuDeviceCanAccessPeer", devices[0], devices[1]))

    def enable_peer(self, index: int, peer: int) -> None:
        """Let a device reach the memory of another. Leaves it current."""
        self.set_device(index)
        self._call.succeeds("cuCtxEnablePeerAccess", self._context(peer), 0, otherwise=_PEER_ALREADY_ENABLED)

    # --- memory -------------------------------------------------------------------------------------------------------

    def mem_info(self) -> tuple[int, int]:
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def alloc(self, nbytes: int) -> int:
        return int(self._call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def host_alloc(self, nbytes: int) -> int:
        return int(self._call("cuMemHostAlloc", nbytes, self._call.module.CU_MEMHOSTALLOC_PORTABLE))

    def host_free(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyHtoDAsync", dst, src, nbytes, stream)

    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoHAsync", dst, src, nbytes, stream)

    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("cuMemcpyDtoDAsync", dst, src, nbytes, stream)

    def copy_peer(self, dst: int, dst_device: int, src: int, src_device: int, nbytes: int, stream: int) -> None:
        there, here = self._context(dst_device), self._context(src_device)
        self._call("cuMemcpyPeerAsync", dst, there, src, here, nbytes, stream)

    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._call("cuMemsetD8Async", address, byte, nbytes, stream)

    # --- streams and events -------------------------------------------------------------------------------------------

    def stream_create(self, priority: int = 0) -> int:
        if priority:
            priority = clamp_priority(priority, *self._call("cuCtxGetStreamPriorityRange"))
        flags = int(self._call.module.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return int(self._call("cuStreamCreateWithPriority", flags, priority))

    def stream_destroy(self, stream: int) -> None:
        self._call("cuStreamDestroy", stream)

    def stream_synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", stream)

    def stream_query(self, stream: int) -> bool:
        return self._call.succeeds("cuStreamQuery", stream, otherwise=_NOT_READY)

    def stream_wait_event(self, stream: int, event: int) -> None:
        self._call("cuStreamWaitEvent", stream, event, 0)

    def event_create(self, timing: bool) -> int:
        kinds = self._call.module.CUevent_flags
        return int(
            self._call("cuEventCreate", int(kinds.CU_EVENT_DEFAULT if timing else kinds.CU_EVENT_DISABLE_TIMING))
        )

    def event_destroy(self, event: int) -> None:
        self._call("cuEventDestroy", event)

    def event_record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def event_synchronize(self, event: int) -> None:
        self._call("cuEventSynchronize", event)

    def event_query(self, event: int) -> bool:
        return self._call.succeeds("cuEventQuery", event, otherwise=_NOT_READY)

    def event_elapsed(self, start: int, end: int) -> float:
        return float(self._call("cuEventElapsedTime", start, end)) / 1e3

    # --- kernels ------------------------------------------------------------------------------------------------------

    def load_module(self, code: bytes) -> int:
        return int(self._call("cuModuleLoadData", code))

    def unload_module(self, module: int) -> None:
        self._call("cuModuleUnload", module)
        self._opted.clear()  # a later function may get the same number

    def get_function(self, module: int, name: str) -> Any:
        return self._call("cuModuleGetFunction", module, name.encode())

    def function_attributes(self, function: Any) -> dict[str, int]:
        kinds = self._call.module.CUfunction_attribute
        return {
            name: int(self._call("cuFuncGetAttribute", getattr(kinds, which), function))
            for name, which in _ATTRIBUTES.items()
        }

    def launch(
        self,
        function: Any,
        grid: Grid,
        block: Grid,
        dynamic_lds: int,
        stream: int,
        kernel_args: KernelArguments,
        start: int = 0,
        early: bool = False,
    ) -> None:
        if dynamic_lds and dynamic_lds > self._opted.get(int(function), 0):  # with its own it may pass the usual 48 KB
            kind = self._call.module.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, kind, dynamic_lds)
            self._opted[int(function)] = dynamic_lds
        first = kernel_args.address + 8 * start
        if early:
            self._call("cuLaunchKernelEx", self._early(grid, block, dynamic_lds, stream), function, first, 0)
        else:
            self._call("cuLaunchKernel", function, *grid, *block, dynamic_lds, stream, first, 0)

    def _early(self, grid: Grid, block: Grid, dynamic_lds: int, stream: int) -> Any:
        """The launch of a kernel that may begin while the one before it runs."""
        module = self._call.module
        allowed = module.CUlaunchAttribute()
        allowed.id = module.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        allowed.value.programmaticStreamSerializationAllowed = 1
        config = module.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = dynamic_lds, stream
        config.attrs, config.numAttrs = [allowed], 1
        return config

    def native_calls(self, index: int) -> NativeCalls | None:
        library = ctypes.CDLL("libcuda.so.1")  # as the bindings have loaded it
        names = "LaunchKernel", "MemcpyHtoDAsync_v2", "MemcpyDtoHAsync_v2", "StreamSynchronize", "CtxSetCurrent"
        launch, copy, fetch, wait, use = (address_of(getattr(library, f"cu{name}")) for name in names)
        return NativeCalls(launch, copy, fetch, wait, use, int(self._context(index)))

    # --- graphs -------------------------------------------------------------------------------------------------------

    def capture_begin(self, stream: int) -> None:
        modes = self._call.module.CUstreamCaptureMode
        self._call("cuStreamBeginCapture", stream, modes.CU_STREAM_CAPTURE_MODE_RELAXED)

    def capture_end(self, stream: int) -> int:
        return int(self._call("cuStreamEndCapture", stream))

    def graph_instantiate(self, graph: int) -> int:
        return int(self._call("cuGraphInstantiate", graph, 0))

    def graph_launch(self, executable: int, stream: int) -> None:
        self._call("cuGraphLaunch", executable, stream)

    def graph_destroy(self, graph: int, executable: int = 0) -> None:
        if executable:
            self._call("cuGraphExecDestroy", executable)
        self._call("cuGraphDestroy", graph)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")
