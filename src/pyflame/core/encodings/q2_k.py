"""Q2_K: 256 numbers of 2 bits; for every 16 a scale and an offset of 4 bits. x = d s q - dmin m"""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, Encoding, halves
from pyflame.core.encodings.super_blocks import SIZE, shifted, unshifted, with_offsets

_SHIFTS = range(0, 8, 2)


def _decode(blocks: Array) -> Array:
    scales = blocks[:, :16]
    d = (halves(blocks, 80) * (scales & 15).astype(np.float32))[:, :, None]
    m = (halves(blocks, 82) * (scales >> 4).astype(np.float32))[:, :, None]
    q = shifted(blocks[:, 16:80], 32, _SHIFTS, 3).reshape(-1, 16, 16).astype(np.float32)
    out: Array = d * q - m
    return out.reshape(-1, SIZE)


def _encode(blocks: Array) -> Array:
    d, dmin, scales, offsets, q = with_offsets(blocks, 16, 3, 15)
    return np.concatenate([scales | offsets << np.uint8(4), unshifted(q, 32, _SHIFTS), d, dmin], -1)


ENCODING = Encoding(
    "q2_k", SIZE, 84, _decode,
    """
  const float d = pf_half_at(b + 80) * (float)(b[g] & 15), m = pf_half_at(b + 82) * (float)(b[g] >> 4);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 16 + g / 8 * 32 + g % 2 * 16), g / 2 % 4 * 2, 3);
""",
    _encode, ggml=10, least="-m", pair=2,
)  # fmt: skip
