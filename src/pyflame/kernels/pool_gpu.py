"""Launches of pool.hip: one thread per output, or a few lanes where windows are large; gradients by elements of x.

Where the last axis is only carried along, as channels that lie innermost are, a thread has 16 bytes of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from pyflame.core.device import Target
from pyflame.core.shape import power
from pyflame.core.window import Window, Windows
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Anchor, GpuSource, Launch
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element, position_type, with_magic
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

BLOCK = 256  # as in pool.hip
SPACES = ("pf_pooling",)
WIDE = 32  # elements along the last axis of a window from which on lanes share it
BUSY = 1024  # threads of a compute unit that keep it busy without that

_MODES = {"max_pool": "PF_MAX", "max_pool_indices": "PF_INDICES", "avg_pool": "PF_AVG"}


def pool_source(launch: Launch, target: Target, epilogue: Epilogue | None, aligned: bool = True) -> GpuSource:
    """The text and arguments of one pooling or its gradient. `aligned` False: for buffers that lie misaligned."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    name, srcs, result = anchor.op.name, anchor.srcs, anchor.meta
    windows: Windows = anchor.attrs[0]
    planes = prod(result.shape[:2])
    outputs, elements = planes * prod(w.out for w in windows), planes * prod(w.size for w in windows)
    index, even = position_type(outputs + BLOCK, elements + BLOCK), _even(windows)
    vector = _vector(windows[2], [v.dtype.itemsize for v in srcs]) if aligned else 1
    lanes = _members(windows[2], outputs, target) if vector == 1 else 1
    pool, shared, gathered = "pf_pool", f"{lanes}", f"{even}, {index}"
    if vector > 1:
        pool, shared, gathered = "pf_pool_lines", f"{vector}", f"{even}, {vector}, {index}"
    forward, backward = -(-outputs * lanes // (vector * BLOCK)), -(-elements // (vector * BLOCK))
    args, kind = _args(anchor, planes, vector), element(srcs[0].dtype)
    made = GpuFunctions(
        "pool.hip",
        [*(f"const {storage(v.dtype)}" for v in srcs), storage(result.dtype)],
        [16 if vector > 1 else v.dtype.itemsize for v in (*srcs, result)],
        SPACES,
    )
    if name in _MODES:
        call = f"{pool}<{kind}, {_MODES[name]}, {even}, {shared}, {index}, {storage(result.dtype)}>(b0, b1, arg);"
        made.add("_0", forward, BLOCK, args, call)
        return made.source()
    if name == "avg_pool_backward":
        made.add("_0", backward, BLOCK, args, f"{pool}_backward<{kind}, 1, {gathered}>(b0, 0, b1, arg);")
        return made.source()
    find = f"{pool}<{element(srcs[1].dtype)}, PF_INDICES, {even}, {shared}, {index}, int>(b1, (int *)scratch, arg);"
    made.add("_0", forward, BLOCK, args, find)
    gather = f"{pool}_backward<{kind}, 0, {gathered}>(b0, (const int *)scratch, b2, arg);"
    made.add("_1", backward, BLOCK, args, gather)
    return made.source(4 * outputs)


def _args(anchor: Anchor, planes: int, vector: int) -> list[int]:
    """As pool.hip counts them."""
    windows: Windows = anchor.attrs[0]
    include_pad, divisor = anchor.attrs[1:] if anchor.op.name.startswith("avg") else (True, 0)
    lines = with_magic([windows[2].size // vector])
    return [planes, *(n for w in windows for n in _axis(w)), int(include_pad), divisor, *lines]


def _axis(w: Window) -> list[int]:
    return [*with_magic((w.size, w.out)), w.kernel, w.stride, w.pad, w.dilation]


def _even(windows: Windows) -> int:
    """0: no axis is shared evenly; 1: some are; 2: and their arithmetic takes 64 bits."""
    largest = max(((w.size + 1) * (w.out + 1) for w in windows if not w.kernel), default=0)
    return 0 if not largest else 1 if largest < SMALL else 2


def _vector(last: Window, itemsizes: list[int]) -> int:
    """Neighbours of the last axis that a thread has, where windows take nothing together along it."""
    carried = last.kernel in (0, 1) and last.size == last.out and last.stride == 1 and not last.pad
    wide = 16 // max(itemsizes)
    return wide if carried and wide > 1 and last.size % wide == 0 else 1


def _members(last: Window, outputs: int, target: Target) -> int:
    """Lanes that share a window: one, unless windows are wide and few."""
    width = last.kernel or -(-last.size // max(last.out, 1))
    if width < WIDE or outputs >= target.workers * BUSY:
        return 1
    return min(power(width // 4), target.wave_size)


_spec = KernelSpec(
    "max_pool",
    "pool_gpu",
    pool_source,
    languages=("hip", "cuda"),
    why="own windows, gradients gathered",
    unaligned=partial(pool_source, aligned=False),
)
for _name in (*_MODES, "max_pool_backward", "avg_pool_backward"):
    kernel(replace(_spec, op=_name))
