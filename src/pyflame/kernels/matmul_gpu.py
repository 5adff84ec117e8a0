"""Host side of matmul.hip: which way a product takes on a GPU, in which tiles and parts.

A product's text depends on dtype, on which strides are 1 and allow vectors, on the number of batch axes and on the
tile; extents and strides are arguments. How k is cut depends on shape and target, and with it a result's last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any

from pyflame.core.device import Target
from pyflame.core.dtype import bfloat16, float16, float32
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import power
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.contraction import matmul_layout, matmul_rows
from pyflame.kernels.gpu_source import SMALL, float_bits
from pyflame.kernels.matrix_async import AsyncTile, async_tiles, one_after_another
from pyflame.kernels.matrix_cores import MatrixKind, MatrixTile, kind_of, matrix_kind, matrix_tiles
from pyflame.kernels.spec import Epilogue, EpilogueSlot, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    LAYER_EPILOGUE,
    MAX_PARTS,
    PARTS_WIDTH,
    TIMED,
    VARIANTS,
    Cut,
    PhaseText,
    T,
    best_cut,
    best_cuts,
    check_extents,
    choose_cut,
    finish_phase,
    gpu_source,
    may_read_early,
    partial_out,
    round_up,
    sums_of,
    value_type,
)

FEW = 8  # rows or columns up to which the other operand is read once, in place
_DOTTED = 2  # the same where matrix tiles copy asynchronously: with more, products of single numbers take longer
_WAITING = 64  # rows up to which a product waits for its weight, rather than for multiplications
_TIMED_BYTES = 1 << 24  # of the other operand from which on it is worth to time ways to do it
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
class Dots:
    """How matmul.hip's dots share a matrix out: waves of a block, which share `each` lines, and vectors at a time."""

    waves: int
    each: int
    together: int

    def __str__(self) -> str:
        return f"dots of {self.waves} waves, {self.each}x{self.together}"


_DOTS = (Dots(4, 4, 2), Dots(4, 2, 2), Dots(8, 4, 2), Dots(2, 2, 4))  # the fastest on an H200 first, by and large


@dataclass(frozen=True)
class Product:
    """What matmul.hip is to compute, and for whom."""

    launch: Launch
    target: Target
    a: Matrix
    b: Matrix
    batch: tuple[int, ...]
    epilogue: Epilogue
    decode: float = 0.0  # MatrixTile's
    parts_of: int = 0  # columns of the whole product, of which this is one of several parts
    eps: float | None = None  # of a norm of the lines of a, whose scales are buffer 2

    @property
    def columns(self) -> int:
        return self.parts_of or self.b.lines

    @property
    def sums_bytes(self) -> int:
        return sums_of(self.launch.operands[0].dtype).nbytes

    @property
    def by_lines(self) -> tuple[Matrix, Matrix]:
        """The operand with fewer lines, and the other."""
        return (self.a, self.b) if self.a.lines <= self.b.lines else (self.b, self.a)

    @property
    def few(self) -> bool:
        """Whether there are so few rows or columns that the other operand is read once, in place."""
        m, n = self.a.lines, self.b.lines
        return not self.async_tiles and (m <= FEW or n <= FEW) and (m * self.a.k >= 1024 or n * self.a.k >= 1024)

    @property
    def dots(self) -> tuple[Dots, ...]:
        """Ways to take one row or two beside tiles that copy asynchronously."""
        if not self.async_tiles or self.decode or (self.a.lines > _DOTTED and self.b.lines > _DOTTED):
            return ()
        _, large = self.by_lines
        if large.lines * large.k < 1 << 16 or not large.along_k:
            return ()
        return _DOTS

    @property
    def ways(self) -> tuple[Dots | Cut[MatrixTile], ...]:
        """Matrix tiles, and what competes with them; the fastest first, as far as one can tell."""
        kind = self.matrix_kind
        return () if kind is None or self.few else (*self.dots, *self.cuts(kind))

    def way(self, at: int) -> Dots | Cut[MatrixTile] | None:
        """The one at this place."""
        kind, dots = self.matrix_kind, self.dots
        if kind is None or self.few:
            return None
        return dots[at] if at < len(dots) else best_cut(at - len(dots), *self._cut_by(kind))

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
        return best_cuts(*self._cut_by(kind))

    def _cut_by(self, kind: MatrixKind) -> tuple[tuple[MatrixTile, ...], int, int, int, int, int, int]:
        found = self.async_tiles or matrix_tiles(self.target, kind, self.sums_bytes)
        tiles = tuple(replace(tile, decode=self.decode) for tile in found if not self.decode or tile.may_decode)
        m, n, batch = self.a.lines, self.b.lines, prod(self.batch)
        return tiles, m, n, self.a.k, batch, self.sums_bytes, self.target.workers


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
    way = product.way(launch.variant if aligned else 0)
    if not isinstance(way, Dots) and (way is not None or not product.few):
        return _tiles(product, way)
    few, matrix = product.by_lines
    few_rows = few is left
    if isinstance(way, Dots):
        return _dots(product, few, matrix, few_rows, way)
    return _dots(product, few, matrix, few_rows) if matrix.along_k else _columns(product, few, matrix, few_rows)


def matmul_variants(launch: Launch, target: Target) -> tuple[str, ...]:
    """The ways to try out."""
    product = _product_of(launch, target, Epilogue("", ()), aligned=True)
    dots, (_, large) = len(product.dots), product.by_lines
    nbytes = large.lines * large.k * large.itemsize * prod(product.batch)
    if launch.flops < TIMED and not (dots and nbytes >= _TIMED_BYTES):
        return ()
    return tuple(map(str, product.ways[: dots + 1 if dots else VARIANTS]))


def normed_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launch of a norm_linear, whose weight's lines run along k."""
    assert epilogue is not None
    product = _normed_product(launch, target, epilogue, aligned)
    check_extents("norm_linear", (product.b.lines, product.a.k))
    return _dots(product, product.a, product.b, few_rows=True, way=_DOTS[launch.variant if aligned else 0])


def _normed_product(launch: Launch, target: Target, epilogue: Epilogue, aligned: bool) -> Product:
    assert launch.kernel.anchor is not None
    x, weight = launch.kernel.anchor.srcs[:2]
    k, size = x.shape[-1], x.dtype.itemsize
    at = [offset for _, offset in launch.buffers[:3]]
    aligned = aligned and not any(offset % _VECTOR_BYTES for offset in at)
    a, b = (Matrix(n, v.size // k, k, k, 1, (), size, at[n], aligned) for n, v in enumerate((x, weight)))
    return Product(launch, target, a, b, (), epilogue, eps=launch.kernel.anchor.attrs[-1])


def normed_variants(launch: Launch, target: Target) -> tuple[str, ...]:
    """The ways to try out."""
    weight = launch.operands[1]
    return tuple(map(str, _DOTS)) if prod(weight.shape) * weight.dtype.itemsize >= _TIMED_BYTES else ()


def _takes_norm(node: Node, target: Target) -> float:
    """One row or two of a plain weight."""
    x, weight = node.srcs[:2]
    rows, k = prod(x.shape[:-1]), x.shape[-1]
    fits = x.dtype in (float32, float16, bfloat16) and 1 <= rows <= _DOTTED and weight.size >= 1 << 16
    return 1.0 * (fits and node.attrs[0] is None and weight.shape[0] * k < SMALL)


def _axes(batch: tuple[int, ...], one: Matrix, other: Matrix) -> tuple[int, ...]:
    return tuple(v for axis in zip(batch, one.batch_strides, other.batch_strides, strict=True) for v in axis)


def _source(
    product: Product,
    kind: dict[str, int],
    first: PhaseText,
    alignment: Sequence[int],
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
    return gpu_source(file, product.launch, kind, types or {}, phases, product.epilogue, alignment, scratch, functions)


@dataclass(frozen=True)
class Blocks:
    """A block for each tile of outputs: its cut, what its text knows at compile time, and what it takes of LDS."""

    product: Product
    cut: Cut[Any]
    way: str
    kind: dict[str, int]
    widths: dict[bool, int]  # of vectors along k, and across lines
    lds: int
    types: dict[str, str] = field(default_factory=dict)
    functions: tuple[str, ...] = ()

    @property
    def asynchronous(self) -> str:
        """What file names of such blocks end with."""
        return "_async" if isinstance(self.cut.tile, AsyncTile) else ""

    @property
    def alignment(self) -> list[int]:
        return [m.alignment(self.widths[m.along_k], m.along_k) for m in (self.product.a, self.product.b)]

    def phase(self, n: int, call: str, out: str = "out", before: str = "", more: tuple[int, ...] = ()) -> PhaseText:
        """The launch for n columns. call: a template's, up to its operands; more: arguments beside matmul.hip's.

        out: what takes the results, which `before` declares.
        """
        product, cut, tile = self.product, self.cut, self.cut.tile
        a, b, batch = product.a, product.b, prod(product.batch)
        args = (
            a.lines, n, a.k, a.line_stride, a.k_stride, b.k_stride, b.line_stride, cut.split, batch,
            *_axes(product.batch, a, b), *more,
        )  # fmt: skip
        grid = -(-a.lines // tile.rows) * -(-n // tile.cols) * batch * cut.parts * tile.cluster
        if cut.parts > 1:
            before, out = "", partial_out("a0", "a1", sums_of(product.launch.operands[0].dtype))
        room = (0, self.lds) if isinstance(tile, AsyncTile) else (self.lds, 0)
        return PhaseText(grid, tile.threads, args, f"{before}{call}, arg, {out});", cut.parts == 1, *room, tile.cluster)


def tile_blocks(product: Product) -> Blocks:
    """By pf_tile.h, without matrix cores."""
    a, b = product.a, product.b
    cut = choose_cut(a.lines, b.lines, a.k, prod(product.batch), product.sums_bytes, product.target.workers)
    width = min(_VECTOR_BYTES // a.itemsize, _MAX_TILE_WIDTH)
    kind = {**cut.tile.defines(), "WIDTH": width}
    return _blocks(product, cut, "tile", kind, {True: width, False: width}, cut.tile.lds_bytes(product.sums_bytes))


def matrix_blocks(product: Product, matrix: MatrixKind, cut: Cut[MatrixTile]) -> Blocks:
    """By pf_mma_loop.h or pf_mma_async.h."""
    types, function = kind_of(product.launch.operands[0].dtype, matrix)
    lds, widths, after = cut.tile.lds_bytes(product.sums_bytes), cut.tile.widths, product.epilogue
    if cut.parts > 1:
        width = PARTS_WIDTH if product.sums_bytes == 4 and product.columns % PARTS_WIDTH == 0 else 1
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
) -> Blocks:
    a, b = product.a, product.b
    along_a, along_b = a.along_k, b.along_k
    kind = {
        **kind, "A_ALONG_K": int(along_a), "A_VECTOR": int(a.vector(widths[along_a], along_a)),
        "B_ALONG_K": int(along_b), "B_VECTOR": int(b.vector(widths[along_b], along_b)),
        "AXES": len(product.batch),
    }  # fmt: skip
    return Blocks(product, cut, way, kind, widths, lds, types or {}, functions)


def _tiles(product: Product, cut: Cut[MatrixTile] | None) -> GpuSource:
    matrix = product.matrix_kind
    blocks = tile_blocks(product) if matrix is None or cut is None else matrix_blocks(product, matrix, cut)
    phase = blocks.phase(product.b.lines, f"pf_gemm_{blocks.way}<PF_KEY_kind>(b0, b1")
    if blocks.way == "async" and product.a.lines <= _WAITING and may_read_early(product.launch, product.target, 1):
        blocks.kind["EARLY"], phase = 1, replace(phase, awaits=True)
    phase = one_after_another(phase, blocks.cut.tile, blocks.kind, product.target.workers)
    file = f"matmul{blocks.asynchronous}.hip"
    return _source(
        product, blocks.kind, phase, blocks.alignment, blocks.cut.parts, blocks.types, blocks.functions, file
    )


def _dots(product: Product, few: Matrix, matrix: Matrix, few_rows: bool, way: Dots | None = None) -> GpuSource:
    """Lanes along the lines of the large matrix."""
    width = _VECTOR_BYTES // matrix.itemsize
    width = width if matrix.vector(width, along_k=True) else 1
    lanes = min(power(-(-matrix.k // (width * 2))), product.target.wave_size)
    each, normed = {1: 4, 2: 2, 3: 2, 4: 2}.get(few.lines, 1), int(product.eps is not None)
    while each > 1 and matrix.lines * prod(product.batch) < each * (_THREADS // lanes) * product.target.workers:
        each //= 2
    threads, together, lds, blocks = _THREADS, 1, 0, 4
    if way is not None:
        threads = lanes = way.waves * product.target.wave_size
        each, together, blocks = way.each, way.together, 2
        lds = way.waves * (each + normed) * few.lines * product.sums_bytes
    kind = {
        "FEW": few.lines, "FEW_ROWS": int(few_rows), "FEW_VECTOR": int(few.vector(width, along_k=True)),
        "LANES": lanes, "EACH": each, "WIDTH": width, "THREADS": threads, "TOGETHER": together, "NORMED": normed,
        "EARLY": 0,
    }  # fmt: skip
    alignment = {m.buffer: m.alignment(width, along_k=True) for m in (few, matrix)}
    per, step = threads // lanes * each, lanes * width
    return _thin(product, few, matrix, kind, "dots", per, 8 * step, step, alignment, lds, blocks)


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
    blocks: int = 4,
) -> GpuSource:
    """A strip of `per` lines for each block; k is cut into parts of at least `least`, whole steps, where that makes no
    more than `blocks` of a compute unit."""
    batch = prod(product.batch)
    strips = -(-matrix.lines // per) * batch
    eps = () if product.eps is None else float_bits(product.eps)  # of a norm, which wants all of k
    parts = 1 if eps else max(1, min(-(-blocks * product.target.workers // strips), matrix.k // least, MAX_PARTS))
    split = round_up(-(-matrix.k // parts), step)
    parts = -(-matrix.k // split)
    early = may_read_early(product.launch, product.target, matrix.buffer) and way == "dots"
    if early and parts == 1 and kind["WIDTH"] > 1 and matrix.k >= kind["TOGETHER"] * step:
        kind["EARLY"] = 1
    args = (
        matrix.lines, matrix.k, matrix.line_stride, matrix.k_stride, few.line_stride, few.k_stride, split, batch,
        *_axes(product.batch, few, matrix), *eps,
    )  # fmt: skip
    m, n = (str(v.lines) if v is few else "a0" for v in (product.a, product.b))
    out = "out" if parts == 1 else partial_out(m, n, sums_of(product.launch.operands[0].dtype))
    body = f"pf_gemm_{way}<PF_KEY_kind>(b{few.buffer}, b{matrix.buffer}, arg, {out}{', b2' if eps else ''});"
    phase = PhaseText(strips * parts, kind["THREADS"], args, body, parts == 1, lds, awaits=bool(kind.get("EARLY")))
    kind = {**kind, "AXES": len(product.batch)}
    return _source(product, kind, phase, [alignment[0], alignment[1], *[alignment[few.buffer]] * bool(eps)], parts)


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
kernel(
    KernelSpec(
        "norm_linear",
        "normed_gpu",
        normed_source,
        languages=("hip", "cuda"),
        why="own product for few rows, which takes their norm along",
        epilogue=LAYER_EPILOGUE,
        unaligned=partial(normed_source, aligned=False),
        prior=_takes_norm,
        variants=normed_variants,
    )
)
