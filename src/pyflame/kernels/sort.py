"""Launches of sort.c: one task per row."""

from __future__ import annotations

from math import prod

from pyflame.core.device import Target
from pyflame.ir.c_types import storage
from pyflame.ir.kernel import Launch, Phase, Source
from pyflame.kernels.ctype import loaded, macros
from pyflame.kernels.spec import Epilogue, KernelSpec, kernel

GRAIN = 4096  # elements worth waking a thread for: each is moved several times


def sort_source(launch: Launch, target: Target, epilogue: Epilogue | None) -> Source:
    """The text and arguments of one argsort or top-k of the last axis."""
    anchor = launch.kernel.anchor
    assert anchor is not None
    take, descending = anchor.attrs
    (source,) = anchor.srcs
    length, rows = source.shape[-1], prod(source.shape[:-1])
    dtype = source.dtype
    # positions take 32 bits beside a 32-bit key
    wide = dtype.itemsize == 8 or length >= 2**32
    worker_bytes = 2 * length * (16 if wide else 8)
    defines = {
        "PF_NAME": "PF_KEY_0",
        "PF_T": storage(dtype),
        "PF_LOAD(x)": loaded(dtype, "x"),
        "PF_FLOAT": int(dtype.is_float),
        "PF_WIDE": int(wide),
    }
    text = f'#include <string.h>\n{macros(defines)}#include "sort.c"\n'
    phase = Phase("_0", rows, max(1, GRAIN // length))
    return Source(text, (phase,), (length, take, int(descending), worker_bytes), worker_bytes=worker_bytes)


kernel(KernelSpec("sort_positions", "sort", sort_source, why="radix sort, heap for few of many"))
