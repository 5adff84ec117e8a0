"""Host side of attention.hip: its launches, in which tiles, and who plays which part in them.

The text depends on dtype, mask, cap, the class of the lines' length and on whether all operands can be read as vectors;
extents and strides are arguments. Where a vendor's library does products it is left out (`overtaken_by`): a library
has matrix cores; unless the scores would take more than SCORES_BYTES.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch, OperandView
from pyflame.ir.node import Node
from pyflame.kernels.attention import AttentionLaunch, attention_prior, both_passes, results_of, strides_of
from pyflame.kernels.gpu_source import GpuFunctions, element, float_bits
from pyflame.kernels.spec import Epilogue, KernelSpec
from pyflame.kernels.tile_gpu import check_extents, late_args

WIDEST = 256  # numbers of a line that a block's registers hold
_TILE, _THREADS = 64, 256  # PF_ATT_LINES, PF_ATT_THREADS
_STEP = 16  # DEPTH of pf_scores
_VECTOR = 4  # WIDTH
KNOWN_BYTES = 16  # of a query in scratch
SCORES_BYTES = 1 << 30  # of float32 that a library's products may leave in memory


@dataclass(frozen=True)
class Way:
    """One launch: the way of attention.hip, and which operands play which part."""

    name: str
    suffix: str
    turned: bool
    width: int  # of the result
    results: tuple[int, ...]  # which of `results_of`
    a: OperandView
    b: OperandView
    right: OperandView
    a2: OperandView
    b2: OperandView


def ways(made: AttentionLaunch) -> list[Way]:
    shape, query, key, value = made.shape, made.query, made.key, made.value
    if made.g is None or made.out is None:
        return [Way("PF_MIX", "_forward", False, shape.width, (0,), query, key, value, query, key)]
    g = made.g
    return [
        Way("PF_TOTALS", "_totals", False, shape.depth, (0,), query, key, key, g, made.out),
        Way("PF_SLOPES", "_query", False, shape.depth, (0,), query, key, key, g, value),
        Way("PF_SLOPES", "_key", True, shape.depth, (1,), key, query, query, value, g),
        Way("PF_WEIGHTS", "_value", True, shape.width, (2,), key, query, g, value, g),
    ]


class Call(NamedTuple):
    """A way as text: a template with its arguments, own lines and threads of a block, and its LDS.

    `shared_out`: tiles of own lines, blocks that take them, and how many one takes together.
    """

    way: Way
    template: str
    lines: int
    threads: int
    lds_bytes: int
    dynamic_lds: int = 0
    alone: bool = False
    shared_out: tuple[int, ...] = ()


def tiles_of(made: AttentionLaunch, way: Way, rows: int) -> int:
    """How many tiles of so many own lines a launch has."""
    shape = made.shape
    heads, lines = (shape.heads, shape.keys) if way.turned else (shape.heads * shape.share, shape.queries)
    return heads * (lines // rows + made.packed if made.packed else shape.batch * -(-lines // rows))


def attention_text(
    file: str, launch: Launch, made: AttentionLaunch, vector: int, calls: Iterable[Call], known_bytes: int
) -> GpuSource:
    """The text and launches of one attention or its gradient, whose ways a file of kernels has as templates.

    `vector`: how many numbers are read at once. `known_bytes`: what a head of queries has in scratch.
    """
    shape, dtype = made.shape, made.query.dtype
    check_extents(
        "attention", ((4 if made.spans else 1) * (shape.queries + shape.keys), shape.batch * shape.heads * shape.share)
    )
    read = {v.buffer for v in (made.query, made.key, made.value, made.g, made.out) if v is not None}
    functions = GpuFunctions(
        file,
        [*(f"const {storage(v.dtype)}" for v in launch.operands), storage(dtype)],
        [*(v.dtype.itemsize * (vector if v.buffer in read else 1) for v in launch.operands), dtype.itemsize],
    )
    mask = "(const char *)0" if made.mask is None else f"b{made.mask.buffer}"
    for way, template, rows, threads, lds_bytes, dynamic_lds, alone, shared_out in calls:
        buffers = ", ".join(f"b{v.buffer}" for v in (way.a, way.b, way.a2, way.b2, way.right))
        spans = "" if made.spans is None else f", b{made.spans.buffer}"
        body = f"{template}({buffers}, {mask}, scratch, b{len(launch.operands)}, {late_args(launch)}{spans});"
        grid = shared_out[1] if shared_out else tiles_of(made, way, rows)
        args = launch_args(made, way, shared_out)
        functions.add(way.suffix, grid, threads, args, body, lds_bytes, dynamic_lds, alone=alone)
    return functions.source(known_bytes * shape.batch * shape.heads * shape.share * (made.g is not None))


def attention_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and launches of one attention or its gradient. `aligned` False: for buffers that lie misaligned."""
    made = AttentionLaunch.of(launch)
    shape, vector = made.shape, aligned and vectors(launch, made, _VECTOR)

    def call(way: Way) -> Call:
        columns = _columns(way.width)
        numbers = (columns, int(vector), way.name, int(way.turned), made.mask_kind, int(shape.capped), made.span_kind)
        template = f"pf_attend<{element(made.query.dtype)}, {', '.join(map(str, numbers))}>"
        return Call(way, template, _TILE, _THREADS, _lds_bytes(columns, way.name))

    calls = map(call, ways(made))
    return attention_text(
        "attention.hip", launch, made, _VECTOR if vector else 1, calls, KNOWN_BYTES * made.shape.queries
    )


def _columns(width: int) -> int:
    """Columns of the result's tile."""
    return next(n for n in (64, 128, WIDEST) if width <= n)


def _lds_bytes(columns: int, way: str) -> int:
    """As `lds` in pf_attend."""
    scores = 2 * _STEP * 2 * (_TILE + 4)
    mixed = 0 if way == "PF_TOTALS" else _TILE * (_TILE + 4) + 2 * (1024 // columns) * (columns + 4)
    return 4 * max(scores, mixed)


def vectors(launch: Launch, made: AttentionLaunch, width: int) -> bool:
    """Whether neighbours of every line are aligned vectors of `width`, once their buffers are aligned."""
    views = [v for v in (made.query, made.key, made.value, made.g, made.out) if v is not None]
    offsets = [launch.buffers[v.buffer][1] for v in views]
    return all(
        view.shape[3] % width == 0
        and view.strides[3] == 1
        and all(step % width == 0 for step in strides_of(view)[:3])
        and offset % (width * view.dtype.itemsize) == 0
        for view, offset in zip(views, offsets, strict=True)
    )


def launch_args(made: AttentionLaunch, way: Way, shared_out: tuple[int, ...] = ()) -> tuple[int, ...]:
    """PF_ATT_ROWS to PF_ATT_OUT2. `shared_out`: PF_ATT_TILES to PF_ATT_TOGETHER."""
    shape = made.shape
    query_heads, (low, high) = shape.heads * shape.share, made.band
    numbers = float_bits(made.scale, made.softcap)
    results = results_of(shape, made.g is not None)
    first, *more = [
        (*results[3 * n :][:2], shape.width if n == 2 else way.width, results[3 * n + 2]) for n in way.results
    ]
    mask = strides_of(made.mask)
    if way.turned:
        sizes, mask = (shape.keys, shape.queries, shape.heads, 1, shape.share), (*mask[:2], mask[3], mask[2])
        low, high = -high, -low
    else:
        sizes = (shape.queries, shape.keys, query_heads, shape.share, 1)
    return (
        *sizes, shape.depth, shape.width, way.width, low, high, *numbers,
        *(n for view in (way.a, way.b, way.a2, way.b2, way.right) for n in strides_of(view)),
        *mask, *first, made.packed, *shared_out, *(n for place in more for n in place),
    )  # fmt: skip


def _prior(node: Node, target: Target) -> float:
    """As on the CPU, and 0 for lines that are too long."""
    shape = AttentionLaunch.of_node(node).shape
    return attention_prior(node, target) * (max(shape.depth, shape.width) <= WIDEST)


def _large(node: Node) -> bool:
    """Whether there are more scores than memory is there for."""
    shape = AttentionLaunch.of_node(node).shape
    return 4 * shape.batch * shape.heads * shape.share * shape.queries * shape.keys > SCORES_BYTES


both_passes(
    KernelSpec(
        "attention",
        "flash_gpu",
        attention_source,
        languages=("hip", "cuda"),
        why="own blocks of scores, never stored; no library does products here",
        strided=True,
        unaligned=partial(attention_source, aligned=False),
        prior=_prior,
        overtaken_by="matmul",
        unless=_large,
    )
)
