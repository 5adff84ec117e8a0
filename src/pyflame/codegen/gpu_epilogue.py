"""The elementwise ops behind a hand-written GPU kernel, as a device function that the kernel calls for each result.

    PF_FN void PF_KEY_epilogue(B0 *b0, .., const pf_word *uni, int64_t a0, .., int64_t batch, int64_t i, int64_t j,
                               V value)

b0.. are all buffers of the launch, a0.. the function's own arguments; `batch`, `i` and `j` say where the result goes.
Where results lie side by side in memory there is a second one, for `width` neighbours along i or j at a time, the first
of which is a multiple of `width`: positions are worked out once for all, and memory is read and written in vectors.

    PF_FN void PF_KEY_epilogues(.. as above .., int64_t batch, int64_t i, int64_t j, const V *value)
"""

from __future__ import annotations

from dataclasses import dataclass

from pyflame.codegen.expr import register, stored
from pyflame.codegen.gpu_text import GpuText
from pyflame.codegen.loops import join_parts
from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Instr, Kernel


@dataclass(frozen=True)
class EpilogueText:
    """The functions' text and arguments; `along` i or j are so many neighbours that the second one takes, 1: none.

    alignment: bytes that the second one asks of each buffer.
    """

    text: str
    args: tuple[int, ...]
    width: int
    along: str
    alignment: tuple[int, ...]


def epilogue(
    kernel: Kernel, target: Target, layout: tuple[int, int], value: str, buffers: int, aligned: bool
) -> EpilogueText:
    """The functions of an anchored kernel.

    layout: how many loops `batch` and `i` stand for, `j` stands for the rest; value: the C type of a result.
    """
    return _Epilogue(kernel, target, layout, aligned).write(value, buffers)


class _Epilogue(GpuText):
    """One result, or a vector of them, at a time: no rows."""

    def __init__(self, kernel: Kernel, target: Target, layout: tuple[int, int], aligned: bool) -> None:
        (extents,) = kernel.loops
        joined, parts = join_parts(kernel, (*layout, len(extents) - sum(layout)))  # each saves a division
        super().__init__(joined, target, aligned)
        self.parts = dict(zip(("batch", "i", "j"), parts, strict=True))
        self.along, self.lane = self.choose_along()
        self.width = self.choose_width()
        self.asked = self.alignment()

    def choose_along(self) -> tuple[str, int]:
        """Which of `i` and `j` runs along memory where results are stored, and its fastest loop."""
        last = [(name, self.parts[name][-1]) for name in "ij" if self.parts[name]]
        along = [(name, n) for name, n in last if all(a.strides[n] == 1 for _, a in self.kernel.stores)]
        return max(along, key=lambda found: self.extents[found[1]], default=("", -1))

    def write(self, value: str, buffers: int) -> EpilogueText:
        width = self.width
        self.width = 1
        self.begin_function()
        for v in range(len(self.instrs)):
            self.statement(v)
        for v, access in self.kernel.stores:
            self.put(f"{self.element(access, '')} = {stored(access.dtype, f'v{v}')};")
        bodies = {"epilogue": ("value", self.lines)}
        if width > 1:
            self.begin_function()
            self.width = width
            self.body([], range(len(self.kernel.stores)), "", "", set())
            bodies["epilogues"] = ("*value", self.lines)
        text = ""
        for name, (given, lines) in bodies.items():
            head = f"PF_FN void PF_KEY_{name}({', '.join(self.params(value, given, buffers))}) {{"
            text += "\n".join([head, *lines, "}"]) + "\n"
        asked = (*self.asked, *[1] * (buffers - self.count)) if width > 1 else (1,) * buffers
        return EpilogueText(text, tuple(self.args), width, self.along, asked)

    def begin_function(self) -> None:
        """Positions, one element at a time; arguments are shared between functions."""
        args, named = self.args, self.named
        self.begin()
        self.args, self.named = args, named
        for flat, part in self.parts.items():
            self.decode(f"({self.index}){flat}", part)

    def params(self, value: str, given: str, buffers: int) -> list[str]:
        written = {a.buffer for _, a in self.kernel.stores}
        kinds = {a.buffer: storage(a.dtype) for a in self.accesses}
        params = [
            f"{'' if n in written else 'const '}{kinds[n]} *b{n}" if n in kinds else f"const void *b{n}"
            for n in range(buffers)
        ]
        params += ["const pf_word *uni", *(f"int64_t a{n}" for n in range(len(self.args)))]
        return [*params, "int64_t batch", "int64_t i", "int64_t j", f"{'const ' * (given != 'value')}{value} {given}"]

    def rhs(self, v: int, instr: Instr, k: str) -> str:
        if instr.kind == "acc":
            return f"({register(instr.dtype)})value{f'[{k}]' if k else ''}"
        return super().rhs(v, instr, k)
