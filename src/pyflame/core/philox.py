"""Philox4x32-10 in NumPy: the definition of every random number of the package, and the twin of `pf_philox.h`.

A random tensor is named by (seed, offset). Block number ``b`` of it is the four 32-bit words

    philox4x32_10(key=(seed lo, seed hi), counter=(b lo, b hi, offset lo, offset hi))

and element ``i`` takes

=============  ==============================================================================================
32-bit words   word ``i % 4`` of block ``i // 4``
float32        uniform: ``(word >> 8) * 2**-24``; normal: Box-Muller of words ``2p`` and ``2p + 1`` of block
               ``i // 4`` with ``p = i % 4 // 2``, the cosine for even ``i``, the sine for odd
64-bit words   words ``2p`` (high) and ``2p + 1`` (low) of block ``i // 2`` with ``p = i % 2``
float64        uniform: ``(word64 >> 11) * 2**-53``; normal: Box-Muller of both 64-bit words of block ``i // 2``
=============  ==============================================================================================

Bits and uniforms are equal on every device; normals differ by what the devices' log, sin and cos differ (4 ulp).
The offset numbers independent streams of 2**64 blocks each, so a caller adds 1 per random tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "philox_blocks",
    "random_below",
    "random_normal_f32",
    "random_normal_f64",
    "random_u32",
    "random_u64",
    "random_uniform_f32",
    "random_uniform_f64",
]

_U32 = np.uint64(0xFFFFFFFF)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def philox_blocks(seed: int, offset: int, start: int, count: int) -> npt.NDArray[np.uint32]:
    """Blocks ``start .. start + count`` of the stream: ``(count, 4)`` words."""
    block = np.arange(count, dtype=np.uint64) + np.uint64(start)
    c0, c1 = block & _U32, block >> np.uint64(32)
    c2 = np.full(count, offset & 0xFFFFFFFF, np.uint64)
    c3 = np.full(count, offset >> 32 & 0xFFFFFFFF, np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p, q = _M0 * c0, _M1 * c2  # 32 x 32 bits in 64: exact
        c0, c1 = (q >> np.uint64(32)) ^ c1 ^ np.uint64(k0), q & _U32
        c2, c3 = (p >> np.uint64(32)) ^ c3 ^ np.uint64(k1), p & _U32
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def random_u32(seed: int, offset: int, n: int) -> npt.NDArray[np.uint32]:
    """The first ``n`` 32-bit words."""
    return philox_blocks(seed, offset, 0, -(-n // 4)).reshape(-1)[:n]


def random_u64(seed: int, offset: int, n: int) -> npt.NDArray[np.uint64]:
    """The first ``n`` 64-bit words."""
    words = philox_blocks(seed, offset, 0, -(-n // 2)).reshape(-1, 2).astype(np.uint64)
    return (words[:, 0] << np.uint64(32) | words[:, 1])[:n]


def random_below(words: npt.NDArray[np.uint64], span: int) -> npt.NDArray[np.uint64]:
    """Integers in [0, span) from 64-bit words: ``floor(word * span / 2**64)``; span 0 stands for 2**64."""
    if span == 0:
        return words
    c, d = np.uint64(span >> 32), np.uint64(span & 0xFFFFFFFF)
    a, b = words >> np.uint64(32), words & _U32
    middle = a * d + (b * d >> np.uint64(32))
    other = b * c + (middle & _U32)
    high: npt.NDArray[np.uint64] = a * c + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    return high


def random_uniform_f32(seed: int, offset: int, n: int) -> npt.NDArray[np.float32]:
    """``n`` float32 in [0, 1), multiples of 2**-24."""
    return (random_u32(seed, offset, n) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def random_uniform_f64(seed: int, offset: int, n: int) -> npt.NDArray[np.float64]:
    """``n`` float64 in [0, 1), multiples of 2**-53."""
    return (random_u64(seed, offset, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def random_normal_f32(seed: int, offset: int, n: int) -> npt.NDArray[np.float32]:
    """``n`` standard normals: the formula in float64, rounded once, so the value devices are measured against."""
    words = philox_blocks(seed, offset, 0, -(-n // 4)).reshape(-1, 2)
    # u rounds to float32 where the devices do: for large words, when the integer becomes a float.
    u = words[:, 0].astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    radius = np.sqrt(-2.0 * np.log(u.astype(np.float64)))
    quadrant = (words[:, 1].astype(np.uint64) + np.uint64(1 << 29)) >> np.uint64(30)
    rest = words[:, 1].astype(np.int64) - (quadrant << np.uint64(30)).astype(np.int64)
    return _box_muller(radius, quadrant, rest.astype(np.float64) * (2.0 * np.pi / 2.0**32))[:n].astype(np.float32)


def random_normal_f64(seed: int, offset: int, n: int) -> npt.NDArray[np.float64]:
    """``n`` standard normals in float64."""
    words = random_u64(seed, offset, 2 * (-(-n // 2))).reshape(-1, 2)
    u = 1.0 - (words[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(u))
    quadrant = (words[:, 1] + np.uint64(1 << 61)) >> np.uint64(62)  # wraps modulo 4, as it should
    rest = (words[:, 1] - (quadrant << np.uint64(62))).view(np.int64)
    return _box_muller(radius, quadrant, rest.astype(np.float64) * (2.0 * np.pi / 2.0**64))[:n]


def _box_muller(
    radius: npt.NDArray[np.float64], quadrant: npt.NDArray[np.uint64], angle: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """radius * (cos, sin)(angle + quadrant * pi/2), interleaved. |angle| <= pi/4 keeps both exact near zero."""
    sin, cos = np.sin(angle), np.cos(angle)
    odd = (quadrant & np.uint64(1)).astype(bool)
    cosine = np.where(odd, sin, cos) * np.where((quadrant + np.uint64(1)) & np.uint64(2), -1.0, 1.0)
    sine = np.where(odd, cos, sin) * np.where(quadrant & np.uint64(2), -1.0, 1.0)
    return np.stack([radius * cosine, radius * sine], axis=1).reshape(-1)
