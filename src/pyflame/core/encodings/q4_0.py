"""Q4_0: 32 numbers of 4 bits and one float16 scale. x = d (q - 8)"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, around_zero, half_bytes, halves, nibbles, packed_nibbles


def _decode(blocks: Array) -> Array:
    q: Array = nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8)
    return halves(blocks, 0) * q


def _encode(blocks: Array) -> Array:
    d, q = around_zero(blocks, 8)
    return np.concatenate([half_bytes(d), packed_nibbles(q)], -1)


ENCODING = Encoding(
    "q4_0", 32, 18, _decode,
    """
  const float d = pf_half_at(b);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 2), 4 * g, 15);
""",
    _encode, ggml=2, pair=1, offset="8", halves=(0, 2),
)  # fmt: skip
