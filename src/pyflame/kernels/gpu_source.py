"""What the host sides of hand-written GPU kernels share: element types in C++, and functions around template calls.

A kernel file (`pool.hip`) holds templates, so one file may include it for many kernels; the text of one kernel is the
include and a function per phase that calls a template with everything about types and structure spelled out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyflame.core.dtype import DType
from pyflame.core.errors import CompileError
from pyflame.core.shape import magic
from pyflame.ir.c_types import small_float, storage
from pyflame.ir.kernel import GpuPhase, GpuSource

MAX_THREADS = 1 << 32  # of a launch, by HIP's rules
SMALL = 1 << 31  # below it positions are ints


def element(dtype: DType) -> str:
    """The type of pf_element.h for elements of a dtype.

    >>> from pyflame.core.dtype import bfloat16
    >>> element(bfloat16)
    'pf_bf16'
    """
    small = small_float(dtype)
    return f"pf_{small}" if small else "pf_bool" if dtype.name == "bool_" else f"pf_of<{storage(dtype)}>"


def float_bits(*values: float) -> tuple[int, ...]:
    """Numbers as arguments of a kernel: the bits of float32."""
    return struct.unpack(f"={len(values)}I", struct.pack(f"={len(values)}f", *values))


def position_type(*counts: int) -> str:
    """The C type in which positions among so many elements are computed."""
    return "int" if max(counts) < SMALL else "int64_t"


def with_magic(extents: Iterable[int]) -> list[int]:
    """Each extent followed by what pf_quotient divides by it with; 0 where 64 bits are divided anyway."""
    return [n for e in extents for n in (e, magic(e) if 0 < e < SMALL else 0)]


@dataclass
class GpuFunctions:
    """The text and phases of a hand-written kernel, function by function.

    `buffers`: C types of the buffers, "const float" for one that is only read; `spaces`: namespaces of what is called.
    """

    file: str
    buffers: Sequence[str]
    alignment: Sequence[int]
    spaces: Sequence[str] = ()
    preamble: str = ""  # between what is included and the functions
    bodies: dict[str, tuple[str, str]] = field(default_factory=dict)  # by suffix: the head and the body of a function
    phases: list[GpuPhase] = field(default_factory=list)

    def add(
        self,
        suffix: str,
        grid: int,
        block: int,
        args: Sequence[int],
        body: str,
        lds_bytes: int = 0,
        dynamic_lds: int = 0,
        cluster: int = 1,
        alone: bool = False,
        awaits: bool = False,
    ) -> None:
        """A launch of a function of this body, which reads its arguments from `arg`. Nothing to do: no launch.

        `alone`: a compute unit runs one block at a time, which has all registers. `awaits`: what it calls waits for the
        launches before it, once it has asked for what none of them writes.
        """
        if grid * block >= MAX_THREADS:
            raise CompileError(
                f"[kernels] expected below {MAX_THREADS} threads but got {grid} blocks of {block}; split the tensor"
            )
        if not grid:
            return
        params = [f"{kind} *PF_RESTRICT b{n}" for n, kind in enumerate(self.buffers)]
        params += ["char *PF_RESTRICT scratch", "const pf_word *PF_RESTRICT uni", "int64_t *PF_RESTRICT err"]
        params += [f"int64_t a{n}" for n in range(len(args))]
        names = ", ".join(f"a{n}" for n in range(len(args)))
        begin = "".join(f"  using namespace {space};\n" for space in self.spaces)
        begin += "" if awaits else "  pf_await();\n"
        bounds = f"PF_GLOBAL{'_ALONE' * alone}({block})" + (f" PF_CLUSTER({cluster})" if cluster > 1 else "")
        head = f"{bounds} PF_KEY{suffix}({', '.join(params)}) {{\n{begin}  const int64_t arg[] = {{{names}}};"
        text = (head, body)
        assert self.bodies.setdefault(suffix, text) == text, "one function for each suffix"
        self.phases.append(GpuPhase(suffix, grid, block, tuple(args), lds_bytes, dynamic_lds))

    def source(self, scratch_bytes: int = 0) -> GpuSource:
        functions = [f"{head}\n  {body}\n}}" for head, body in self.bodies.values()]
        text = "\n".join([f'#include "{self.file}"', *([self.preamble] if self.preamble else []), *functions, ""])
        return GpuSource(text, tuple(self.phases), len(self.buffers), tuple(self.alignment), scratch_bytes)
