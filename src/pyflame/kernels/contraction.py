"""Launches of the CPU's matmul: arguments and source text around matmul.c."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.shape import Shape
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels.matmul import EPILOGUE_ARG, Isa, gemm_plan
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel

_ACCUMULATOR = {"float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool_": "uint8_t"}
MAX_BATCH_AXES = 6


def isa_of(target: Target) -> Isa:
    """The instruction set that pf_gemm.h compiles for, from what the CPU has."""
    if {"amx_bf16", "amx_int8", "avx512f"} <= set(target.isa):
        return "amx"
    if "avx512f" in target.isa:
        return "avx512"
    return "avx2" if {"avx2", "fma"} <= set(target.isa) else "plain"


def accumulator(dtype: DType) -> str:
    return _ACCUMULATOR.get(dtype.name, "float")


def merge_axes(shape: Shape, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Batch axes that both operands step through as one are one."""
    extents: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for size, x, y in zip(shape, a, b, strict=True):
        if extents and left[-1] == x * size and right[-1] == y * size:
            extents[-1] *= size
            left[-1], right[-1] = x, y
        else:
            extents.append(size)
            left.append(x)
            right.append(y)
    return extents, left, right


def _batch_strides(strides: tuple[int, ...], shape: Shape, rank: int) -> tuple[int, ...]:
    """Strides of an operand's batch axes, 0 where it is broadcast."""
    own = [0 if size == 1 else step for size, step in zip(shape[:-2], strides[:-2], strict=True)]
    return (*[0] * (rank - len(own)), *own)


def matmul_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one (batched) matrix product."""
    anchor = launch.kernel.anchor
    assert anchor is not None and epilogue is not None
    a, b = launch.operands
    *batch, m, n = anchor.meta.shape
    k = a.shape[-1]
    rank = len(batch)
    extents, a_steps, b_steps = merge_axes(tuple(batch), _batch_strides(a.strides, a.shape, rank), _batch_strides(b.strides, b.shape, rank))
    if len(extents) > MAX_BATCH_AXES:
        raise NotImplementedError(f"[matmul] expected at most {MAX_BATCH_AXES} batch axes that cannot be merged but got {batch}")
    acc = accumulator(a.dtype)
    acc_bytes = {"double": 8, "int64_t": 8, "float": 4, "int32_t": 4, "int16_t": 2}.get(acc, 1)
    plan = gemm_plan(
        m, n, k, prod(batch), a_dtype=a.dtype.name, b_dtype=b.dtype.name, acc_bytes=acc_bytes,
        a_shared=not any(a_steps), b_shared=not any(b_steps), a_strides=a.strides[-2:], b_strides=b.strides[-2:],
        isa=isa_of(target), workers=target.workers,
    )  # fmt: skip

    def padded(values: list[int]) -> list[int]:
        return values + [0] * (MAX_BATCH_AXES - len(values))

    args = [
        m, n, k, *a.strides[-2:], *b.strides[-2:], prod(batch), len(extents), *padded(extents), *padded(a_steps), *padded(b_steps),
        *plan.args, *epilogue.args,
    ]  # fmt: skip
    text = (
        f"#define PF_NAME PF_KEY\n#define PF_A_T {a.dtype.name}\n#define PF_B_T {b.dtype.name}\n"
        f"#define PF_ACC_T {acc}\n#define PF_THIN {plan.thin}\n{epilogue.text}#undef pf_min\n#undef pf_max\n#include \"matmul.c\"\n"
    )
    phases = tuple(Phase("_" + name, iterations, 1) for name, iterations in plan.phases)
    return Source(text, phases, tuple(args), scratch_bytes=plan.scratch_bytes, scratch_position=2)


def _layout(launch: Launch) -> tuple[int, int]:
    return len(launch.kernel.loops[0]) - 2, 1


kernel(
    KernelSpec(
        "matmul",
        "gemm",
        matmul_source,
        why="own packed micro-kernel",
        epilogue=EpilogueSlot(_layout, EPILOGUE_ARG),
        strided=True,
    )
)
