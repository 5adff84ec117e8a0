"""What the kernels of a plan take of a GPU: registers, spills, LDS, occupancy, matrix instructions, widths of loads.

Read from the built code, never guessed: without llvm-objdump what only the instructions tell is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyflame.core.device import Target
from pyflame.runtime.rocm.disassembly import find_objdump, read_instructions
from pyflame.runtime.rocm.metadata import read_metadata
from pyflame.runtime.rocm.occupancy import limits, occupancy


@dataclass(frozen=True)
class KernelResources:
    """One kernel: registers per lane (VGPR, AGPR) or wave (SGPR), sizes in bytes, waves per SIMD."""

    name: str
    vgprs: int  # where VGPRs and AGPRs are one file (gfx90a and later CDNA), those of both
    sgprs: int
    agprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int  # per lane
    lds_bytes: int  # per block
    threads: int  # per block
    occupancy: int  # waves that a SIMD holds, by registers, LDS and block size
    max_occupancy: int  # waves that a SIMD holds at most
    matrix_instructions: int | None  # in the code; None: there was no llvm-objdump
    global_loads: dict[int, int] | None  # bytes per lane -> loads in the code; None: there was no llvm-objdump
    inner_loop: dict[str, int] | None = None  # kind -> instructions of a round; None: there was no llvm-objdump

    @property
    def spills(self) -> int:
        return self.vgpr_spills + self.sgpr_spills

    @property
    def clean(self) -> bool:
        """Whether it keeps everything in registers: no spill, no scratch memory."""
        return self.spills == 0 and self.scratch_bytes == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(known: Mapping[str, Any]) -> KernelResources:
        loads = known["global_loads"]
        whole = None if loads is None else {int(width): count for width, count in loads.items()}
        return KernelResources(**{**known, "global_loads": whole})


@dataclass(frozen=True)
class Report:
    """The resources of all kernels of a plan. Prints as a table."""

    target: str
    kernels: tuple[KernelResources, ...]

    @property
    def clean(self) -> bool:
        """Whether no kernel spills or has scratch memory."""
        return all(k.clean for k in self.kernels)

    def __getitem__(self, name: str) -> KernelResources:
        return {k.name: k for k in self.kernels}[name]

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells, one tuple per kernel, in the order of HEAD."""
        return [row(k) for k in self.kernels]

    def __str__(self) -> str:
        rows = [HEAD, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return f"{self.target}\n" + "\n".join(lines)

    __repr__ = __str__


HEAD = ("kernel", "VGPR", "SGPR", "AGPR", "spills", "scratch", "LDS", "waves/SIMD", "matrix", "loads")


def row(k: KernelResources) -> tuple[str, ...]:
    """One kernel in the columns of HEAD. Loads: how many of how many bytes per lane."""
    matrix = "unknown" if k.matrix_instructions is None else str(k.matrix_instructions)
    loads = "unknown" if k.global_loads is None else " ".join(f"{n}x{w}B" for w, n in sorted(k.global_loads.items()))
    numbers = (k.vgprs, k.sgprs, k.agprs, k.spills, k.scratch_bytes, k.lds_bytes)
    return (k.name, *map(str, numbers), f"{k.occupancy}/{k.max_occupancy}", matrix, loads or "-")


def read_resources(code: bytes, threads: Mapping[str, int], target: Target) -> dict[str, KernelResources]:
    """What the kernels named in `threads` take, launched with that many threads per block."""
    metadata = read_metadata(code)
    objdump = find_objdump()
    instructions = None if objdump is None else read_instructions(code, objdump)
    found = {}
    for name, block in threads.items():
        known = metadata[name]
        seen = None if instructions is None else instructions[name]
        limit = limits(target.name, known.wave_size, known.wgp_mode)
        found[name] = KernelResources(
            name,
            known.vgprs,
            known.sgprs,
            known.agprs,
            known.vgpr_spills,
            known.sgpr_spills,
            known.scratch_bytes,
            known.lds_bytes,
            block,
            occupancy(limit, known.vgprs, known.sgprs, known.lds_bytes, block, known.wave_size),
            limit.waves,
            None if seen is None else seen.matrix,
            None if seen is None else dict(sorted(seen.loads.items())),
            None if seen is None else seen.loop,
        )
    return found


__all__ = ["HEAD", "KernelResources", "Report", "read_resources", "row"]
