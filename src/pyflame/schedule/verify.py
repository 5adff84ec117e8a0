"""A kernel's accesses must lie inside of its buffers: a fault of the compiler is an error here, not a wrong number or a
crash of the interpreter later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from pyflame.core.errors import CompileError
from pyflame.ir import Node
from pyflame.ir.kernel import Kernel, OperandView
from pyflame.ir.opdef import LEAF

Steps = Iterable[tuple[int, int]]  # (extent, stride) of each loop


def verify(kernel: Kernel, operands: Sequence[OperandView], buffers: Sequence[tuple[Node, int]]) -> None:
    """`buffers`: the node whose memory each kernel buffer is, and the element at which it begins."""
    extents = [e for scope in kernel.loops for e in scope]
    if 0 in extents:
        return
    anchor = kernel.anchor
    if anchor is not None and prod(extents) != anchor.meta.size:
        raise _fault(kernel, f"loops over {anchor.meta.size} results of {anchor.op.name} but got {extents}")
    for view in operands:
        if 0 not in view.shape:
            _check(kernel, buffers[view.buffer], zip(view.shape, view.strides, strict=True))
    for instr in kernel.instrs:
        if instr.access is not None and instr.access.buffer >= 0:
            loops = zip(extents, instr.access.strides, strict=True)
            _check(kernel, buffers[instr.access.buffer], [*loops, *(instr.dynamic if instr.kind == "gather" else ())])
    line = kernel.line
    for number, (_, access) in enumerate(kernel.stores):
        steps = line.dynamic[:1] if line is not None and not number else ()
        _check(kernel, buffers[access.buffer], [*zip(extents, access.strides, strict=True), *steps])


def _check(kernel: Kernel, place: tuple[Node, int], steps: Steps) -> None:
    node, offset = place
    strides = node.data.strides if node.op.kind == LEAF else None
    low, high = (0, node.size - 1) if strides is None else _reach(0, zip(node.shape, strides, strict=True))
    first, last = _reach(offset, steps)
    if first < low or last > high:
        raise _fault(kernel, f"elements {low} to {high} of {node.meta} but got {first} to {last}")


def _reach(offset: int, steps: Steps) -> tuple[int, int]:
    """The lowest and the highest element that loops come to."""
    low = high = offset
    for extent, stride in steps:
        if stride > 0:
            high += (extent - 1) * stride
        else:
            low += (extent - 1) * stride
    return low, high


def _fault(kernel: Kernel, words: str) -> CompileError:
    return CompileError(
        f"[plan] expected {words}, in a kernel of {', '.join(dict.fromkeys(kernel.ops))}: this is a fault of PyFlame's "
        "compiler, please report it; pf.eager() computes op by op meanwhile"
    )
