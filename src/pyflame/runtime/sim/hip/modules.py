"""The simulated HIP: modules, kernels and launches."""

from __future__ import annotations

import ctypes
import functools
import math
from pathlib import Path
from typing import Any

from pyflame.core.errors import suggest
from pyflame.runtime.sim.hip.arguments import Handle, address_of, gather, packed, text_of, unsigned
from pyflame.runtime.sim.hip.devices import MAX_GRID, MAX_THREADS
from pyflame.runtime.sim.hip.state import HipState, Kernel, Refused, hip
from pyflame.runtime.sim.hip.types import hipError_t, hipFuncAttribute, hipFunction_attribute, hipGraphNodeType

_ELF_HEADER = 64


class ModuleCalls(HipState):
    """Functions of code objects and kernels."""

    @hip(1)
    def hipModuleLoadData(self, image: Any) -> Handle:
        return self.load(_code_at(address_of(image)))

    @hip(1)
    def hipModuleLoad(self, fname: Any) -> Handle:
        try:
            code = Path(text_of(fname)).read_bytes()
        except OSError as error:
            raise Refused(hipError_t.hipErrorFileNotFound, str(error)) from error
        return self.load(code)

    @hip()
    def hipModuleUnload(self, module: Any) -> None:
        device, found = self.module(module)
        self.synchronize(device)
        handle = address_of(module)
        self.functions = {h: f for h, f in self.functions.items() if f[1] != handle}
        del self.modules[handle]
        self.gpus[device].machine.unload(found)

    @hip(1)
    def hipModuleGetFunction(self, module: Any, kname: Any) -> Handle:
        device, found = self.module(module)
        name = text_of(kname)
        kernel = found.kernels.get(name)
        if kernel is None:
            raise Refused(
                hipError_t.hipErrorNotFound, f"the module has no kernel {name!r}{suggest(name, list(found.kernels))}"
            )
        made = self.handle()
        self.functions[made] = device, address_of(module), kernel
        return made

    @hip(1)
    def hipModuleGetFunctionCount(self, mod: Any) -> int:
        return len(self.module(mod)[1].kernels)

    @hip(2)
    def hipModuleGetGlobal(self, hmod: Any, name: Any) -> tuple[Handle, int]:
        _, found = self.module(hmod)
        wanted = text_of(name)
        if wanted not in found.globals:
            raise Refused(
                hipError_t.hipErrorNotFound,
                f"the module has no variable {wanted!r}{suggest(wanted, list(found.globals))}",
            )
        address, nbytes = found.globals[wanted]
        return Handle(address), nbytes

    def _function(self, given: Any) -> tuple[int, int, Kernel]:
        found = self.functions.get(address_of(given))
        if found is None:
            status = hipError_t.hipErrorInvalidHandle if address_of(given) else hipError_t.hipErrorInvalidImage
            raise Refused(status, f"{address_of(given):#x} is no function, or its module was unloaded")
        return found

    @hip(1)
    def hipFuncGetAttribute(self, attrib: Any, hfunc: Any) -> int:
        kernel = self._function(hfunc)[2]
        kinds = hipFunction_attribute
        known = {
            kinds.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: kernel.max_threads,
            kinds.HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: kernel.static_lds,
            kinds.HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: 0,
            kinds.HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: kernel.metadata.scratch_bytes,
            kinds.HIP_FUNC_ATTRIBUTE_NUM_REGS: kernel.metadata.vgprs,
            kinds.HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA: 0,
            kinds.HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: self.target.lds_bytes - kernel.static_lds,
        }
        try:
            return known[kinds(int(attrib))]
        except (ValueError, KeyError):
            raise Refused(hipError_t.hipErrorInvalidValue, f"the simulator does not know {attrib!r}") from None

    @hip()
    def hipFuncSetAttribute(self, func: Any, attr: Any, value: int) -> None:
        """LDS needs no permission on these targets: the largest amount may be set, and changes nothing."""
        kernel = self._function(func)[2]
        largest = self.target.lds_bytes - kernel.static_lds
        if attr != hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize or not 0 <= value <= largest:
            raise Refused(
                hipError_t.hipErrorInvalidValue, f"{attr!r} cannot be {value}; dynamic LDS is up to {largest}"
            )

    @hip(1)
    def hipKernelNameRef(self, f: Any) -> bytes:
        return self._function(f)[2].name.encode()

    @hip()
    def hipModuleLaunchKernel(
        self,
        f: Any,
        gridDimX: int,
        gridDimY: int,
        gridDimZ: int,
        blockDimX: int,
        blockDimY: int,
        blockDimZ: int,
        sharedMemBytes: int,
        stream: Any,
        kernelParams: Any,
        extra: Any,
    ) -> None:
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        for size in (*grid, *block, sharedMemBytes):
            unsigned(size, "a size", 32)
        device, _, kernel = self._function(f)
        queue = self.stream(stream)
        if queue.device != device:
            raise Refused(
                hipError_t.hipErrorInvalidDevice,
                f"{kernel.name} was loaded on device {device} but the stream is of device {queue.device}",
            )
        self._check(kernel, grid, block, sharedMemBytes)
        kernarg = self._arguments(kernel, kernelParams, extra)
        machine = self.gpus[device].machine
        run = functools.partial(machine.launch, kernel, grid, block, sharedMemBytes, kernarg)
        self.submit(queue, hipGraphNodeType.hipGraphNodeTypeKernel, f"the kernel {kernel.name}", run)

    def _check(self, kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], dynamic_lds: int) -> None:
        """Refuse what the hardware cannot do, with the status that HIP's runtime gives."""
        threads = math.prod(block)
        shape = f"{kernel.name} with grid {grid} and block {block}"
        if 0 in block or any(g * b >= 1 << 32 for g, b in zip(grid, block, strict=True)):
            raise Refused(hipError_t.hipErrorInvalidConfiguration, f"{shape}: 1 to 2^32 - 1 threads in each dimension")
        if 0 in grid or any(g > most for g, most in zip(grid, MAX_GRID, strict=True)):
            raise Refused(hipError_t.hipErrorInvalidValue, f"{shape}: the grid may be up to {MAX_GRID} and not 0")
        if threads > MAX_THREADS:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{shape}: a block has at most {MAX_THREADS} threads")
        lds = kernel.static_lds + dynamic_lds
        if lds > self.target.lds_bytes:
            raise Refused(
                hipError_t.hipErrorInvalidValue,
                f"{shape} needs {kernel.static_lds} + {dynamic_lds} bytes of LDS; a block has {self.target.lds_bytes}",
            )
        if threads > kernel.max_threads:
            raise Refused(
                hipError_t.hipErrorLaunchFailure,
                f"{shape}: it was compiled for at most {kernel.max_threads} threads (__launch_bounds__)",
            )

    @staticmethod
    def _arguments(kernel: Kernel, pointers: Any, extra: Any) -> bytes:
        """The explicit arguments, copied now."""
        by_pointer = isinstance(pointers, list | tuple) or bool(address_of(pointers))
        by_block = isinstance(extra, list | tuple) or bool(address_of(extra))
        if by_pointer and by_block:
            raise Refused(hipError_t.hipErrorInvalidValue, "kernelParams and extra are both given")
        if by_pointer:
            return gather(kernel.params, pointers)
        if by_block:
            return packed(kernel.params, extra)
        if kernel.params:
            raise Refused(hipError_t.hipErrorInvalidValue, f"{kernel.name} takes {len(kernel.params)} arguments")
        return b""


def _code_at(address: int) -> bytes:
    """A code object in memory. HIP is told where it begins only; an ELF tells its own size."""
    if not address:
        raise Refused(hipError_t.hipErrorInvalidValue, "the image is null")
    header = ctypes.string_at(address, _ELF_HEADER)
    if header[:4] != b"\x7fELF":
        raise Refused(
            hipError_t.hipErrorInvalidImage,
            f"the image begins with {header[:4]!r} but an ELF was expected; unpack a bundle first",
        )
    return ctypes.string_at(address, elf_size(header))


def elf_size(header: bytes) -> int:
    """Bytes of an ELF up to the end of its section headers, which linkers put last."""
    sections_at = int.from_bytes(header[0x28:0x30], "little")
    return sections_at + int.from_bytes(header[0x3A:0x3C], "little") * int.from_bytes(header[0x3C:0x3E], "little")
