"""AMD GPUs through HIP: a module object with the functions of AMD's `rocm.bindings.hip`, imported when first called.

Another module with the same functions may stand in for it, as a simulator does.
"""

from __future__ import annotations

import ctypes
import importlib
import platform
from typing import Any

from pyflame.core.device import Target
from pyflame.core.errors import AMDDeviceError, HIPCompilationError, NotAvailableError, ROCmNotAvailableError
from pyflame.runtime.gpu.driver import (
    Bindings,
    DeviceProperties,
    Grid,
    KernelArguments,
    NativeCalls,
    address_of,
    clamp_priority,
    describe,
)
from pyflame.runtime.gpu.ranges import Ranges
from pyflame.runtime.rocm.errors import CAUSES
from pyflame.runtime.rocm.find import RUNTIME, find, teach_bindings, warn_of_two
from pyflame.runtime.rocm.metadata import code_object_version, is_code_object
from pyflame.runtime.rocm.targets import memory_transfers, plain, target_of
from pyflame.runtime.rocm.troubles import GRAPHS, Trouble

_NO_DEVICE = 100
_NOT_READY = 600
_PEER_ALREADY_ENABLED = 704
_ATTRIBUTES = {
    "registers": "HIP_FUNC_ATTRIBUTE_NUM_REGS",
    "lds_bytes": "HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES",
    "local_bytes": "HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES",
    "max_threads": "HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK",
}


def load_hip() -> Any:
    """AMD's bindings to HIP."""
    try:
        teach_bindings()
        return importlib.import_module("rocm.bindings.hip")
    except ImportError as error:
        raise no_bindings("HIP", error) from error


def no_bindings(library: str, error: ImportError) -> ROCmNotAvailableError:
    """What to say where AMD's bindings to a library are not installed."""
    way = "pip install 'pyflame-rocm[rocm]'"
    if platform.machine() != "x86_64":
        way = f"AMD makes ROCm and its bindings for x86-64 only, and this machine is {platform.machine()}"
    return ROCmNotAvailableError(f"[rocm] expected AMD's bindings to {library} but got: {error}; {way}")


def no_device() -> NotAvailableError:
    """What to say where HIP works and finds nothing."""
    return ROCmNotAvailableError(describe("rocm", "hipGetDeviceCount", CAUSES[_NO_DEVICE]))


class HipDriver:
    """HIP. `hip`: a module to use in place of AMD's bindings.

    >>> HipDriver().count()  # doctest: +SKIP
    1
    """

    def __init__(self, hip: Any = None, kind: str = "rocm") -> None:
        self.kind = kind
        self._is_real = hip is None
        load = load_hip if hip is None else lambda: hip
        self._call = Bindings(kind, load, CAUSES, AMDDeviceError, ROCmNotAvailableError)
        # HIP does not promise to copy a code object: each lives as long as its module.
        self._images: dict[int, Any] = {}
        names = ["librocprofiler-sdk-roctx.so.1", "libroctx64.so.4"]
        self._ranges = Ranges("roctx", names, ["_rocm_sdk_core/lib", "/opt/rocm/lib"])
        self.range_push, self.range_pop = self._ranges.push, self._ranges.pop

    # --- devices ------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        status, count = self._call.raw("hipGetDeviceCount")
        if int(status) == _NO_DEVICE:
            return 0
        if status:
            raise self._call.failure("hipGetDeviceCount", status)
        return int(count)

    def properties(self, index: int) -> DeviceProperties:
        p = self._call("hipGetDeviceProperties", index)
        return DeviceProperties(
            name=p.name or p.gcnArchName,
            arch=plain(p.gcnArchName),
            arch_full=p.gcnArchName,
            total_memory=p.totalGlobalMem,
            compute_units=p.multiProcessorCount,
            wave_size=p.warpSize,
            lds_per_block=p.sharedMemPerBlock,
            max_threads=p.maxThreadsPerBlock,
            clock_khz=p.clockRate,
            pci_bus_id=f"{p.pciDomainID:04x}:{p.pciBusID:02x}:{p.pciDeviceID:02x}.0",
            integrated=bool(p.integrated),
            l2_bytes=p.l2CacheSize,
            memory_clock_khz=p.memoryClockRate,
            memory_bus_bits=p.memoryBusWidth,
            memory_transfers=0 if p.integrated else memory_transfers(plain(p.gcnArchName)),
        )

    def target(self, index: int) -> Target:
        if self.kind == "rocm":
            warn_of_two()
        return target_of(self.properties(index))

    def version(self) -> str:
        """As 7.1.25424: major, minor and patch of the HIP runtime."""
        number = int(self._call("hipRuntimeGetVersion"))
        return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"

    def graph_troubles(self, index: int) -> list[Trouble]:
        """Of this runtime on this GPU; a simulated one has none."""
        major, minor = map(int, self.version().split(".")[:2])
        target = plain(self.properties(index).arch_full)
        return [t for t in GRAPHS if self.kind == "rocm" and t.concerns((major, minor), target)]

    def set_device(self, index: int) -> None:
        self._call("hipSetDevice", index)

    def synchronize(self) -> None:
        self._call("hipDeviceSynchronize")

    def reset(self) -> None:
        """Forget all that the current device holds, and what broke it."""
        self._call("hipDeviceReset")

    def can_access_peer(self, index: int, peer: int) -> bool:
        return bool(self._call("hipDeviceCanAccessPeer", index, peer))

    def enable_peer(self, index: int, peer: int) -> None:
        """Let a device reach the memory of another. Leaves it current."""
        self.set_device(index)
        self._call.succeeds("hipDeviceEnablePeerAccess", peer, 0, otherwise=_PEER_ALREADY_ENABLED)

    # --- memory -------------------------------------------------------------------------------------------------------

    def mem_info(self) -> tuple[int, int]:
        free, total = self._call("hipMemGetInfo")
        return int(free), int(total)

    def alloc(self, nbytes: int) -> int:
        return int(self._call("hipMalloc", nbytes))

    def free(self, address: int) -> None:
        self._call("hipFree", address)

    def host_alloc(self, nbytes: int) -> int:
        return int(self._call("hipHostMalloc", nbytes, self._call.module.hipHostMallocPortable))

    def host_free(self, address: int) -> None:
        self._call("hipHostFree", address)

    def copy_h2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("hipMemcpyHtoDAsync", dst, src, nbytes, stream)

    def copy_d2h(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("hipMemcpyDtoHAsync", dst, src, nbytes, stream)

    def copy_d2d(self, dst: int, src: int, nbytes: int, stream: int) -> None:
        self._call("hipMemcpyDtoDAsync", dst, src, nbytes, stream)

    def copy_peer(self, dst: int, dst_device: int, src: int, src_device: int, nbytes: int, stream: int) -> None:
        self._call("hipMemcpyPeerAsync", dst, dst_device, src, src_device, nbytes, stream)

    def memset(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self._call("hipMemsetD8Async", address, byte, nbytes, stream)

    # --- streams and events -------------------------------------------------------------------------------------------

    def stream_create(self, priority: int = 0) -> int:
        if priority:
            priority = clamp_priority(priority, *self._call("hipDeviceGetStreamPriorityRange"))
        return int(self._call("hipStreamCreateWithPriority", self._call.module.hipStreamNonBlocking, priority))

    def stream_destroy(self, stream: int) -> None:
        self._call("hipStreamDestroy", stream)

    def stream_synchronize(self, stream: int) -> None:
        self._call("hipStreamSynchronize", stream)

    def stream_query(self, stream: int) -> bool:
        return self._call.succeeds("hipStreamQuery", stream, otherwise=_NOT_READY)

    def stream_wait_event(self, stream: int, event: int) -> None:
        self._call("hipStreamWaitEvent", stream, event, 0)

    def event_create(self, timing: bool) -> int:
        hip = self._call.module
        return int(self._call("hipEventCreateWithFlags", hip.hipEventDefault if timing else hip.hipEventDisableTiming))

    def event_destroy(self, event: int) -> None:
        self._call("hipEventDestroy", event)

    def event_record(self, event: int, stream: int) -> None:
        self._call("hipEventRecord", event, stream)

    def event_synchronize(self, event: int) -> None:
        self._call("hipEventSynchronize", event)

    def event_query(self, event: int) -> bool:
        return self._call.succeeds("hipEventQuery", event, otherwise=_NOT_READY)

    def event_elapsed(self, start: int, end: int) -> float:
        return float(self._call("hipEventElapsedTime", start, end)) / 1e3

    # --- kernels ------------------------------------------------------------------------------------------------------

    def load_module(self, code: bytes) -> int:
        image = ctypes.create_string_buffer(code, len(code))
        try:
            module = int(self._call("hipModuleLoadData", ctypes.addressof(image)))
        except HIPCompilationError as error:
            if not is_code_object(code) or code_object_version(code) < 5 or int(self.version().split(".")[0]) >= 6:
                raise
            raise ROCmNotAvailableError(
                f"[rocm] expected HIP 6.0 or newer, since older ones load no code object of version "
                f"{code_object_version(code)}, but got HIP {self.version()}; install a newer ROCm"
            ) from error
        self._images[module] = image
        return module

    def unload_module(self, module: int) -> None:
        self._call("hipModuleUnload", module)
        self._images.pop(module, None)

    def get_function(self, module: int, name: str) -> Any:
        return self._call("hipModuleGetFunction", module, name.encode())

    def function_attributes(self, function: Any) -> dict[str, int]:
        kinds = self._call.module.hipFunction_attribute
        return {
            name: int(self._call("hipFuncGetAttribute", getattr(kinds, which), function))
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
        first = kernel_args.address + 8 * start
        self._call("hipModuleLaunchKernel", function, *grid, *block, dynamic_lds, stream, first, 0)

    def native_calls(self, index: int) -> NativeCalls | None:
        path = find(RUNTIME) if self._is_real else ""
        if not path:
            return None
        library = ctypes.CDLL(path)  # as the bindings have loaded it
        names = "ModuleLaunchKernel", "MemcpyHtoDAsync", "MemcpyDtoHAsync", "StreamSynchronize", "SetDevice"
        launch, copy, fetch, wait, use = (address_of(getattr(library, f"hip{name}")) for name in names)
        return NativeCalls(launch, copy, fetch, wait, use, index)

    # --- graphs -------------------------------------------------------------------------------------------------------

    def capture_begin(self, stream: int) -> None:
        modes = self._call.module.hipStreamCaptureMode
        self._call("hipStreamBeginCapture", stream, modes.hipStreamCaptureModeRelaxed)

    def capture_end(self, stream: int) -> int:
        return int(self._call("hipStreamEndCapture", stream))

    def graph_instantiate(self, graph: int) -> int:
        return int(self._call("hipGraphInstantiateWithFlags", graph, 0))

    def graph_launch(self, executable: int, stream: int) -> None:
        self._call("hipGraphLaunch", executable, stream)

    def graph_destroy(self, graph: int, executable: int = 0) -> None:
        if executable:
            self._call("hipGraphExecDestroy", executable)
        self._call("hipGraphDestroy", graph)
