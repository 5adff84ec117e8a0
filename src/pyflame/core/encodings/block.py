"""Encoding: how rows of numbers are stored in blocks of bytes, and what its files share.

A format is one file of this folder: it declares `ENCODING` (or `ENCODINGS`, a tuple of relatives) and needs nothing
else. Its decoder comes twice: in NumPy, over (blocks, bytes), which is what it means; and as C text for kernels, which
gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, DTypeError, NotSupportedError, ShapeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Encoding:
    """A block format: `block` elements in `nbytes` bytes, rows of whole blocks one after the other.

    `text`: C, the same for CPU and GPU, over the g-th `group` elements of the block at b: it sets y[i]. Where numbers
    are scaled integers it rather declares `float d` and `pf_sixteen q`, of which the numbers are
    d (q - offset) + least; kernels/include/pf_encoding.h has what it may call.
    """

    name: str
    block: int
    nbytes: int
    decode_blocks: Callable[[Array], Array]  # (n, nbytes) uint8 -> (n, block) float32
    text: str
    encode_blocks: Callable[[Array], Array] | None = None  # (n, block) float32 -> (n, nbytes) uint8
    group: int = 16
    ggml: int | None = None  # GGUF's number of the type
    pair: int = 0  # scaled integers: groups g and g + pair lie in the same bytes, where g / pair is even
    signed: bool = False  # whether q has signed bytes; else they are 0 to 63
    offset: str = ""  # C, an integer
    least: str = ""  # C
    halves: tuple[int, int] = (
        0,
        0,
    )  # bytes that are float16 numbers, of what can be interleaved (core/interleaving.py)

    def __repr__(self) -> str:
        return f"<encoding {self.name}: {self.block} elements in {self.nbytes} bytes>"

    @property
    def c(self) -> str:
        """The body of `void decode(const uint8_t *b, int g, float *y)`."""
        if not self.pair:
            return self.text
        number = f"(float){'(int8_t)' * self.signed}q.at[i]"
        number = f"d * ({number} - (float)({self.offset}))" if self.offset else f"d * {number}"
        least = f" + ({self.least})" if self.least else ""
        return f"{self.text}  PF_UNROLL\n  for (int i = 0; i < 16; i++) y[i] = {number}{least};\n"

    @property
    def interleaves(self) -> bool:
        """Whether rows can be interleaved, to be multiplied faster on CPUs."""
        return self.halves[1] > 0

    def width(self, row_bytes: int, op: str = "decode") -> int:
        """The elements of a row of so many bytes."""
        if row_bytes % self.nbytes:
            raise ShapeError(
                f"[{op}] expected rows of whole blocks of {self.nbytes} bytes ({self.name}) but got {row_bytes} bytes"
            )
        return row_bytes // self.nbytes * self.block

    def row_bytes(self, width: int, op: str = "encode") -> int:
        """The bytes of a row of so many elements."""
        if width % self.block:
            raise ShapeError(
                f"[{op}] expected rows of a multiple of {self.block} elements ({self.name}) but got {width}"
            )
        return width // self.block * self.nbytes

    def decode(self, data: Array) -> Array:
        """Rows of bytes (..., row bytes) as float32 (..., width)."""
        if data.dtype != np.uint8:
            raise DTypeError(f"[decode] expected bytes (uint8) but got {data.dtype}")
        if not data.ndim:
            raise ShapeError("[decode] expected rows of bytes but got a single one")
        shape = (*data.shape[:-1], self.width(data.shape[-1]))
        if not data.size:
            return np.zeros(shape, np.float32)
        with np.errstate(all="ignore"):  # any bytes may come, also those of NaN and infinity
            return self.decode_blocks(np.ascontiguousarray(data).reshape(-1, self.nbytes)).reshape(shape)

    def encode(self, values: Array) -> Array:
        """Rows of numbers (..., width) as bytes (..., row bytes)."""
        if self.encode_blocks is None:
            raise NotSupportedError(f"[encode] expected an encoding that can be written but got {self.name}")
        if not values.ndim:
            raise ShapeError("[encode] expected rows of numbers but got a single one")
        shape = (*values.shape[:-1], self.row_bytes(values.shape[-1]))
        if not values.size:
            return np.zeros(shape, np.uint8)
        if self.block > 1 and not np.isfinite(values).all():
            raise ArgumentError(
                f"[encode] expected finite numbers, which {self.name} can hold, but got NaN or infinity"
            )
        blocks = np.ascontiguousarray(values, np.float32).reshape(-1, self.block)
        with np.errstate(all="ignore"):
            return self.encode_blocks(blocks).reshape(shape)


def halves(block: Array, at: int) -> Array:
    """The float16 at a byte of every block, as float32 (n, 1)."""
    return np.ascontiguousarray(block[:, at : at + 2]).view(np.float16).astype(np.float32)


def half_bytes(values: Array) -> Array:
    """Float32 (n, 1) as the bytes of float16."""
    small = values.astype(np.float16)
    if not np.isfinite(small).all():
        raise ArgumentError(
            f"[encode] expected numbers whose scale float16 can hold but got a scale of {np.abs(values).max():.3g}"
        )
    return small.view(np.uint8)


def nibbles(packed: Array, run: int = 16) -> Array:
    """The 4-bit numbers of bytes: of every run of them all low ones, then all high ones."""
    runs = packed.reshape(len(packed), -1, 1, run)
    both = runs >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    return (both & np.uint8(15)).reshape(len(packed), -1)


def packed_nibbles(numbers: Array, run: int = 16) -> Array:
    """4-bit numbers as bytes, the other way round."""
    runs = numbers.astype(np.uint8).reshape(len(numbers), -1, 2, run)
    return (runs[:, :, 0] | runs[:, :, 1] << np.uint8(4)).reshape(len(numbers), -1)


def inverse(scale: Array) -> Array:
    """1 / scale in float32, and 0 for 0."""
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def truncated(values: Array, highest: int) -> Array:
    """Numbers of at least 0 without their fractions, at most `highest`; NaN counts as 0."""
    whole: Array = np.nan_to_num(np.trunc(values), nan=0.0).clip(0, highest)
    return whole.astype(np.uint8)


def rounded(values: Array) -> Array:
    """To the nearest whole number, halves away from zero, as C's roundf; NaN counts as 0."""
    size = np.abs(values)
    floor = np.floor(size)
    whole: Array = np.nan_to_num(np.copysign(floor + (size - floor >= 0.5), values), nan=0.0)
    return whole


def largest(parts: Array) -> Array:
    """Of every row the number farthest from 0, with its sign: (..., n) -> (..., 1)"""
    out: Array = np.take_along_axis(parts, np.abs(parts).argmax(-1, keepdims=True), -1)
    return out


def around_zero(blocks: Array, half: int) -> tuple[Array, Array]:
    """A scale for each block, and numbers below 2 half, of which `half` stands for 0; the largest number becomes 0."""
    d = largest(blocks) / np.float32(-half)
    return d, truncated(blocks * inverse(d) + np.float32(half + 0.5), 2 * half - 1)


def above_least(blocks: Array, highest: int) -> tuple[Array, Array, Array]:
    """A scale and the least number of each block, and numbers up to `highest`."""
    low = blocks.min(-1, keepdims=True)
    d = (blocks.max(-1, keepdims=True) - low) / np.float32(highest)
    return d, low, truncated((blocks - low) * inverse(d) + np.float32(0.5), highest)
