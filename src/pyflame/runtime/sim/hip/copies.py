"""The simulated HIP: copies and fills.

A copy from or to pinned memory touches it when the stream gets there, so a host that changes the memory before it has
waited is found out. With pageable memory a copy has been done when the call returns, as HIP documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.runtime.sim.hip.arguments import address_of, unsigned
from pyflame.runtime.sim.hip.memory import MemoryCalls, Place
from pyflame.runtime.sim.hip.state import Refused, hip
from pyflame.runtime.sim.hip.types import hipError_t, hipGraphNodeType, hipMemcpyKind

# What the target and the source of a copy must be.
_SIDES = {
    hipMemcpyKind.hipMemcpyHostToHost: ("host", "host"),
    hipMemcpyKind.hipMemcpyHostToDevice: ("device", "host"),
    hipMemcpyKind.hipMemcpyDeviceToHost: ("host", "device"),
    hipMemcpyKind.hipMemcpyDeviceToDevice: ("device", "device"),
    hipMemcpyKind.hipMemcpyDeviceToDeviceNoCU: ("device", "device"),
    hipMemcpyKind.hipMemcpyDefault: ("", ""),
}
_H2D, _D2H = hipMemcpyKind.hipMemcpyHostToDevice, hipMemcpyKind.hipMemcpyDeviceToHost
_D2D, _ANY = hipMemcpyKind.hipMemcpyDeviceToDevice, hipMemcpyKind.hipMemcpyDefault


class CopyCalls(MemoryCalls):
    """Functions that move bytes."""

    def _copy(self, dst: Any, src: Any, nbytes: int, kind: Any, stream: Any, wait: bool = False) -> None:
        size = unsigned(nbytes, "sizeBytes")
        self._copy_rows(dst, size, src, size, size, 1, kind, stream, wait)

    def _copy_rows(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any, stream: Any, wait: bool
    ) -> None:
        """Copy `height` rows of `width` bytes. `wait`: until it is done; else only where memory is pageable."""
        queue = self.stream(stream)
        if width == 0 or height == 0:
            return
        if width > dpitch or width > spitch:
            raise Refused(
                hipError_t.hipErrorInvalidPitchValue, f"rows of {width} bytes do not fit pitches {dpitch} and {spitch}"
            )
        try:
            sides = _SIDES[hipMemcpyKind(int(kind))]
        except (ValueError, KeyError):
            raise Refused(hipError_t.hipErrorInvalidMemcpyDirection, f"{kind!r} is no direction") from None
        whole_to = self.place(dst, dpitch * (height - 1) + width, sides[0])
        whole_from = self.place(src, spitch * (height - 1) + width, sides[1])
        if _overlap(whole_to, whole_from):
            raise Refused(hipError_t.hipErrorInvalidValue, f"{width * height} bytes to copy overlap their target")
        rows = [(_row(whole_to, y, dpitch, width), _row(whole_from, y, spitch, width)) for y in range(height)]

        def run() -> None:
            for to, source in rows:
                to.fill(source)
            if "replay" in self.modes and whole_to.kind == whole_from.kind == "device":
                self.gpus[queue.device].machine.acquire()  # it is a kernel; copies from the host are a DMA engine's

        what = f"the copy of {width * height} bytes from {whole_from.address:#x} to {whole_to.address:#x}"
        work = self.submit(queue, hipGraphNodeType.hipGraphNodeTypeMemcpy, what, run)
        if work is not None and (wait or "pageable" in (whole_to.kind, whole_from.kind)):
            self.finish([work])

    @hip()
    def hipMemcpy(self, dst: Any, src: Any, sizeBytes: int, kind: Any) -> None:
        self.synchronous("hipMemcpy")
        self._copy(dst, src, sizeBytes, kind, None, wait=True)

    @hip()
    def hipMemcpyWithStream(self, dst: Any, src: Any, sizeBytes: int, kind: Any, stream: Any) -> None:
        self.synchronous("hipMemcpyWithStream")
        self._copy(dst, src, sizeBytes, kind, stream, wait=True)

    @hip()
    def hipMemcpyAsync(self, dst: Any, src: Any, sizeBytes: int, kind: Any, stream: Any) -> None:
        self._copy(dst, src, sizeBytes, kind, stream)

    @hip()
    def hipMemcpyHtoD(self, dst: Any, src: Any, sizeBytes: int) -> None:
        self.synchronous("hipMemcpyHtoD")
        self._copy(dst, src, sizeBytes, _H2D, None, wait=True)

    @hip()
    def hipMemcpyDtoH(self, dst: Any, src: Any, sizeBytes: int) -> None:
        self.synchronous("hipMemcpyDtoH")
        self._copy(dst, src, sizeBytes, _D2H, None, wait=True)

    @hip()
    def hipMemcpyDtoD(self, dst: Any, src: Any, sizeBytes: int) -> None:
        self.synchronous("hipMemcpyDtoD")
        self._copy(dst, src, sizeBytes, _D2D, None, wait=True)

    @hip()
    def hipMemcpyHtoDAsync(self, dst: Any, src: Any, sizeBytes: int, stream: Any) -> None:
        self._copy(dst, src, sizeBytes, _H2D, stream)

    @hip()
    def hipMemcpyDtoHAsync(self, dst: Any, src: Any, sizeBytes: int, stream: Any) -> None:
        self._copy(dst, src, sizeBytes, _D2H, stream)

    @hip()
    def hipMemcpyDtoDAsync(self, dst: Any, src: Any, sizeBytes: int, stream: Any) -> None:
        self._copy(dst, src, sizeBytes, _D2D, stream)

    @hip()
    def hipMemcpyPeer(self, dst: Any, dstDeviceId: int, src: Any, srcDeviceId: int, sizeBytes: int) -> None:
        self.synchronous("hipMemcpyPeer")
        self._check_owners(dst, dstDeviceId, src, srcDeviceId)
        self._copy(dst, src, sizeBytes, _D2D, None, wait=True)

    @hip()
    def hipMemcpyPeerAsync(
        self, dst: Any, dstDeviceId: int, src: Any, srcDevice: int, sizeBytes: int, stream: Any
    ) -> None:
        self._check_owners(dst, dstDeviceId, src, srcDevice)
        self._copy(dst, src, sizeBytes, _D2D, stream)

    def _check_owners(self, dst: Any, dst_device: int, src: Any, src_device: int) -> None:
        for given, device in ((dst, dst_device), (src, src_device)):
            if self.owner(address_of(given)) is not self.device(device):
                raise Refused(
                    hipError_t.hipErrorInvalidValue, f"{self.where(address_of(given))} is not of device {device}"
                )

    @hip()
    def hipMemcpy2D(self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any) -> None:
        self.synchronous("hipMemcpy2D")
        self._copy_rows(dst, dpitch, src, spitch, width, height, kind, None, wait=True)

    @hip()
    def hipMemcpy2DAsync(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any, stream: Any
    ) -> None:
        self._copy_rows(dst, dpitch, src, spitch, width, height, kind, stream, wait=False)

    # --- filling ------------------------------------------------------------------------------------------------------

    def _fill(
        self, dst: Any, pitch: int, value: int, item: int, width: int, height: int, stream: Any, wait: bool = False
    ) -> None:
        """Fill `height` rows of `width` items of `item` bytes. `wait`: where the memory is the host's."""
        queue = self.stream(stream)
        if width == 0 or height == 0:
            return
        if pitch < width * item:
            raise Refused(
                hipError_t.hipErrorInvalidPitchValue, f"rows of {width * item} bytes do not fit a pitch of {pitch}"
            )
        whole = self.place(dst, pitch * (height - 1) + width * item, "device")
        if whole.address % item:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{whole.address:#x} is not a multiple of {item}")
        rows = [_row(whole, y, pitch, width * item) for y in range(height)]
        pattern = np.frombuffer((value & (1 << 8 * item) - 1).to_bytes(item, "little") * width, np.uint8)

        def run() -> None:
            for row in rows:
                row.view(write=True)[:] = pattern

        what = f"the fill of {width * item * height} bytes at {whole.address:#x}"
        work = self.submit(queue, hipGraphNodeType.hipGraphNodeTypeMemset, what, run)
        if work is not None and wait and whole.kind != "device":
            self.finish([work])

    @hip()
    def hipMemset(self, dst: Any, value: int, sizeBytes: int) -> None:
        self.synchronous("hipMemset")
        self._fill(dst, sizeBytes, value, 1, unsigned(sizeBytes, "sizeBytes"), 1, None, wait=True)

    @hip()
    def hipMemsetAsync(self, dst: Any, value: int, sizeBytes: int, stream: Any) -> None:
        self._fill(dst, sizeBytes, value, 1, unsigned(sizeBytes, "sizeBytes"), 1, stream)

    @hip()
    def hipMemsetD8(self, dest: Any, value: int, count: int) -> None:
        self.synchronous("hipMemsetD8")
        self._fill(dest, count, value, 1, unsigned(count, "count"), 1, None, wait=True)

    @hip()
    def hipMemsetD8Async(self, dest: Any, value: int, count: int, stream: Any) -> None:
        self._fill(dest, count, value, 1, unsigned(count, "count"), 1, stream)

    @hip()
    def hipMemsetD16(self, dest: Any, value: int, count: int) -> None:
        self.synchronous("hipMemsetD16")
        self._fill(dest, 2 * count, value, 2, unsigned(count, "count"), 1, None, wait=True)

    @hip()
    def hipMemsetD16Async(self, dest: Any, value: int, count: int, stream: Any) -> None:
        self._fill(dest, 2 * count, value, 2, unsigned(count, "count"), 1, stream)

    @hip()
    def hipMemsetD32(self, dest: Any, value: int, count: int) -> None:
        self.synchronous("hipMemsetD32")
        self._fill(dest, 4 * count, value, 4, unsigned(count, "count"), 1, None, wait=True)

    @hip()
    def hipMemsetD32Async(self, dst: Any, value: int, count: int, stream: Any) -> None:
        self._fill(dst, 4 * count, value, 4, unsigned(count, "count"), 1, stream)

    @hip()
    def hipMemset2D(self, dst: Any, pitch: int, value: int, width: int, height: int) -> None:
        self.synchronous("hipMemset2D")
        self._fill(dst, pitch, value, 1, unsigned(width, "width"), unsigned(height, "height"), None, wait=True)

    @hip()
    def hipMemset2DAsync(self, dst: Any, pitch: int, value: int, width: int, height: int, stream: Any) -> None:
        self._fill(dst, pitch, value, 1, unsigned(width, "width"), unsigned(height, "height"), stream)


def _row(whole: Place, y: int, pitch: int, width: int) -> Place:
    return Place(whole.address + y * pitch, width, whole.memory, whole.kind)


def _overlap(to: Place, source: Place) -> bool:
    return to.address < source.address + source.nbytes and source.address < to.address + to.nbytes
