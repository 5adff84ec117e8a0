"""Q5_1: 32 numbers of 5 bits (the fifth ones together), a float16 scale and the smallest number. x = d q + m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, half_bytes, halves, inverse, truncated
from pyflame.core.encodings.fives import fives, packed_fives


def _decode(blocks: Array) -> Array:
    return halves(blocks, 0) * fives(blocks[:, 4:]).astype(np.float32) + halves(blocks, 2)


def _encode(blocks: Array) -> Array:
    low = blocks.min(-1, keepdims=True)
    d = (blocks.max(-1, keepdims=True) - low) / np.float32(31)
    q = truncated((blocks - low) * inverse(d) + np.float32(0.5), 31)
    return np.concatenate([half_bytes(d), half_bytes(low), packed_fives(q)], -1)


ENCODING = Encoding(
    "q5_1", 32, 24, _decode,
    """
  const float d = pf_half_at(b), m = pf_half_at(b + 2);
  const int high = pf_u32_at(b + 4) >> 16 * g;
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 8), 4 * g, 15);
  PF_UNROLL
  for (int i = 0; i < 16; i++) y[i] = d * (float)(q.at[i] | (high >> i & 1) << 4) + m;
""",
    _encode, ggml=7,
)  # fmt: skip
