"""Q4_1: 32 numbers of 4 bits, a float16 scale and the smallest number. x = d q + m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, above_least, half_bytes, halves, nibbles, packed_nibbles


def _decode(blocks: Array) -> Array:
    return halves(blocks, 0) * nibbles(blocks[:, 4:]).astype(np.float32) + halves(blocks, 2)


def _encode(blocks: Array) -> Array:
    d, low, q = above_least(blocks, 15)
    return np.concatenate([half_bytes(d), half_bytes(low), packed_nibbles(q)], -1)


ENCODING = Encoding(
    "q4_1", 32, 20, _decode,
    """
  const float d = pf_half_at(b), m = pf_half_at(b + 2);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 4), 4 * g, 15);
""",
    _encode, ggml=3, pair=1, least="m", halves=(0, 4),
)  # fmt: skip
