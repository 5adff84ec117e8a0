"""Formats of our own, for what safetensors checkpoints keep in several tensors: weights of 4 or 8 bits, and scales.

Loading repacks them (core/repacking.py), so that kernels see blocks alone. A block is a group of a row with its scale:

    int4_g128   a word, 64 bytes of two numbers each (of every 16 bytes all low ones, then all high ones). x = s (q - z)
                The word is s, a float32, with z in place of its lowest 8 bits: exact for float16 and bfloat16 scales
    int8_g128   s as float32, 128 signed bytes. x = s q
    fp8_g128    s as float32, 128 float8_e4m3fn. x = s q
Groups of 64 and 32 elements are there for rows that are no multiple of 128. A scale for a whole row, tensor or block of
128 x 128 is repeated, for 3% more bytes.
"""

from __future__ import annotations

import numpy as np

from pyflame.core.dtype import float8_e4m3fn
from pyflame.core.encodings.block import Array, Encoding, inverse, nibbles, packed_nibbles, rounded

SIZES = (128, 64, 32)


def words(scales: Array, zeros: Array) -> Array:
    """Scales and zero points as one word each: a scale keeps 16 bits of its mantissa, rounded to the nearest."""
    bits = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    return (bits + np.uint32(0x7F) + (bits >> 8 & 1)) & np.uint32(0xFFFFFF00) | zeros.astype(np.uint32)


def _scale(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[:, :4]).view(np.float32)


def _decode_int4(blocks: Array) -> Array:
    word = np.ascontiguousarray(blocks[:, :4]).view(np.uint32)
    scale, zero = (word & np.uint32(0xFFFFFF00)).view(np.float32), (word & np.uint32(255)).astype(np.float32)
    return scale * (nibbles(blocks[:, 4:]).astype(np.float32) - zero)


def _encode_int4(blocks: Array) -> Array:
    low, high = np.minimum(blocks.min(-1, keepdims=True), 0), np.maximum(blocks.max(-1, keepdims=True), 0)
    rough = words((high - low) / np.float32(15), np.zeros_like(low)).view(np.float32)
    zero = rounded(-low * inverse(rough)).clip(0, 15)
    q = (rounded(blocks * inverse(rough)) + zero).clip(0, 15)
    return np.concatenate([words(rough, zero).view(np.uint8), packed_nibbles(q)], -1)


def _encode_int8(blocks: Array) -> Array:
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    q = rounded(blocks * inverse(scale)).clip(-127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), q.view(np.uint8)], -1)


def _encode_fp8(blocks: Array) -> Array:
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(448)
    q = (blocks * inverse(scale)).clip(-448, 448).astype(float8_e4m3fn.numpy)
    return np.concatenate([scale.view(np.uint8), q.view(np.uint8)], -1)


_INT4 = """
  const uint32_t word = pf_u32_at(b);
  const float d = pf_from_bits_f32(word & 0xffffff00u);
  const pf_sixteen q = pf_bits_of(pf_sixteen_at(b + 4 + g / 2 * 16), g % 2 * 4, 15);
"""
_BYTES = """
  const float d = pf_float_at(b);
  const pf_sixteen q = pf_sixteen_at(b + 4 + 16 * g);
"""
_FP8 = """
  PF_UNROLL
  for (int i = 0; i < 16; i++) y[i] = pf_f8e4m3fn_at(q.at, i) * d;
"""


def _sized(size: int) -> tuple[Encoding, ...]:
    return (
        Encoding(
            f"int4_g{size}", size, 4 + size // 2, _decode_int4, _INT4, _encode_int4, pair=1, offset="(int)(word & 255)"
        ),
        Encoding(
            f"int8_g{size}", size, 4 + size,
            lambda blocks: blocks[:, 4:].view(np.int8).astype(np.float32) * _scale(blocks),
            _BYTES, _encode_int8, pair=1, signed=True,
        ),
        Encoding(
            f"fp8_g{size}", size, 4 + size,
            lambda blocks: blocks[:, 4:].view(float8_e4m3fn.numpy).astype(np.float32) * _scale(blocks),
            _BYTES + _FP8, _encode_fp8,
        ),
    )  # fmt: skip


ENCODINGS = tuple(one for size in SIZES for one in _sized(size))
