"""A code object placed in device memory: segments, relocations, kernel descriptors and the layout of arguments.

Described in LLVM's "User Guide for AMDGPU Backend" (Code Object V5, Kernel Descriptor, Initial Kernel Execution State).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import FileFormatError
from pyflame.runtime.rocm.metadata import (
    CODE_OBJECT_VERSION,
    Elf,
    KernelMetadata,
    code_object_version,
    read_metadata,
    reading,
)
from pyflame.runtime.sim.memory import Memory

_SHT_RELA = 4
_RELATIVE64, _ABS64, _ABS32_LO, _ABS32_HI = 13, 3, 1, 2
_STT_OBJECT = 1


@dataclass(frozen=True)
class Param:
    """An argument of a kernel: where it lies, and what it is (global_buffer, by_value, hidden_block_count_x …)."""

    offset: int
    nbytes: int
    kind: str


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be launched."""

    name: str
    metadata: KernelMetadata
    params: tuple[Param, ...]  # the explicit ones, in order
    hidden: tuple[Param, ...]
    kernarg_bytes: int
    static_lds: int
    scratch_bytes: int
    max_threads: int
    entry: int  # in the code object
    user_sgprs: int
    group_ids: int  # bit d: the number of the group in dimension d is wanted; bit 3: so is the offset of scratch
    properties: int  # which user SGPRs hold what
    preload: tuple[int, int]  # dwords of arguments that arrive in SGPRs: the first, how many
    mode: int  # of floating point
    module: Module


class Module:
    """A loaded code object. `base`: its address in device memory."""

    @reading()
    def __init__(self, code: bytes, memory: Memory, newest: int = CODE_OBJECT_VERSION) -> None:
        elf = Elf(code)
        if code_object_version(code) > newest:
            raise FileFormatError(
                f"[sim] expected a code object of version {newest}, the newest that this runtime loads, but got "
                f"version {code_object_version(code)}: the runtime is too old for it; compile with "
                f"-mcode-object-version={newest}, or install a newer runtime"
            )
        self.code = code
        segments = list(elf.loads())
        if not segments:
            raise FileFormatError("[sim] expected a code object with loadable segments but got none")
        self.nbytes = max(address + in_memory for _, address, _, in_memory in segments)
        self.base = memory.allocate(self.nbytes)
        image = memory.view(self.base, self.nbytes, write=True)
        image[:] = 0
        for offset, address, in_file, _ in segments:
            image[address : address + in_file] = memoryview(code)[offset : offset + in_file]
        self.symbols = {s.name: s for s in elf.symbols()}
        self._relocate(elf, memory)
        self.globals = {
            s.name: (self.base + s.address, s.nbytes)
            for s in self.symbols.values()
            if s.kind == _STT_OBJECT and s.defined and not s.name.endswith(".kd")
        }
        known = read_metadata(code)
        described = {k[".name"]: k for k in elf.metadata().get("amdhsa.kernels", [])}
        self.kernels = {name: self._kernel(known[name], described[name], image) for name in known}

    def _relocate(self, elf: Elf, memory: Memory) -> None:
        for n in range(elf.section_count):
            kind, offset, size, symbols = elf.section(n)
            if kind != _SHT_RELA:
                continue
            names = list(elf.symbols_of(symbols)) if symbols else []
            for at in range(offset, offset + size, 24):
                where, info, addend = struct.unpack_from("<QQq", elf.code, at)
                how = info & 0xFFFFFFFF
                if how == _RELATIVE64:
                    value, form = self.base + addend, "<Q"
                elif how in (_ABS64, _ABS32_LO, _ABS32_HI):
                    symbol = names[info >> 32]
                    if not symbol.defined:
                        raise FileFormatError(f"[sim] expected every symbol to be defined but {symbol.name} is not")
                    value, form = self.base + symbol.address + addend, "<Q" if how == _ABS64 else "<I"
                    value = value >> 32 if how == _ABS32_HI else value & 0xFFFFFFFF if how == _ABS32_LO else value
                else:
                    raise FileFormatError(f"[sim] expected relocations of types 1, 2, 3 and 13 but got type {how}")
                raw = struct.pack(form, value)
                memory.view(self.base + where, len(raw), write=True)[:] = memoryview(raw)

    def _kernel(self, metadata: KernelMetadata, described: dict[str, Any], image: Any) -> Kernel:
        at = self.symbols[described[".symbol"]].address
        raw = image[at : at + 64].tobytes()
        lds, scratch, kernarg, entry = struct.unpack_from("<III4xq", raw)
        _, resources1, resources2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
        params = [Param(a[".offset"], a[".size"], a[".value_kind"]) for a in described.get(".args", [])]
        return Kernel(
            name=metadata.name,
            metadata=metadata,
            params=tuple(p for p in params if not p.kind.startswith("hidden_")),
            hidden=tuple(p for p in params if p.kind.startswith("hidden_")),
            kernarg_bytes=kernarg,
            static_lds=lds,
            scratch_bytes=scratch,
            max_threads=metadata.max_threads,
            entry=at + entry,
            user_sgprs=resources2 >> 1 & 31,
            group_ids=(resources2 >> 7 & 7) | (resources2 & 1) << 3,
            properties=properties,
            preload=(preload >> 7, preload & 127),
            module=self,
            # Rounding and denormals as in the MODE register; then DX10 clamp and IEEE.
            mode=(resources1 >> 12 & 0xFF) | (resources1 >> 21 & 1) << 8 | (resources1 >> 23 & 1) << 9,
        )
