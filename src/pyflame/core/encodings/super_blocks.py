"""What Q2_K to Q6_K share: 256 elements with a scale, and mostly an offset, for every 16 or 32 of them, which are
themselves quantised against one float16 each."""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, half_bytes, halves, inverse, largest, rounded

SIZE = 256


def shifted(packed: Array, run: int, shifts: range, mask: int) -> Array:
    """Of every run of bytes the numbers at the first shift, then those at the second, and so on: (n, numbers)."""
    runs = packed.reshape(len(packed), -1, 1, run) >> np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    return (runs & np.uint8(mask)).reshape(len(packed), -1)


def unshifted(numbers: Array, run: int, shifts: range) -> Array:
    """The other way round: numbers -> bytes."""
    parts = numbers.astype(np.uint8).reshape(len(numbers), -1, len(shifts), run)
    moved = parts << np.array(shifts, np.uint8).reshape(1, 1, -1, 1)
    out: Array = np.bitwise_or.reduce(moved, axis=2)
    return out.reshape(len(numbers), -1)


def sixes(packed: Array) -> tuple[Array, Array]:
    """The 8 scales and 8 offsets of 6 bits in 12 bytes: eeAAAAAA x 4, EEaaaaaa x 4, then the low bits of both."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], -1)
    offsets = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], -1)
    return scales, offsets


def packed_sixes(scales: Array, offsets: Array) -> Array:
    """The other way round: (n, 8) and (n, 8) -> (n, 12) bytes."""
    s, m = scales.astype(np.uint8), offsets.astype(np.uint8)
    third = s[:, 4:] & 15 | (m[:, 4:] & 15) << 4
    return np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, third], -1)


def sixes_decoded(blocks: Array, numbers: Array) -> Array:
    """d s q - dmin m of Q4_K and Q5_K, whose blocks begin alike."""
    scales, offsets = sixes(blocks[:, 4:16])
    d = (halves(blocks, 0) * scales.astype(np.float32))[:, :, None]
    m = (halves(blocks, 2) * offsets.astype(np.float32))[:, :, None]
    out: Array = d * numbers.reshape(-1, 8, 32).astype(np.float32) - m
    return out.reshape(-1, SIZE)


def _fitted(parts: Array, top: int) -> tuple[Array, Array]:
    """A scale and an offset of at most 0 for each part, so that scale q + offset with q up to `top` is near it.

    Of some twenty ways to round, each with the scale and offset of the least squared error, the best one.
    """
    low = np.minimum(parts.min(-1), np.float32(0))
    wide = parts.max(-1) - low
    scale, offset = wide / np.float32(top), low
    best = np.full(low.shape, np.inf, np.float32)
    total = parts.sum(-1)
    for spread in np.linspace(top - 1, top + 1, 21, dtype=np.float32):
        q = rounded((parts - low[..., None]) * (spread * inverse(wide))[..., None]).clip(0, top)
        ones, squares, products = q.sum(-1), (q * q).sum(-1), (q * parts).sum(-1)
        size = np.float32(parts.shape[-1])
        by = inverse(size * squares - ones * ones)
        slope, start = (size * products - total * ones) * by, (squares * total - ones * products) * by
        above = start > 0
        slope, start = np.where(above, products * inverse(squares), slope), np.where(above, 0, start)
        error = ((slope[..., None] * q + start[..., None] - parts) ** 2).sum(-1)
        better = (error < best) & (slope > 0)
        scale, offset, best = (np.where(better, *pair) for pair in ((slope, scale), (start, offset), (error, best)))
    return scale, offset


def with_offsets(blocks: Array, part: int, top: int, finest: int) -> tuple[Array, Array, Array, Array, Array]:
    """Numbers up to `top` with a scale and an offset up to `finest` for every `part` elements.

    Gives the bytes of d and of dmin, scales, offsets and numbers.
    """
    parts = blocks.reshape(-1, SIZE // part, part)
    wide, low = _fitted(parts, top)
    d, dmin = (half_bytes(v.max(-1, keepdims=True) / np.float32(finest)) for v in (wide, -low))
    stored, stored_min = (halves(v, 0) for v in (d, dmin))
    scales = rounded(wide * inverse(stored)).clip(0, finest)
    offsets = rounded(-low * inverse(stored_min)).clip(0, finest)
    step, start = (stored * scales)[:, :, None], (stored_min * offsets)[:, :, None]
    numbers = rounded((parts + start) * inverse(step)).clip(0, top).reshape(-1, SIZE)
    return d, dmin, scales.astype(np.uint8), offsets.astype(np.uint8), numbers.astype(np.uint8)


def with_signs(blocks: Array, lowest: int, finest: int) -> tuple[Array, Array, Array]:
    """Numbers from `lowest` (below 0) to -lowest - 1 with a signed scale, at least `finest`, for every 16 elements.

    Gives the bytes of d, scales and numbers.
    """
    parts = blocks.reshape(-1, 16, 16)
    wide = largest(parts)[:, :, 0] / np.float32(lowest)
    d = half_bytes(largest(wide) / np.float32(finest))
    stored = halves(d, 0)
    scales = rounded(wide * inverse(stored)).clip(finest, -finest - 1)
    numbers = rounded(parts * inverse((stored * scales)[:, :, None])).clip(lowest, -lowest - 1)
    return d, scales.astype(np.int8), numbers.reshape(-1, SIZE).astype(np.int8)
