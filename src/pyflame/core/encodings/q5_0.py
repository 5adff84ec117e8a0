"""Q5_0: 32 numbers of 5 bits (the fifth ones together) and one float16 scale. x = d (q - 16)"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, half_bytes, halves, inverse, truncated
from pyflame.core.encodings.fives import fives, packed_fives


def _decode(blocks: Array) -> Array:
    q: Array = fives(blocks[:, 2:]).astype(np.float32) - np.float32(16)
    return halves(blocks, 0) * q


def _encode(blocks: Array) -> Array:
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    d = largest / np.float32(-16)
    q = truncated(blocks * inverse(d) + np.float32(16.5), 31)
    return np.concatenate([half_bytes(d), packed_fives(q)], -1)


ENCODING = Encoding(
    "q5_0", 32, 22, _decode,
    """
  const float d = pf_half_at(b);
  const int high = pf_u32_at(b + 2) >> 16 * g;
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 6), 4 * g, 15);
  PF_UNROLL
  for (int i = 0; i < 16; i++) y[i] = d * (float)((q.at[i] | (high >> i & 1) << 4) - 16);
""",
    _encode, ggml=6,
)  # fmt: skip
