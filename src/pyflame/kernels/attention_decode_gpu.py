"""Host side of attention_decode.hip: attention of up to 8 queries over many keys, which may lie in pages.

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
from pyflame.kernels.attention_paged import PagedLaunch, paged_prior, strides_or_none
from pyflame.kernels.gpu_source import GpuFunctions, element, float_bits
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel
from pyflame.kernels.tile_gpu import check_extents, late_args

_THREADS = 128  # PF_DEC_THREADS
_NUMBERS = 64  # of queries, and of results, that a lane has in registers
_MANY_KEYS = 32  # for each query: with fewer, products and softmax take as long
_BUSY = 4  # blocks for each compute unit
_LEAST_KEYS = 32  # of a split: what most blocks take at a time
_MOST_SPLITS = 64  # as PF_DEC_MOST_SPLITS


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
    """So many that all compute units are busy at once, without a second round of few blocks, and that each split is
    worth a block."""
    return max(1, min(_BUSY * workers // blocks, -(-keys // _LEAST_KEYS), _MOST_SPLITS))


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
    call = f"scratch, {result}, {late_args(launch)}"
    if made.spans is not None:
        call += f", b{made.spans.buffer} + PF_SPAN_LIVE, b{made.spans.buffer} + PF_SPAN_OFFSET, PF_SPAN"
    _add_join(functions, entries * rows, args, call, f"{element(dtype)}, {lanes}, {pieces}, {taken}", target)
    return functions.source(4 * entries * rows * splits * (shape.width + 2))


def _paged_vectors(launch: Launch, made: PagedLaunch, width: int) -> bool:
    """Whether neighbours of every line are aligned vectors of `width`, once their buffers are aligned."""
    views = [made.key, made.value, *[made.query] * (made.query.dtype.itemsize == made.key.dtype.itemsize)]
    return all(
        v.shape[3] % width == 0
        and v.strides[3] == 1
        and all(step % width == 0 for step in v.strides[:3])
        and launch.buffers[v.buffer][1] % (width * v.dtype.itemsize) == 0
        for v in views
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
    vector = aligned and _paged_vectors(launch, made, piece)
    lanes, pieces = _lines(max(depth, width), piece)
    taken = _rows(rows, pieces * piece)
    blocks = batch * groups * -(-rows // taken)
    splits = _splits(blocks, made.keys, target.workers)
    wide = piece if vector else 1
    alignment = [v.dtype.itemsize * (wide if v in (key, made.value) else 1) for v in launch.operands]
    alignment[0] *= wide if query.dtype.itemsize == key.dtype.itemsize else 1
    functions = GpuFunctions(
        "attention_decode.hip",
        [*(f"const {storage(v.dtype)}" for v in launch.operands), storage(query.dtype)],
        [*alignment, query.dtype.itemsize],
    )
    scale = "pf_of<float>" if made.key_scale is None else element(made.key_scale.dtype)
    types = f"{element(query.dtype)}, {element(key.dtype)}, pf_page_scale<{scale}, {int(made.key_scale is not None)}>"
    numbers = ", ".join(map(str, (lanes, pieces, taken, int(vector), int(made.softcap > 0))))
    given = [f"b{n}" for n in range(5)]
    given += [f"b{v.buffer}" if v else "0" for v in (made.key_scale, made.value_scale, made.sinks)]
    result, args = f"b{len(launch.operands)}", _paged_args(made, splits)
    body = f"pf_attend_pages<{types}, {numbers}>({', '.join(given)}, scratch, {result}, err, {late_args(launch)});"
    lds_bytes = 4 * _THREADS // target.wave_size * taken * (lanes * pieces * piece + 2)
    functions.add("_few", blocks * splits, _THREADS, args, body, lds_bytes)
    if splits > 1:
        call = f"scratch, {result}, {late_args(launch)}, b4, (const int *)0, (int){late_args(launch)}[PF_PAGE_LENGTHS]"
        kind = f"{element(query.dtype)}, {lanes}, {pieces}, {taken}"
        _add_join(functions, batch * groups * rows, args, call, kind, target)
    return functions.source(4 * batch * groups * rows * splits * (width + 2) * (splits > 1))


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
