"""Q4_1: 32 numbers of 4 bits, a float16 scale and the smallest number. x = d q + m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import (
    Array,
    Encoding,
    half_bytes,
    halves,
    inverse,
    nibbles,
    packed_nibbles,
    truncated,
)  # fmt: skip


def _decode(blocks: Array) -> Array:
    return halves(blocks, 0) * nibbles(blocks[:, 4:]).astype(np.float32) + halves(blocks, 2)


def _encode(blocks: Array) -> Array:
    low = blocks.min(-1, keepdims=True)
    d = (blocks.max(-1, keepdims=True) - low) / np.float32(15)
    q = truncated((blocks - low) * inverse(d) + np.float32(0.5), 15)
    return np.concatenate([half_bytes(d), half_bytes(low), packed_nibbles(q)], -1)


ENCODING = Encoding(
    "q4_1", 32, 20, _decode,
    """
  const float d = pf_half_at(b), m = pf_half_at(b + 2);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 4), 4 * g, 15);
  PF_UNROLL
  for (int i = 0; i < 16; i++) y[i] = d * (float)q.at[i] + m;
""",
    _encode, ggml=3,
)  # fmt: skip
