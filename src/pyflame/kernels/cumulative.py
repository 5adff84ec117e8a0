"""Launches of cumulative.c: how rows and columns become tasks."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels.ctype import loaded, macros, stored
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

GRAIN = 32768  # elements worth waking a thread for
LANES = 64  # as in cumulative.c
MAX_CHUNKS = 64

_OPS = {"running_sum": ("(a) + (b)", "0"), "running_product": ("(a) * (b)", "1")}


def cumulative_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one running sum or product."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    axis, reverse = anchor.attrs
    shape, dtype = anchor.meta.shape, anchor.meta.dtype
    outer, length, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    blocks = -(-inner // LANES)
    rows = outer * blocks
    work = length * min(inner, LANES)
    chunks = max(1, min(length, MAX_CHUNKS, work // GRAIN)) if rows < 16 else 1
    op, one = _OPS[anchor.op.name]
    defines = {
        "PF_TOTAL": "PF_KEY_total",
        "PF_SCAN": "PF_KEY_scan",
        "PF_T": storage(dtype),
        "PF_ACC": "double" if dtype.is_float else "int64_t",
        "PF_LOAD(x)": loaded(dtype, "x"),
        "PF_STORE(v)": stored(dtype, "v"),
        "PF_OP(a, b)": f"({op})",
        "PF_ONE": one,
    }
    text = macros(defines) + '#include "cumulative.c"\n'
    scan = Phase("_scan", rows * chunks, max(1, GRAIN * chunks // max(work, 1)))
    phases = (Phase("_total", rows * chunks, 1), scan) if chunks > 1 else (scan,)
    scratch = rows * chunks * LANES * 8 if chunks > 1 else 0
    return Source(text, phases, (length, inner, blocks, chunks, int(reverse)), scratch_bytes=scratch)


for _name in _OPS:
    kernel(KernelSpec(_name, "cumulative", cumulative_source, why="one pass, chunked where rows are few"))
