"""Images read at computed places: affine_grid and grid_sample, in two and three dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod

from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import linspace, ones, place_of

_PADDING = ("zeros", "border", "reflection")


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where each pixel of an image of this size (N, C, H, W) or (N, C, D, H, W) reads, after an affine map theta.

    >>> nn.functional.affine_grid(pf.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 2, 2)).shape
    (1, 2, 2, 2)
    """
    spatial = tuple(size[2:])
    d = len(spatial)
    if d not in (2, 3) or theta.shape != (size[0], d, d + 1):
        raise ShapeError(f"[affine_grid] expected theta (N, {d}, {d + 1}) for size {tuple(size)} but got {theta.shape}")
    place = place_of(theta, None)
    lines = []
    for axis in reversed(range(d)):  # x first
        n = spatial[axis]
        line = linspace(-1.0, 1.0, n, dtype=theta.dtype, device=place) if n > 1 else ones(1, device=place) * 0.0
        line = line.to(dtype=theta.dtype) * (1.0 if align_corners else (n - 1) / n)
        lines.append(line.reshape(*[-1 if a == axis else 1 for a in range(d)]).expand(*spatial))
    base = F["stack"]([*lines, ones(spatial, dtype=theta.dtype, device=place)], -1)
    # (1, points, d + 1) @ (N, d + 1, d)
    return (base.reshape(1, -1, d + 1) @ theta.mT).reshape(size[0], *spatial, d)


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Folded back at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return x * 0.0
    off = (x - low).abs()
    turns = F["floor"](off / span).detach()
    rest = off - turns * span
    return F["where"](turns % 2 == 0, rest + low, span - rest + low)


def _place(x: Tensor, size: int, align_corners: bool) -> Tensor:
    """A coordinate of [-1, 1] as a position among the pixels of an axis."""
    return (x + 1.0) * ((size - 1) / 2.0) if align_corners else ((x + 1.0) * size - 1.0) / 2.0


def _padded(at: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Where to read for a position that may lie beyond the pixels."""
    if padding_mode == "reflection":
        at = _reflected(at, *((0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)))
    return at if padding_mode == "zeros" else F["clamp"](at, 0.0, size - 1.0)


def _read(flat: Tensor, corner: Sequence[Tensor], spatial: Sequence[int]) -> Tensor:
    """The pixels (N, C, points) at whole positions, 0 outside of the image. flat: (N, C, pixels)."""
    inside, index = None, None
    for at, size in zip(corner, spatial, strict=True):
        within = (at >= 0.0) & (at <= size - 1.0)
        inside = within if inside is None else inside & within
        whole = F["clamp"](at, 0.0, size - 1.0).long()
        index = whole if index is None else index * size + whole
    assert inside is not None and index is not None
    picked = F["gather"](flat, 2, index.unsqueeze(1).expand(*flat.shape[:2], index.shape[1]))
    return F["where"](inside.unsqueeze(1), picked, 0.0)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The pixels of (N, C, H, W) or (N, C, D, H, W) at places (N, ..., 2 or 3) in [-1, 1].

    Modes: 'bilinear', 'nearest', and 'bicubic' for two axes of space. Outside of the image there are zeros, the nearest
    pixel of its border, or its reflection.

    >>> nn.functional.grid_sample(pf.ones(1, 3, 4, 4), pf.zeros(1, 2, 2, 2)).shape
    (1, 3, 2, 2)
    """
    spatial, d = input.shape[2:], input.ndim - 2
    if d not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != d or grid.shape[0] != input.shape[0]:
        raise ShapeError(
            f"[grid_sample] expected (N, C, H, W) and (N, H, W, 2), or one axis more, but got {input.shape} and "
            f"{grid.shape}"
        )
    if 0 in spatial or grid.dtype is not input.dtype or not input.dtype.is_float:
        raise DTypeError(
            f"[grid_sample] expected pixels and places of one floating-point dtype but got {input.dtype.name} of shape "
            f"{input.shape} and {grid.dtype.name}"
        )
    modes = ("bilinear", "nearest", *(["bicubic"] if d == 2 else []))
    if mode not in modes or padding_mode not in _PADDING:
        raise ArgumentError(
            f"[grid_sample] expected a mode in {modes} and a padding_mode in {_PADDING} but got {mode!r} and "
            f"{padding_mode!r}"
        )
    flat = input.reshape(*input.shape[:2], prod(spatial))
    points = grid.reshape(grid.shape[0], -1, d)
    # the last axis of the grid runs the other way: x, y, z
    at = [_place(points[..., d - 1 - a], spatial[a], bool(align_corners)) for a in range(d)]

    def padded(where: Sequence[Tensor]) -> list[Tensor]:
        return [_padded(x, size, padding_mode, bool(align_corners)) for x, size in zip(where, spatial, strict=True)]

    if mode == "nearest":
        out = _read(flat, [F["round"](x.detach()) for x in padded(at)], spatial)
    elif mode == "bicubic":
        out = _blended_cubic(flat, at, spatial, padded)
    else:
        out = _blended(flat, padded(at), spatial)
    return out.reshape(*input.shape[:2], *grid.shape[1:-1])


def _blended(flat: Tensor, at: Sequence[Tensor], spatial: Sequence[int]) -> Tensor:
    """The sum over the corners of the cell around each place, by how near it is to each."""
    low = [F["floor"](x.detach()) for x in at]
    total: Tensor | None = None
    for corner in itertools.product((0.0, 1.0), repeat=len(at)):
        ends = [x + step for x, step in zip(low, corner, strict=True)]
        share: Tensor | None = None
        for x, first, step in zip(at, low, corner, strict=True):
            near = x - first if step else 1.0 - (x - first)
            share = near if share is None else share * near
        assert share is not None
        term = _read(flat, ends, spatial) * share.unsqueeze(1)
        total = term if total is None else total + term
    assert total is not None
    return total


def _cubic_shares(t: Tensor) -> list[Tensor]:
    """How much the four pixels around a place count that lies t behind the second of them: Keys' kernel, a = -0.75."""
    a = -0.75
    near = [((a + 2) * x - (a + 3)) * x * x + 1 for x in (t, 1 - t)]
    far = [((a * x - 5 * a) * x + 8 * a) * x - 4 * a for x in (t + 1, 2 - t)]
    return [far[0], *near, far[1]]


def _blended_cubic(
    flat: Tensor, at: Sequence[Tensor], spatial: Sequence[int], padded: Callable[[Sequence[Tensor]], list[Tensor]]
) -> Tensor:
    """The sum over the 4 x 4 pixels around each place. As in PyTorch each of them is padded, not the place."""
    low = [F["floor"](x.detach()) for x in at]
    shares = [_cubic_shares(x - first) for x, first in zip(at, low, strict=True)]
    total: Tensor | None = None
    for i, j in itertools.product(range(4), repeat=2):
        pixel = _read(flat, padded([low[0] + (i - 1), low[1] + (j - 1)]), spatial)
        term = pixel * (shares[0][i] * shares[1][j]).unsqueeze(1)
        total = term if total is None else total + term
    assert total is not None
    return total
