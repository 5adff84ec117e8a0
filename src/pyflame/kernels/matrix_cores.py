"""Which matrix tiles (pf_mma.h) a GPU has for which dtype, and which blocks of them: the one table of both.

A dtype that is not in a target's row goes without matrix instructions, by pf_tile.h. Paces are multiply-adds of a
compute unit in a clock, two thirds of the peak in the vendors' data sheets: estimates that order tiles and cuts of k.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.ir.c_types import storage
from pyflame.kernels.tile_gpu import BUSY

CHUNK_BYTES, PIECE_BYTES, _EDGE = 64, 16, 16  # PF_MMA_CHUNK, PF_MMA_PIECE, PF_MMA_EDGE
_L2_BYTES = 32  # that a compute unit gets in a clock, about
_LATENCY = 700  # clocks from memory to LDS; blocks beside each other hide it
_RESIDENT = 4  # blocks beside each other on a compute unit, about


@dataclass(frozen=True)
class MatrixKind:
    """A tile type of pf_mma.h, how a number lies in LDS, and how it is made of the one in memory, x."""

    name: str
    c_type: str
    nbytes: int
    made: str = "x"
    pace: float = 40  # of a compute unit

    @property
    def as_is(self) -> bool:
        return self.made == "x"


_F16, _BF16 = MatrixKind("pf_mma_f16", "uint16_t", 2), MatrixKind("pf_mma_bf16", "uint16_t", 2)
_I8 = MatrixKind("pf_mma_i8", "int8_t", 1)
_F32, _F64 = MatrixKind("pf_mma_f32", "float", 4), MatrixKind("pf_mma_f64", "double", 8)
_TF32 = MatrixKind("pf_mma_tf32", "float", 4, "pf_to_tf32(x)")


def _row(kinds: dict[str, MatrixKind], **paces: float) -> dict[str, MatrixKind]:
    return {name: replace(kinds[name], pace=pace) for name, pace in paces.items()}


_ALL = {"float16": _F16, "bfloat16": _BF16, "int8": _I8, "float32": _F32, "float64": _F64, "tf32": _TF32}
# Whose float16 instructions take subnormals for zero, which training in float16 cannot do with: it goes as float32.
FLUSHING = ("gfx90a",)
_F16_AS_F32 = {**_ALL, "float16": replace(_F32, made="pf_f16_to_f32(x)")}
_MMA = _row(_ALL, float16=680, bfloat16=680, int8=1360, float64=42, tf32=340)
# Keyed by a target's name, or by its matrix_core where no row has the name.
MATRIX_KINDS: dict[str, dict[str, MatrixKind]] = {
    "gfx908": _row(_ALL, float16=340, bfloat16=170, int8=340, float32=85),
    "gfx90a": _row(_F16_AS_F32, float16=85, bfloat16=340, int8=340, float32=85, float64=85),
    "mfma": _row(_ALL, float16=680, bfloat16=680, int8=1360, float32=85, float64=85),
    "gfx950": _row(_ALL, float16=1360, bfloat16=1360, int8=2720, float32=85, float64=42),
    "wmma": _row(_ALL, float16=170, bfloat16=170, int8=170),
    "mma": _MMA,
    "wgmma": _MMA,
    "": {
        "float16": replace(_F16, name="pf_plain_f16"),
        "bfloat16": replace(_BF16, name="pf_plain_bf16"),
        "int8": replace(_I8, name="pf_plain_i8", pace=160),
    },
}


def matrix_kind(target: Target, dtype: DType, tf32: bool = False) -> MatrixKind | None:
    """The tiles for products of a dtype; None: pf_tile.h does them. tf32: whether float32 may be rounded to it.

    >>> from pyflame.core.dtype import bfloat16, float32
    >>> from pyflame.core.targets import TARGETS
    >>> matrix_kind(TARGETS["gfx942"], bfloat16).name, matrix_kind(TARGETS["gfx1100"], float32)
    ('pf_mma_bf16', None)
    """
    row = MATRIX_KINDS.get(target.name) or MATRIX_KINDS.get(target.matrix_core, MATRIX_KINDS[""])
    if tf32 and dtype.name == "float32" and "tf32" in row:
        return row["tf32"]
    return row.get(dtype.name)


@dataclass(frozen=True)
class MatrixTile:
    """A block of matrix tiles: a Tiling of tile_gpu.py, for waves of so many lanes."""

    rows: int
    cols: int
    waves_down: int
    waves_across: int
    chunks: int
    wave: int
    kind: MatrixKind
    efficiency: float
    cluster: int = 1
    decode: float = 0.0  # clocks of a compute unit for each number of the columns' operand, where that is encoded

    @property
    def depth(self) -> int:
        return self.chunks * CHUNK_BYTES // self.kind.nbytes

    @property
    def threads(self) -> int:
        return self.waves_down * self.waves_across * self.wave

    @property
    def label(self) -> str:
        return f"{self.rows}x{self.cols}"

    def clocks(self, k: int, rounds: int) -> float:
        """As Tiling's: a step takes what its products, its bytes from L2, or the way of the next step to LDS take."""
        multiply = self.rows * self.cols * self.depth / (self.efficiency * self.kind.pace)
        load = (self.rows + self.cols) * self.chunks * CHUNK_BYTES / _L2_BYTES
        step = max(multiply / min(1.0, rounds * self.threads / BUSY), load, _LATENCY / min(rounds, _RESIDENT))
        return rounds * (step + self.decoding) * (k / self.depth + 2)

    @property
    def may_decode(self) -> bool:
        """Whether lanes have registers left for it."""
        return True

    @property
    def decoding(self) -> float:
        """Clocks of a step."""
        return self.decode * self.cols * self.depth

    @property
    def widths(self) -> dict[bool, int]:
        """Of vectors along k, and across lines: pf_mma_map's WIDTH."""
        return {True: PIECE_BYTES // self.kind.nbytes, False: 2 if self.kind.nbytes == 8 else 4}

    def lds_bytes(self, sum_bytes: int) -> int:
        """As pf_mma_loop's LDS_PIECES: two steps of both operands, or 16 rows of results for each wave."""
        steps = 2 * self.chunks * (self.rows + self.cols + (self.chunks > 1)) * CHUNK_BYTES
        return max(steps, self.cols * (_EDGE * sum_bytes + PIECE_BYTES) * self.waves_down)

    def defines(self) -> dict[str, int]:
        return {
            "ROWS": self.rows, "COLS": self.cols, "THREADS": self.threads, "WAVES_ACROSS": self.waves_across,
            "CHUNKS": self.chunks,
        }  # fmt: skip


# rows, columns, waves down and across, chunks of a step, efficiency. Waves of 64 take up to 64x64 each, those of 32
# up to 64x32: 64 registers of sums. Few rows or columns take steps of two chunks: memory is what they wait for.
_SMALL = (
    (64, 64, 2, 2, 1, 0.75), (32, 32, 2, 2, 1, 0.45), (16, 64, 1, 4, 2, 0.45), (32, 64, 1, 4, 2, 0.55),
    (64, 16, 4, 1, 2, 0.45), (64, 32, 4, 1, 2, 0.55),
)  # fmt: skip
_BLOCKS = {
    64: ((256, 128, 4, 2, 1, 1.0), (128, 128, 2, 2, 1, 1.0), (128, 64, 2, 2, 1, 0.9), (64, 128, 2, 2, 1, 0.9), *_SMALL),
    32: ((128, 128, 2, 4, 1, 1.0), (128, 64, 2, 2, 1, 0.9), (64, 128, 1, 4, 1, 0.9), *_SMALL),
}
_MOST_HUNGRY = 128 * 64  # outputs of a block that needs many registers for each: sums of 8 bytes, plain ones


def matrix_tiles(target: Target, kind: MatrixKind, sum_bytes: int, beside: int = 0) -> tuple[MatrixTile, ...]:
    """The blocks to choose from: of those whose registers suffice, the ones of which LDS holds two at a time.

    beside: bytes of LDS for each k of a step that are not operands.
    """
    hungry = sum_bytes == 8 or (kind.name.startswith("pf_plain") and target.wave_size == 64)
    tiles = [
        MatrixTile(rows, cols, down, across, chunks, target.wave_size, kind, efficiency)
        for rows, cols, down, across, chunks, efficiency in _BLOCKS[target.wave_size]
        if not (hungry and rows * cols > _MOST_HUNGRY)
    ]
    return tuple(t for t in tiles if 2 * (t.lds_bytes(sum_bytes) + beside * t.depth) <= target.lds_bytes)


def kind_of(dtype: DType, kind: MatrixKind) -> tuple[dict[str, str], str]:
    """Types and the function of a kernel's struct, for pf_mma_loop.h."""
    return {"mma": kind.name}, f"PF_FN {kind.c_type} lds({storage(dtype)} x) {{ return ({kind.c_type}){kind.made}; }}"
