"""The elementwise ops behind a hand-written GPU kernel, as a device function that the kernel calls for each result.

    PF_FN void PF_KEY_epilogue(B0 *b0, .., const pf_word *uni, int64_t a0, .., int64_t batch, int64_t i, int64_t j,
                               V value)

b0.. are all buffers of the launch, a0.. the function's own arguments; `batch`, `i` and `j` say where the result goes.

Where the one result lies along j, NVIDIA's text has besides

    PF_FN T *PF_KEY_place(.., V value, T &result)

which stores nothing: neighbours are put together to vectors by the kernel, if they lie aligned.
"""

from __future__ import annotations

from pyflame.codegen.expr import register, stored
from pyflame.codegen.gpu_text import VECTOR_BYTES, GpuText
from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Instr, Kernel


def epilogue(
    kernel: Kernel, target: Target, layout: tuple[int, int], value: str, buffers: int
) -> tuple[str, tuple[int, ...], tuple[str, int]]:
    """The function of an anchored kernel, its arguments, and the C type and number of neighbours that are a vector.

    layout: how many loops `batch` and `i` stand for, `j` stands for the rest; value: the C type of a result.
    """
    return _Epilogue(kernel, target).write(layout, value, buffers)


class _Epilogue(GpuText):
    """One result at a time: no vectors, no rows."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        super().__init__(kernel, target, aligned=False)
        self.width, self.lane = 1, -1

    def write(self, layout: tuple[int, int], value: str, buffers: int) -> tuple[str, tuple[int, ...], tuple[str, int]]:
        loops = list(range(len(self.extents)))
        ends = layout[0], sum(layout)
        for flat, part in (("batch", loops[: ends[0]]), ("i", loops[ends[0] : ends[1]]), ("j", loops[ends[1] :])):
            self.decode(f"({self.index}){flat}", part)
        for v in range(len(self.instrs)):
            self.statement(v)
        results = [(self.element(a, ""), stored(a.dtype, f"v{v}")) for v, a in self.kernel.stores]
        written = {a.buffer for _, a in self.kernel.stores}
        kinds = {a.buffer: storage(a.dtype) for a in self.accesses}
        params = [
            f"{'' if n in written else 'const '}{kinds[n]} *b{n}" if n in kinds else f"const void *b{n}"
            for n in range(buffers)
        ]
        params += ["const pf_word *uni", *(f"int64_t a{n}" for n in range(len(self.args)))]
        params += ["int64_t batch", "int64_t i", "int64_t j", f"{value} value"]
        puts = [f"  {place} = {result};" for place, result in results]
        text = [f"PF_FN void PF_KEY_epilogue({', '.join(params)}) {{", *self.lines, *puts, "}"]
        row = self.row(loops[ends[1] :])
        if row[1] > 1:
            ((place, result),) = results
            head = f"PF_FN {row[0]} *PF_KEY_place({', '.join([*params, f'{row[0]} &result'])}) {{"
            text += [head, *self.lines, f"  result = {result};", f"  return &{place};", "}"]
        return "\n".join(text) + "\n", tuple(self.args), row

    def row(self, along: list[int]) -> tuple[str, int]:
        """The C type of the one result if it lies along the loops that j stands for, and how many are a vector."""
        (_, access), *others = self.kernel.stores
        width = VECTOR_BYTES // access.dtype.itemsize
        if self.target.language != "cuda" or others or not along or access.strides[along[-1]] != 1:
            return "", 1
        whole = len(along) == 1 or self.extents[along[-1]] % width == 0
        return (storage(access.dtype), width) if whole else ("", 1)

    def rhs(self, v: int, instr: Instr, k: str) -> str:
        return f"({register(instr.dtype)})value" if instr.kind == "acc" else super().rhs(v, instr, k)
