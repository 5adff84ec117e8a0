"""Blocks of pf_mma_async.h: matrix tiles whose operands are copied to LDS asynchronously, on NVIDIA's GPUs.

They are for 16-bit floats in aligned vectors, along k or across lines; matrix_cores.py has the blocks for all others.
What a block takes is estimated from runs on an H200: only ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyflame.core.device import Target
from pyflame.kernels.matrix_cores import CHUNK_BYTES, PIECE_BYTES, MatrixKind, MatrixTile
from pyflame.kernels.tile_gpu import PhaseText

_L2_BYTES = 42  # that a compute unit gets in a clock
_BEGIN, _RESULT = 2000, 0.12  # clocks of a block before its first step, and for each output
_BUSY = 256  # threads with which mma.sync reaches its pace
_WAIT = 500  # clocks of a thread for bytes that it decodes, or between products; blocks beside each other hide it
_TOGETHER, _TWO_EDGES = 8, 32  # neighbours that a lane has of a result, columns that four lanes share
_RESERVED = 1024  # bytes of LDS that a block takes besides


@dataclass(frozen=True)
class AsyncTile(MatrixTile):
    """So many steps in LDS, layers of waves that share a step's k, by wgmma or mma.sync; blocks beside each other.

    `cluster`: blocks that share a part of a tile's k, and meet in each other's LDS.
    """

    stages: int = 3
    waves_deep: int = 1
    wgmma: bool = False
    resident: int = 1

    @property
    def threads(self) -> int:
        return super().threads * self.waves_deep

    @property
    def widths(self) -> dict[bool, int]:
        """Pieces both ways: they are copied as they lie."""
        return dict.fromkeys((True, False), PIECE_BYTES // self.kind.nbytes)

    @property
    def label(self) -> str:
        by = "wgmma" if self.wgmma else "async"
        return f"{super().label} {by}" + (f" by {self.cluster}" if self.cluster > 1 else "")

    @property
    def may_decode(self) -> bool:
        """mma.sync takes up to 160 registers of a lane for sums, fragments and addresses."""
        return self.wgmma or self.cols * (self.rows + self.depth) <= 160 * self.threads

    def clocks(self, k: int, rounds: int) -> float:
        beside = min(rounds, self.resident)
        busy = 1.0 if self.wgmma else min(1.0, beside * self.threads / _BUSY)
        multiply = self.rows * self.cols * self.depth / (self.efficiency * self.kind.pace * busy)
        load = (self.rows + self.cols) * self.chunks * CHUNK_BYTES / _L2_BYTES
        decode = self.decoding + _WAIT / beside if self.decode else 0
        step = max(multiply, load, decode) if self.wgmma else max(multiply, load) + decode  # wgmma multiplies meanwhile
        if self.wgmma and self.stages <= 3:  # which awaits the products of each step (pf_mma_panels.h)
            step += _WAIT * (1 / beside - 1 / self.resident)
        block = _BEGIN + _RESULT * self.rows * self.cols + -(-k // self.depth) * step
        return -(-rounds // beside) * beside * block

    def keeps(self, out_width: int) -> bool:
        """As pf_async_loop's HELD: whether results are handed over from registers, `out_width` at once."""
        alone = self.cluster == self.waves_deep == 1 and self.cols // self.waves_across % _TWO_EDGES == 0
        return alone and out_width > 1 and _TOGETHER % out_width == 0

    def lds_bytes(self, sum_bytes: int) -> int:
        """As pf_async_loop's LDS_PIECES: all steps, or the results of all layers."""
        steps = self.stages * self.chunks * (self.rows + self.cols) * CHUNK_BYTES
        return max(steps, self.waves_deep * self.rows * (self.cols + 8) * sum_bytes)

    def defines(self) -> dict[str, int]:
        return {
            **super().defines(), "STAGES": self.stages, "WAVES_DEEP": self.waves_deep, "WGMMA": int(self.wgmma),
            "CLUSTER": self.cluster, "EARLY": 0, "TURNED": 0, "MANY": 0,
        }  # fmt: skip


# rows, columns, waves down, across and deep, chunks of a step, steps in LDS, blocks of a cluster. Layers of waves are
# for few rows or columns, where many bytes must be on their way for few products.
_SYNC = (
    (256, 128, 4, 2, 1, 2, 3, 1), (128, 128, 2, 2, 1, 2, 3, 1), (64, 64, 2, 2, 1, 2, 4, 1), (64, 32, 1, 1, 8, 8, 3, 1),
    (32, 32, 1, 1, 8, 8, 3, 1), (16, 32, 1, 1, 8, 8, 4, 1), (32, 16, 1, 1, 8, 8, 4, 1),
)  # fmt: skip
# Hopper's, and the others beside them. A warpgroup is four waves, of 16 rows each.
_WGMMA = (
    (128, 256, 8, 1, 1, 2, 4, 1), (256, 128, 16, 1, 1, 2, 4, 1), (128, 128, 8, 1, 1, 2, 3, 1),
    (64, 128, 4, 1, 2, 4, 4, 1), (128, 64, 8, 1, 2, 4, 4, 2), (64, 64, 4, 1, 2, 4, 6, 2), (128, 256, 8, 1, 1, 2, 4, 2),
)  # fmt: skip
# Of few columns, or few steps: blocks beside each other hide what each one waits for. 192: three taps of 64 channels.
_WGMMA_THIN = (
    (192, 64, 12, 1, 1, 2, 3, 1), (256, 64, 16, 1, 1, 2, 4, 1), (128, 64, 8, 1, 1, 2, 3, 1),
    (64, 128, 4, 1, 1, 2, 3, 1),
)  # fmt: skip
_BESIDE_WGMMA = ((32, 64, 1, 2, 4, 8, 4, 2), *_SYNC[2:])
_SYNC_EFFICIENCY, _WGMMA_EFFICIENCY = 1.2, 3.0  # beside that of pf_mma_loop.h


def async_tiles(target: Target, kind: MatrixKind, sum_bytes: int, *, clusters: bool = True) -> tuple[AsyncTile, ...]:
    """The blocks to choose from, as far as LDS holds them; none where a target or dtype has no such copies.

    `clusters`: whether blocks may share a tile's k.
    """
    if target.matrix_core not in ("mma", "wgmma") or kind.nbytes != 2 or not kind.as_is:
        return ()
    rows = [(row, False) for row in _SYNC]
    if target.matrix_core == "wgmma":
        rows = [*((row, True) for row in (*_WGMMA_THIN, *_WGMMA)), *((row, False) for row in _BESIDE_WGMMA)]
    rows = [row for row in rows if clusters or row[0][-1] == 1]
    found = []
    for (high, wide, down, across, deep, chunks, stages, cluster), wgmma in rows:
        efficiency = _WGMMA_EFFICIENCY if wgmma else _SYNC_EFFICIENCY
        shape = (high, wide, down, across, chunks, target.wave_size, kind, efficiency, cluster)
        tile = AsyncTile(*shape, stages=stages, waves_deep=deep, wgmma=wgmma)
        lds = tile.lds_bytes(sum_bytes) + _RESERVED
        if lds <= target.lds_bytes + _RESERVED:
            found.append(replace(tile, resident=(target.lds_bytes + _RESERVED) // lds))
    return tuple(found)


def one_after_another(phase: PhaseText, tile: object, kind: dict[str, int], workers: int) -> PhaseText:
    """The launch with a block for each compute unit, which takes several tiles: it fetches one while it stores another.

    For blocks that have no others beside them, whose results go from registers.
    """
    fits = isinstance(tile, AsyncTile) and tile.resident == 1 and tile.keeps(kind["OUT_WIDTH"]) and not kind["TURNED"]
    if not fits or phase.grid <= workers:
        return phase
    kind["MANY"], given = 1, len(phase.args)
    body = f"{phase.body.removesuffix(');')}, (int)a{given}, (int)a{given + 1});"
    return replace(phase, grid=workers, args=(*phase.args, phase.grid, workers), body=body)
