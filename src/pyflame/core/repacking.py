"""Quantised weights of safetensors checkpoints as rows of our blocks (core/encodings/groups.py).

Such a checkpoint keeps a layer's numbers, scales and zero points in tensors of their own, packed in the way of the
program that wrote it. Each function takes those arrays and gives the name of an encoding and bytes (out, row bytes).

    gptq         AutoGPTQ, GPTQModel: qweight (in/8, out), qzeros (groups, out/8), scales (groups, out)
    awq          AutoAWQ: qweight (in, out/8), qzeros (groups, out/8), scales (groups, out), columns in its own order
    compressed   compressed-tensors' pack-quantized: weight_packed (out, in/8), weight_scale (out, groups)
    int8, fp8    weight (out, in) and scales for the tensor, for each row, or for blocks of 128 x 128
    mxfp4        gpt-oss' experts: blocks (experts, out, in/32, 16), scales (experts, out, in/32)
"""

from __future__ import annotations

import numpy as np

from pyflame.core.dtype import float8_e4m3fn
from pyflame.core.encodings.block import Array, packed_nibbles
from pyflame.core.encodings.groups import SIZES, words
from pyflame.core.errors import NotSupportedError, ShapeError

Repacked = tuple[str, Array]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each 4 bits of a word belong to


def gptq(
    qweight: Array, qzeros: Array, scales: Array, g_idx: Array | None = None, bits: int = 4, plus: int = 1
) -> Repacked:
    """GPTQ's layout. `plus`: what is added to stored zero points: 1, but 0 for checkpoint_format gptq_v2."""
    numbers = _unpacked(qweight.T, bits)
    zeros = _unpacked(qzeros, bits) + plus
    _want_order(g_idx, numbers.shape[1], len(scales))
    return _grouped(numbers, scales.T, zeros.T, bits)


def awq(qweight: Array, qzeros: Array, scales: Array) -> Repacked:
    """AutoAWQ's layout, of 4 bits."""
    places = np.argsort(_AWQ_ORDER)
    numbers, zeros = (_unpacked(a, 4).reshape(len(a), -1, 8)[:, :, places] for a in (qweight, qzeros))
    return _grouped(numbers.reshape(len(numbers), -1).T, scales.T, zeros.reshape(len(zeros), -1).T, 4)


def compressed(
    weight: Array, scale: Array, zero: Array | None = None, g_idx: Array | None = None, bits: int = 4, width: int = 0
) -> Repacked:
    """compressed-tensors' layout: numbers are stored above 0, zero points too, packed along the rows of the weight.

    `width`: elements of a row, where the last word holds fewer than it could.
    """
    numbers = _unpacked(weight, bits)
    numbers = numbers[:, :width] if width else numbers
    scales = scale.reshape(len(numbers), -1)
    _want_order(g_idx, numbers.shape[1], scales.shape[1])
    zeros = np.full(scales.shape, 1 << (bits - 1)) if zero is None else _unpacked(zero.T, bits).T[: len(numbers)]
    return _grouped(numbers, scales, zeros, bits)


def int8(weight: Array, scale: Array) -> Repacked:
    """Signed bytes (out, in) with a scale for the tensor, for each row, or for groups of a row (out, groups)."""
    scales = _matrix(scale)
    return _blocks("int8", weight.astype(np.int8, copy=False), scales, _group(weight.shape[1], scales.shape[1]))


def fp8(weight: Array, scale: Array, block: tuple[int, int] | None = None) -> Repacked:
    """float8_e4m3fn (out, in) with a scale for the tensor, each row, or each block of this size (rows, columns)."""
    stored = weight if weight.dtype == np.uint8 else weight.astype(float8_e4m3fn.numpy, copy=False)
    scales = _matrix(scale)
    if block is None:
        return _blocks("fp8", stored, scales, _group(weight.shape[1], scales.shape[1]))
    return _blocks("fp8", stored, np.repeat(scales, block[0], 0)[: len(weight)], block[1])


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers of words along the last axis, lowest bits first."""
    if bits not in (4, 8) or packed.dtype.itemsize != 4:
        raise NotSupportedError(f"[repack] expected words of 4 or 8 bits each but got {packed.dtype} of {bits} bits")
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    numbers = np.ascontiguousarray(packed).view(np.uint32)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1).astype(np.int16)


def _want_order(g_idx: Array | None, width: int, groups: int) -> None:
    """Groups must be runs of neighbours: of a weight in order of activations (desc_act) they are not."""
    if g_idx is not None and not np.array_equal(np.asarray(g_idx), np.arange(width) // -(-width // groups)):
        raise NotSupportedError("[repack] expected groups of neighbours but got g_idx in another order (desc_act)")


def _matrix(scale: Array) -> Array:
    """Scales as float32 (rows, groups); one for all as (1, 1)."""
    scales = np.asarray(scale).astype(np.float32)
    return scales.reshape(1, 1) if scales.size == 1 else scales.reshape(len(scales), -1)


def _group(width: int, groups: int) -> int:
    """The elements of each of so many groups of a row."""
    if not groups or width % groups:
        raise ShapeError(f"[repack] expected groups that divide rows of {width} elements but got {groups}")
    return width // groups


def _grouped(numbers: Array, scales: Array, zeros: Array, bits: int) -> Repacked:
    """(q - z) s for numbers (out, in), scales and zero points (out, groups)."""
    group = _group(numbers.shape[1], scales.shape[1])
    if scales.shape != zeros.shape:
        raise ShapeError(f"[repack] expected a zero point for each scale {scales.shape} but got {zeros.shape}")
    if bits == 4:
        return _blocks("int4", numbers, words(scales, zeros), group)
    signed = numbers - np.repeat(zeros, group, 1)
    if signed.min(initial=0) < -128 or signed.max(initial=0) > 127:
        raise NotSupportedError("[repack] expected 8-bit numbers within 128 of their zero point but got others")
    return _blocks("int8", signed.astype(np.int8), scales.astype(np.float32), group)


def _blocks(kind: str, numbers: Array, heads: Array, group: int) -> Repacked:
    """Rows of blocks: numbers (out, in), and what begins each block of a group, (out or 1, groups)."""
    out, width = numbers.shape
    if len(heads) not in (1, out) or heads.shape[1] != -(-width // group):
        raise ShapeError(f"[repack] expected scales ({out}, {-(-width // group)}) but got {heads.shape}")
    size = next((s for s in SIZES if width % s == 0 and group % s == 0), 0)
    if not size:
        raise NotSupportedError(
            f"[repack] expected rows and groups of a multiple of {SIZES[-1]} elements but got {width} and {group}"
        )
    each = np.broadcast_to(heads, (out, heads.shape[1]))[:, np.arange(0, width, size) // group]
    parts = np.ascontiguousarray(numbers).reshape(-1, size)
    body = packed_nibbles(parts) if kind == "int4" else parts.view(np.uint8)
    return f"{kind}_g{size}", np.concatenate([each.reshape(-1, 1).view(np.uint8), body], 1).reshape(out, -1)


def mxfp4(blocks: Array, scales: Array) -> Repacked:
    """OpenAI's layout: a byte holds two neighbours, the first in its low bits. Ours, GGUF's, has the first half of a
    block in low bits and the second in high ones, behind the block's exponent. One expert at a time."""
    if blocks.dtype != np.uint8 or scales.dtype != np.uint8 or blocks.shape != (*scales.shape, 16):
        raise ShapeError(
            f"[mxfp4] expected bytes of blocks (.., 16) and of their scales but got {blocks.dtype}{list(blocks.shape)} "
            f"and {scales.dtype}{list(scales.shape)}"
        )
    out = np.empty((*scales.shape, 17), np.uint8)
    out[..., 0] = scales
    for whole, part in zip(out, blocks, strict=True):
        numbers = np.stack([part & 15, part >> 4], -1).reshape(-1, 32)
        whole[..., 1:] = packed_nibbles(numbers).reshape(part.shape)
    return "mxfp4", out.reshape(*scales.shape[:-1], -1)
