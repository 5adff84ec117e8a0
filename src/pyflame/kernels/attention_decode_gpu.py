"""Host side of attention_decode.hip: attention of up to 8 queries over many keys.

The text depends on dtype, mask, cap, the class of the lines' length, on how many rows a block has and on whether all
operands can be read as vectors. Keys are split so that every compute unit has blocks; how, changes the order of sums.
"""

from __future__ import annotations

from functools import partial

from pyflame.core.device import Target
from pyflame.core.traced import whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.ir.node import Node
from pyflame.kernels.attention import DTYPES, FEW_QUERIES, AttentionLaunch
from pyflame.kernels.attention_gpu import WIDEST, launch_args, vectors, ways
from pyflame.kernels.gpu_source import GpuFunctions, element
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import check_extents, late_args

_THREADS = 128  # PF_DEC_THREADS
_NUMBERS = 64  # of queries, and of results, that a lane has in registers
_MANY_KEYS = 32  # for each query: with fewer, products and softmax take as long
_BUSY = 4  # blocks for each compute unit
_LEAST_KEYS = 256  # of a split
_MOST_SPLITS = 64


@whole
def _lines(longest: int, piece: int) -> tuple[int, int]:
    """LANES of a line, and PIECES of each."""
    lanes = 8 if longest <= 8 * piece else 16
    return lanes, next(n for n in (1, 2, 4) if longest <= lanes * n * piece)


@whole
def _rows(rows: int, numbers: int) -> int:
    """Of a block."""
    return min(next((n for n in (1, 2, 4) if rows <= n), 8), _NUMBERS // numbers, 8)


@whole
def _splits(blocks: int, keys: int, workers: int) -> int:
    """So many that all compute units are busy, and each split is worth a block."""
    return max(1, min(-(-_BUSY * workers // blocks), -(-keys // _LEAST_KEYS), _MOST_SPLITS))


def decode_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches. `aligned` False: for buffers that lie misaligned."""
    made = AttentionLaunch.of(launch)
    shape, dtype, (way,) = made.shape, made.query.dtype, ways(made)
    entries, rows = shape.batch * shape.heads, shape.share * shape.queries
    check_extents("attention", ((4 if made.spans else 1) * (shape.queries + shape.keys), entries * rows))
    piece = 16 // dtype.itemsize
    vector = aligned and vectors(launch, made, piece)
    lanes, pieces = _lines(max(shape.depth, shape.width), piece)
    taken = _rows(rows, pieces * piece)
    groups = -(-rows // taken)
    splits = _splits(entries * groups, shape.keys, target.workers)
    functions = GpuFunctions(
        "attention_decode.hip",
        [*(f"const {storage(v.dtype)}" for v in launch.operands), storage(dtype)],
        [
            *(v.dtype.itemsize * (piece if vector and n < 3 else 1) for n, v in enumerate(launch.operands)),
            dtype.itemsize,
        ],
    )
    mask = "(const char *)0" if made.mask is None else f"b{made.mask.buffer}"
    numbers = ", ".join(
        map(str, (lanes, pieces, taken, int(vector), made.mask_kind, int(shape.capped), made.span_kind))
    )
    operands = ", ".join(f"b{v.buffer}" for v in (made.query, made.key, made.value))
    result, args = f"b{len(launch.operands)}", (*launch_args(made, way), splits)
    given = f"{operands}, {mask}, scratch, {result}, {late_args(launch)}"
    given += "" if made.spans is None else f", b{made.spans.buffer}"
    body = f"pf_attend_few<{element(dtype)}, {numbers}>({given});"
    lds_bytes = 4 * _THREADS // target.wave_size * taken * (lanes * pieces * piece + 2)
    functions.add("_few", entries * splits * groups, _THREADS, args, body, lds_bytes)
    if splits == 1:
        return functions.source()
    join = f"pf_attend_join<{element(dtype)}>(scratch, {result}, {late_args(launch)});"
    functions.add("_join", entries * rows, _THREADS, args, join)
    return functions.source(4 * entries * rows * splits * (shape.width + 2))


def _prior(node: Node, target: Target) -> float:
    """More than all others', for few queries and many keys."""
    made = AttentionLaunch.of_node(node)
    shape = made.shape
    few = not made.packed and 0 < shape.queries <= FEW_QUERIES and shape.keys >= _MANY_KEYS * shape.queries
    fits = min(shape.depth, shape.width) > 0 and max(shape.depth, shape.width) <= WIDEST
    return 3.0 * (few and fits and shape.batch * shape.heads > 0 and made.query.dtype.name in DTYPES)


kernel(
    KernelSpec(
        "attention",
        "decode_gpu",
        decode_source,
        languages=("hip", "cuda"),
        why="own kernel for few queries: keys and values are read once, split over blocks",
        strided=True,
        unaligned=partial(decode_source, aligned=False),
        prior=_prior,
    )
)
