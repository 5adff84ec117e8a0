"""Q3_K: 256 numbers of 3 bits (the third ones together); for every 16 a scale of 6 bits. x = d (s - 32) (q - 4)"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, halves
from pyflame.core.encodings.super_blocks import SIZE, shifted, unshifted, with_signs

_SHIFTS = range(0, 8, 2)


def _decode(blocks: Array) -> Array:
    low = shifted(blocks[:, 96:104], 8, range(0, 8, 4), 15)
    scales = low | shifted(blocks[:, 104:108], 4, _SHIFTS, 3) << np.uint8(4)
    d = (halves(blocks, 108) * (scales.astype(np.float32) - np.float32(32)))[:, :, None]
    third = shifted(blocks[:, :32], 32, range(8), 1)
    q = (shifted(blocks[:, 32:96], 32, _SHIFTS, 3) | third << np.uint8(2)).astype(np.float32) - np.float32(4)
    out: Array = d * q.reshape(-1, 16, 16)
    return out.reshape(-1, SIZE)


def _encode(blocks: Array) -> Array:
    d, signed, numbers = with_signs(blocks, -4, -32)
    scales, q = (signed + 32).astype(np.uint8), (numbers + 4).astype(np.uint8)
    parts = [unshifted(q >> 2, 32, range(8)), unshifted(q & 3, 32, _SHIFTS)]
    parts += [unshifted(scales & 15, 8, range(0, 8, 4)), unshifted(scales >> 4, 4, _SHIFTS), d]
    return np.concatenate(parts, -1)


ENCODING = Encoding(
    "q3_k", SIZE, 110, _decode,
    """
  const uint8_t *s = b + 96;
  const int scale = (s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
  const float d = pf_half_at(b + 108) * (float)(scale - 32);
  const pf_sixteen low = pf_bits_of(pf_sixteen_at(b + 32 + g / 8 * 32 + g % 2 * 16), g / 2 % 4 * 2, 3);
  const pf_sixteen q = pf_joined(low, pf_bits_of(pf_sixteen_at(b + g % 2 * 16), g / 2, 1), 2);
""",
    _encode, ggml=11, offset="4", pair=2,
)  # fmt: skip
