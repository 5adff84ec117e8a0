"""Q4_K: 256 numbers of 4 bits; for every 32 a scale and an offset of 6 bits. x = d s q - dmin m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, nibbles, packed_nibbles
from pyflame.core.encodings.super_blocks import SIZE, packed_sixes, sixes_decoded, with_offsets


def _decode(blocks: Array) -> Array:
    return sixes_decoded(blocks, nibbles(blocks[:, 16:], 32))


def _encode(blocks: Array) -> Array:
    d, dmin, scales, offsets, q = with_offsets(blocks, 32, 15, 63)
    return np.concatenate([d, dmin, packed_sixes(scales, offsets), packed_nibbles(q, 32)], -1)


ENCODING = Encoding(
    "q4_k", SIZE, 144, _decode,
    """
  const pf_both of = pf_sixes_of(pf_sixteen_at(b), g / 2);
  const float d = of.scale, m = of.least;
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 16 + g / 4 * 32 + g % 2 * 16), g / 2 % 2 * 4, 15);
""",
    _encode, ggml=12, least="-m", pair=2, halves=(0, 4),
)  # fmt: skip
