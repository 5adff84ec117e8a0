"""32 numbers of 5 bits as Q5_0 and Q5_1 store them: a word of fifth bits, then 16 bytes of the others."""

from __future__ import annotations

import numpy as np

from pyflame.core.encodings.block import Array, nibbles, packed_nibbles


def fives(packed: Array) -> Array:
    """(n, 20) bytes -> (n, 32) numbers."""
    high: Array = np.unpackbits(np.ascontiguousarray(packed[:, :4]), axis=-1, bitorder="little")
    out: Array = nibbles(packed[:, 4:]) | high << np.uint8(4)
    return out


def packed_fives(numbers: Array) -> Array:
    """(n, 32) numbers -> (n, 20) bytes."""
    high = np.packbits(numbers >> np.uint8(4), axis=-1, bitorder="little")
    return np.concatenate([high, packed_nibbles(numbers & np.uint8(15))], -1)
