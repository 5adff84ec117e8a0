"""Rows of encoded blocks, interleaved: the order in which a CPU multiplies with them fastest.

A set is `lines` neighbouring rows. Their blocks lie together, and in these the words of 4 bytes (of float16 numbers, 2)
at one place, one of each row: kernels/include/pf_interleaved.h says why. No byte changes, so it can be undone. Where
rows are no multiple of `lines`, rows of zeros fill the last set up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pyflame.core.encodings.block import Array, Encoding

_CHUNK = 1 << 20  # bytes that are moved at once, so that they stay in cache between reading and writing


def units(kind: Encoding) -> list[tuple[int, int, int]]:
    """What lies together, as (from, to, bytes of one) of a block."""
    first, last = kind.halves
    parts = [(0, first, 4), (first, last, 2), (last, kind.nbytes, 4)]
    return [part for part in parts if part[0] < part[1]]


def padded(rows: int, lines: int) -> int:
    """The rows of whole sets."""
    return -(-rows // lines) * lines


def interleaved(rows: Array, kind: Encoding, lines: int) -> Array:
    """Rows (out, row bytes) as sets: (out rounded up to whole sets, row bytes).

    >>> interleaved(np.arange(36, dtype=np.uint8).reshape(2, 18), encoding("q4_0"), 2)[0]
    array([ 0,  1, 18, 19,  2,  3,  4,  5, 20, 21, 22, 23,  6,  7,  8,  9, 24, 25], dtype=uint8)
    """
    count, row_bytes = rows.shape
    out = np.zeros((padded(count, lines), row_bytes), np.uint8)
    whole, order = count // lines * lines, _order(kind, lines, row_bytes // kind.nbytes)
    step = max(1, _CHUNK // max(1, lines * row_bytes)) * lines
    for at in range(0, whole, step):
        _take(rows[at : min(at + step, whole)], order, out[at : min(at + step, whole)])
    if whole < count:
        _take(np.concatenate([rows[whole:], out[count:]]), order, out[whole:])
    return out


def _order(kind: Encoding, lines: int, blocks: int) -> Array:
    """Where the 2-byte units of a set come from."""
    places = np.arange(lines * blocks * kind.nbytes // 2).reshape(lines, blocks, -1)
    parts = [
        places[..., first // 2 : last // 2].reshape(lines, blocks, -1, size // 2).transpose(1, 2, 0, 3)
        for first, last, size in units(kind)
    ]
    return np.concatenate([p.reshape(blocks, -1) for p in parts], -1).reshape(-1)


def _take(rows: Array, order: Array, out: Array) -> None:
    sets = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, len(order))
    np.take(sets, order, axis=1, out=out.view(np.uint16).reshape(sets.shape), mode="clip")  # "raise" would copy


def as_stored(data: Array, kind: Encoding, lines: int, count: int) -> Array:
    """The first `count` rows of sets, each by itself again."""
    blocks = data.reshape(-1, data.shape[1] // kind.nbytes, lines * kind.nbytes)
    parts = [
        blocks[..., first * lines : last * lines].reshape(*blocks.shape[:2], -1, lines, size).transpose(0, 3, 1, 2, 4)
        for first, last, size in units(kind)
    ]
    rows = np.concatenate([p.reshape(*p.shape[:3], -1) for p in parts], -1)
    return np.ascontiguousarray(rows.reshape(data.shape)[:count])
