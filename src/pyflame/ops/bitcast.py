"""The bits of elements, read as elements of another dtype.

One primitive reads elements as others of their size. Where sizes differ, integers are shifted apart or put together:
the first in memory is in the lowest bits, as on every machine that we run on. Complex numbers are pairs of floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import DType, as_dtype, int8, int16, int32, int64
from pyflame.core.errors import ShapeError
from pyflame.ir import F, Node, Sample, cast, primitive
from pyflame.ir.opdef import ELEMENTWISE

_WORDS = {d.itemsize: d for d in (int8, int16, int32, int64)}


def _flat(x: Node) -> Node:
    """The last two axes as one."""
    return F.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _apart(x: Node, size: int) -> Node:
    """Integers of `size` bytes, from wider ones."""
    wide = F.reshape(x, (*x.shape, 1))
    shifts = cast(F.iota_like(x, (x.dtype.itemsize // size,)) * (8 * size), x.dtype)
    return _flat(cast(F.right_shift(wide, shifts), _WORDS[size]))


def _together(x: Node, size: int) -> Node:
    """Integers of `size` bytes, from narrower ones."""
    have = x.dtype.itemsize
    count = size // have
    x = cast(F.reshape(x, (*x.shape[:-1], x.shape[-1] // count, count)), _WORDS[size])
    low = (1 << 8 * have) - 1
    out = F.select(x, -1, 0) & low
    for k in range(1, count):
        out = out | F.left_shift(F.select(x, -1, k) & low, 8 * have * k)
    return out


def _between_sizes(x: Node, dtype: DType) -> Node:
    """Where elements are complex or differ in size: from or to parts, along a last axis."""
    have, want = x.dtype, dtype
    if have.is_complex:
        return F.bitcast(_flat(F.view_as_real(x)), want)
    if want.is_complex:
        parts = F.bitcast(x, want.real)
        return F.view_as_complex(F.reshape(parts, (*parts.shape[:-1], parts.shape[-1] // 2, 2)))
    words = F.bitcast(x, _WORDS[have.itemsize])
    narrower = have.itemsize > want.itemsize
    return F.bitcast((_apart if narrower else _together)(words, want.itemsize), want)


def _reference(x: Any, dtype: Any) -> Any:
    want = as_dtype(dtype)
    return x != 0 if want.category == "b" else np.ascontiguousarray(x).reshape(x.shape).view(want.numpy)


def _samples() -> list[Sample]:
    rng = np.random.default_rng(4)
    words = rng.integers(-(2**31), 2**31, (3, 4), np.int32)
    few = np.array([[0, 1, -1, 127], [5, -128, 64, 2]], np.int8)
    wide = rng.integers(-(2**62), 2**62, (2, 3), np.int64)
    return [
        *[Sample((words & ~(1 << 30), dtype)) for dtype in ("float32", "int64", "int16", "uint8", "complex64")],
        *[Sample((few, dtype)) for dtype in ("uint8", "int16", "int32")],
        *[Sample((wide & ~(1 << 62), dtype)) for dtype in ("float64", "int32")],
        Sample((words[0, 0, ...], "float32")),
        Sample((words[:0], "float32")),
    ]


@primitive(
    ELEMENTWISE,
    infer=lambda m, dtype: (m.shape, dtype),
    attrs=("dtype",),
    reference=_reference,
    torch=lambda torch, x, dtype: x.contiguous().view(getattr(torch, dtype)),
    samples=_samples,
    differentiable=False,
    public=False,
)
def bitcast(x: Node, dtype: object) -> Any:
    """The same bits as elements of another dtype: the last axis grows or shrinks where their sizes differ.

    A bool is True where its byte is not 0. The bits of 16- and 8-bit floats that are no number are those of one NaN.
    """
    want, have = as_dtype(dtype), x.dtype
    if x.op.name == "bitcast" and x.srcs:  # bits come back as they were
        return bitcast(x.srcs[0], want)
    if want is have:
        return x
    ratio = max(want.itemsize // have.itemsize, 1)
    if ratio != 1 and x.ndim and x.shape[-1] % ratio:
        raise ShapeError(
            f"[view] expected a last axis whose size is a multiple of {ratio} to see {have.name} as {want.name} but "
            f"got shape {x.shape}"
        )
    if have.itemsize == want.itemsize and not have.is_complex and not want.is_complex:
        return (x,), (want,)
    if x.ndim:
        return _between_sizes(x, want)
    if have.itemsize != want.itemsize:
        raise ShapeError(
            f"[view] expected at least one axis to see {have.name} as {want.name}, whose elements differ in size, but "
            "got a 0-d tensor; use .reshape(1) first"
        )
    return F.reshape(_between_sizes(F.reshape(x, (1,)), want), ())
