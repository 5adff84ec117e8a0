"""Images made larger and smaller by moving pixels between channels and space."""

from __future__ import annotations

from pyflame.core.checks import natural
from pyflame.core.errors import ShapeError
from pyflame.tensor import Tensor


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
