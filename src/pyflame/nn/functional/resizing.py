"""Images made larger and smaller: by interpolation, and by moving pixels between channels and space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.checks import natural
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.ir import is_number
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import place_of, tensor

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}


def _targets(input: Tensor, size: Any, scale_factor: Any) -> list[tuple[int, float]]:
    """For each spatial axis its new size, and how many old pixels one new pixel spans."""
    spatial = input.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ArgumentError("[interpolate] expected either size or scale_factor but got both or neither")
    given = size if size is not None else scale_factor
    each = tuple(given) if isinstance(given, Sequence) else (given,) * len(spatial)
    if len(each) != len(spatial):
        raise ShapeError(
            f"[interpolate] expected one number per spatial axis of {input.shape} but got {len(each)}: {each}"
        )
    if 0 in spatial or input.shape[1] == 0:
        raise ShapeError(f"[interpolate] expected channels and spatial axes with elements but got shape {input.shape}")
    if size is not None:
        sizes = [natural("interpolate", "a size", n) for n in each]
        steps = [old / max(n, 1) for n, old in zip(sizes, spatial, strict=True)]
    else:
        if not all(is_number(f) and 0 < f < math.inf for f in each):
            raise ArgumentError(f"[interpolate] expected a scale_factor above 0 but got {given}")
        sizes = [int(old * float(f)) for f, old in zip(each, spatial, strict=True)]
        steps = [1.0 / float(f) for f in each]
    if 0 in sizes:
        raise ArgumentError(f"[interpolate] expected sizes of at least 1 but {given} makes {sizes} of {input.shape}")
    return list(zip(sizes, steps, strict=True))


def _index(numbers: np.ndarray[Any, Any], like: Tensor) -> Tensor:
    return tensor(numbers, device=place_of(like, None))


def _nearest(x: Tensor, axis: int, n: int, step: float, center: float) -> Tensor:
    """`center` is 0.5 where pixels are taken by their middle, 0 by their corner."""
    old = x.shape[axis]
    at = np.minimum(np.floor((np.arange(n) + center) * step), old - 1).astype(np.int64)
    return F["index_select"](x, axis, _index(at, x))


def _linear(x: Tensor, axis: int, n: int, step: float, align_corners: bool) -> Tensor:
    old = x.shape[axis]
    if align_corners:
        at = np.arange(n) * ((old - 1) / (n - 1) if n > 1 else 0.0)
    else:
        at = np.maximum((np.arange(n) + 0.5) * step - 0.5, 0.0)
    low = np.minimum(np.floor(at), old - 1).astype(np.int64)
    share = _index((at - low).astype(np.float64), x).to(x.dtype).reshape(-1, *[1] * (x.ndim - axis - 1))
    left, right = (F["index_select"](x, axis, _index(i, x)) for i in (low, np.minimum(low + 1, old - 1)))
    return left * (1.0 - share) + right * share


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Resize (N, C, ...) to `size` or by `scale_factor`: 'nearest', 'nearest-exact', 'linear', 'bilinear', 'trilinear'.

    >>> nn.functional.interpolate(pf.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    if input.ndim not in _LINEAR:
        raise ShapeError(f"[interpolate] expected (N, C) and 1 to 3 spatial axes but got shape {input.shape}")
    modes = ("nearest", "nearest-exact", _LINEAR[input.ndim])
    if mode not in modes:
        raise ArgumentError(f"[interpolate] expected mode to be one of {modes} for {input.ndim} axes but got {mode!r}")
    if align_corners is not None and mode not in _LINEAR.values():
        raise ArgumentError(f"[interpolate] expected align_corners with a linear mode only but got it with {mode!r}")
    out = input
    for axis, (n, step) in enumerate(_targets(input, size, scale_factor), start=2):
        if mode in _LINEAR.values():
            out = _linear(out, axis, n, step, bool(align_corners))
        else:
            out = _nearest(out, axis, n, step, 0.5 if mode == "nearest-exact" else 0.0)
    return out


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels become space: (..., C*r*r, H, W) -> (..., C, H*r, W*r).

    >>> nn.functional.pixel_shuffle(pf.ones(1, 8, 3, 3), 2).shape
    (1, 2, 6, 6)
    """
    r = natural("pixel_shuffle", "upscale_factor", upscale_factor)
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"[pixel_shuffle] expected (..., C*{r}*{r}, H, W) but got shape {input.shape} for upscale_factor={r}"
        )
    *batch, c, h, w = input.shape
    n = len(batch)
    parts = input.reshape(*batch, c // (r * r), r, r, h, w)
    return parts.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2).reshape(*batch, c // (r * r), h * r, w * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Space becomes channels: (..., C, H*r, W*r) -> (..., C*r*r, H, W).

    >>> nn.functional.pixel_unshuffle(pf.ones(1, 2, 6, 6), 2).shape
    (1, 8, 3, 3)
    """
    r = natural("pixel_unshuffle", "downscale_factor", downscale_factor)
    if input.ndim < 3 or r < 1 or input.shape[-2] % r or input.shape[-1] % r:
        raise ShapeError(
            f"[pixel_unshuffle] expected (..., C, H*{r}, W*{r}) but got shape {input.shape} for downscale_factor={r}"
        )
    *batch, c, h, w = input.shape
    n = len(batch)
    parts = input.reshape(*batch, c, h // r, r, w // r, r)
    return parts.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(*batch, c * r * r, h // r, w // r)
