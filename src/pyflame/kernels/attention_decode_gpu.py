"""Host side of attention_decode.hip and attention_decode_mma.hip: few queries over many keys, which may lie in pages.

The text depends on dtype, mask, cap, the class of the lines' length, on how many rows a block has and on whether all
operands can be read as vectors. Several rows of 16-bit numbers go by matrix tiles, others by dots. Keys are split so
that every compute unit has blocks; how, changes the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.traced import whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch, OperandView
from pyflame.ir.node import Node
from pyflame.kernels.attention import DTYPES, FEW_QUERIES, AttentionLaunch
from pyflame.kernels.attention_gpu import WIDEST, launch_args, vectors, ways
from pyflame.kernels.attention_mma_gpu import tile_kind
from pyflame.kernels.attention_paged import PagedLaunch, paged_prior, strides_or_none
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element, float_bits
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import check_extents, late_args

_THREADS = 128
_NUMBERS = 64  # of queries, and of results, that a lane has in registers
_MANY_KEYS = 32  # for each query: with fewer, products and softmax take as long
_BUSY = 4  # blocks for each compute unit
_LEAST_KEYS = 32  # of a split: what most blocks take at a time
_MOST_SPLITS = 64  # as PF_DEC_MOST_SPLITS
_MANY_ROWS = 3  # that share their keys, from which on tiles are faster,
_MANY_BYTES = 16 << 20  # and bytes of keys and values: fewer are read while launches begin and end
_CLUSTER, _CLUSTER_THREADS = 8, 256  # blocks that meet in each other's LDS, and threads of each
_CLUSTER_BUSY = 2  # blocks for each compute unit
_CLUSTER_KEYS = 2048  # with more, all compute units must read
_EARLY_BYTES = 256 << 10  # of keys and values for a compute unit, that are asked for before other launches end
_RINGS = ((6, 2), (4, 3), (4, 2), (2, 3), (2, 2))  # waves, and turns on their way to LDS of each
_LDS_BYTES = 48 << 10  # of a block beside others


@whole
def _lines(longest: int, piece: int) -> tuple[int, int]:
    """LANES of a line, and PIECES of each."""
    lanes = 8 if longest <= 8 * piece else 16
    return lanes, next(n for n in (1, 2, 4) if longest <= lanes * n * piece)


@whole
def _rows(rows: int, numbers: int) -> int:
    """Of a block."""
    return min(next((n for n in (1, 2, 4) if rows <= n), 8), _NUMBERS // numbers, 8)


@dataclass(frozen=True)
class _Block:
    """What a block of either kernel is made of."""

    mma: str  # type of its tiles; "" for dots
    numbers: tuple[
        int, ...
    ]  # of its template: lengths of lines, rows, how they are shared out, whether vectors are read
    rows: int
    threads: int
    step: int  # keys at a time
    lds_bytes: int
    resident: int  # such blocks on a compute unit
    dynamic: bool = False  # LDS that the launch brings
    cluster: int = 1  # blocks that have the splits of the same rows, and need no join

    def splits(self, blocks: int, keys: int, workers: int) -> int:
        """Of the keys, so that all compute units are busy and few wait for the last: no more than that takes."""
        most = max(1, min(-(-keys // max(self.step, _LEAST_KEYS)), _MOST_SPLITS))
        if self.cluster > 1:
            return self.cluster
        if not self.dynamic:
            return max(1, min(self.resident * workers // blocks, most))
        rounds = {n: -(-blocks * n // (self.resident * workers)) / n for n in range(1, most + 1)}
        return next(n for n, took in rounds.items() if took <= 1.06 * min(rounds.values()))

    def add(self, functions: GpuFunctions, grid: int, args: tuple[int, ...], body: str, awaits: bool = False) -> None:
        dynamic = self.lds_bytes * self.dynamic
        lds = self.lds_bytes - dynamic, dynamic, self.cluster
        functions.add("_few", grid, self.threads, args, body, *lds, alone=self.dynamic, awaits=awaits)


def _rows_of_cluster(taken: int, rows: int, entries: int, target: Target) -> int:
    """Of each block: few, for fewer instructions one after the other; 0 where blocks would wait for others."""
    fits = [n for n in (1, 2, 4) if entries * -(-rows // n) * _CLUSTER <= _CLUSTER_BUSY * target.workers]
    return next((n for n in fits if min(taken, 2) <= n <= taken), 0) * (target.matrix_core == "wgmma")


def _dots(
    lines: tuple[int, int], rows: int, nbytes: int, vector: int, entries: int, keys: int, target: Target
) -> _Block:
    """`lines`: numbers of a key and of a value; `vector`: 2 where they are near; `entries`: heads of keys, of all
    sequences."""
    piece = 16 // nbytes
    lanes, pieces = _lines(max(lines), piece)
    line = lanes * pieces * piece
    if lines != (line, line):
        vector = min(vector, 1)
    taken, threads, cluster = _rows(rows, pieces * piece), _THREADS, 1
    few = _rows_of_cluster(taken, rows, entries, target) if vector and _MANY_KEYS < keys <= _CLUSTER_KEYS else 0
    if few:
        taken, threads, cluster = few, _CLUSTER_THREADS, _CLUSTER
    step = threads // lanes * (2 if pieces == 4 or taken == 8 else 4)
    lds_bytes = 4 * threads // target.wave_size * taken * (line + 2) + (cluster > 1) * 16 * (taken * line + cluster)
    numbers, busy = (lanes, pieces, taken, threads, cluster, vector), _BUSY if cluster == 1 else _CLUSTER_BUSY
    return _Block("", numbers, taken, threads, step, lds_bytes, busy, cluster=cluster)


def _tiles(depth: int, width: int, rows: int, nbytes: int, dtype: DType, vector: bool, target: Target) -> _Block | None:
    """None: without such tiles, or for so few rows or bytes that dots take no longer.

    NVIDIA's waves read by asynchronous copies of whole pieces, or not at all: they have no registers left for it. Nor
    have WMMA's, of 32 lanes; those GPUs have four times the arithmetic that dots need at their memory's speed.
    """
    kind, copied = tile_kind(target, dtype), target.language == "cuda"
    if kind is None or rows < _MANY_ROWS or nbytes < _MANY_BYTES or target.matrix_core == "wmma":
        return None
    if copied and (depth % 32 or not vector):
        return None
    chunks, halves, taken = -(-depth // 32), -(-width // 64), next((n for n in (4, 8) if rows <= n), 16)
    queries, turn = 1024 * chunks, 32 * (64 * chunks + 128 * halves)
    for waves, stages in _RINGS if copied else ((4, 0), (2, 0)):
        met = 16 * (waves * taken * (-(-halves // 2) * 128 + 2) // 4 + 1)
        lds_bytes = max(queries + waves * stages * turn, met)
        if lds_bytes <= (target.lds_bytes if copied else _LDS_BYTES):
            break
    numbers = (chunks, halves, taken, waves, stages, int(vector))
    resident = 1 if copied else _BUSY
    return _Block(kind.name, numbers, taken, waves * target.wave_size, 32 * waves, lds_bytes, resident, copied)


def _near(piece: int, *views: OperandView) -> bool:
    """Whether ints count the pieces from the first to any."""
    return all(sum(n * step for n, step in zip(v.shape, v.strides, strict=True)) < piece * SMALL for v in views)


def _add_join(functions: GpuFunctions, rows: int, args: tuple[int, ...], call: str, kind: str, target: Target) -> None:
    """The launch that joins splits: a block for a row, of many threads where there are few. `call`: its arguments;
    `kind`: those of its template, but for the threads."""
    threads = 512 if rows <= 2 * target.workers else 256
    body = f"pf_attend_join<{kind}, {threads}>({call});"
    functions.add("_join", rows, threads, args, body, 4 * threads)


def decode_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches. `aligned` False: for buffers that lie misaligned."""
    made = AttentionLaunch.of(launch)
    shape, dtype, (way,) = made.shape, made.query.dtype, ways(made)
    entries, rows = shape.batch * shape.heads, shape.share * shape.queries
    check_extents("attention", ((4 if made.spans else 1) * (shape.queries + shape.keys), entries * rows))
    piece = 16 // dtype.itemsize
    vector = aligned and vectors(launch, made, piece)
    size = entries * shape.keys * (shape.depth + shape.width) * dtype.itemsize
    near = vector and _near(piece, made.key, made.value)
    block = _tiles(shape.depth, shape.width, rows, size, dtype, near, target) or _dots(
        (shape.depth, shape.width), rows, dtype.itemsize, vector + near, entries, shape.keys, target
    )
    blocks = entries * -(-rows // block.rows)
    splits = block.splits(blocks, shape.keys, target.workers)
    functions = GpuFunctions(
        "attention_decode_mma.hip" if block.mma else "attention_decode.hip",
        [*(f"const {storage(v.dtype)}" for v in launch.operands), storage(dtype)],
        [
            *(v.dtype.itemsize * (piece if vector and n < 3 else 1) for n, v in enumerate(launch.operands)),
            dtype.itemsize,
        ],
    )
    mask = "(const char *)0" if made.mask is None else f"b{made.mask.buffer}"
    numbers = ", ".join(map(str, (*block.numbers, made.mask_kind, int(shape.capped), made.span_kind)))
    operands = ", ".join(f"b{v.buffer}" for v in (made.query, made.key, made.value))
    result, args = f"b{len(launch.operands)}", (*launch_args(made, way), splits)
    given = f"{operands}, {mask}, scratch, {result}, {late_args(launch)}"
    given += "" if made.spans is None else f", b{made.spans.buffer}"
    kind = f"_mma<{element(dtype)}, {block.mma}" if block.mma else f"<{element(dtype)}"
    block.add(functions, blocks * splits, args, f"pf_attend_few{kind}, {numbers}>({given});")
    if splits in (1, block.cluster):
        return functions.source()
    call = f"scratch, {result}, {late_args(launch)}"
    if made.spans is not None:
        call += f", b{made.spans.buffer} + PF_SPAN_LIVE, b{made.spans.buffer} + PF_SPAN_OFFSET, PF_SPAN"
    _add_join(functions, entries * rows, args, call, f"{element(dtype)}, {block.step}", target)
    return functions.source(4 * entries * rows * splits * (shape.width + 2))


def _early(block: _Block, grid: int, nbytes: int, target: Target) -> int:
    """Keys of a block, of so many bytes with their values, to ask for while other launches end: where all blocks run at
    once, and launches overlap."""
    if target.language != "cuda" or grid > block.resident * target.workers:
        return 0
    return _EARLY_BYTES // block.resident // nbytes


def _paged_vectors(launch: Launch, made: PagedLaunch) -> bool:
    """Whether every line is made of aligned pieces of 16 bytes, once buffers are aligned."""
    widths = {v: 16 // v.dtype.itemsize for v in (made.query, made.key, made.value)}
    return all(
        v.shape[3] % width == 0
        and v.strides[3] == 1
        and all(step % width == 0 for step in v.strides[:3])
        and launch.buffers[v.buffer][1] % 16 == 0
        for v, width in widths.items()
    )


def _paged_args(made: PagedLaunch, splits: int) -> tuple[int, ...]:
    """PF_ATT_ROWS to PF_PAGE_VALUE_SCALE."""
    _, heads, queries, depth = made.query.shape
    pages, page, _, width = made.value.shape
    (key_page, *key), (value_page, *value) = made.key.strides, made.value.strides
    numbers = float_bits(made.scale, made.softcap)
    none = (0, 0, 0, 0)
    return (
        queries, made.keys, heads, made.share, 1, depth, width, width, made.low, 0, *numbers, *made.query.strides,
        0, key[1], key[0], key[2], *none, *none, 0, value[1], value[0], value[2], *none,
        0, queries * heads * width, width, heads * width, 0, splits,
        pages, page.bit_length() - 1, made.check, key_page, value_page, *made.table.strides, *made.lengths.strides,
        *strides_or_none(made.sinks, 1), *strides_or_none(made.key_scale, 3), *strides_or_none(made.value_scale, 3),
    )  # fmt: skip


def paged_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches over pages. `aligned` False: for buffers that lie misaligned."""
    made = PagedLaunch.of(launch)
    query, key, (batch, _, queries, depth) = made.query, made.key, made.query.shape
    pages, page, groups, width = made.value.shape
    rows, piece = made.share * queries, 16 // key.dtype.itemsize
    check_extents("paged_attention", (4 * (queries + made.keys), batch * groups * rows, pages * page))
    vector = aligned and _paged_vectors(launch, made)
    like = query.dtype is key.dtype and made.key_scale is None
    size = batch * groups * made.keys * (depth + width) * key.dtype.itemsize
    near = vector and _near(piece, key, made.value)
    block = (like and _tiles(depth, width, rows, size, key.dtype, near, target)) or _dots(
        (depth, width), rows, key.dtype.itemsize, vector + near, batch * groups, made.keys, target
    )
    blocks = batch * groups * -(-rows // block.rows)
    splits = block.splits(blocks, made.keys, target.workers)
    alignment = [16 if vector and v in (query, key, made.value) else v.dtype.itemsize for v in launch.operands]
    functions = GpuFunctions(
        "attention_decode_mma.hip" if block.mma else "attention_decode.hip",
        [*(f"const {storage(v.dtype)}" for v in launch.operands), storage(query.dtype)],
        [*alignment, query.dtype.itemsize],
    )
    early = _early(block, blocks * splits, (depth + width) * key.dtype.itemsize, target)
    numbers = ", ".join(map(str, (*block.numbers, int(made.softcap > 0), early)))
    given = [f"b{n}" for n in range(5)]
    if block.mma:
        call = f"pf_attend_pages_mma<{element(query.dtype)}, {block.mma}, {numbers}>"
    else:
        scale = "pf_of<float>" if made.key_scale is None else element(made.key_scale.dtype)
        scaled = f"pf_page_scale<{scale}, {int(made.key_scale is not None)}>"
        call = f"pf_attend_pages<{element(query.dtype)}, {element(key.dtype)}, {scaled}, {numbers}>"
        given += [f"b{v.buffer}" if v else "0" for v in (made.key_scale, made.value_scale)]
    given.append(f"b{made.sinks.buffer}" if made.sinks else "0")
    result, args = f"b{len(launch.operands)}", _paged_args(made, splits)
    body = f"{call}({', '.join(given)}, scratch, {result}, err, {late_args(launch)});"
    block.add(functions, blocks * splits, args, body, awaits=early > 0)
    joined = splits not in (1, block.cluster)
    if joined:
        call = f"scratch, {result}, {late_args(launch)}, b4, (const int *)0, (int){late_args(launch)}[PF_PAGE_LENGTHS]"
        kind = f"{element(query.dtype)}, {block.step}"
        _add_join(functions, batch * groups * rows, args, call, kind, target)
    return functions.source(4 * batch * groups * rows * splits * (width + 2) * joined)


def _paged_prior(node: Node, target: Target) -> float:
    """As on the CPU, for pages of one dtype and a power of 2 lines."""
    key, value = node.srcs[1:3]
    page, longest = key.shape[1], max(key.shape[3], value.shape[3])
    return paged_prior(node, target) * (key.dtype is value.dtype and page & (page - 1) == 0 and longest <= WIDEST)


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
kernel(
    KernelSpec(
        "attend_pages",
        "paged_gpu",
        paged_source,
        languages=("hip", "cuda"),
        why="own kernel for few queries: pages are read once where they lie, split over blocks",
        strided=True,
        unaligned=partial(paged_source, aligned=False),
        prior=_paged_prior,
    )
)
