"""Q5_1: 32 numbers of 5 bits (the fifth ones together), a float16 scale and the smallest number. x = d q + m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, above_least, half_bytes, halves
from pyflame.core.encodings.fives import fives, packed_fives


def _decode(blocks: Array) -> Array:
    return halves(blocks, 0) * fives(blocks[:, 4:]).astype(np.float32) + halves(blocks, 2)


def _encode(blocks: Array) -> Array:
    d, low, q = above_least(blocks, 31)
    return np.concatenate([half_bytes(d), half_bytes(low), packed_fives(q)], -1)


ENCODING = Encoding(
    "q5_1", 32, 24, _decode,
    """
  const float d = pf_half_at(b), m = pf_half_at(b + 2);
  const pf_sixteen q = pf_with_fifth(pf_bits_of(pf_sixteen_at(b + 8), 4 * g, 15), pf_u32_at(b + 4) >> 16 * g);
""",
    _encode, ggml=7, pair=1, least="m",
)  # fmt: skip
