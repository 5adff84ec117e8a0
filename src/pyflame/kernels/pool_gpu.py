"""Launches of pool.hip: one thread per output, or a few lanes where windows are large; gradients by elements of x."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.core.shape import power
from pyflame.core.window import Window, Windows
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import GpuSource, Launch
from pyflame.kernels.gpu_source import SMALL, GpuFunctions, element, position_type, with_magic
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

BLOCK = 256  # as in pool.hip
SPACES = ("pf_pooling",)
WIDE = 32  # elements along the last axis of a window from which on lanes share it
BUSY = 1024  # threads of a compute unit that keep it busy without that

_MODES = {"max_pool": "PF_MAX", "max_pool_indices": "PF_INDICES", "avg_pool": "PF_AVG"}


def pool_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> GpuSource:
    """The text and arguments of one pooling or its gradient."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    name = anchor.op.name
    windows: Windows = anchor.attrs[0]
    include_pad, divisor = anchor.attrs[1:] if name.startswith("avg") else (True, 0)
    dtype, meta = anchor.srcs[0].dtype, anchor.meta
    planes = prod(meta.shape[:2])
    outputs, elements = planes * prod(w.out for w in windows), planes * prod(w.size for w in windows)
    index = position_type(outputs + BLOCK, elements + BLOCK)
    args = [planes, *(n for w in windows for n in _axis(w)), int(include_pad), divisor]
    kind, even = element(dtype), _even(windows)
    members = _members(windows[2], outputs, target)
    forward = -(-outputs * members // BLOCK)
    if name in _MODES:
        result = storage(meta.dtype)
        made = GpuFunctions(
            "pool.hip", [f"const {storage(dtype)}", result], [dtype.itemsize, meta.dtype.itemsize], SPACES
        )
        call = f"pf_pool<{kind}, {_MODES[name]}, {even}, {members}, {index}, {result}>(b0, b1, arg);"
        made.add("_0", forward, BLOCK, args, call)
        return made.source()
    backward = -(-elements // BLOCK)
    read = f"const {storage(dtype)}"
    if name == "avg_pool_backward":
        made = GpuFunctions("pool.hip", [read, storage(dtype)], [dtype.itemsize] * 2, SPACES)
        made.add("_0", backward, BLOCK, args, f"pf_pool_backward<{kind}, 1, {even}, {index}>(b0, 0, b1, arg);")
        return made.source()
    seen = anchor.srcs[1].dtype
    made = GpuFunctions(
        "pool.hip",
        [read, f"const {storage(seen)}", storage(dtype)],
        [dtype.itemsize, seen.itemsize, dtype.itemsize],
        SPACES,
    )
    find = f"pf_pool<{element(seen)}, PF_INDICES, {even}, {members}, {index}, int>(b1, (int *)scratch, arg);"
    made.add("_0", forward, BLOCK, args, find)
    made.add(
        "_1",
        backward,
        BLOCK,
        args,
        f"pf_pool_backward<{kind}, 0, {even}, {index}>(b0, (const int *)scratch, b2, arg);",
    )
    return made.source(4 * outputs)


def _axis(w: Window) -> list[int]:
    return [*with_magic((w.size, w.out)), w.kernel, w.stride, w.pad, w.dilation]


def _even(windows: Windows) -> int:
    """0: no axis is shared evenly; 1: some are; 2: and their arithmetic takes 64 bits."""
    largest = max(((w.size + 1) * (w.out + 1) for w in windows if not w.kernel), default=0)
    return 0 if not largest else 1 if largest < SMALL else 2


def _members(last: Window, outputs: int, target: Target) -> int:
    """Lanes that share a window: one, unless windows are wide and few."""
    width = last.kernel or -(-last.size // max(last.out, 1))
    if width < WIDE or outputs >= target.workers * BUSY:
        return 1
    return min(power(width // 4), target.wave_size)


for _name in (*_MODES, "max_pool_backward", "avg_pool_backward"):
    kernel(KernelSpec(_name, "pool_gpu", pool_source, languages=("hip", "cuda"), why="own windows, gradients gathered"))
