"""Host side of matmul.hip: which way a product takes on a GPU, in which tiles and parts.

A product's text depends on dtype, on which strides are 1 and allow vectors, on the number of batch axes and on the
tile; extents and strides are arguments. How k is cut depends on shape and target, and with it a result's last bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from pyflame.core.device import Target
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import power
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.contraction import matmul_layout, matmul_rows
from pyflame.kernels.matrix_async import AsyncTile, async_tiles
from pyflame.kernels.matrix_cores import MatrixKind, MatrixTile, kind_of, matrix_kind, matrix_tiles
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    MAX_PARTS,
    PARTS_WIDTH,
    TIMED,
    VARIANTS,
    Cut,
    PhaseText,
    T,
    best_cuts,
    check_extents,
    choose_cut,
    finish_phase,
    gpu_source,
    partial_out,
    round_up,
    sums_of,
    value_type,
)

FEW = 8  # rows or columns up to which the other operand is read once, in place
_THREADS = 256
_VECTOR_BYTES = 16
_MAX_TILE_WIDTH = 4


@dataclass(frozen=True)
class Matrix:
    """An operand seen as lines along k: strides of both, batch strides, and where it lies."""

    buffer: int
    lines: int
    k: int
    line_stride: int
    k_stride: int
    batch_strides: tuple[int, ...]
    itemsize: int
    offset: int  # bytes from the buffer's address
    aligned: bool  # whether that address may be relied upon

    @property
    def along_k(self) -> bool:
        """Whether memory runs along k rather than across lines."""
        if self.k_stride == 1 or self.line_stride == 1:
            return self.k_stride == 1
        return abs(self.k_stride) <= abs(self.line_stride)

    def vector(self, width: int, along_k: bool) -> bool:
        """Whether `width` neighbours along k or across lines are always one aligned vector."""
        step, other = (self.k_stride, self.line_stride) if along_k else (self.line_stride, self.k_stride)
        extent = self.k if along_k else self.lines
        whole = all(v % width == 0 for v in (extent, other, *self.batch_strides))
        return self.aligned and width > 1 and step == 1 and whole and self.offset % (width * self.itemsize) == 0

    def alignment(self, width: int, along_k: bool) -> int:
        return self.itemsize * (width if self.vector(width, along_k) else 1)


@dataclass(frozen=True)
class Product:
    """What matmul.hip is to compute, and for whom."""

    launch: Launch
    target: Target
    a: Matrix
    b: Matrix
    batch: tuple[int, ...]
    epilogue: Epilogue

    @property
    def sums_bytes(self) -> int:
        return sums_of(self.launch.operands[0].dtype).nbytes

    @property
    def few(self) -> bool:
        """Whether there are so few rows or columns that the other operand is read once, in place."""
        m, n = self.a.lines, self.b.lines
        return not self.async_tiles and min(m, n) <= FEW and max(m, n) * self.a.k >= 1024

    @property
    def matrix_kind(self) -> MatrixKind | None:
        return matrix_kind(self.target, self.launch.operands[0].dtype, tf32_allowed())

    @property
    def async_tiles(self) -> tuple[MatrixTile, ...]:
        """Blocks whose operands are copied as they lie."""
        kind, width = self.matrix_kind, _VECTOR_BYTES // self.a.itemsize
        if kind is None or not all(m.vector(width, m.along_k) for m in (self.a, self.b)):
            return ()
        return async_tiles(self.target, kind, self.sums_bytes)

    def cuts(self, kind: MatrixKind) -> tuple[Cut[MatrixTile], ...]:
        """Blocks of matrix tiles and cuts of k, the fastest first, as far as one can tell."""
        tiles = self.async_tiles or matrix_tiles(self.target, kind, self.sums_bytes)
        m, n, batch = self.a.lines, self.b.lines, prod(self.batch)
        return best_cuts(tiles, m, n, self.a.k, batch, self.sums_bytes, self.target.workers)


def _product_of(launch: Launch, target: Target, epilogue: Epilogue, aligned: bool) -> Product:
    a, b = launch.operands
    rows = matmul_rows(launch)
    n, k, size = b.shape[-1], a.shape[-1], a.dtype.itemsize
    at = [offset for _, offset in launch.buffers]
    left = Matrix(0, rows.m, k, rows.stride, a.strides[-1], rows.a_steps, size, at[0], aligned)
    right = Matrix(1, n, k, b.strides[-1], b.strides[-2], rows.b_steps, size, at[1], aligned)
    return Product(launch, target, left, right, rows.batch, epilogue)


def matmul_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one (batched) matrix product. `aligned` False: for buffers that lie misaligned."""
    assert epilogue is not None
    product = _product_of(launch, target, epilogue, aligned)
    left, right = product.a, product.b
    check_extents("matmul", (left.lines, right.lines, left.k, prod(product.batch)))
    if product.few:
        few_rows = left.lines <= right.lines
        few, matrix = (left, right) if few_rows else (right, left)
        return _dots(product, few, matrix, few_rows) if matrix.along_k else _columns(product, few, matrix, few_rows)
    kind = product.matrix_kind
    return _tiles(product) if kind is None else _matrix_tiles(product, kind)


def matmul_variants(launch: Launch, target: Target) -> tuple[str, ...]:
    """The blocks of matrix tiles to try out."""
    product = _product_of(launch, target, Epilogue("", ()), aligned=True)
    kind = None if product.few or launch.flops < TIMED else product.matrix_kind
    return () if kind is None else tuple(map(str, product.cuts(kind)[:VARIANTS]))


def _axes(batch: tuple[int, ...], one: Matrix, other: Matrix) -> tuple[int, ...]:
    return tuple(v for axis in zip(batch, one.batch_strides, other.batch_strides, strict=True) for v in axis)


def _source(
    product: Product,
    kind: dict[str, int],
    first: PhaseText,
    alignment: dict[int, int],
    parts: int,
    types: dict[str, str] | None = None,
    functions: tuple[str, ...] = (),
    file: str = "matmul.hip",
) -> GpuSource:
    """One launch, or with partial sums two."""
    m, n, batch = product.a.lines, product.b.lines, prod(product.batch)
    phases, scratch = [first], 0
    if parts > 1:
        phases.append(finish_phase(m, n, batch, parts, sums_of(product.launch.operands[0].dtype)))
        scratch = parts * batch * m * n * product.sums_bytes
    kind = {**kind, "AXES": len(product.batch)}
    places = [alignment[0], alignment[1]]
    return gpu_source(file, product.launch, kind, types or {}, phases, product.epilogue, places, scratch, functions)


def _tiles(product: Product) -> GpuSource:
    """By pf_tile.h, without matrix cores."""
    a, b = product.a, product.b
    cut = choose_cut(a.lines, b.lines, a.k, prod(product.batch), product.sums_bytes, product.target.workers)
    width = min(_VECTOR_BYTES // a.itemsize, _MAX_TILE_WIDTH)
    kind = {**cut.tile.defines(), "WIDTH": width}
    return _blocks(product, cut, "tile", kind, {True: width, False: width}, cut.tile.lds_bytes(product.sums_bytes))


def _matrix_tiles(product: Product, matrix: MatrixKind) -> GpuSource:
    """By pf_mma_loop.h."""
    cut = product.cuts(matrix)[product.launch.variant if product.a.aligned else 0]
    types, function = kind_of(product.launch.operands[0].dtype, matrix)
    lds, widths, after = cut.tile.lds_bytes(product.sums_bytes), cut.tile.widths, product.epilogue
    if cut.parts > 1:
        width = PARTS_WIDTH if product.sums_bytes == 4 and product.b.lines % PARTS_WIDTH == 0 else 1
    else:
        width = after.width if after.along == "j" else 1
    kind = {**cut.tile.defines(), "OUT_WIDTH": width}
    if isinstance(cut.tile, AsyncTile):
        return _blocks(product, cut, "async", kind, widths, lds, types)
    return _blocks(product, cut, "mma", {**kind, "AS_IS": int(matrix.as_is)}, widths, lds, types, (function,))


def _blocks(
    product: Product,
    cut: Cut[T],
    way: str,
    kind: dict[str, int],
    widths: dict[bool, int],
    lds: int,
    types: dict[str, str] | None = None,
    functions: tuple[str, ...] = (),
) -> GpuSource:
    """A block for each tile of outputs. widths: of vectors along k, and across lines."""
    a, b, batch, tile = product.a, product.b, prod(product.batch), cut.tile
    along_a, along_b = a.along_k, b.along_k
    kind = {
        **kind, "A_ALONG_K": int(along_a), "A_VECTOR": int(a.vector(widths[along_a], along_a)),
        "B_ALONG_K": int(along_b), "B_VECTOR": int(b.vector(widths[along_b], along_b)),
    }  # fmt: skip
    args = (
        a.lines, b.lines, a.k, a.line_stride, a.k_stride, b.k_stride, b.line_stride, cut.split, batch,
        *_axes(product.batch, a, b),
    )  # fmt: skip
    grid = -(-a.lines // tile.rows) * -(-b.lines // tile.cols) * batch * cut.parts * tile.cluster
    out = "out" if cut.parts == 1 else partial_out("a0", "a1", sums_of(product.launch.operands[0].dtype))
    body = f"pf_gemm_{way}<PF_KEY_kind>(b0, b1, arg, {out});"
    file, room = ("matmul_async.hip", (0, lds)) if isinstance(tile, AsyncTile) else ("matmul.hip", (lds, 0))
    phase = PhaseText(grid, tile.threads, args, body, cut.parts == 1, *room, tile.cluster)
    alignment = {m.buffer: m.alignment(widths[m.along_k], m.along_k) for m in (a, b)}
    return _source(product, kind, phase, alignment, cut.parts, types, functions, file)


def _dots(product: Product, few: Matrix, matrix: Matrix, few_rows: bool) -> GpuSource:
    """Lanes along the lines of the large matrix."""
    width = _VECTOR_BYTES // matrix.itemsize
    width = width if matrix.vector(width, along_k=True) else 1
    lanes = min(power(-(-matrix.k // (width * 2))), product.target.wave_size)
    each = {1: 4, 2: 2, 3: 2, 4: 2}.get(few.lines, 1)
    step = lanes * width
    while each > 1 and matrix.lines * prod(product.batch) < each * (_THREADS // lanes) * product.target.workers:
        each //= 2
    kind = {
        "FEW": few.lines, "FEW_ROWS": int(few_rows), "FEW_VECTOR": int(few.vector(width, along_k=True)),
        "LANES": lanes, "EACH": each, "WIDTH": width, "THREADS": _THREADS,
    }  # fmt: skip
    alignment = {m.buffer: m.alignment(width, along_k=True) for m in (few, matrix)}
    return _thin(product, few, matrix, kind, "dots", _THREADS // lanes * each, 8 * step, step, alignment, 0)


def _columns(product: Product, few: Matrix, matrix: Matrix, few_rows: bool) -> GpuSource:
    """Threads across the lines of the large matrix."""
    width = _VECTOR_BYTES // matrix.itemsize
    width = width if matrix.vector(width, along_k=False) else 1
    across = min(power(-(-matrix.lines // width)), 32)
    kind = {"FEW": few.lines, "FEW_ROWS": int(few_rows), "ACROSS": across, "WIDTH": width, "THREADS": _THREADS}
    alignment = {matrix.buffer: matrix.alignment(width, along_k=False), few.buffer: few.itemsize}
    step, lds = _THREADS // across, _THREADS * width * product.sums_bytes
    return _thin(product, few, matrix, kind, "columns", across * width, 16 * step, step, alignment, lds)


def _thin(
    product: Product,
    few: Matrix,
    matrix: Matrix,
    kind: dict[str, int],
    way: str,
    per: int,
    least: int,
    step: int,
    alignment: dict[int, int],
    lds: int,
) -> GpuSource:
    """A strip of `per` lines for each block; k is cut into parts of at least `least`, whole steps."""
    batch = prod(product.batch)
    strips = -(-matrix.lines // per) * batch
    parts = max(1, min(-(-4 * product.target.workers // strips), matrix.k // least, MAX_PARTS))
    split = round_up(-(-matrix.k // parts), step)
    parts = -(-matrix.k // split)
    args = (
        matrix.lines, matrix.k, matrix.line_stride, matrix.k_stride, few.line_stride, few.k_stride, split, batch,
        *_axes(product.batch, few, matrix),
    )  # fmt: skip
    m, n = (str(v.lines) if v is few else "a0" for v in (product.a, product.b))
    out = "out" if parts == 1 else partial_out(m, n, sums_of(product.launch.operands[0].dtype))
    body = f"pf_gemm_{way}<PF_KEY_kind>(b{few.buffer}, b{matrix.buffer}, arg, {out});"
    phase = PhaseText(strips * parts, _THREADS, args, body, parts == 1, lds)
    return _source(product, kind, phase, alignment, parts)


kernel(
    KernelSpec(
        "matmul",
        "gemm_gpu",
        matmul_source,
        languages=("hip", "cuda"),
        why="own tiled GEMM",
        epilogue=EpilogueSlot(matmul_layout, value_type, 0),
        strided=True,
        unaligned=partial(matmul_source, aligned=False),
        variants=matmul_variants,
    )
)
