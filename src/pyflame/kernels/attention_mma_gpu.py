"""Host side of attention_mma.hip: attention of 16-bit numbers on matrix tiles.

Launches and arguments are those of attention_gpu.py. The text depends besides on how many chunks and tiles a line
takes, and on how many lines a wave has: registers and LDS decide that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.attention import AttentionLaunch, AttentionShape, attention_prior, both_passes
from pyflame.kernels.attention_gpu import KNOWN_BYTES, Call, Way, attention_text, vectors, ways
from pyflame.kernels.gpu_source import element
from pyflame.kernels.matrix_cores import MatrixKind, matrix_kind
from pyflame.kernels.spec import Epilogue, KernelSpec

WIDEST = 256  # numbers of a line
_EDGE, _CHUNK = 16, 32  # numbers of a tile's edge, and of a chunk
_PIECE = 8  # numbers that are read at once
_LDS_BYTES = 48 * 1024  # that every GPU gives a block without being asked, and that leave room for another one
_REGISTERS = {"hip": 176, "cuda": 168}  # of a lane, for scores, sums and own lines; others hold what is on its way
_OPTIONS = ((4, 2, 64, True), (4, 2, 32, True), (4, 1, 64, True), (4, 1, 32, True), (4, 1, 32, False))
_LAST = ((4, 1, 32, True), (4, 1, 32, False), (2, 1, 32, False))  # with as much LDS as there is


@dataclass(frozen=True)
class Block:
    """WAVES with DOWN tiles of own lines each, OTHERS lines of the other side in a turn, for one way."""

    way: Way
    shape: AttentionShape
    wave: int
    doubled: bool  # both halves of a wave hold the same fragments
    waves: int
    down: int
    others: int
    held: bool  # own lines in registers

    @property
    def depth(self) -> int:
        return -(-self.shape.depth // _CHUNK)

    @property
    def inner(self) -> int:
        return -(-self.shape.width // _CHUNK)

    @property
    def width(self) -> int:
        return -(-self.way.width // _EDGE)

    @property
    def rows(self) -> int:
        return self.waves * self.down * _EDGE

    @property
    def slopes(self) -> bool:
        return self.way.name == "PF_SLOPES"

    def lds_bytes(self) -> int:
        """As LDS_PIECES of pf_attending."""
        totals = self.way.name == "PF_TOTALS"
        first, second = self.depth * self.others * 64, self.slopes * self.inner * self.others * 64
        right = (not totals) * self.others // _CHUNK * self.width * _EDGE * 64
        turn = first + second + right + self.way.turned * self.others * 16
        own = [self.depth * self.rows * 64, self.slopes * self.inner * self.rows * 64]
        return max(turn, *own) if self.held else turn + sum(own)

    def registers(self) -> int:
        """Of a lane, about."""
        own = self.held * (self.depth + self.slopes * self.inner) * 256 // self.wave * (1 + self.doubled)
        scores = (1 + self.slopes * (1 + self.shape.capped)) * self.others // _EDGE * 256 // self.wave
        result = self.width * 256 // self.wave
        # What is known of the others' lines is read once for all tiles of own lines.
        known = self.way.turned * (self.down - 1) * self.others // _EDGE * 256 // self.wave
        return self.down * (own + scores + result) + known


def block_of(way: Way, shape: AttentionShape, target: Target) -> Block | None:
    """The most lines that registers and LDS allow; None where lines are too long for any."""
    doubled = target.name.startswith("gfx11")
    lines = shape.keys if way.turned else shape.queries
    most = target.lds_bytes if target.language == "hip" else _LDS_BYTES
    for options, lds_bytes in ((_OPTIONS, _LDS_BYTES), (_LAST, most)):
        for option in options:
            block = Block(way, shape, target.wave_size, doubled, *option)
            few = block.down > 1 and lines <= block.waves * _EDGE
            if not few and block.lds_bytes() <= lds_bytes and block.registers() <= _REGISTERS[target.language]:
                return block
    return None


def attention_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one attention or its gradient. `aligned` False: for buffers that lie misaligned."""
    made = AttentionLaunch.of(launch)
    dtype = made.query.dtype
    kind = tile_kind(target, dtype)
    assert kind is not None
    tile = f"{element(dtype)}, {kind.name}"
    vector = aligned and vectors(launch, made, _PIECE)

    def call(way: Way) -> Call:
        block = block_of(way, made.shape, target)
        assert block is not None
        numbers = (
            block.depth, block.inner, block.width, block.waves, block.down, block.others, int(block.held),
            int(vector), way.name, int(way.turned), made.mask_kind, int(made.shape.capped), made.span_kind,
        )  # fmt: skip
        template = f"pf_attend_mma<pf_attention_of<{tile}, {', '.join(map(str, numbers))}>>"
        return Call(way, template, block.rows, block.waves * target.wave_size, block.lds_bytes())

    calls = map(call, ways(made))
    return attention_text(
        "attention_mma.hip", launch, made, _PIECE if vector else 1, calls, KNOWN_BYTES * made.shape.queries
    )


def tile_kind(target: Target, dtype: DType) -> MatrixKind | None:
    """The tiles, if they are of matrix instructions for 16-bit numbers as they lie in memory."""
    kind = matrix_kind(target, dtype)
    return kind if kind is not None and kind.nbytes == 2 and kind.name.startswith("pf_mma") else None


def _prior(node: Node, target: Target) -> float:
    """More than attention.hip's, where there are such tiles and lines are not too long."""
    made = AttentionLaunch.of_node(node)
    shape = made.shape
    if max(shape.depth, shape.width) > WIDEST or tile_kind(target, made.query.dtype) is None:
        return 0.0
    fits = all(block_of(way, shape, target) is not None for way in ways(made))
    return 2.0 * attention_prior(node, target) * fits


both_passes(
    KernelSpec(
        "attention",
        "flash_mma",
        attention_source,
        languages=("hip", "cuda"),
        why="own blocks of scores on matrix cores, never stored",
        strided=True,
        unaligned=partial(attention_source, aligned=False),
        prior=_prior,
    )
)
