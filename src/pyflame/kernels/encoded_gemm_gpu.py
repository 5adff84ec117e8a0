"""Launches of encoded_gemm.hip: encoded_linear of more rows than encoded_gpu.py takes, or of what it does not take.

Blocks of matrix tiles decode the weight themselves, or some of its lines at a time are decoded into scratch first.
Without matrix tiles (float32 on most GPUs) and for float64 it is always the latter: never is the whole weight decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.encoding import Encoding, encoding
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.dequantize_gpu import PIECE, THREADS, alignment_of, decoder
from pyflame.kernels.gpu_source import SMALL, element
from pyflame.kernels.matmul_gpu import Blocks, Matrix, Product, matrix_blocks, tile_blocks
from pyflame.kernels.matrix_cores import MatrixTile
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    LAYER_EPILOGUE,
    TIMED,
    VARIANTS,
    Cut,
    PhaseText,
    check_extents,
    finish_phase,
    gpu_source,
    round_up,
    sums_of,
)

_DECODE = 0.05  # clocks of a compute unit for each number: about six operations, of 128 lanes
_LINES_BYTES = 64 << 20  # of decoded lines at most: about what a large cache holds, and enough for all compute units
_LINES_STEP = 256  # lines of the tallest block
# Rows from which on lines are decoded first. For each 128 rows a block decodes its lines again, 0.05 clocks for each
# number; decoding once writes and reads 2 bytes each, which at 8 to 20 bytes a clock takes 4 to 10 times as long. From
# half as many rows on both ways are timed where there is a GPU.
_MANY = 1024


class Way(NamedTuple):
    """So many lines of the weight are decoded at a time, 0: by the blocks. cut: None without matrix tiles."""

    lines: int
    cut: Cut[MatrixTile] | None

    def __str__(self) -> str:
        return f"{self.cut or 'tiles'} of decoded lines" if self.lines else str(self.cut)


@dataclass(frozen=True)
class Layer:
    """What encoded_gemm.hip is to compute, and for whom."""

    launch: Launch
    target: Target
    epilogue: Epilogue
    aligned: bool

    def __post_init__(self) -> None:
        check_extents("encoded_linear", (self.rows, self.out, self.width))

    @property
    def encoding(self) -> Encoding:
        assert self.launch.kernel.anchor is not None
        return encoding(self.launch.kernel.anchor.attrs[0])

    @property
    def rows(self) -> int:
        return prod(self.launch.operands[0].shape[:-1])

    @property
    def out(self) -> int:
        return self.launch.operands[1].shape[0]

    @property
    def width(self) -> int:
        return self.launch.operands[0].shape[-1]

    @property
    def lines(self) -> int:
        """Lines of the weight that are decoded at a time: parts of about the same size."""
        line = self.width * self.launch.operands[0].dtype.itemsize
        parts = -(-self.out // max(_LINES_STEP, _LINES_BYTES // line))
        return min(self.out, round_up(-(-self.out // parts), _LINES_STEP))

    def product(self, lines: int) -> Product:
        """With so many decoded lines of the weight; 0: with all, as the blocks decode them."""
        size, offset, wide = self.launch.operands[0].dtype.itemsize, self.launch.buffers[0][1], self.width
        a = Matrix(0, self.rows, wide, wide, 1, (), size, offset, self.aligned)
        b = Matrix(1, lines or self.out, wide, wide, 1, (), size, 0, self.aligned or lines > 0)
        decode = 0.0 if lines else _DECODE
        return Product(self.launch, self.target, a, b, (), self.epilogue, decode, self.out)

    @property
    def ways(self) -> tuple[Way, ...]:
        """The fastest first, as far as one can tell."""
        products = {lines: self.product(lines) for lines in (0, self.lines)}
        matrix = products[0].matrix_kind
        if matrix is None:
            return (Way(self.lines, None),)
        found = {lines: [Way(lines, cut) for cut in product.cuts(matrix)] for lines, product in products.items()}
        first, by_lines = found[0], found[self.lines]
        if matrix.nbytes == 8:
            return tuple(by_lines[:2])
        if self.rows >= _MANY:
            return (*by_lines[:2], *first[:2])
        both = self.rows >= _MANY // 2
        return (*first[: VARIANTS - both], *by_lines[:both])

    @property
    def decoder_aligned(self) -> bool:
        """Rows of single numbers begin anywhere."""
        return self.aligned and self.width % PIECE == 0

    def after(self, first: int) -> str:
        """What takes results: those of the columns from argument `first` on; 0: of all."""
        dtype, biased = element(self.launch.operands[0].dtype), len(self.launch.operands) - 2
        start = f"arg[{first}]" if first else "0"
        return f"const pf_biased<{dtype}, {biased}, PF_KEY_out> after = {{out, b{2 * biased}, {start}}};\n  "

    def source(self, blocks: Blocks, phases: list[PhaseText], scratch: int) -> GpuSource:
        """The kernels. Results that are stored as vectors ask for alignment."""
        x, _, *bias = self.launch.operands
        weight = alignment_of(self.encoding) if self.decoder_aligned else 1
        asked = [blocks.alignment[0], weight, *(b.dtype.itemsize for b in bias)]
        if blocks.cut.parts == 1 and blocks.kind.get("OUT_WIDTH", 1) > 1:
            asked += [1] * (len(self.epilogue.alignment) - len(asked))
            asked = [max(pair) for pair in zip(asked, self.epilogue.alignment, strict=True)]
        types = {**blocks.types, "decoder": "PF_KEY_decoder", "number": element(x.dtype)}
        return gpu_source(
            f"encoded_gemm{blocks.asynchronous}.hip", self.launch, blocks.kind, types, phases, self.epilogue, asked,
            scratch, blocks.functions, decoder(self.encoding, self.decoder_aligned),
        )  # fmt: skip


def encoded_gemm_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one encoded_linear. `aligned` False: for buffers that lie misaligned."""
    assert epilogue is not None
    layer = Layer(launch, target, epilogue, aligned)
    lines, cut = layer.ways[launch.variant if aligned else 0]
    product = layer.product(lines)
    matrix = product.matrix_kind
    blocks = tile_blocks(product) if matrix is None or cut is None else matrix_blocks(product, matrix, cut)
    return _by_lines(layer, blocks, lines) if lines else _in_tiles(layer, blocks)


def _in_tiles(layer: Layer, blocks: Blocks) -> GpuSource:
    m, n, parts, sums = layer.rows, layer.out, blocks.cut.parts, sums_of(layer.launch.operands[0].dtype)
    before = layer.after(0)
    phases = [blocks.phase(n, f"pf_encoded_{blocks.way}<PF_KEY_kind>(b0, b1", "after", before)]
    if parts == 1:
        return layer.source(blocks, phases, 0)
    phases.append(finish_phase(m, n, 1, parts, sums, "after", before))
    return layer.source(blocks, phases, parts * m * n * sums.nbytes)


def _by_lines(layer: Layer, blocks: Blocks, lines: int) -> GpuSource:
    """Scratch holds partial sums, if there are any, then the decoded lines."""
    x, data = layer.launch.operands[:2]
    m, parts, sums = layer.rows, blocks.cut.parts, sums_of(x.dtype)
    room = round_up(parts * m * lines * sums.nbytes, 256) if parts > 1 else 0
    whole = layer.out * layer.width % PIECE == 0
    call = f"pf_dequantize<{element(x.dtype)}, PF_KEY_decoder, {16 // x.dtype.itemsize if whole else 1}, {THREADS}>"
    weight = f"({storage(x.dtype)} *)(scratch + arg[{{}}])"
    decode = f"pf_dequantizing::{call}(b1 + arg[1], {weight.format(2)}, arg);"
    phases: list[PhaseText] = []
    for first in range(0, layer.out, lines):
        n = min(lines, layer.out - first)
        total = n * layer.width
        grid = -(-total // (PIECE * THREADS))
        phases.append(PhaseText(grid, THREADS, (total, first * data.shape[1], room), decode, stores=False))
        gemm = f"pf_gemm_{blocks.way}<PF_KEY_kind>(b0, (const {weight.format(9)[1:]}"
        phases.append(blocks.phase(n, gemm, "after", layer.after(10), (room, first)))
        if parts > 1:
            phases.append(finish_phase(m, n, 1, parts, sums, "after", layer.after(6), (first,)))
    return layer.source(blocks, phases, room + lines * layer.width * x.dtype.itemsize)


def encoded_gemm_variants(launch: Launch, target: Target) -> tuple[str, ...]:
    """The ways to try out."""
    ways = Layer(launch, target, Epilogue("", ()), aligned=True).ways
    return tuple(map(str, ways)) if launch.flops >= TIMED else ()


def _takes(node: Node, target: Target) -> float:
    """All that there is something to compute of; encoded_gpu.py reads the weight only once, for few rows."""
    x, data = node.srcs[:2]
    return 0.5 if prod(x.shape) and data.shape[0] and data.shape[1] < SMALL else 0.0


kernel(
    KernelSpec(
        "encoded_linear",
        "encoded_gemm_gpu",
        encoded_gemm_source,
        languages=("hip", "cuda"),
        why="own tiled GEMM: the weight is decoded by tiles, or some lines at a time",
        epilogue=LAYER_EPILOGUE,
        unaligned=partial(encoded_gemm_source, aligned=False),
        prior=_takes,
        variants=encoded_gemm_variants,
    )
)
