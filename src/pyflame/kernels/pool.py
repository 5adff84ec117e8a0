"""Launches of pool.c: where the windows of every axis lie, and how the work is cut into tasks."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.core.window import Window, Windows
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels.ctype import loaded, macros, stored
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

GRAIN = 32768  # elements worth waking a thread for
_WINDOW_BYTES = 24  # pf_window
LINE = 1024  # elements of a line that several rows of outputs share; stays in the first cache

_MODES = ("max_pool", "max_pool_indices", "max_pool_backward", "avg_pool", "avg_pool_backward")  # PF_MODE


def pool_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one pooling or its gradient."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    name = anchor.op.name
    windows: Windows = anchor.attrs[0]
    include_pad, divisor = anchor.attrs[1:] if name.startswith("avg") else (True, 0)
    dtype = anchor.srcs[0].dtype
    inner = windows[2]
    sizes, outs = [w.size for w in windows], [w.out for w in windows]
    planes = prod(anchor.meta.shape[:2])
    backward = name.endswith("backward")
    rows = 1 if name == "avg_pool_backward" else joined_rows(inner, outs[1])
    # From the padding in front to the last element that a window reaches for.
    reach = (inner.out - 1) * inner.stride + (inner.kernel - 1) * inner.dilation + 1
    width = rows * max(inner.pad + inner.size, reach)
    wide = dtype.compute.itemsize
    own_plane = prod(sizes) if backward and dtype.compute is not dtype else 0
    lines = width + rows * inner.out
    worker_bytes = -(-(sum(outs) * _WINDOW_BYTES + (lines + own_plane) * wide + lines * 4) // 64) * 64
    lie = [n for of in zip(*[(w.dilation, w.kernel, w.stride, w.pad) for w in windows], strict=True) for n in of]
    args = [*sizes, *outs, *lie, int(include_pad), divisor, width, rows, worker_bytes, int(_squares(windows))]
    per_row = inner.size * prod(w.kernel or -(-w.size // max(w.out, 1)) for w in windows[:2])
    if backward:
        phase = Phase("_0", planes, max(1, GRAIN // max(1, per_row * outs[0] * outs[1])))
    else:
        phase = Phase("_0", planes * outs[0] * outs[1], max(1, GRAIN // max(1, per_row)))
    defines = {
        "PF_NAME": "PF_KEY_0",
        "PF_MODE": _MODES.index(name),
        "PF_T": storage(dtype),
        "PF_ACC_T": storage(dtype.compute),
        "PF_DIRECT": int(dtype.compute is dtype),
        "PF_LOAD(x)": loaded(dtype, "x"),
        "PF_STORE(v)": stored(dtype, "v"),
        "PF_LOWEST": _lowest(dtype.compute.name, dtype.is_float),
    }
    text = macros(defines) + '#include "pool.c"\n'
    return Source(text, (phase,), tuple(args), worker_bytes=worker_bytes)


def joined_rows(inner: Window, most: int) -> int:
    """How many rows of outputs one line holds: several where each window begins where the one before it ends."""
    reach = (inner.kernel - 1) * inner.dilation + 1
    tiles = inner.kernel and not inner.pad and inner.size == inner.out * inner.stride and reach <= inner.stride
    return max(1, min(most, LINE // max(1, inner.size))) if tiles else 1


def _squares(windows: Windows) -> bool:
    """Whether windows of 2 x 2 tile planes."""
    first, *plane = windows
    return first == Window(first.size, first.size) and all(w == Window(2 * w.out, w.out, 2, 2) for w in plane)


def _lowest(name: str, is_float: bool) -> str:
    return "-PF_INF" if is_float else "0" if name[0] == "u" else f"{name.upper()}_MIN"


for _name in _MODES:
    kernel(KernelSpec(_name, "pool", pool_source, why="own separable windows"))
