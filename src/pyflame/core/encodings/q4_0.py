"""Q4_0: 32 numbers of 4 bits and one float16 scale. x = d (q - 8)"""

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
    q: Array = nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)
    return halves(blocks, 0) * q


def _encode(blocks: Array) -> Array:
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1, keepdims=True), -1)
    d = largest / np.float32(-8)
    q = truncated(blocks * inverse(d) + np.float32(8.5), 15)
    return np.concatenate([half_bytes(d), packed_nibbles(q)], -1)


ENCODING = Encoding(
    "q4_0", 32, 18, _decode,
    """
  const float d = pf_half_at(b);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 2), 4 * g, 15);
  PF_UNROLL
  for (int i = 0; i < 16; i++) y[i] = d * ((float)q.at[i] - 8.0f);
""",
    _encode, ggml=2,
)  # fmt: skip
