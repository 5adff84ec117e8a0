"""IQ4_NL and IQ4_XS: numbers of 4 bits that name one of 16 levels, which lie denser around 0.

IQ4_NL has a float16 scale for every 32 of them: x = d level[q]. IQ4_XS has blocks of 256, with a scale of 6 bits for
every 32: x = d (s - 32) level[q].
"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import (
    Array,
    Encoding,
    half_bytes,
    halves,
    inverse,
    largest,
    nibbles,
    packed_nibbles,
    rounded,
)  # fmt: skip
from pyflame.core.encodings.super_blocks import SIZE, shifted, unshifted

LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _nearest(scaled: Array) -> Array:
    """The number of the nearest level; of two as near the lower one."""
    between: Array = (LEVELS[1:] + LEVELS[:-1]) / 2
    return np.searchsorted(between, scaled).astype(np.uint8)


def _scales(parts: Array) -> Array:
    """For each part, which its largest number is a multiple of: that number becomes the lowest level."""
    scales: Array = largest(parts) / LEVELS[0]
    return scales


def _decode_nl(blocks: Array) -> Array:
    return halves(blocks, 0) * LEVELS[nibbles(blocks[:, 2:])]


def _encode_nl(blocks: Array) -> Array:
    d = half_bytes(_scales(blocks))
    return np.concatenate([d, packed_nibbles(_nearest(blocks * inverse(halves(d, 0))))], -1)


def _decode_xs(blocks: Array) -> Array:
    low = shifted(blocks[:, 4:8], 1, range(0, 8, 4), 15)
    high = shifted(blocks[:, 2:4], 1, range(0, 8, 2), 3)
    scales = (low | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    d = (halves(blocks, 0) * scales)[:, :, None]
    out: Array = d * LEVELS[nibbles(blocks[:, 8:])].reshape(-1, 8, 32)
    return out.reshape(-1, SIZE)


def _encode_xs(blocks: Array) -> Array:
    parts = blocks.reshape(-1, 8, 32)
    wide = _scales(parts)[:, :, 0]
    d = half_bytes(largest(wide) / np.float32(-32))
    signed = rounded(wide * inverse(halves(d, 0))).clip(-32, 31)
    q = _nearest(parts * inverse((halves(d, 0) * signed)[:, :, None])).reshape(-1, SIZE)
    scales = (signed + 32).astype(np.uint8)
    high, low = unshifted(scales >> 4, 1, range(0, 8, 2)), unshifted(scales & 15, 1, range(0, 8, 4))
    return np.concatenate([d, high, low, packed_nibbles(q)], -1)


_C = """
  const pf_sixteen q = pf_looked_up(at, 0xf6eaddcfbfad9881u, 0x7159453526190d01u);
"""
ENCODINGS = (
    Encoding(
        "iq4_nl", 32, 18, _decode_nl,
        """
  const float d = pf_half_at(b);
  const pf_sixteen at = pf_bits_of(pf_sixteen_at(b + 2), 4 * g, 15);""" + _C,
        _encode_nl, ggml=20, pair=1, signed=True,
    ),
    Encoding(
        "iq4_xs", SIZE, 136, _decode_xs,
        """
  const int part = g / 2, scale = (b[4 + part / 2] >> part % 2 * 4 & 15) | (pf_u16_at(b + 2) >> 2 * part & 3) << 4;
  const float d = pf_half_at(b) * (float)(scale - 32);
  const pf_sixteen at = pf_bits_of(pf_sixteen_at(b + 8 + 16 * part), g % 2 * 4, 15);""" + _C,
        _encode_xs, ggml=23, pair=1, signed=True,
    ),
)  # fmt: skip
