"""What a code object says of its kernels: the metadata note of the ELF, and the kernel descriptors.

Both are described in LLVM's "User Guide for AMDGPU Backend" (AMDGPUUsage: "Code Object Metadata", "Kernel Descriptor").
The note holds MessagePack. Of that format an AMD compiler writes a few types, which take forty lines to read: too
little for a dependency of every installation.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import FileFormatError

CODE_OBJECT_VERSION = 5  # of what we build: HIP loads it from 6.0 on
NT_AMDGPU_METADATA = 32
_PT_LOAD, _PT_NOTE, _SHT_SYMTAB, _SHT_DYNSYM = 1, 4, 2, 11
_EM_AMDGPU = 224
_WGP_MODE = 1 << 29  # of COMPUTE_PGM_RSRC1, on gfx10 and later


@dataclass(frozen=True)
class KernelParameter:
    """One of the parameters that the source declares; the compiler's own, which come behind, are none."""

    offset: int  # bytes, among the kernel's arguments
    nbytes: int
    pointer: bool


@dataclass(frozen=True)
class KernelMetadata:
    """One kernel. Registers are per lane (VGPR, AGPR) or per wave (SGPR), sizes in bytes."""

    name: str
    vgprs: int  # where VGPRs and AGPRs are one file (gfx90a and later CDNA), those of both
    sgprs: int
    agprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int  # per lane
    lds_bytes: int
    kernarg_bytes: int
    wave_size: int
    max_threads: int
    dynamic_stack: bool
    wgp_mode: bool  # a block runs on a work-group processor, two compute units, rather than on one
    parameters: tuple[KernelParameter, ...] = ()


@dataclass(frozen=True)
class Symbol:
    """A name in a code object. `kind`: 1 data, 2 code."""

    name: str
    address: int
    nbytes: int
    kind: int
    defined: bool


def is_code_object(code: bytes) -> bool:
    """Whether these are the bytes of an ELF for AMD GPUs."""
    return code[:4] == b"\x7fELF" and len(code) >= 64 and struct.unpack_from("<H", code, 18)[0] == _EM_AMDGPU


def code_object_version(code: bytes) -> int:
    """Which version of AMD's format an ELF for its GPUs is in: 5 is told as 3 in its header.

    >>> code_object_version(plan.launches[0].code_object)
    5
    """
    return code[8] + 2


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Around what reads a code object: whatever wrong numbers in it lead to is a FileFormatError."""
    try:
        yield
    except FileFormatError:
        raise
    except (struct.error, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"[metadata] expected a whole code object but it is damaged: {type(error).__name__} {error}"
        ) from None


@reading()
def read_metadata(code: bytes) -> dict[str, KernelMetadata]:
    """name -> what the note and the descriptor say, for every kernel of a code object.

    >>> read_metadata(plan.launches[0].code_object)[plan.launches[0].name].lds_bytes
    0
    """
    elf = Elf(code)
    found: dict[str, KernelMetadata] = {}
    for kernel in elf.metadata().get("amdhsa.kernels", []):
        name = kernel[".name"]
        found[name] = KernelMetadata(
            name,
            kernel[".vgpr_count"],
            kernel[".sgpr_count"],
            kernel.get(".agpr_count", 0),
            kernel.get(".vgpr_spill_count", 0),
            kernel.get(".sgpr_spill_count", 0),
            kernel[".private_segment_fixed_size"],
            kernel[".group_segment_fixed_size"],
            kernel[".kernarg_segment_size"],
            kernel[".wavefront_size"],
            kernel[".max_flat_workgroup_size"],
            bool(kernel.get(".uses_dynamic_stack", False)),
            elf.wgp_mode(kernel[".symbol"]),
            tuple(
                KernelParameter(arg[".offset"], arg[".size"], arg[".value_kind"] != "by_value")
                for arg in kernel.get(".args", [])
                if not arg[".value_kind"].startswith("hidden_")
            ),
        )
    return found


class Elf:
    """A 64-bit little-endian ELF for AMD GPUs."""

    def __init__(self, code: bytes) -> None:
        if not is_code_object(code):
            raise FileFormatError(
                f"[metadata] expected an ELF for AMD GPUs but got {len(code)} bytes that begin with {code[:4]!r}; "
                "a bundle of several code objects must be unpacked first"
            )
        self.code = code
        (self.segments_at, self.sections_at) = struct.unpack_from("<QQ", code, 32)
        _, self.segment_count, _, self.section_count = struct.unpack_from("<HHHH", code, 54)

    def loads(self) -> Iterator[tuple[int, int, int, int]]:
        """(file offset, address, bytes in the file, bytes in memory) of what is loaded."""
        for n in range(self.segment_count):
            kind, _, *rest = struct.unpack_from("<IIQQQQQ", self.code, self.segments_at + 56 * n)
            if kind == _PT_LOAD:
                offset, address, _, in_file, in_memory = rest
                yield offset, address, in_file, in_memory

    def segments(self, kind: int) -> Iterator[tuple[int, int, int]]:
        """(file offset, address, bytes) of segments of one type."""
        for n in range(self.segment_count):
            found, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.code, self.segments_at + 56 * n)
            if found == kind:
                yield offset, address, size

    def metadata(self) -> dict[str, Any]:
        """The content of the AMD metadata note."""
        for offset, _, size in self.segments(_PT_NOTE):
            at = offset
            while at + 12 <= offset + size:
                owner_bytes, content_bytes, kind = struct.unpack_from("<III", self.code, at)
                content = at + 12 + (owner_bytes + 3 & ~3)
                if kind == NT_AMDGPU_METADATA and self.code[at + 12 : at + 12 + owner_bytes] == b"AMDGPU\0":
                    found, _ = unpack(self.code, content)
                    if isinstance(found, dict):
                        return found
                at = content + (content_bytes + 3 & ~3)
        raise FileFormatError("[metadata] expected a code object with AMD's metadata note but found none")

    def wgp_mode(self, symbol: str) -> bool:
        """Whether the kernel whose descriptor has this name runs on a work-group processor: never before gfx10."""
        (resources,) = struct.unpack_from("<I", self.code, self.position(symbol) + 48)
        return bool(resources & _WGP_MODE)

    def position(self, symbol: str) -> int:
        """Where a symbol lies in the file."""
        for found in self.symbols():
            if found.name == symbol:
                for start, base, length in self.segments(_PT_LOAD):
                    if base <= found.address < base + length:
                        return int(start + found.address - base)
        raise FileFormatError(f"[metadata] expected a code object with the symbol {symbol} but it has none")

    def symbols(self) -> Iterator[Symbol]:
        """Those of all symbol tables."""
        for n in range(self.section_count):
            if self.section(n)[0] in (_SHT_SYMTAB, _SHT_DYNSYM):
                yield from self.symbols_of(n)

    def symbols_of(self, section: int) -> Iterator[Symbol]:
        """Those of one symbol table, in its order."""
        _, offset, size, strings = self.section(section)
        _, names, _, _ = self.section(strings)
        for at in range(offset, offset + size, 24):
            name, info, _, where, address, nbytes = struct.unpack_from("<IBBHQQ", self.code, at)
            end = self.code.index(b"\0", names + name)
            yield Symbol(self.code[names + name : end].decode(), address, nbytes, info & 15, where != 0)

    def section(self, n: int) -> tuple[int, int, int, int]:
        """Type, file offset, bytes and linked section of a section."""
        at = self.sections_at + 64 * n
        _, kind, _, _, offset, size, link = struct.unpack_from("<IIQQQQI", self.code, at)
        return kind, offset, size, link


# First byte -> (struct format of the number or length that follows)
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
            0xD3: ">q"}  # fmt: skip
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(raw: bytes, at: int = 0) -> tuple[Any, int]:
    """One MessagePack value and where the next one begins.

    >>> unpack(b"\\x82\\xa1a\\x01\\xa1b\\x92\\xc3\\xcd\\x01\\x00")
    ({'a': 1, 'b': [True, 256]}, 10)
    """
    first, at = raw[at], at + 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first in _FIXED:
        return _FIXED[first], at
    if first in _NUMBERS:
        return _sized(raw, at, _NUMBERS[first])
    if first in _STRINGS or first & 0xE0 == 0xA0:
        length, at = _sized(raw, at, _STRINGS[first]) if first in _STRINGS else (first & 0x1F, at)
        return raw[at : at + length].decode(), at + length
    if first in _ARRAYS or first & 0xF0 == 0x90:
        count, at = _sized(raw, at, _ARRAYS[first]) if first in _ARRAYS else (first & 0x0F, at)
        items = []
        for _ in range(count):
            item, at = unpack(raw, at)
            items.append(item)
        return items, at
    if first in _MAPS or first & 0xF0 == 0x80:
        count, at = _sized(raw, at, _MAPS[first]) if first in _MAPS else (first & 0x0F, at)
        pairs = {}
        for _ in range(count):
            key, at = unpack(raw, at)
            pairs[key], at = unpack(raw, at)
        return pairs, at
    raise FileFormatError(f"[metadata] expected MessagePack of numbers, text, lists and maps but got type {first:#x}")


def _sized(raw: bytes, at: int, form: str) -> tuple[Any, int]:
    return struct.unpack_from(form, raw, at)[0], at + struct.calcsize(form)
