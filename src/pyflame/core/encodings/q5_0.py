"""Q5_0: 32 numbers of 5 bits (the fifth ones together) and one float16 scale. x = d (q - 16)"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, around_zero, half_bytes, halves
from pyflame.core.encodings.fives import fives, packed_fives


def _decode(blocks: Array) -> Array:
    q: Array = fives(blocks[:, 2:]).astype(np.float32) - np.float32(16)
    return halves(blocks, 0) * q


def _encode(blocks: Array) -> Array:
    d, q = around_zero(blocks, 16)
    return np.concatenate([half_bytes(d), packed_fives(q)], -1)


ENCODING = Encoding(
    "q5_0", 32, 22, _decode,
    """
  const float d = pf_half_at(b);
  const pf_sixteen q = pf_with_fifth(pf_bits_of(pf_sixteen_at(b + 6), 4 * g, 15), pf_u32_at(b + 2) >> 16 * g);
""",
    _encode, ggml=6, pair=1, offset="16",
)  # fmt: skip
