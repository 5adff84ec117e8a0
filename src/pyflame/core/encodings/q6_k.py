"""Q6_K: 256 numbers of 6 bits (the upper two apart); for every 16 a signed scale of 8 bits. x = d s (q - 32)"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, halves, nibbles, packed_nibbles
from pyflame.core.encodings.super_blocks import SIZE, shifted, unshifted, with_signs

_SHIFTS = range(0, 8, 2)


def _decode(blocks: Array) -> Array:
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    d = (halves(blocks, 208) * scales)[:, :, None]
    high = shifted(blocks[:, 128:192], 32, _SHIFTS, 3)
    q = (nibbles(blocks[:, :128], 64) | high << np.uint8(4)).astype(np.float32) - np.float32(32)
    out: Array = d * q.reshape(-1, 16, 16)
    return out.reshape(-1, SIZE)


def _encode(blocks: Array) -> Array:
    d, scales, numbers = with_signs(blocks, -32, -128)
    q = (numbers + 32).astype(np.uint8)
    return np.concatenate([packed_nibbles(q & 15, 64), unshifted(q >> 4, 32, _SHIFTS), scales.view(np.uint8), d], -1)


ENCODING = Encoding(
    "q6_k", SIZE, 210, _decode,
    """
  const float d = pf_half_at(b + 208) * (float)(int8_t)b[192 + g];
  const pf_sixteen low = pf_bits_of(pf_sixteen_at(b + g / 8 * 64 + g % 4 * 16), g / 4 % 2 * 4, 15);
  const pf_sixteen high = pf_bits_of(pf_sixteen_at(b + 128 + g / 8 * 32 + g % 2 * 16), g / 2 % 4 * 2, 3);
  const pf_sixteen q = pf_joined(low, high, 4);
""",
    _encode, ggml=14, offset="32", pair=4, halves=(208, 210),
)  # fmt: skip
