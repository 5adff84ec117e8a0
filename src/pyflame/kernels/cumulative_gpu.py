"""Launches of cumulative.hip: threads of a row by its length, and chunks where rows or columns are few."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.core.shape import power
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.gpu_source import GpuFunctions, element, position_type, with_magic
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

BLOCK, EACH = 256, 8  # as in cumulative.hip
TILE = BLOCK * EACH
MAX_CHUNKS = 1024  # each chunk reads the totals of those before it
LEAST_COLUMN = 64  # elements of a chunk of a column
BUSY = 1024  # threads that keep a compute unit busy

_OPS = {"running_sum": "pf_sum", "running_product": "pf_product"}


def cumulative_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and arguments of one running sum or product."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    axis, reverse = anchor.attrs
    shape, dtype = anchor.meta.shape, anchor.meta.dtype
    outer, length, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    stored, kind = storage(dtype), f"{element(dtype)}, {_OPS[anchor.op.name]}"
    made = GpuFunctions("cumulative.hip", [f"const {stored}", stored], [dtype.itemsize] * 2, ("pf_scanning",))
    if inner == 1:
        chunk = _chunk(length, 2 * target.workers, outer, TILE)
    else:
        chunk = _chunk(length, target.workers * BUSY, outer * inner, LEAST_COLUMN)
    chunks = -(-length // chunk)
    args = [outer, length, chunk, *with_magic([chunks]), int(reverse)]
    index = position_type(outer * chunks * inner + BLOCK)
    scratch = 8 * outer * chunks * inner if chunks > 1 else 0
    if inner == 1:
        members = BLOCK if chunks > 1 else min(BLOCK, power(-(-length // EACH)))
        room = (TILE + BLOCK) * dtype.itemsize
        waves = BLOCK // target.wave_size * 8
        if chunks > 1:
            made.add(
                "_total",
                outer * chunks,
                BLOCK,
                args,
                f"pf_row_totals<{kind}, {index}>(b0, scratch, arg);",
                waves,
            )
        call = f"pf_scan_rows<{kind}, {members}, {int(chunks > 1)}, {index}>(b0, b1, scratch, arg);"
        made.add("_scan", -(-outer * chunks * members // BLOCK), BLOCK, args, call, room + waves)
    else:
        args += with_magic([inner])
        grid = -(-outer * chunks * inner // BLOCK)
        if chunks > 1:
            call = f"pf_scan_columns<{kind}, 1, {index}>(b0, b1, scratch, arg);"
            made.add("_total", grid, BLOCK, args, call)
        made.add("_scan", grid, BLOCK, args, f"pf_scan_columns<{kind}, 0, {index}>(b0, b1, scratch, arg);")
    return made.source(scratch)


def _chunk(length: int, wanted: int, lines: int, least: int) -> int:
    """Elements of a chunk, so that there are `wanted` pieces of work if lines are fewer; no less than `least`."""
    chunks = min(-(-wanted // max(lines, 1)), MAX_CHUNKS, length // least)
    if chunks <= 1:
        return max(length, 1)
    per = -(-length // chunks)
    return -(-per // least) * least


for _name in _OPS:
    kernel(
        KernelSpec(
            _name,
            "cumulative_gpu",
            cumulative_source,
            languages=("hip", "cuda"),
            why="one pass, chunked where rows are few",
        )
    )
