"""The simulated HIP: memory of devices and of the host.

A device's memory has exact bounds. Pinned and managed memory is the host's, at the host's address, and every device
reaches it. What is neither is pageable: the simulator cannot tell where it ends.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from pyflame.core.errors import OutOfMemoryError
from pyflame.runtime.sim.faults import SimulationFault
from pyflame.runtime.sim.hip.arguments import DeviceArray, Handle, address_of, unsigned
from pyflame.runtime.sim.hip.state import Gpu, HipState, Refused, hip
from pyflame.runtime.sim.hip.types import (
    hipError_t,
    hipHostMallocCoherent,
    hipHostMallocNonCoherent,
    hipMemAttachGlobal,
    hipMemAttachHost,
    hipMemoryType,
)
from pyflame.runtime.sim.memory import BASE, WINDOW, Allocation, Bytes, Memory

_PAGE = 4096


@dataclass(frozen=True)
class Place:
    """Bytes at an address. `memory`: whose they are; nothing where they are pageable memory of the host."""

    address: int
    nbytes: int
    memory: Memory | None
    kind: str  # "device", "pinned", "managed" or "pageable"

    def view(self, write: bool = False) -> Bytes:
        if self.memory is not None:
            return self.memory.view(self.address, self.nbytes, write)
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.address))

    def fill(self, source: Place) -> None:
        """Copy, and with it the knowledge of what was ever written."""
        self.view(write=True)[:] = source.view()
        if self.memory is not None and source.memory is not None:
            known = source.memory.written(source.address, source.nbytes)
            self.memory.written(self.address, self.nbytes)[:] = known


class MemoryCalls(HipState):
    """Functions that allocate, free and ask."""

    # --- of devices ---------------------------------------------------------------------------------------------------

    @hip(1)
    def hipMalloc(self, size: int) -> DeviceArray | None:
        self.unsafe("hipMalloc")
        return self._allocate(unsigned(size, "size"))

    @hip(1)
    def hipExtMallocWithFlags(self, sizeBytes: int, flags: int) -> DeviceArray | None:
        self.unsafe("hipExtMallocWithFlags")
        if flags not in (0, 1, 2, 3):
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags {flags} mean nothing")
        return self._allocate(unsigned(sizeBytes, "sizeBytes"))

    def _allocate(self, nbytes: int) -> DeviceArray | None:
        if nbytes == 0:
            return None
        try:
            return DeviceArray(self.gpu.memory.allocate(nbytes), nbytes)
        except OutOfMemoryError as error:
            raise Refused(hipError_t.hipErrorOutOfMemory, str(error)) from error

    @hip()
    def hipFree(self, ptr: Any) -> None:
        self.unsafe("hipFree")
        address = address_of(ptr)
        if address == 0:
            return
        owner = self.owner(address)
        if owner is None:
            self._release(address, "managed", "hipFree")
            return
        self._allocation(owner, address)
        self.synchronize(owner.index)
        owner.memory.free(address)

    @hip(1)
    def hipMallocAsync(self, size: int, stream: Any) -> DeviceArray | None:
        self._uncaptured(stream, "hipMallocAsync")
        return self._allocate(unsigned(size, "size"))

    @hip()
    def hipFreeAsync(self, dev_ptr: Any, stream: Any) -> None:
        """Free when the stream gets there: a stream that uses it and does not wait meets freed memory."""
        self._uncaptured(stream, "hipFreeAsync")
        address = address_of(dev_ptr)
        if address == 0:
            return
        owner = self.owner(address)
        if owner is None:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{address:#x} is not memory of a device")
        self._allocation(owner, address)
        self.queue(self.stream(stream), f"hipFreeAsync of {address:#x}", lambda: owner.memory.free(address))

    def _uncaptured(self, stream: Any, what: str) -> None:
        capture = self.stream(stream).capture
        if capture is not None:
            self.invalidate(
                [capture], hipError_t.hipErrorStreamCaptureUnsupported, f"the simulator cannot capture {what}"
            )

    @hip(2)
    def hipMemGetInfo(self) -> tuple[int, int]:
        memory = self.gpu.memory
        return memory.nbytes - memory.used, memory.nbytes

    # --- of the host --------------------------------------------------------------------------------------------------

    @hip(1)
    def hipHostMalloc(self, size: int, flags: int) -> Handle | None:
        return self._host("hipHostMalloc", size, flags, "pinned")

    @hip(1)
    def hipHostAlloc(self, size: int, flags: int) -> Handle | None:
        return self._host("hipHostAlloc", size, flags, "pinned")

    @hip(1)
    def hipMallocHost(self, size: int) -> Handle | None:
        return self._host("hipMallocHost", size, 0, "pinned")

    @hip(1)
    def hipMemAllocHost(self, size: int) -> Handle | None:
        return self._host("hipMemAllocHost", size, 0, "pinned")

    @hip(1)
    def hipMallocManaged(self, size: int, flags: int) -> DeviceArray | None:
        if flags not in (hipMemAttachGlobal, hipMemAttachHost):
            raise Refused(hipError_t.hipErrorInvalidValue, f"flags {flags} mean nothing")
        made = self._host("hipMallocManaged", size, flags, "managed")
        return None if made is None else DeviceArray(made, size)

    def _host(self, what: str, size: int, flags: int, kind: str) -> Handle | None:
        self.unsafe(what)
        nbytes = unsigned(size, "size")
        both = (hipHostMallocCoherent | hipHostMallocNonCoherent) & 0xFFFFFFFF
        if flags & both == both:
            raise Refused(hipError_t.hipErrorInvalidValue, "memory cannot be coherent and not coherent")
        if nbytes == 0:
            return None
        try:
            raw = np.full(nbytes + _PAGE, 0xF5, np.uint8)  # not zero, like all new memory here
        except MemoryError as error:
            raise Refused(hipError_t.hipErrorOutOfMemory, f"the host has no {nbytes} bytes") from error
        start = -raw.ctypes.data % _PAGE
        return self._share(raw[start : start + nbytes], flags, kind)

    def _share(self, data: Bytes, flags: int, kind: str) -> Handle:
        address = Handle(data.ctypes.data)
        self.kept[address] = data, flags, kind
        for memory in [self.host, *[g.memory for g in self.gpus]]:
            memory.share(address, data)
        return address

    def _release(self, address: int, kind: str, what: str) -> None:
        """Give host memory up, when no device uses it any more."""
        found = self.kept.get(address)
        if found is None or found[2] != kind:
            raise Refused(
                hipError_t.hipErrorInvalidValue,
                f"{what} expects the address of {kind} memory that was not freed but got {self.where(address)}",
            )
        for gpu in self.gpus:
            self.scheduler.finish(self.scheduler.of(gpu.index))
        del self.kept[address]
        for memory in [self.host, *[g.memory for g in self.gpus]]:
            memory.unshare(address)

    @hip()
    def hipHostFree(self, ptr: Any) -> None:
        self._host_free(ptr, "hipHostFree")

    @hip()
    def hipFreeHost(self, ptr: Any) -> None:
        self._host_free(ptr, "hipFreeHost")

    def _host_free(self, ptr: Any, what: str) -> None:
        self.unsafe(what)
        if address_of(ptr):
            self._release(address_of(ptr), "pinned", what)

    @hip()
    def hipHostRegister(self, hostPtr: Any, sizeBytes: int, flags: int) -> None:
        self.unsafe("hipHostRegister")
        address, nbytes = address_of(hostPtr), unsigned(sizeBytes, "sizeBytes")
        if not address or not nbytes:
            raise Refused(hipError_t.hipErrorInvalidValue, "there is nothing to register")
        if self.host.find(address) is not None or self.host.find(address + nbytes - 1) is not None:
            raise Refused(hipError_t.hipErrorHostMemoryAlreadyRegistered, self.where(address))
        self._share(np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)), flags, "registered")

    @hip()
    def hipHostUnregister(self, hostPtr: Any) -> None:
        self.unsafe("hipHostUnregister")
        address = address_of(hostPtr)
        if address not in self.kept or self.kept[address][2] != "registered":
            raise Refused(hipError_t.hipErrorHostMemoryNotRegistered, self.where(address))
        self._release(address, "registered", "hipHostUnregister")

    @hip(1)
    def hipHostGetDevicePointer(self, hstPtr: Any, flags: int) -> Handle:
        if self.host.find(address_of(hstPtr)) is None:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{self.where(address_of(hstPtr))} is not pinned")
        return Handle(address_of(hstPtr))

    @hip(1)
    def hipHostGetFlags(self, hostPtr: Any) -> int:
        found = self.host.find(address_of(hostPtr))
        if found is None:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{self.where(address_of(hostPtr))} is not pinned")
        return self.kept[found.base][1]

    # --- asking -------------------------------------------------------------------------------------------------------

    def owner(self, address: int) -> Gpu | None:
        """The device whose memory an address would be."""
        first = self.gpus[0].memory.window
        index = (address - BASE) // WINDOW - first
        return self.gpus[index] if 0 <= index < len(self.gpus) else None

    def where(self, address: int) -> str:
        """An address in words."""
        owner = self.owner(address)
        return (owner.memory if owner is not None else self.host).describe(address)

    def _allocation(self, owner: Gpu, address: int) -> Allocation:
        found = owner.memory.find(address)
        if found is None or found.base != address:
            raise Refused(
                hipError_t.hipErrorInvalidValue,
                f"expected the address of an allocation that was not freed but got {self.where(address)}",
            )
        return found

    def place(self, given: Any, nbytes: int, want: str = "") -> Place:
        """Bytes that an argument names, all of which must exist. `want`: "device" or "host"."""
        address = address_of(given)
        if address == 0:
            raise Refused(hipError_t.hipErrorInvalidValue, "the address is 0")
        owner = self.owner(address)
        memory: Memory | None = owner.memory if owner is not None else None
        kind = "device"
        if memory is None:
            found = self.host.find(address)
            if found is not None:
                memory, kind = self.host, self.kept[found.base][2].replace("registered", "pinned")
            else:
                kind = "pageable"
        if want == "device" and kind == "pageable":
            raise Refused(hipError_t.hipErrorInvalidValue, f"{address:#x} is not memory that a device reaches")
        if want == "host" and kind == "device":
            raise Refused(hipError_t.hipErrorInvalidValue, f"{self.where(address)} is memory of a device")
        if memory is not None:
            try:
                memory.view(address, nbytes)
            except SimulationFault as fault:
                raise Refused(hipError_t.hipErrorInvalidValue, fault.message) from fault
        return Place(address, nbytes, memory, kind)

    @hip(2)
    def hipMemGetAddressRange(self, dptr: Any) -> tuple[Handle, int]:
        found = self._find(dptr)
        if found is None:
            raise Refused(hipError_t.hipErrorNotFound, self.where(address_of(dptr)))
        return Handle(found.base), found.size

    @hip(1)
    def hipMemPtrGetInfo(self, ptr: Any) -> int:
        found = self._find(ptr)
        if found is None or found.base != address_of(ptr):
            raise Refused(hipError_t.hipErrorInvalidValue, self.where(address_of(ptr)))
        return found.size

    def _find(self, given: Any) -> Allocation | None:
        address = address_of(given)
        owner = self.owner(address)
        return (owner.memory if owner is not None else self.host).find(address)

    @hip(1)
    def hipPointerGetAttributes(self, ptr: Any) -> SimpleNamespace:
        """The fields of `hipPointerAttribute_t`."""
        address = address_of(ptr)
        found, owner = self._find(ptr), self.owner(address)
        if found is None:
            raise Refused(hipError_t.hipErrorInvalidValue, self.where(address))
        kind = "device" if owner is not None else self.kept[found.base][2]
        types = {"device": hipMemoryType.hipMemoryTypeDevice, "managed": hipMemoryType.hipMemoryTypeManaged}
        return SimpleNamespace(
            type=types.get(kind, hipMemoryType.hipMemoryTypeHost),
            device=owner.index if owner is not None else 0,
            devicePointer=Handle(address),
            hostPointer=None if owner is not None else Handle(address),
            isManaged=int(kind == "managed"),
            allocationFlags=0 if owner is not None else self.kept[found.base][1],
        )
