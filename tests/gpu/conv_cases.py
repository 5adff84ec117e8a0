"""Convolutions for matrix tiles: of every memory order, geometry and edge, with what NumPy or the CPU says of them."""

from __future__ import annotations

from pyflame.core.dtype import DType, int32
from tests.gpu.gemm_cases import Build, convolution, fused_convolution

CHANNELS, FIRST, SECOND, PLAIN = "third last", "first last", "last first", "plain"
LAST = (CHANNELS, CHANNELS)  # channels side by side in both operands
TURNED = (FIRST, SECOND)  # as in a weight's gradient: images and output channels side by side


def large(dtype: DType) -> list[Build]:
    """What takes the largest blocks, fetched in every way; of 16-bit floats as a plan turns it."""
    image, taps, pad = (2, 1, 32, 1, 12, 12), (1, 128, 32, 1, 3, 3), (0, 1, 1)
    turned = convolution((64, 1, 8, 1, 12, 12), (1, 128, 8, 1, 12, 12), pad=pad, dtype=dtype, views=TURNED)
    odd = convolution((2, 1, 31, 1, 12, 12), (1, 128, 31, 1, 3, 3), pad=pad, dtype=dtype, views=LAST)
    lasts = [convolution(image, taps, pad=pad, dtype=dtype, views=views) for views in (LAST, (CHANNELS, SECOND))]
    volume = convolution((1, 1, 32, 6, 6, 6), (1, 128, 32, 3, 3, 3), pad=(1, 1, 1), dtype=dtype, views=LAST)
    return [*lasts, turned, odd, volume, convolution(image, taps, pad=pad, dtype=dtype)]


def tiled(dtype: DType) -> dict[str, Build]:
    """What takes another way through conv.hip's fetches: vectors along k and across lines, single numbers in both."""
    image, taps = (2, 1, 16, 1, 7, 9), (1, 24, 16, 1, 3, 3)
    pad = (0, 1, 1)
    given = {
        "last": convolution(image, taps, pad=pad, dtype=dtype, views=LAST),
        "last, stride": convolution(image, taps, (1, 2, 3), (0, 2, 1), rhs=(1, 2, 1), dtype=dtype, views=LAST),
        "last, dilated": convolution(image, taps, pad=pad, lhs=(1, 2, 3), rhs=(1, 2, 1), dtype=dtype, views=LAST),
        "last, groups": convolution((2, 3, 16, 1, 5, 6), (3, 12, 16, 1, 3, 3), dtype=dtype, views=LAST),
        "last, odd": convolution((2, 1, 9, 1, 7, 6), (1, 19, 9, 1, 3, 3), pad=pad, dtype=dtype, views=LAST),
        "last, 1d": convolution((2, 1, 16, 1, 1, 30), (1, 12, 16, 1, 1, 5), pad=(0, 0, 2), dtype=dtype, views=LAST),
        "last, 3d": convolution((1, 1, 16, 3, 5, 4), (1, 9, 16, 2, 3, 2), pad=(1, 1, 0), dtype=dtype, views=LAST),
        "last, by turned": convolution(image, taps, pad=pad, dtype=dtype, views=(CHANNELS, SECOND)),
        "last, long": convolution((1, 1, 304, 1, 4, 4), (1, 10, 304, 1, 3, 3), dtype=dtype, views=LAST),
        "first": convolution(image, taps, pad=pad, dtype=dtype),
        "first, odd": convolution((2, 1, 3, 1, 9, 11), (1, 13, 3, 1, 3, 3), pad=pad, dtype=dtype),
        "first, stride": convolution(image, taps, (1, 2, 3), (0, 2, 1), rhs=(1, 2, 1), dtype=dtype),
        "first, 3d": convolution((2, 1, 2, 4, 5, 6), (1, 9, 2, 2, 3, 2), (1, 2, 1), (1, 1, 0), dtype=dtype),
        "taps along k": convolution((2, 1, 4, 1, 1, 40), (1, 12, 4, 1, 1, 38), dtype=dtype),
        "turned": convolution((24, 1, 2, 1, 9, 8), (1, 20, 2, 1, 7, 6), dtype=dtype, views=TURNED),
        "turned, odd": convolution((21, 1, 2, 1, 9, 8), (1, 11, 2, 1, 7, 6), dtype=dtype, views=TURNED),
        "turned, padded": convolution((24, 2, 2, 1, 7, 6), (2, 12, 2, 1, 7, 6), pad=pad, dtype=dtype, views=TURNED),
        "fused": fused_convolution((2, 16, 7, 8), (24, 16, 3, 3), dtype, PLAIN, padding=1),
        "fused, odd": fused_convolution((2, 5, 7, 6), (17, 5, 3, 3), dtype, PLAIN, padding=1),
        "fused, misaligned": fused_convolution((2, 16, 7, 8), (24, 16, 3, 3), dtype, "misaligned", padding=1),
        "misaligned": convolution((2, 1, 16, 1, 1, 9), taps[:3] + (1, 1, 3), dtype=dtype, views=("misaligned", PLAIN)),
    }  # fmt: skip
    return {f"{dtype.name} {name}": build for name, build in given.items()}


def whole() -> dict[str, Build]:
    """Of integers, for which no GPU has matrix instructions."""
    image, taps, d = (2, 1, 3, 1, 9, 11), (1, 12, 3, 1, 3, 3), int32
    return {
        "whole": convolution(image, taps, pad=(0, 1, 1), dtype=d),
        "whole, last": convolution((2, 1, 9, 1, 5, 6), (1, 12, 9, 1, 3, 3), dtype=d, views=LAST),
        "whole, turned": convolution((24, 1, 2, 1, 9, 8), (1, 20, 2, 1, 7, 6), dtype=d, views=TURNED),
        "whole, dilated": convolution(image, taps, lhs=(1, 2, 3), rhs=(1, 2, 1), pad=(0, 3, 2), dtype=d),
        "whole, phases": convolution(image, taps, lhs=(1, 2, 2), pad=(0, 2, 1), dtype=d),
        "whole, phases without taps": convolution(image, (1, 12, 3, 1, 1, 1), lhs=(1, 2, 2), dtype=d),
        "whole, 1d": convolution((3, 1, 4, 1, 1, 50), (1, 10, 4, 1, 1, 5), pad=(0, 0, 2), dtype=d),
        "whole, 3d": convolution((2, 1, 2, 4, 5, 6), (1, 9, 2, 2, 3, 2), pad=(1, 1, 0), dtype=d),
        "whole, long": convolution((1, 1, 300, 1, 4, 4), (1, 10, 300, 1, 3, 3), dtype=d),
    }


def whole_large() -> dict[str, Build]:
    """The same in the other tiles, for one compute unit."""
    return {
        "large": convolution((3, 1, 6, 1, 16, 16), (1, 130, 6, 1, 3, 3), pad=(0, 1, 1), dtype=int32),
        "fewer": convolution((2, 1, 3, 1, 9, 11), (1, 40, 3, 1, 3, 3), dtype=int32),
        "least": convolution((2, 1, 3, 1, 18, 18), (1, 12, 3, 1, 3, 3), pad=(0, 1, 1), dtype=int32),
    }
