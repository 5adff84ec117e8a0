"""Images made larger and smaller by interpolation, in all of PyTorch's modes.

Every axis is resized on its own. A mode says for each new pixel which old ones it reads (its taps) and how much of
each; that is known on the host, so the resize itself is a few index_selects, products and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.checks import natural
from pyflame.core.dtype import float32, uint8
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.ir import is_number
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import place_of, tensor

_Array = np.ndarray[Any, Any]
_Taps = Callable[[int, int, float], tuple[_Array, Any]]
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
_WEIGHTED = (*_LINEAR.values(), "bicubic")


def _targets(input: Tensor, size: Any, scale_factor: Any, recompute: bool | None) -> list[tuple[int, float]]:
    """For each spatial axis its new size, and how many old pixels one new pixel spans."""
    spatial = input.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ArgumentError("[interpolate] expected either size or scale_factor but got both or neither")
    if size is not None and recompute:
        raise ArgumentError("[interpolate] expected recompute_scale_factor with scale_factor only but got it with size")
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
    else:
        if not all(is_number(f) and 0 < f < math.inf for f in each):
            raise ArgumentError(f"[interpolate] expected a scale_factor above 0 but got {given}")
        sizes = [math.floor(old * float(f)) for f, old in zip(each, spatial, strict=True)]
    if 0 in sizes:
        raise ArgumentError(f"[interpolate] expected sizes of at least 1 but {given} makes {sizes} of {input.shape}")
    if size is not None or recompute:
        steps = [old / n for n, old in zip(sizes, spatial, strict=True)]
    else:
        steps = [1.0 / float(f) for f in each]
    return list(zip(sizes, steps, strict=True))


# --- taps: for each new pixel the positions it reads, and their weights: two arrays (taps, new size) ------------------


def _nearest_taps(old: int, n: int, step: float, center: float) -> tuple[_Array, None]:
    """`center` is 0.5 where pixels are taken by their middle, 0 by their corner."""
    # in float32, as PyTorch computes it: the product decides between two pixels
    at = (np.arange(n, dtype=np.float32) + np.float32(center)) * np.float32(step)
    return np.minimum(np.floor(at), old - 1).astype(np.int64)[None], None


def _places(old: int, n: int, step: float, align_corners: bool) -> _Array:
    """Where the middle of each new pixel lies among the old ones."""
    if align_corners:
        return np.arange(n) * ((old - 1) / (n - 1) if n > 1 else 0.0)
    return (np.arange(n) + 0.5) * step - 0.5


def _linear_taps(old: int, n: int, step: float, align_corners: bool) -> tuple[_Array, _Array]:
    at = np.maximum(_places(old, n, step, align_corners), 0.0)
    low = np.minimum(np.floor(at), old - 1)
    share = at - low
    return np.stack([low, np.minimum(low + 1, old - 1)]).astype(np.int64), np.stack([1.0 - share, share])


def cubic_kernel(x: _Array, a: float) -> _Array:
    """Keys' cubic convolution kernel."""
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = a * (((x - 5.0) * x + 8.0) * x - 4.0)
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


def _cubic_taps(old: int, n: int, step: float, align_corners: bool) -> tuple[_Array, _Array]:
    at = _places(old, n, step, align_corners)
    low = np.floor(at)
    reads = low + np.arange(-1.0, 3.0)[:, None]
    return np.clip(reads, 0, old - 1).astype(np.int64), cubic_kernel(at - reads, -0.75)


def _antialias_taps(old: int, n: int, step: float, align_corners: bool, cubic: bool) -> tuple[_Array, _Array]:
    """A filter as wide as a new pixel where pixels get fewer: PIL's resize."""
    if align_corners:
        step = (old - 1) / (n - 1) if n > 1 else 0.0
    wide = max(step, 1.0)
    reach = (2.0 if cubic else 1.0) * wide
    center = step * (np.arange(n) + 0.5)
    first = np.maximum((center - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((center + reach + 0.5).astype(np.int64), old)
    reads = first + np.arange(int((last - first).max()))[:, None]
    x = (reads - center + 0.5) / wide
    weights = cubic_kernel(x, -0.5) if cubic else np.maximum(1.0 - np.abs(x), 0.0)
    weights = np.where(reads < last, weights, 0.0)
    return np.minimum(reads, old - 1), weights / weights.sum(0)


def resized(x: Tensor, axis: int, reads: _Array, weights: _Array | None) -> Tensor:
    """An axis resized. Weights are no numbers of a small dtype, so with them the result is at least float32."""
    place = place_of(x, None)
    if weights is not None and not (x.dtype.has_gradient and x.dtype.compute is x.dtype):
        x = x.to(float32)
    parts = [F["index_select"](x, axis, tensor(at, device=place)) for at in reads]
    if weights is None:
        return parts[0]
    shape = (-1, *[1] * (x.ndim - axis - 1))
    shares = [tensor(w, device=place).to(x.dtype).reshape(shape) for w in weights]
    out = parts[0] * shares[0]
    for part, share in zip(parts[1:], shares[1:], strict=True):
        out = out + part * share
    return out


def _taps_of(mode: str, align_corners: bool, antialias: bool) -> _Taps:
    if mode not in _WEIGHTED:
        return lambda old, n, step: _nearest_taps(old, n, step, 0.5 if mode == "nearest-exact" else 0.0)
    if antialias:
        return lambda old, n, step: _antialias_taps(old, n, step, align_corners, mode == "bicubic")
    taps = _cubic_taps if mode == "bicubic" else _linear_taps
    return lambda old, n, step: taps(old, n, step, align_corners)


def _check_mode(input: Tensor, mode: str, align_corners: bool | None, antialias: bool) -> None:
    if input.ndim not in _LINEAR:
        raise ShapeError(f"[interpolate] expected (N, C) and 1 to 3 spatial axes but got shape {input.shape}")
    modes = ("nearest", "nearest-exact", "area", _LINEAR[input.ndim], *(["bicubic"] if input.ndim == 4 else []))
    if mode not in modes:
        raise ArgumentError(f"[interpolate] expected mode to be one of {modes} for {input.ndim} axes but got {mode!r}")
    if align_corners is not None and mode not in _WEIGHTED:
        raise ArgumentError(
            f"[interpolate] expected align_corners with a linear or cubic mode only but got it with {mode!r}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ArgumentError(f"[interpolate] expected antialias with 'bilinear' or 'bicubic' only but got {mode!r}")


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize (N, C, ...) to `size` or by `scale_factor`.

    Modes: 'nearest', 'nearest-exact', 'area', 'linear' (1 spatial axis), 'bilinear' and 'bicubic' (2), 'trilinear' (3).

    >>> nn.functional.interpolate(pf.tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    _check_mode(input, mode, align_corners, antialias)
    targets = _targets(input, size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return F[f"adaptive_avg_pool{input.ndim - 2}d"](input, [n for n, _ in targets])
    taps = _taps_of(mode, bool(align_corners), antialias)
    if mode in _WEIGHTED and not input.dtype.has_gradient:
        return _resized_bytes(input, taps, targets)
    out = input
    for axis, (n, step) in enumerate(targets, start=2):
        if mode in _WEIGHTED or (n, step) != (input.shape[axis], 1.0):
            out = resized(out, axis, *taps(input.shape[axis], n, step))
    return out.to(input.dtype)


def _resized_bytes(input: Tensor, taps: _Taps, targets: list[tuple[int, float]]) -> Tensor:
    """Images of uint8, as PyTorch and PIL resize them: weights of 16 bits, columns before rows, each result rounded."""
    if input.dtype is not uint8 or input.ndim != 4:
        raise DTypeError(
            f"[interpolate] expected floats, or (N, C, H, W) of uint8, for a linear or cubic mode but got "
            f"{input.dtype.name} of {input.ndim} axes; cast it with .float() first"
        )
    out = input
    for axis in (3, 2):
        n, step = targets[axis - 2]
        reads, weights = taps(input.shape[axis], n, step)
        weights = _sixteen_bits(reads, weights)
        out = F["clamp"](F["floor"](resized(out, axis, reads, weights) + 0.5), 0.0, 255.0)
    return out.to(uint8)


def _sixteen_bits(reads: _Array, weights: _Array) -> _Array:
    """Weights rounded to fractions of 16 bits, after those of the same old pixel (at the border) are added up."""
    first = (reads[:, None] == reads).argmax(0)
    added = np.zeros_like(weights)
    np.add.at(added, (first, np.arange(reads.shape[1])), weights)
    unit = next(2.0**bits for bits in range(23) if bits == 22 or added.max() * 2.0 ** (bits + 1) + 0.5 >= 2**15)
    return np.trunc(added * unit + np.copysign(0.5, added)) / unit


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """PyTorch's older name of `interpolate`.

    >>> nn.functional.upsample(pf.ones(1, 1, 2), size=4).shape
    (1, 1, 4)
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """PyTorch's older name of `interpolate` with mode='nearest'.

    >>> nn.functional.upsample_nearest(pf.ones(1, 1, 2), scale_factor=3).shape
    (1, 1, 6)
    """
    return interpolate(input, size, scale_factor)


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """PyTorch's older name of `interpolate` with mode='bilinear' and align_corners=True.

    >>> nn.functional.upsample_bilinear(pf.ones(1, 1, 2, 2), scale_factor=2).shape
    (1, 1, 4, 4)
    """
    return interpolate(input, size, scale_factor, "bilinear", True)
