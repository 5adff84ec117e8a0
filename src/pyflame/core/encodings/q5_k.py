"""Q5_K: 256 numbers of 5 bits (the fifth ones together); for every 32 a scale and an offset of 6 bits.
x = d s q - dmin m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, nibbles, packed_nibbles
from pyflame.core.encodings.super_blocks import SIZE, packed_sixes, shifted, sixes_decoded, unshifted, with_offsets


def _decode(blocks: Array) -> Array:
    fifth = shifted(blocks[:, 16:48], 32, range(8), 1)
    return sixes_decoded(blocks, nibbles(blocks[:, 48:], 32) | fifth << np.uint8(4))


def _encode(blocks: Array) -> Array:
    d, dmin, scales, offsets, q = with_offsets(blocks, 32, 31, 63)
    parts = [d, dmin, packed_sixes(scales, offsets), unshifted(q >> 4, 32, range(8)), packed_nibbles(q & 15, 32)]
    return np.concatenate(parts, -1)


ENCODING = Encoding(
    "q5_k", SIZE, 176, _decode,
    """
  const pf_both of = pf_sixes_of(pf_sixteen_at(b), g / 2);
  const float d = of.scale, m = of.least;
  const pf_sixteen low = pf_bits_of(pf_sixteen_at(b + 48 + g / 4 * 32 + g % 2 * 16), g / 2 % 2 * 4, 15);
  const pf_sixteen q = pf_joined(low, pf_bits_of(pf_sixteen_at(b + 16 + g % 2 * 16), g / 2, 1), 4);
""",
    _encode, ggml=13, least="-m", pair=2,
)  # fmt: skip
