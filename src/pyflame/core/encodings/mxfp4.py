"""MXFP4: 32 floats of 4 bits (sign, 2 of exponent, 1 of mantissa) and a power of two. x = 2^(e - 127) q"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, nibbles, packed_nibbles

# twice the number that each 4 bits stand for: the scale is halved
LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _halved(exponents: Array) -> Array:
    """2^(e - 128); the two smallest are denormals."""
    e = exponents.astype(np.uint32)
    return np.where(e < 2, np.uint32(0x200000) << e, (np.maximum(e, 1) - 1) << 23).astype(np.uint32).view(np.float32)


def _decode(blocks: Array) -> Array:
    return _halved(blocks[:, :1]) * LEVELS[nibbles(blocks[:, 1:])]


def _encode(blocks: Array) -> Array:
    largest = np.abs(blocks).max(-1, keepdims=True)
    exponents = np.where(largest > 0, np.floor(np.log2(largest)) - 2 + 127, 0).clip(0, 254).astype(np.uint8)
    errors = np.abs(_halved(exponents)[:, :, None] * LEVELS - blocks[:, :, None])
    return np.concatenate([exponents, packed_nibbles(errors.argmin(-1))], -1)


ENCODING = Encoding(
    "mxfp4", 32, 17, _decode,
    """
  const uint32_t e = b[0];
  const float d = pf_from_bits_f32(e < 2 ? 0x200000u << e : (e - 1) << 23);
  const pf_sixteen at = pf_bits_of(pf_sixteen_at(b + 1), 4 * g, 15);
  const pf_sixteen q = pf_looked_up(at, 0x0c08060403020100u, 0xf4f8fafcfdfeff00u);
""",
    _encode, ggml=39, pair=1, signed=True,
)  # fmt: skip
