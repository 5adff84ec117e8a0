"""Host side of attention.c: how many queries a task takes, which phases run, and how much scratch they need.

`attention_plan` is a pure function of sizes, dtype, instruction set and workers. What depends on the workers (how
queries are split, whether the backward pass runs in one phase or two) changes no bit of the result.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyflame.core.device import Target
from pyflame.core.dtype import bool_, int32
from pyflame.core.traced import whole
from pyflame.ir.kernel import Anchor, Launch, OperandView, Phase, Source
from pyflame.ir.node import Node
from pyflame.kernels.ctype import macros, stored
from pyflame.kernels.matmul import Geometry, Isa, align, geometry, isa_of, round_up
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

DTYPES = ("float32", "bfloat16", "float16")
FEW_QUERIES = 8
"""Below it most lanes of a panel idle, and the decomposition is faster: it reads keys and values where they lie."""

_BLOCK = {False: 256, True: 128}  # PF_BLOCK forward and backward
_PANELS = 4  # PF_PANELS
_LINE, _PITCH = 64, 80  # PF_LINE, PF_PITCH
_STRIP_BYTES = 1 << 20  # what the scores of a group of queries may take of the second cache level
_OWN_PANELS: dict[Isa, Isa] = {
    **{"neon_mmla": "neon", "neon_dot": "neon"},
    **{"sve256_mmla": "sve256", "sve512_mmla": "sve512"},
}  # panels of floats, not of words that matrix products take
_GRAIN = 1 << 17  # multiply-adds worth waking a thread for


@dataclass(frozen=True)
class AttentionShape:
    """q[batch, heads * share, queries, depth], k[batch, heads, keys, depth], v[batch, heads, keys, width]."""

    batch: int
    heads: int
    share: int
    queries: int
    keys: int
    depth: int
    width: int
    masked: bool = False
    capped: bool = False
    spans: int = 0  # sequences packed in one batch entry


@dataclass(frozen=True)
class AttentionPlan:
    """The phases to run in order, as (function suffix, iterations), and what they need."""

    phases: tuple[tuple[str, int], ...]
    taken: int  # queries at a time
    splits: int  # tasks of a head
    scratch_bytes: int
    worker_bytes: int

    @property
    def args(self) -> tuple[int, ...]:
        """PF_TAKEN to PF_WORKER_BYTES."""
        return self.taken, self.splits, self.scratch_bytes, self.worker_bytes


def attention_plan(
    shape: AttentionShape, *, backward: bool = False, dtype: str = "float32", isa: Isa = "avx512", workers: int = 1
) -> AttentionPlan:
    """Plan one attention or its gradient.

    >>> attention_plan(AttentionShape(8, 6, 1, 256, 256, 64, 64)).phases
    (('forward', 48),)
    """
    geo = geometry(dtype, dtype, 4, _OWN_PANELS.get(isa, isa))
    heads = (shape.spans or shape.batch) * shape.heads
    taken, splits = _tasks(shape.queries, shape.keys, heads, shape.share, geo.cols, backward, workers)
    if not backward:
        return AttentionPlan((("forward", heads * splits),), taken, splits, 0, _forward_bytes(shape, geo, taken))
    worker_bytes = _backward_bytes(shape, geo, taken)
    # one phase: 5 products in as many tasks as there are heads; two: 7 products in as many as one likes
    if 5 * -(-heads // workers) <= 7 * heads / workers:
        return AttentionPlan((("backward", heads),), taken, 1, 0, worker_bytes)
    phases = ("rows", heads * splits), ("keys", heads * -(-shape.keys // _BLOCK[True]))
    statistics = align(8 * shape.batch * shape.heads * shape.share * shape.queries)
    return AttentionPlan(phases, taken, splits, statistics, worker_bytes)


@whole
def _tasks(queries: int, keys: int, heads: int, share: int, cols: int, backward: bool, workers: int) -> tuple[int, int]:
    """Queries at a time, and tasks of a head."""
    panels = min(_PANELS, -(-queries // cols))
    if backward:
        panels = min(panels, max(1, _STRIP_BYTES // (4 * cols * keys)))
    taken = panels * cols
    return taken, min(share * -(-queries // taken), max(1, -(-4 * workers // heads)))


@dataclass(frozen=True)
class _Words:
    """Sizes of operands in 4-byte words, as the functions of these names in pf_attention.h."""

    geo: Geometry

    @property
    def tiles(self) -> bool:
        return self.geo.group > 1

    def cross(self, rows: int, depth: int) -> int:
        return self.geo.words(rows) * self.geo.width(depth) if self.tiles else -(-depth // _LINE) * rows * _PITCH

    def rows(self, lines: int, depth: int) -> int:
        if self.tiles:
            return round_up(lines, self.geo.rows) * self.geo.words(depth)
        return self.cross(lines + self.geo.rows, depth)

    def cols(self, lines: int, depth: int) -> int:
        return self.geo.words(lines) * self.geo.height(depth) if self.tiles else self.rows(lines, depth)

    def sums(self, lines: int, depth: int) -> int:
        return round_up(lines, self.geo.rows) * self.geo.width(depth) if self.tiles else self.rows(lines, depth)

    def sum_lines(self, depth: int) -> int:
        return self.geo.height(depth) if self.tiles else depth + self.geo.rows

    def right(self, block: int) -> int:
        return self.geo.words(block) * self.geo.cols if self.tiles else 0

    def scores(self, block: int) -> int:
        return (block // 2 if self.tiles else block + self.geo.rows) * self.geo.cols


def _bytes(*words: int) -> int:
    return sum(align(4 * n) for n in words)


def _forward_bytes(shape: AttentionShape, geo: Geometry, taken: int) -> int:
    """What PF_NAME_forward takes, in its order."""
    words, block = _Words(geo), _BLOCK[False]
    return _bytes(
        words.rows(shape.keys, shape.depth),
        words.cols(shape.keys, shape.width),
        taken * geo.words(shape.depth),
        words.right(block),
        (block + geo.rows) * geo.cols,
        taken * words.sum_lines(shape.width),
        *[taken] * 2,
        shape.masked * block * geo.cols,
        max(shape.width, block) * geo.cols,
    )


def _backward_bytes(shape: AttentionShape, geo: Geometry, taken: int) -> int:
    """What pf_open takes, in its order."""
    words, block = _Words(geo), _BLOCK[True]
    return _bytes(
        words.rows(shape.keys, shape.depth),
        words.rows(shape.keys, shape.width),
        words.cols(shape.keys, shape.depth) if words.tiles else 0,
        words.sums(shape.keys, shape.depth),
        words.sums(shape.keys, shape.width),
        taken * geo.words(shape.depth),
        taken * geo.words(shape.width),
        words.cross(taken, shape.depth),
        words.cross(taken, shape.width),
        taken * (shape.keys + geo.rows),
        shape.capped * taken * (shape.keys + geo.rows),
        (block + geo.rows) * geo.cols,
        *[_PANELS * words.scores(block)] * 2,
        words.right(block),
        taken * words.sum_lines(shape.depth),
        *[taken] * 3,
        *[geo.cols] * 2,
        shape.masked * block * geo.cols,
        max(shape.depth, block) * geo.cols,
    )


@whole
def _grain(work: int) -> int:
    """Tasks of so many multiply-adds that a thread should take at least."""
    return max(1, _GRAIN // max(1, work))


def strides_of(view: OperandView | None) -> tuple[int, ...]:
    """Of batch, head, row and column; 0 where a mask is broadcast, and where there is nothing."""
    if view is None:
        return (0, 0, 0, 0)
    return tuple(0 if size == 1 else step for size, step in zip(view.shape, view.strides, strict=True))


@dataclass(frozen=True)
class AttentionLaunch:
    """The operands of a launch by name; g and out, of the same shape, are there in the backward pass."""

    query: OperandView
    key: OperandView
    value: OperandView
    mask: OperandView | None
    spans: OperandView | None
    g: OperandView | None
    out: OperandView | None
    low: int | None
    high: int | None
    scale: float
    softcap: float

    @staticmethod
    def of(launch: Launch) -> AttentionLaunch:
        assert launch.kernel.anchor is not None
        return AttentionLaunch._named(launch.kernel.anchor, launch.operands)

    @staticmethod
    def of_node(node: Node) -> AttentionLaunch:
        """Before there is a launch: shapes and dtypes, without strides."""
        return AttentionLaunch._named(node, [OperandView(n, s.shape, (), s.dtype) for n, s in enumerate(node.srcs)])

    @staticmethod
    def _named(anchor: Anchor | Node, views: Sequence[OperandView]) -> AttentionLaunch:
        backward = anchor.op.name == "attention_backward"
        g, out = (views[0], views[4]) if backward else (None, None)
        rest = views[5 if backward else 3 :]
        spans = next((v for v in rest if v.dtype is int32), None)
        mask = next((v for v in rest if v is not spans), None)
        query, key, value = views[backward : backward + 3]
        return AttentionLaunch(query, key, value, mask, spans, g, out, *anchor.attrs)

    @property
    def mask_kind(self) -> int:
        """0: none; 1: bool; 2: added."""
        return 0 if self.mask is None else 1 if self.mask.dtype is bool_ else 2

    @property
    def shape(self) -> AttentionShape:
        batch, query_heads, queries, depth = self.query.shape
        _, heads, keys, width = self.value.shape
        share = query_heads // max(heads, 1)
        return AttentionShape(
            batch, heads, share, queries, keys, depth, width, self.mask is not None, self.softcap > 0, self.packed
        )

    @property
    def band(self) -> tuple[int, int]:
        """The least and the greatest key - query that is seen, as numbers that sizes and offsets can be added to."""
        return _band(self.query.shape[2], self.key.shape[2], self.low, self.high, self.spans is not None)

    @property
    def span_kind(self) -> int:
        """PF_WHOLE, PF_LIMITED or PF_PACKED."""
        return 0 if self.spans is None else 2 if self.packed else 1

    @property
    def packed(self) -> int:
        """How many spans there are where sequences are packed, else 0."""
        return 0 if self.spans is None or self.spans.shape[0] == self.query.shape[0] else self.spans.shape[0]


@whole
def _band(queries: int, keys: int, low: int | None, high: int | None, spans: bool) -> tuple[int, int]:
    room = 2 * (queries + keys) if spans else 0  # offsets are within [-queries, keys]
    least, most = -queries - room if low is None else low, keys + room if high is None else high
    return max(-queries - room, min(keys + room, least)), max(-queries - room, min(keys + room, most))


def results_of(shape: AttentionShape, backward: bool) -> tuple[int, ...]:
    """PF_TO_*: the start of each result, its strides of batch and row (see the shapes in ops/attention.py)."""
    own, other = shape.heads * shape.share, shape.heads
    if not backward:
        return (0, shape.queries * own * shape.width, own * shape.width, *[0] * 6)
    rows = own * shape.depth, other * shape.depth, other * shape.width
    if shape.queries == shape.keys:  # behind each other within a row
        width = sum(rows)
        return tuple(n for at in (0, rows[0], rows[0] + rows[1]) for n in (at, shape.queries * width, width))
    counts = shape.queries, shape.keys, shape.keys
    at, out = 0, []
    for count, row in zip(counts, rows, strict=True):
        out += [at, count * row, row]
        at += shape.batch * count * row
    return tuple(out)


def attention_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one attention or its gradient."""
    made = AttentionLaunch.of(launch)
    shape, backward = made.shape, made.g is not None
    heads, queries, keys, depth, width = shape.heads, shape.queries, shape.keys, shape.depth, shape.width
    dtype = made.query.dtype
    isa = isa_of(set(target.isa))
    plan = attention_plan(shape, backward=backward, dtype=dtype.name, isa=isa, workers=target.workers)
    numbers = struct.unpack("=2q", struct.pack("=2d", made.scale, made.softcap))
    args = [
        heads, shape.share, queries, keys, depth, width, made.mask_kind, *made.band, *numbers,
        made.span_kind, keys, queries, 0, *plan.args,
        *(n for view in (made.query, made.key, made.value, made.mask, made.g, made.out) for n in strides_of(view)),
        *results_of(shape, backward),
    ]  # fmt: skip
    defines = {
        "PF_NAME": "PF_KEY",
        "PF_A_T": dtype.name,
        "PF_B_T": dtype.name,
        "PF_ACC_T": "float",
        "PF_BACKWARD": int(backward),
        "PF_STORE(x)": stored(dtype, "x"),
    }
    grain = _grain(queries * keys * (depth + width) * shape.share // plan.splits)
    phases = tuple(Phase("_" + name, tasks, grain) for name, tasks in plan.phases)
    return Source(
        f'{macros(defines)}#undef pf_min\n#undef pf_max\n#include "attention.c"\n',
        phases,
        tuple(args),
        worker_bytes=plan.worker_bytes,
        scratch_bytes=plan.scratch_bytes,
    )


def attention_prior(node: Node, target: Target) -> float:
    """0 for what attention.c does not take: other dtypes, nothing to attend to, and few queries."""
    made = AttentionLaunch.of_node(node)
    empty = 0 in made.query.shape or 0 in made.value.shape
    return float(made.query.dtype.name in DTYPES and not empty and made.query.shape[2] >= FEW_QUERIES)


def both_passes(spec: KernelSpec) -> None:
    """Declare an implementation of attention and of its gradients."""
    kernel(spec)
    kernel(replace(spec, op="attention_backward"))


both_passes(
    KernelSpec(
        "attention",
        "flash",
        attention_source,
        why="own blocks of scores, never stored",
        strided=True,
        prior=attention_prior,
    )
)
