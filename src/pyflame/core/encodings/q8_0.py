"""Q8_0: 32 signed bytes and one float16 scale. x = d q"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, half_bytes, halves, inverse, rounded


def _decode(blocks: Array) -> Array:
    return blocks[:, 2:].view(np.int8).astype(np.float32) * halves(blocks, 0)


def _encode(blocks: Array) -> Array:
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    scaled = blocks * inverse(d)
    return np.concatenate([half_bytes(d), rounded(scaled).astype(np.int8).view(np.uint8)], -1)


ENCODING = Encoding(
    "q8_0", 32, 34, _decode,
    """
  const float d = pf_half_at(b);
  const pf_sixteen q = pf_sixteen_at(b + 2 + 16 * g);
""",
    _encode, ggml=8, pair=1, signed=True, halves=(0, 2),
)  # fmt: skip
