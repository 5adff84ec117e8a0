"""Host side of attention_paged.c: attention of few queries over keys and values in pages."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pyflame.core.device import Target
from pyflame.core.traced import whole
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, OperandView, Phase, Source
from pyflame.ir.node import Node
from pyflame.kernels.attention import DTYPES
from pyflame.kernels.ctype import loaded, macros, stored
from pyflame.kernels.matmul import round_up
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

MOST_QUERIES = 8  # of a sequence: with more, gathered pages and blocks of scores are faster
_BLOCK = 64  # PF_BLOCK
_LANES = 16  # of the widest vectors
_TASKS, _LEAST_KEYS = 16, 256  # tasks worth having, and keys worth a task
_GRAIN = 1 << 15  # multiply-adds worth waking a thread for


@whole
def _splits(entries: int, keys: int) -> int:
    return max(1, min(-(-_TASKS // max(1, entries)), keys // _LEAST_KEYS))


def strides_or_none(view: OperandView | None, rank: int) -> tuple[int, ...]:
    """Of an operand, or 0 where it is not there."""
    return (0,) * rank if view is None else view.strides


@dataclass(frozen=True)
class PagedLaunch:
    """The operands of a launch by name."""

    query: OperandView
    key: OperandView
    value: OperandView
    table: OperandView
    lengths: OperandView
    key_scale: OperandView | None
    value_scale: OperandView | None
    sinks: OperandView | None
    low: int
    scale: float
    softcap: float
    check: int

    @staticmethod
    def of(launch: Launch) -> PagedLaunch:
        anchor, (query, key, value, table, lengths, *rest) = launch.kernel.anchor, launch.operands
        assert anchor is not None
        low, scale, softcap, scaled, sunk = anchor.attrs
        least = -(table.shape[1] * key.shape[1] + query.shape[2])  # no key is further back
        return PagedLaunch(
            query, key, value, table, lengths, rest[0] if scaled else None, rest[1] if scaled else None,
            rest[-1] if sunk else None, least if low is None else max(low, least), scale, softcap, anchor.check,
        )  # fmt: skip

    @property
    def keys(self) -> int:
        """As many as there is room for."""
        return self.table.shape[1] * self.key.shape[1]

    @property
    def share(self) -> int:
        """Heads of queries for each of keys."""
        return self.query.shape[1] // self.key.shape[2]


def paged_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments."""
    made = PagedLaunch.of(launch)
    query, key, value, table = made.query, made.key, made.value, made.table
    batch, heads, queries, depth = query.shape
    pages, page, groups, width = value.shape
    rows, splits = made.share * queries, _splits(batch * groups, made.keys)
    deep, wide = round_up(depth, _LANES), round_up(width, _LANES)
    parts = batch * groups * splits * rows * (wide + 2)
    each = rows * deep + _BLOCK * (deep + wide) + rows * _BLOCK
    bits = struct.unpack("=2q", struct.pack("=2d", made.scale, made.softcap))
    args = (
        heads, made.share, queries, depth, width, page, table.shape[1], pages, made.low, *bits, splits, made.check,
        parts, each,
        *query.strides, *key.strides, *value.strides, *strides_or_none(made.key_scale, 3),
        *strides_or_none(made.value_scale, 3), *table.strides, *made.lengths.strides, *strides_or_none(made.sinks, 1),
        len(launch.operands),
    )  # fmt: skip
    types = {"Q": query, "K": key, "V": value, "SCALE": made.key_scale, "SINK": made.sinks}
    defines = {"PF_PART": "PF_KEY_part", "PF_JOIN": "PF_KEY_join", "PF_O_T": storage(query.dtype)}
    for name, view in types.items():
        if view is not None:
            defines |= {f"PF_{name}_T": storage(view.dtype), f"PF_LOAD_{name}(x)": f"(float){loaded(view.dtype, 'x')}"}
    known = key.dtype.name in DTYPES and value.dtype.name in DTYPES
    of_gemm = (key.dtype.name, value.dtype.name) if known else ("float32", "float32")
    defines |= {
        "PF_STORE(x)": stored(query.dtype, "x"),
        "PF_A_T": of_gemm[0],
        "PF_B_T": of_gemm[1],
        "PF_ACC_T": "float",
    }
    defines |= {"PF_K_VECTOR": "1"} if known else {}
    text = f'{macros(defines)}#undef pf_min\n#undef pf_max\n#include "attention_paged.c"\n'
    grain = max(1, _GRAIN // max(1, made.keys * rows * (depth + width) // splits))
    phases = Phase("_part", batch * groups * splits, grain), Phase("_join", batch * queries * heads, 64)
    return Source(text, phases, args, scratch_bytes=4 * parts, worker_bytes=4 * each)


def paged_prior(node: Node, target: Target) -> float:
    """0 for what the decomposition does better, and for float64."""
    query, key, value = node.srcs[:3]
    single = all(s.dtype.itemsize <= 4 for s in node.srcs)
    return float(single and 0 < query.shape[2] <= MOST_QUERIES and query.size * key.size * value.size > 0)


kernel(
    KernelSpec(
        "attend_pages",
        "paged",
        paged_source,
        why="keys and values are read once, where they lie, as far as a sequence is long",
        strided=True,
        prior=paged_prior,
    )
)
