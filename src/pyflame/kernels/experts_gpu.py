"""Launches of experts.hip: expert_linear of few lines, and of many, which are sorted by their matrix first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.core.dtype import bfloat16, float16, float32
from pyflame.core.encoding import Encoding, encoding
from pyflame.core.precision import tf32_allowed
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch, OperandView
from pyflame.ir.node import Node
from pyflame.kernels.dequantize_gpu import PIECE, alignment_of, decoder
from pyflame.kernels.encoded import STACKS
from pyflame.kernels.encoded_gpu import BUSY, THREADS, lanes_of
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element
from pyflame.kernels.matrix_cores import MatrixTile, kind_of, matrix_kind, matrix_tiles
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import (
    LAYER_EPILOGUE,
    PhaseText,
    Tile,
    choose_tile,
    gpu_source,
    out_struct,
    out_value,
    sums_of,
)

FEW_LINES = 64
MOST_SHARED = 4  # lines that read a matrix together
MOST_MATRICES = 1024  # threads of the block that sorts
_TILES = (Tile(64, 64, PIECE, 4, 4, 70), Tile(32, 32, PIECE, 4, 4, 50))  # steps of whole pieces
_TILE_WIDTH = 4


def _takes(node: Node, target: Target) -> float:
    x, data, ids = node.srcs
    count, out, wide = data.shape
    fits = x.dtype in (float32, float16, bfloat16) and x.shape[-1] and x.shape[-1] % PIECE == 0
    small = count <= MOST_MATRICES and max(wide, out * target.wave_size, ids.size, x.size) < SMALL
    return 1.0 if fits and small and out and ids.size else 0.0


@dataclass(frozen=True)
class Experts:
    """What is to be computed, and for whom."""

    launch: Launch
    target: Target
    epilogue: Epilogue
    aligned: bool

    @property
    def x(self) -> OperandView:
        return self.launch.operands[0]

    @property
    def kind(self) -> Encoding:
        anchor = self.launch.kernel.anchor
        assert anchor is not None
        return encoding(anchor.attrs[0] or STACKS[self.launch.operands[1].dtype.name])

    @property
    def lines(self) -> int:
        return prod(self.launch.operands[2].shape)

    @property
    def matrices(self) -> int:
        return self.launch.operands[1].shape[0]

    @property
    def out(self) -> int:
        return self.launch.operands[1].shape[1]

    @property
    def width(self) -> int:
        return self.x.shape[-1]

    @property
    def vector(self) -> int:
        """Neighbours of x that are loaded as one."""
        return 16 // self.x.dtype.itemsize if self.aligned else 1

    @property
    def decoder(self) -> str:
        return decoder(self.kind, self.aligned)

    def alignment(self, vector: int) -> list[int]:
        """Of x, the stack and ids."""
        return [vector * self.x.dtype.itemsize, alignment_of(self.kind) if self.aligned else 1, 8]

    def args(self, parts: int = 0) -> tuple[int, ...]:
        """As experts.hip numbers them."""
        anchor, (x, data, ids) = self.launch.kernel.anchor, self.launch.operands
        assert anchor is not None
        share = prod(ids.shape[len(x.shape) - 1 :])
        row_bytes = data.shape[2] * data.dtype.itemsize
        return self.lines, self.out, self.width, row_bytes, share, self.matrices, anchor.check, parts

    @property
    def used(self) -> int:
        """Matrices that have lines, at most."""
        return min(self.matrices, self.lines)


def experts_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one expert_linear. `aligned` False: for buffers that lie misaligned."""
    assert epilogue is not None
    made = Experts(launch, target, epilogue, aligned)
    return _few(made) if made.lines <= FEW_LINES else _many(made)


def _few(made: Experts) -> GpuSource:
    dtype, epilogue, target = made.x.dtype, made.epilogue, made.target
    names, own = [f"b{n}" for n in range(len(made.launch.buffers))], [f"e{n}" for n in range(len(epilogue.args))]
    given = [f"const {storage(v.dtype)}" for v in made.launch.operands]
    others = len(names) - len(given)
    giving = [epilogue.text.rstrip(), *out_struct(epilogue, sums_of(dtype), names, own)]
    functions = GpuFunctions(
        "experts.hip",
        [*given, *["char"] * others],
        [*made.alignment(made.vector), *[1] * others],
        ("pf_experts",),
        "\n".join([made.decoder, *giving]),
    )
    rows = min(MOST_SHARED, power(made.lines // prod(made.launch.operands[2].shape[len(made.x.shape) - 1 :])))
    rows = min(rows, power(-(-2 * made.lines // made.matrices)))  # more than the average, which some have
    lanes = lanes_of(made.width, target)
    each = 2 if made.used * made.out * lanes >= 2 * target.workers * BUSY else 1
    numbers = f"{rows}, {each}, {lanes}, {made.vector}, {THREADS}"
    call = f"pf_few_experts<{element(dtype)}, PF_KEY_decoder, {numbers}>"
    body = f"{call}(b0, (const uint8_t *)b1, b2, err, arg, out);"
    args, per = made.args(), THREADS // lanes * each
    body = f"{out_value(names, len(args), len(own))}\n  {body}"
    functions.add("_0", made.lines * -(-made.out // per), THREADS, [*args, *epilogue.args], body)
    return functions.source()


class Blocks(NamedTuple):
    """A tile and what its text is told: numbers, types, functions. `vector`: numbers of x that are fetched as one."""

    tile: Tile | MatrixTile
    way: str
    kind: dict[str, int]
    types: dict[str, str]
    functions: tuple[str, ...]
    vector: int


def _blocks(made: Experts) -> Blocks:
    matrix = matrix_kind(made.target, made.x.dtype, tf32_allowed())
    each = -(-made.lines // made.used)  # lines of a matrix, on average
    shape = each, made.out, made.width, made.used, made.target.workers
    if matrix is None:
        tile = choose_tile(_TILES, *shape)
        return Blocks(tile, "tile", {**tile.defines(), "WIDTH": _TILE_WIDTH}, {}, (), _TILE_WIDTH)
    block = choose_tile(matrix_tiles(made.target, matrix, sums_of(made.x.dtype).nbytes), *shape)
    after, (types, function) = made.epilogue, kind_of(made.x.dtype, matrix)
    out = {"OUT_WIDTH": after.width if after.along == "j" else 1, "AS_IS": int(matrix.as_is)}
    return Blocks(block, "mma", {**block.defines(), **out}, types, (function,), block.widths[True])


def _many(made: Experts) -> GpuSource:
    blocks, dtype, epilogue = _blocks(made), made.x.dtype, made.epilogue
    tile, sums = blocks.tile, sums_of(dtype)
    kind = {**blocks.kind, "A_VECTOR": int(made.aligned)}
    types = {**blocks.types, "decoder": "PF_KEY_decoder", "number": element(dtype)}
    parts = (made.lines + made.used * (tile.rows - 1)) // tile.rows
    args, threads = made.args(parts), max(THREADS, power(made.matrices))
    sort = f"pf_experts::pf_sort_lines<{tile.rows}, {threads}>(b2, scratch, err, arg);"
    call = f"pf_experts::pf_experts_{blocks.way}<PF_KEY_kind>"
    multiply = f"{call}(b0, (const uint8_t *)b1, scratch, arg, out);"
    phases = [
        PhaseText(1, threads, args, sort, stores=False, lds_bytes=12 * threads),
        PhaseText(parts * -(-made.out // tile.cols), tile.threads, args, multiply, True, tile.lds_bytes(sums.nbytes)),
    ]
    source = gpu_source(
        "experts.hip", made.launch, kind, types, phases, epilogue,
        made.alignment(blocks.vector if made.aligned else 1), 4 * (3 * parts + made.lines), blocks.functions,
        made.decoder,
    )  # fmt: skip
    if kind.get("OUT_WIDTH", 1) == 1:
        return source
    return replace(source, alignment=tuple(map(max, source.alignment, epilogue.alignment)))


kernel(
    KernelSpec(
        "expert_linear_at",
        "experts_gpu",
        experts_source,
        languages=("hip", "cuda"),
        why="reads the matrices that lines name, as they are stored",
        epilogue=LAYER_EPILOGUE,
        unaligned=partial(experts_source, aligned=False),
        prior=_takes,
    )
)
