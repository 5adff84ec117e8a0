"""The simulated HIP: devices, their properties, peers, and errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyflame.runtime.rocm.errors import CAUSES
from pyflame.runtime.rocm.targets import numbers
from pyflame.runtime.sim.hip.arguments import text_of
from pyflame.runtime.sim.hip.state import Gpu, HipState, Refused, hip
from pyflame.runtime.sim.hip.types import hipDeviceAttribute_t, hipDeviceP2PAttr, hipError_t

MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65536, 65536)
_FEATURES = {name: f"{name}:sramecc+:xnack-" for name in ("gfx90a", "gfx942", "gfx950")}
# Nominal clocks in kHz, bits of the memory bus and bytes of L2: of half an MI250X, the MI300X, the MI355X, the RX 7900
# XTX and the RX 9070 XT. Nothing is timed.
_NOMINAL = {
    "gfx90a": (1_700_000, 1_600_000, 4096, 8 << 20),
    "gfx942": (2_100_000, 1_300_000, 8192, 4 << 20),
    "gfx950": (2_400_000, 2_000_000, 8192, 4 << 20),
    "gfx1100": (2_482_000, 1_249_000, 384, 6 << 20),
    "gfx1201": (2_970_000, 1_258_000, 256, 8 << 20),
}
# Attributes by the property that answers them; the rest are computed below.
_ATTRIBUTES = {
    "ClockRate": "clockRate",
    "ComputeMode": "computeMode",
    "ConcurrentKernels": "concurrentKernels",
    "ConcurrentManagedAccess": "concurrentManagedAccess",
    "CooperativeLaunch": "cooperativeLaunch",
    "CanMapHostMemory": "canMapHostMemory",
    "EccEnabled": "ECCEnabled",
    "Integrated": "integrated",
    "L2CacheSize": "l2CacheSize",
    "ComputeCapabilityMajor": "major",
    "ComputeCapabilityMinor": "minor",
    "ManagedMemory": "managedMemory",
    "MaxThreadsPerBlock": "maxThreadsPerBlock",
    "MaxThreadsPerMultiProcessor": "maxThreadsPerMultiProcessor",
    "MemoryBusWidth": "memoryBusWidth",
    "MemoryClockRate": "memoryClockRate",
    "MultiprocessorCount": "multiProcessorCount",
    "PhysicalMultiProcessorCount": "multiProcessorCount",
    "PageableMemoryAccess": "pageableMemoryAccess",
    "PciBusId": "pciBusID",
    "PciDeviceId": "pciDeviceID",
    "PciDomainId": "pciDomainID",
    "MaxRegistersPerBlock": "regsPerBlock",
    "MaxSharedMemoryPerBlock": "sharedMemPerBlock",
    "SharedMemPerBlockOptin": "sharedMemPerBlockOptin",
    "SharedMemPerMultiprocessor": "sharedMemPerMultiprocessor",
    "MaxSharedMemoryPerMultiprocessor": "maxSharedMemoryPerMultiProcessor",
    "StreamPrioritiesSupported": "streamPrioritiesSupported",
    "TotalConstantMemory": "totalConstMem",
    "UnifiedAddressing": "unifiedAddressing",
    "WarpSize": "warpSize",
    "MemoryPoolsSupported": "memoryPoolsSupported",
    "HostRegisterSupported": "hostRegisterSupported",
    "WallClockRate": "clockRate",
}


class DeviceCalls(HipState):
    """Functions that ask for devices or choose one."""

    @hip(anyway=True)
    def hipInit(self, flags: int) -> None:
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags must be 0 but are {flags}")

    @hip(1, anyway=True)
    def hipDriverGetVersion(self) -> int:
        return self.version

    @hip(1, anyway=True)
    def hipRuntimeGetVersion(self) -> int:
        return self.version

    @hip(1, anyway=True)
    def hipGetDeviceCount(self) -> int:
        return len(self.gpus)

    @hip(1, anyway=True)
    def hipGetDevice(self) -> int:
        return self.current

    @hip(anyway=True)
    def hipSetDevice(self, deviceId: int) -> None:
        self.current = self.device(deviceId).index

    @hip(1, anyway=True)
    def hipDeviceGet(self, ordinal: int) -> int:
        return self.device(ordinal).index

    @hip(1, anyway=True)
    def hipGetDeviceProperties(self, deviceId: int) -> SimpleNamespace:
        return self.properties(self.device(deviceId))

    def properties(self, gpu: Gpu) -> SimpleNamespace:
        """The fields of `hipDeviceProp_t` that mean something here."""
        target = self.target
        clock, memory_clock, bus, l2 = _NOMINAL[target.name]
        major, minor, _ = numbers(target.name) or (0, 0, 0)
        return SimpleNamespace(
            name=f"Simulated {target.name}",
            gcnArchName=_FEATURES.get(target.name, target.name),
            totalGlobalMem=gpu.memory.nbytes,
            totalConstMem=gpu.memory.nbytes,
            multiProcessorCount=target.workers,
            warpSize=target.wave_size,
            sharedMemPerBlock=target.lds_bytes,
            sharedMemPerBlockOptin=target.lds_bytes,
            sharedMemPerMultiprocessor=target.lds_bytes,
            maxSharedMemoryPerMultiProcessor=target.lds_bytes,
            maxThreadsPerBlock=MAX_THREADS,
            maxThreadsPerMultiProcessor=2048,
            maxThreadsDim=(MAX_THREADS, MAX_THREADS, MAX_THREADS),
            maxGridSize=MAX_GRID,
            regsPerBlock=65536,
            clockRate=clock,
            memoryClockRate=memory_clock,
            memoryBusWidth=bus,
            l2CacheSize=l2,
            major=major,
            minor=minor,
            pciDomainID=0,
            pciBusID=gpu.index + 1,
            pciDeviceID=0,
            integrated=0,
            ECCEnabled=0,
            computeMode=0,
            concurrentKernels=1,
            concurrentManagedAccess=0,
            cooperativeLaunch=0,
            canMapHostMemory=1,
            hostRegisterSupported=1,
            managedMemory=1,
            memoryPoolsSupported=0,
            pageableMemoryAccess=0,
            streamPrioritiesSupported=1,
            unifiedAddressing=1,
        )

    @hip(1, anyway=True)
    def hipDeviceGetAttribute(self, attr: hipDeviceAttribute_t, deviceId: int) -> int:
        properties = self.properties(self.device(deviceId))
        try:
            name = hipDeviceAttribute_t(int(attr)).name.removeprefix("hipDeviceAttribute")
        except ValueError:
            raise Refused(hipError_t.hipErrorInvalidValue, f"the simulator does not know attribute {attr!r}") from None
        for kind, sizes in (("MaxBlockDim", properties.maxThreadsDim), ("MaxGridDim", properties.maxGridSize)):
            if name.startswith(kind):
                return int(sizes["XYZ".index(name[-1])])
        return int(getattr(properties, _ATTRIBUTES[name]))

    @hip(1, anyway=True)
    def hipDeviceGetName(self, len: int, device: int) -> str:
        return str(self.properties(self.device(device)).name)[: max(len - 1, 0)]

    @hip(2, anyway=True)
    def hipDeviceComputeCapability(self, device: int) -> tuple[int, int]:
        properties = self.properties(self.device(device))
        return properties.major, properties.minor

    @hip(1, anyway=True)
    def hipDeviceTotalMem(self, device: int) -> int:
        return self.device(device).memory.nbytes

    @hip(1, anyway=True)
    def hipDeviceGetPCIBusId(self, len: int, device: int) -> str:
        return _bus_id(self.device(device))[: max(len - 1, 0)]

    @hip(1, anyway=True)
    def hipDeviceGetByPCIBusId(self, pciBusId: Any) -> int:
        for gpu in self.gpus:
            if _bus_id(gpu) == text_of(pciBusId):
                return gpu.index
        raise Refused(hipError_t.hipErrorInvalidValue, f"no device is at {text_of(pciBusId)}")

    @hip()
    def hipDeviceSynchronize(self) -> None:
        self.invalidate(
            self.captures,
            hipError_t.hipErrorStreamCaptureUnsupported,
            "hipDeviceSynchronize is not allowed while anything is captured",
        )
        self.synchronize(self.current)

    @hip(anyway=True)
    def hipDeviceReset(self) -> None:
        """Forget all that the device holds, and what broke it."""
        device = self.current
        self.scheduler.drop(device, None)
        self.scheduler.finish(self.scheduler.of(device))
        for capture in [c for c in self.captures if any(s.device == device for s in c.tails)]:
            capture.leave()
            self.captures.remove(capture)
        self.streams = {h: s for h, s in self.streams.items() if s.device != device}
        self.events = {h: e for h, e in self.events.items() if e.device != device}
        self.modules = {h: m for h, m in self.modules.items() if m[0] != device}
        self.functions = {h: f for h, f in self.functions.items() if f[0] != device}
        self.gpu.reset()
        self.forget_error()

    # --- peers --------------------------------------------------------------------------------------------------------

    @hip(1, anyway=True)
    def hipDeviceCanAccessPeer(self, deviceId: int, peerDeviceId: int) -> int:
        return int(self.device(deviceId) is not self.device(peerDeviceId))

    @hip()
    def hipDeviceEnablePeerAccess(self, peerDeviceId: int, flags: int) -> None:
        if flags:
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags must be 0 but are {flags}")
        peer = self._peer(peerDeviceId)
        if self.gpu.memory.reaches(peer.memory):
            raise Refused(hipError_t.hipErrorPeerAccessAlreadyEnabled, "it is enabled already")
        self.gpu.memory.reach(peer.memory)

    @hip()
    def hipDeviceDisablePeerAccess(self, peerDeviceId: int) -> None:
        peer = self._peer(peerDeviceId)
        if not self.gpu.memory.reaches(peer.memory):
            raise Refused(hipError_t.hipErrorPeerAccessNotEnabled, "it is not enabled")
        self.gpu.memory.reach(peer.memory, on=False)

    def _peer(self, number: int) -> Gpu:
        peer = self.device(number)
        if peer is self.gpu:
            raise Refused(hipError_t.hipErrorInvalidDevice, "a device is no peer of itself")
        return peer

    @hip(1, anyway=True)
    def hipDeviceGetP2PAttribute(self, attr: hipDeviceP2PAttr, srcDevice: int, dstDevice: int) -> int:
        if self.device(srcDevice) is self.device(dstDevice):
            raise Refused(hipError_t.hipErrorInvalidDevice, "a device is no peer of itself")
        known = hipDeviceP2PAttr.hipDevP2PAttrAccessSupported, hipDeviceP2PAttr.hipDevP2PAttrNativeAtomicSupported
        return int(attr in known)

    # --- errors -------------------------------------------------------------------------------------------------------

    def hipGetLastError(self) -> tuple[hipError_t]:
        with self.lock:
            last = self.last_error
            self.forget_error()
        return (last,)

    hipExtGetLastError = hipGetLastError

    def hipPeekAtLastError(self) -> tuple[hipError_t]:
        return (self.last_error,)

    @hip(1, anyway=True)
    def hipGetErrorName(self, hip_error: hipError_t) -> bytes:
        return hipError_t(int(hip_error)).name.encode()

    @hip(1, anyway=True)
    def hipGetErrorString(self, hipError: hipError_t) -> bytes:
        return _words(hipError).encode()

    @hip(1, anyway=True)
    def hipDrvGetErrorName(self, hipError: hipError_t) -> str:
        return hipError_t(int(hipError)).name

    @hip(1, anyway=True)
    def hipDrvGetErrorString(self, hipError: hipError_t) -> str:
        return _words(hipError)


def _bus_id(gpu: Gpu) -> str:
    return f"0000:{gpu.index + 1:02x}:00.0"


def _words(status: hipError_t) -> str:
    cause = CAUSES.get(int(status))
    return cause.happened if cause is not None else hipError_t(int(status)).name
