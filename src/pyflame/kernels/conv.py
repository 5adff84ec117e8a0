"""Host side of conv.c: which algorithm a convolution takes, in which blocks, with how much scratch.

`conv_plan` is a pure function of sizes, dtypes and the instruction set. The order in which an output is summed
depends on the shape alone, never on the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from pyflame.kernels.matmul import ITEMSIZE, Geometry, Isa, align, even_block, geometry, round_up

EPILOGUE_ARG = 46
"""PF_CONV_ARGS: the first arg that belongs to the epilogue."""

Triple = tuple[int, int, int]

_GEMM, _BATCH, _DOT, _DIRECT = 0, 1, 2, 3
_L2_BYTES = 1 << 20
_PARTS = 8  # tasks that a weight gradient is cut into: a fixed number, so that workers do not change the result
_STEPS = 256  # k that a panel of the right operand holds in L1
_BLOCK = 64, 128  # images and outputs of a task, about
_PARTIAL_LIMIT = 1 << 26


@dataclass(frozen=True)
class ConvShape:
    """x[n, groups, c, *size] * w[groups, o, c, *taps] -> out[n, groups, o, *out]; 1-d and 2-d have leading ones."""

    n: int
    groups: int
    c: int
    o: int
    size: Triple
    taps: Triple
    out: Triple
    stride: Triple = (1, 1, 1)
    pad_lo: Triple = (0, 0, 0)
    lhs_dilation: Triple = (1, 1, 1)
    rhs_dilation: Triple = (1, 1, 1)

    @property
    def args(self) -> tuple[int, ...]:
        """arg[0:25]; the six strides of x and the six of w follow."""
        axes = (self.size, self.taps, self.out, self.stride, self.pad_lo, self.lhs_dilation, self.rhs_dilation)
        return (self.n, self.groups, self.c, self.o, *(value for axis in axes for value in axis))


@dataclass(frozen=True)
class ConvPlan:
    """The phases to run in order, as (function suffix, iterations), and what they need."""

    phases: tuple[tuple[str, int], ...]
    scratch_bytes: int
    args: tuple[int, ...]
    algorithm: int
    """The value of PF_ALGORITHM in the source."""


def merge_axes(shape: ConvShape, x_strides: tuple[int, ...]) -> tuple[ConvShape, tuple[int, ...]]:
    """The same sum with the pixels of a 1x1 convolution on one axis, where x allows it: long rows are read faster.

    `x_strides` are the strides of (n, groups, c, s0, s1, s2); flat pixel numbers do not change.
    """
    ones = (1, 1, 1)
    plain = (
        shape.taps == shape.stride == shape.lhs_dilation == ones
        and shape.pad_lo == (0, 0, 0)
        and shape.out == shape.size
    )
    _, rows, cols = shape.size
    if not plain or x_strides[4] != cols * x_strides[5] or (shape.size[0] > 1 and x_strides[3] != rows * x_strides[4]):
        return shape, x_strides
    flat = (1, 1, prod(shape.size))
    return replace(shape, size=flat, out=flat), (*x_strides[:3], 0, 0, x_strides[5])


def conv_plan(
    shape: ConvShape,
    *,
    x_dtype: str = "float32",
    w_dtype: str = "float32",
    acc_bytes: int = 4,
    isa: Isa = "avx512",
    workers: int = 1,
) -> ConvPlan:
    """Plan one convolution.

    >>> conv_plan(ConvShape(64, 1, 3, 32, (1, 32, 32), (1, 3, 3), (1, 32, 32), pad_lo=(0, 1, 1))).phases[0]
    ('pack', 3)
    """
    geo = geometry(w_dtype, x_dtype, acc_bytes, isa)
    x_bytes = ITEMSIZE[x_dtype]
    if not shape.n * shape.groups * shape.o * prod(shape.out):
        return ConvPlan((), 0, (1, 1, 1, 0, 0, 1, 1, 1, 1), _GEMM)
    if shape.c == 1 and 0 < prod(shape.taps) <= 1024 and shape.o <= 8:
        return _direct_plan(shape, x_bytes, geo, workers)
    # Vectors of columns need a few output pixels side by side; backward-weight has 1 to 7, but hundreds of taps.
    if shape.c and shape.out[2] < geo.col_step and shape.taps[2] * shape.taps[1] >= 4 * geo.col_step:
        vectors = geometry("float32", "float32", acc_bytes, isa)
        # Few outputs leave most lanes of a panel empty. Where taps have gaps, vectors of taps cost eight times as much.
        gaps = 8 if shape.rhs_dilation[2] > 1 else 1
        few = shape.o == 1 or 2 * shape.o * gaps <= vectors.col_step
        plan = _dot_plan(shape, x_bytes, vectors, workers) if few else _batch_plan(shape, vectors, workers)
        if plan is not None:
            return plan
    return _gemm_plan(shape, x_bytes, geo, workers)


def _gemm_plan(shape: ConvShape, x_bytes: int, geo: Geometry, workers: int) -> ConvPlan:
    total, columns = shape.c * prod(shape.taps), shape.n * prod(shape.out)
    unit = geo.group * geo.word_step
    parts = max(1, -(-total // (384 * geo.group * 4 // geo.word_bytes)))
    depth = max(unit, round_up(-(-total // parts), unit))
    most = min(_L2_BYTES // (geo.words(depth) * geo.word_bytes), 2048 // geo.acc_bytes)
    cols = even_block(columns, max(geo.cols, most), geo.cols)
    while cols > 4 * geo.cols and shape.groups * -(-columns // cols) < 4 * workers:
        cols = even_block(columns, cols // 2, geo.cols)
    rows = even_block(shape.o, 20 * geo.rows, geo.rows)
    while rows > 4 * geo.rows and shape.groups * -(-columns // cols) * -(-shape.o // rows) < 2 * workers:
        rows = even_block(shape.o, rows // 2, geo.rows)
    worker_at = align(shape.groups * geo.height(shape.o) * geo.words(total) * geo.word_bytes)
    raw = align(geo.cols * depth * x_bytes)
    strips = -(-rows // geo.rows) if total > depth else 1
    accumulators = strips * geo.rows * (cols + 64 // geo.acc_bytes) * geo.acc_bytes
    worker_bytes = align(raw + cols * geo.words(depth) * geo.word_bytes + accumulators)
    panels = shape.groups * -(-total // depth) * -(-shape.o // geo.rows)
    phases = (("pack", panels), ("mul", shape.groups * -(-columns // cols) * -(-shape.o // rows)))
    args = (rows, cols, depth, worker_at, worker_bytes, 1, 1, 1, 1)
    return ConvPlan(tuple(phase for phase in phases if phase[1]), worker_at + workers * worker_bytes, args, _GEMM)


def _dot_plan(shape: ConvShape, x_bytes: int, geo: Geometry, workers: int) -> ConvPlan | None:
    """Vectors along the taps; None where partial sums, a vector for each output, would take too much memory."""
    out, taps, stride, rhs = shape.out, shape.taps, shape.stride, shape.rhs_dilation
    lanes = geo.col_step
    pitch = (out[2] - 1) * stride[2] // rhs[2] + taps[2]
    halo = (out[1] - 1) * stride[1] // rhs[1]

    def words(deep: int) -> int:
        plane = rhs[1] * rhs[2] * ((halo + deep) * pitch + pitch + lanes)
        return shape.n * out[0] * plane + (shape.o + 1) * round_up(deep * pitch, lanes)

    deep = taps[1]
    while deep > 4 and words(deep) * geo.acc_bytes > _L2_BYTES:
        deep = -(-deep // 2)
    parts = max(1, min(-(-_PARTS // shape.groups), shape.c * taps[0]))
    partial_bytes = shape.groups * parts * shape.o * shape.n * prod(out) * lanes * geo.acc_bytes
    if partial_bytes > _PARTIAL_LIMIT:
        return None
    units = -(-shape.c * taps[0] * -(-taps[1] // deep) // parts)
    together = max(1, min(units, _L2_BYTES // (words(deep) * geo.acc_bytes)))
    worker_bytes = align(together * words(deep) * geo.acc_bytes + pitch * x_bytes)
    worker_at = align(partial_bytes)
    phases = (("dot", shape.groups * parts), ("finish", shape.n * shape.groups * shape.o))
    args = (together, 0, 0, worker_at, worker_bytes, parts, 1, deep, 1)
    return ConvPlan(phases, worker_at + workers * worker_bytes, args, _DOT)


def _batch_plan(shape: ConvShape, geo: Geometry, workers: int) -> ConvPlan | None:
    """Packs images side by side; None where partial sums would take too much memory. `geo` is that of vectors."""
    out, taps, stride, rhs = shape.out, shape.taps, shape.stride, shape.rhs_dilation
    high = even_block(shape.n, geo.rows, 1)
    rows = min(round_up(shape.n, high), max(1, _BLOCK[0] // high) * high)
    cols = even_block(shape.o, _BLOCK[1], geo.cols)
    wide = even_block(taps[2], _STEPS, 1)
    deep = even_block(taps[1], max(1, _STEPS // wide), 1)

    def extent(deep: int) -> tuple[int, int]:
        return (out[1] - 1) * stride[1] + (deep - 1) * rhs[1] + 1, (out[2] - 1) * stride[2] + (wide - 1) * rhs[2] + 1

    while deep > 1 and out[0] * prod(extent(deep)) * rows * geo.acc_bytes > _L2_BYTES // 2:
        deep = -(-deep // 2)
    unit = out[0] * prod(extent(deep)) * rows
    chunk = shape.c * taps[0]
    together = max(1, min(chunk, _STEPS // (deep * wide), _L2_BYTES // 2 // (unit * geo.acc_bytes)))
    blocks = shape.groups * -(-shape.n // rows) * -(-shape.o // cols)
    parts = max(1, min(-(-_PARTS // blocks), chunk * -(-taps[1] // deep) * -(-taps[2] // wide)))
    partial_bytes = blocks * parts * rows * cols * prod(out) * geo.acc_bytes
    if partial_bytes > _PARTIAL_LIMIT:
        return None
    length = extent(deep)[1]
    lines = max((high + 1) * length, geo.cols * wide)
    worker_bytes = align((together * (unit + cols * deep * wide) + lines) * geo.acc_bytes)
    worker_at = align(partial_bytes)
    phases = (("batch", blocks * parts), ("finish", shape.n * shape.groups * -(-shape.o // cols)))
    args = (rows, cols, together, worker_at, worker_bytes, parts, high, deep, wide)
    return ConvPlan(phases, worker_at + workers * worker_bytes, args, _BATCH)


def _direct_plan(shape: ConvShape, x_bytes: int, geo: Geometry, workers: int) -> ConvPlan:
    out, taps, stride, rhs = shape.out, shape.taps, shape.stride, shape.rhs_dilation
    width = 4 * geo.col_step
    pitch = (taps[2] - 1) * rhs[2] // stride[2] + out[2]
    halo = (taps[1] - 1) * rhs[1] // stride[1]
    rows = even_block(out[1], max(1, 4096 // pitch), 1)
    plane = stride[1] * stride[2] * ((halo + rows) * pitch + pitch + width)
    volume = prod(taps)
    floats = taps[0] * plane + round_up(rows * pitch, width) + volume
    worker_bytes = align(floats * geo.acc_bytes + volume * 8 + pitch * x_bytes)
    phases = (("direct", shape.n * shape.groups * out[0] * -(-out[1] // rows)),)
    return ConvPlan(phases, workers * worker_bytes, (rows, 0, 0, 0, worker_bytes, 1, 1, 1, 1), _DIRECT)
