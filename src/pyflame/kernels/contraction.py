"""Launches of the CPU's matmul and convolution: arguments and source text around matmul.c and conv.c."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.shape import Shape, contiguous_strides
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels import conv
from pyflame.kernels.ctype import macros_with_epilogue
from pyflame.kernels.matmul import EPILOGUE_ARG, gemm_plan, isa_of
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel, loops_of

# Everything else is summed as float. Bytes are summed in int32 and wrap when they are stored.
_ACCUMULATOR = {"float64": ("double", 8), "int64": ("int64_t", 8), "int16": ("int16_t", 2)}
_ACCUMULATOR |= dict.fromkeys(("int32", "int8", "uint8"), ("int32_t", 4))
MAX_BATCH_AXES = 6


def accumulator(dtype: DType) -> tuple[str, int]:
    """The C type in which products of this dtype are added, and its size."""
    return _ACCUMULATOR.get(dtype.name, ("float", 4))


def merge_axes(shape: Shape, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Axes that both operands step through as one are one; axes of size 1 are none."""
    extents: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for size, x, y in zip(shape, a, b, strict=True):
        if size == 1:
            continue
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


@dataclass(frozen=True)
class _Rows:
    """The rows of a product and the batch around them."""

    m: int
    stride: int
    batch: tuple[int, ...]
    a_steps: tuple[int, ...]
    b_steps: tuple[int, ...]
    joined: bool  # the batch axes are rows: one B serves them all and A steps through them as one


def matmul_rows(launch: Launch) -> _Rows:
    """How a product's rows and batch are walked."""
    a, b = launch.operands
    assert launch.kernel.anchor is not None
    *batch, m, _ = launch.kernel.anchor.meta.shape
    a_steps, b_steps = (_batch_strides(v.strides, v.shape, len(batch)) for v in (a, b))
    if not any(b_steps):
        extents, steps, _ = merge_axes((*batch, m), (*a_steps, a.strides[-2]), (*b_steps, 0))
        if len(extents) <= 1:
            return _Rows(prod(extents), steps[0] if steps else 0, (), (), (), True)
    extents, left, right = merge_axes(tuple(batch), a_steps, b_steps)
    return _Rows(m, a.strides[-2], tuple(extents), tuple(left), tuple(right), False)


def _written(launch: Launch) -> tuple[int, int]:
    """The buffer, behind the scratch, that an epilogue fills row by row, and the bytes of its elements; zeros: none."""
    kernel = launch.kernel
    for _, access in kernel.stores:
        if access.buffer >= 2 and not access.offset and access.strides == contiguous_strides(kernel.loops[0]):
            return access.buffer + 1, access.dtype.itemsize
    return 0, 0


def _only_stored(launch: Launch, acc: str) -> bool:
    """Whether an epilogue does no more than to store sums, row by row, in the type in which they are added."""
    kernel = launch.kernel
    if [instr.kind for instr in kernel.instrs] != ["acc"] or len(kernel.stores) > 1 or not all(_written(launch)):
        return False
    stored = kernel.stores[0][1].dtype
    return stored == kernel.instrs[0].dtype and storage(stored) == acc


def matmul_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one (batched) matrix product."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    assert epilogue is not None
    a, b = launch.operands
    rows = matmul_rows(launch)
    m, n, k = rows.m, b.shape[-1], a.shape[-1]
    assert len(rows.batch) <= MAX_BATCH_AXES, "ops/matrix.py joins more axes than that"
    a_strides, b_strides = (rows.stride, a.strides[-1]), (b.strides[-2], b.strides[-1])
    acc, acc_bytes = accumulator(a.dtype)
    plan = gemm_plan(
        m, n, k, prod(rows.batch), a_dtype=a.dtype.name, b_dtype=b.dtype.name, acc_bytes=acc_bytes,
        a_shared=not any(rows.a_steps), b_shared=not any(rows.b_steps), a_strides=a_strides, b_strides=b_strides,
        stored=_only_stored(launch, acc), isa=isa_of(set(target.isa)), workers=target.workers,
    )  # fmt: skip

    def padded(values: tuple[int, ...]) -> list[int]:
        return [*values, *[0] * (MAX_BATCH_AXES - len(values))]

    args = [
        m, n, k, *a_strides, *b_strides, prod(rows.batch), len(rows.batch),
        *padded(rows.batch), *padded(rows.a_steps), *padded(rows.b_steps), *plan.args,
        *_written(launch),
    ]  # fmt: skip
    types = {"A": a.dtype, "B": b.dtype}
    phases = tuple(Phase("_" + name, iterations, 1) for name, iterations in plan.phases)
    text = _text("matmul", types, acc, {"PF_THIN": plan.thin}, EPILOGUE_ARG)
    return _source(text, phases, args, plan.scratch_bytes, epilogue, EPILOGUE_ARG)


def conv_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one convolution."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    assert epilogue is not None
    x, w = launch.operands
    n, groups, c, *size = x.shape
    stride, pad_lo, out, lhs_dilation, rhs_dilation = anchor.attrs
    shape = conv.ConvShape(
        n, groups, c, w.shape[1], (size[0], size[1], size[2]), (w.shape[3], w.shape[4], w.shape[5]), out,
        stride, pad_lo, lhs_dilation, rhs_dilation,
    )  # fmt: skip
    shape, x_strides = conv.merge_axes(shape, x.strides)
    acc, acc_bytes = accumulator(x.dtype)
    plan = conv.conv_plan(
        shape,
        x_dtype=x.dtype.name,
        w_dtype=w.dtype.name,
        acc_bytes=acc_bytes,
        isa=isa_of(set(target.isa)),
        workers=target.workers,
    )
    args = [*shape.args, *x_strides, *w.strides, *plan.args]
    types = {"X": x.dtype, "W": w.dtype}
    text = _text("conv", types, acc, {"PF_ALGORITHM": plan.algorithm}, conv.EPILOGUE_ARG)
    phases = tuple(Phase("_" + name, iterations, 1) for name, iterations in plan.phases)
    return _source(text, phases, args, plan.scratch_bytes, epilogue, conv.EPILOGUE_ARG)


def _text(file: str, types: dict[str, DType], acc: str, choices: dict[str, int], address_arg: int) -> str:
    """A kernel for these dtypes. It reaches its epilogue by address, so it is compiled once for all of them."""
    stored = {f"PF_{side}_T": dtype.name for side, dtype in types.items()}
    defines = {"PF_NAME": "PF_KEY", "PF_ACC_T": acc, **stored, **choices}
    return f'{macros_with_epilogue(defines, address_arg, "PF_ACC_T")}#include "{file}.c"\n'


def _source(
    text: str, phases: tuple[Phase, ...], args: list[int], scratch: int, epilogue: Epilogue, address_arg: int
) -> Source:
    assert len(args) == address_arg
    return Source(
        text,
        phases,
        (*args, 0, *epilogue.args),
        scratch_bytes=scratch,
        scratch_position=2,
        epilogue=epilogue.text,
        epilogue_arg=address_arg,
    )


def _accumulator(launch: Launch) -> str:
    return accumulator(launch.operands[0].dtype)[0]


def matmul_layout(launch: Launch) -> tuple[int, int]:
    """How many loops of a product's result are `batch` and `i` of its epilogue."""
    assert launch.kernel.anchor is not None
    axes = len(launch.kernel.anchor.meta.shape)
    batch = 0 if matmul_rows(launch).joined else loops_of(launch, axes - 2)
    return batch, loops_of(launch, axes - 1) - batch


def _conv_layout(launch: Launch) -> tuple[int, int]:
    """(N, G, O, P0, P1, P2): images and groups are the batch, output channels the rows, pixels the columns."""
    batch = loops_of(launch, 2)
    return batch, loops_of(launch, 3) - batch


kernel(
    KernelSpec(
        "matmul",
        "gemm",
        matmul_source,
        why="own packed micro-kernel",
        epilogue=EpilogueSlot(matmul_layout, _accumulator, EPILOGUE_ARG),
        strided=True,
    )
)
kernel(
    KernelSpec(
        "conv_general",
        "conv",
        conv_source,
        why="own implicit GEMM",
        epilogue=EpilogueSlot(_conv_layout, _accumulator, conv.EPILOGUE_ARG),
        strided=True,
    )
)
