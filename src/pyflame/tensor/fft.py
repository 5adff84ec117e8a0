"""pf.fft: the names of torch.fft. In go tensors of real or complex numbers, out come complex ones, with gradients.

A transform of n points is a product with the matrix of powers of the root of unity, for small n; larger ones are taken
apart by a factor (n = a b: transforms of a points, a twist, transforms of b points). A length without factors below
MATRIX becomes a convolution of a length that has some (Bluestein).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import complex_of, default
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError, type_name
from pyflame.core.shape import normalize_axis
from pyflame.tensor.creation import arange, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

MATRIX = 64  # points that one product transforms
Axes = Sequence[int] | None
F: dict[str, Callable[..., Tensor]] = FUNCTIONS


def _roots(turns: Any, of: int, sign: int, like: Tensor) -> Tensor:
    """exp(sign 2 pi i turns / of), from whole turns, rounded once."""
    angle = 2.0 * np.pi * (np.asarray(turns) % of) / of
    return tensor(np.exp(sign * 1j * angle).astype(complex_of(like.dtype).numpy))


def _transformed(x: Tensor, sign: int) -> Tensor:
    """sum_j x[j] exp(sign 2 pi i j k / n) over the last axis."""
    n = x.shape[-1]
    lead = x.shape[:-1]
    factor = max((a for a in range(2, MATRIX + 1) if n % a == 0), default=1)
    if n <= MATRIX:
        return F["matmul"](x, _roots(np.outer(np.arange(n), np.arange(n)), n, sign, x))
    if factor == 1:
        return _chirped(x, sign)
    # j = j1 b + j2, k = k1 + a k2: (a, b) -> (b, a): over j1, twisted by j2 k1, -> (a, b): over j2, -> (b, a)
    rest = n // factor
    inner = _transformed(x.reshape(*lead, factor, rest).transpose(-1, -2), sign)
    inner = inner * _roots(np.outer(np.arange(rest), np.arange(factor)), n, sign, x)
    return _transformed(inner.transpose(-1, -2), sign).transpose(-1, -2).reshape(*lead, n)


def _chirped(x: Tensor, sign: int) -> Tensor:
    """By j k = (j^2 + k^2 - (k - j)^2) / 2: a convolution, made with transforms of a power of two."""
    n = x.shape[-1]
    size = 1 << (2 * n - 2).bit_length()
    squares = np.arange(n, dtype=np.int64) ** 2
    chirp = np.exp(-sign * 1j * np.pi * (squares % (2 * n)) / n)
    around = np.zeros(size, np.complex128)
    around[:n] = chirp
    around[size - n + 1 :] = chirp[:0:-1]
    filtered = np.fft.fft(around) / size
    twist = _roots(squares, 2 * n, sign, x)
    spectrum = _transformed(F["pad"](x * twist, (0, size - n)), -1)
    spectrum = spectrum * tensor(filtered.astype(complex_of(x.dtype).numpy))
    return _transformed(spectrum, 1)[..., :n] * twist


def _floats(op: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise DTypeError(f"[{op}] expected a tensor but got {type_name(x)}; wrap it in pf.tensor(...)")
    if x.ndim == 0:
        raise ShapeError(f"[{op}] expected a tensor with an axis to transform but got a number")
    if x.dtype.is_complex:
        return x
    if x.dtype.is_float and x.dtype.itemsize < 4:
        raise DTypeError(f"[{op}] expected float32, float64 or complex numbers but got {x.dtype.name}")
    return x if x.dtype.is_float else x.to(default.float)


def _scale(op: str, norm: str | None, n: int, inverse: bool) -> float:
    """What a transform is multiplied by."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentError(f"[{op}] expected norm 'backward', 'ortho' or 'forward' but got {norm!r}")
    whole = (norm == "forward") != inverse and norm != "ortho" if norm is not None else inverse
    return n**-0.5 if norm == "ortho" else 1.0 / n if whole else 1.0


def _sized(op: str, x: Tensor, n: int | None, dim: int) -> Tensor:
    """Cut, or filled up with zeros, to n points along an axis."""
    have = x.shape[dim]
    want = have if n is None else n
    if want < 1:
        raise ArgumentError(f"[{op}] expected at least 1 point but got {want}")
    if want == have:
        return x
    last = F["movedim"](x, dim, -1)
    last = last[..., :want] if want < have else F["pad"](last, (0, want - have))
    return F["movedim"](last, -1, dim)


def _along(op: str, x: Tensor, n: int | None, dim: int, norm: str | None, inverse: bool) -> Tensor:
    x = _floats(op, x)
    axis = normalize_axis(op, dim, x.ndim)
    x = F["movedim"](_sized(op, x, n, axis), axis, -1)
    scale = _scale(op, norm, x.shape[-1], inverse)
    out = _transformed(x, 1 if inverse else -1)
    return F["movedim"](out if scale == 1.0 else out * scale, -1, axis)


def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along an axis, of n points: cut, or filled up with zeros.

    >>> pf.fft.fft(pf.tensor([1.0, 0.0, 0.0, 0.0])).real
    tensor([1., 1., 1., 1.])
    """
    return _along("fft", input, n, dim, norm, False)


def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of fft."""
    return _along("ifft", input, n, dim, norm, True)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of real numbers: of its n points the first n // 2 + 1, which tell the others.

    >>> pf.fft.rfft(pf.ones(6)).shape
    (4,)
    """
    if input.dtype.is_complex:
        raise DTypeError(f"[rfft] expected real numbers but got {input.dtype.name}; use fft")
    out = fft(input, n, dim, norm)
    return F["narrow"](out, dim, 0, out.shape[dim] // 2 + 1)


def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of rfft: n real numbers, 2 (points - 1) unless given.

    >>> pf.fft.irfft(pf.fft.rfft(pf.tensor([1.0, 2.0, 3.0, 4.0])))
    tensor([1., 2., 3., 4.])
    """
    x = _floats("irfft", input)
    axis = normalize_axis("irfft", dim, x.ndim)
    size = 2 * (x.shape[axis] - 1) if n is None else n
    if size < 1:
        raise ArgumentError(f"[irfft] expected at least 1 point but got {size}")
    half = F["movedim"](_sized("irfft", x, size // 2 + 1, axis), axis, -1)
    mirrored = F["flip"](half[..., 1 : (size + 1) // 2], (-1,))
    whole = F["cat"]([half, mirrored.conj()], -1)
    out = ifft(whole, norm=norm)
    return F["movedim"](out.real, -1, axis)


_OTHER = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of numbers of which the second half is the first one's mirror image, conjugated: real ones."""
    return irfft(input.conj(), n, dim, _OTHER.get(norm, norm))


def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft."""
    return rfft(input, n, dim, _OTHER.get(norm, norm)).conj()


# --- several axes -----------------------------------------------------------------------------------------------------


def _axes(op: str, x: Tensor, s: Axes, dim: Axes) -> list[tuple[int | None, int]]:
    """Points and axis of each transform. Points of -1 are as many as there are."""
    listed = list(range(x.ndim))[-len(s) if s else 0 :] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = [normalize_axis(op, a, x.ndim) for a in listed]
    if len(set(axes)) != len(axes):
        raise ArgumentError(f"[{op}] expected each axis once but got {dim}")
    counts: list[int | None] = [None] * len(axes) if s is None else [None if n == -1 else n for n in s]
    if len(counts) != len(axes):
        raise ArgumentError(f"[{op}] expected as many sizes as axes but got {s} and {dim}")
    return list(zip(counts, axes, strict=True))


def fftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The transform along several axes, all unless given; `s` are the points of each.

    >>> pf.fft.fftn(pf.ones(2, 3))[0, 0].item()
    (6+0j)
    """
    x = _floats("fftn", input)
    for n, axis in _axes("fftn", x, s, dim):
        x = fft(x, n, axis, norm)
    return x


def ifftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of fftn."""
    x = _floats("ifftn", input)
    for n, axis in _axes("ifftn", x, s, dim):
        x = ifft(x, n, axis, norm)
    return x


def rfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The transform of real numbers along several axes; the last of them holds half of its points, as in rfft."""
    *others, (n, last) = _axes("rfftn", _floats("rfftn", input), s, dim)
    x = rfft(input, n, last, norm)
    for count, axis in others:
        x = fft(x, count, axis, norm)
    return x


def irfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of rfftn."""
    x = _floats("irfftn", input)
    *others, (n, last) = _axes("irfftn", x, s, dim)
    for count, axis in others:
        x = ifft(x, count, axis, norm)
    return irfft(x, n, last, norm)


def fft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform along the last two axes."""
    return fftn(input, s, dim, norm)


def ifft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of fft2."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The transform of real numbers along the last two axes."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of rfft2."""
    return irfftn(input, s, dim, norm)


def hfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """hfft along the last of several axes, fft along the others."""
    return irfftn(input.conj(), s, dim, _OTHER.get(norm, norm))


def ihfftn(input: Tensor, s: Axes = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of hfftn."""
    return rfftn(input, s, dim, _OTHER.get(norm, norm)).conj()


def hfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """hfftn along the last two axes."""
    return hfftn(input, s, dim, norm)


def ihfft2(input: Tensor, s: Axes = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """The inverse of hfft2."""
    return ihfftn(input, s, dim, norm)


# --- frequencies ------------------------------------------------------------------------------------------------------


def fftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """The frequencies of fft's points, for samples at a distance of d; options are those of pf.arange.

    >>> pf.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    place = arange(n, **options)
    return F["where"](place >= (n + 1) // 2, place - n, place) / (n * d)


def rfftfreq(n: int, d: float = 1.0, **options: Any) -> Tensor:
    """The frequencies of rfft's points.

    >>> pf.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return arange(n // 2 + 1, **options) / (n * d)


def fftshift(input: Tensor, dim: int | Axes = None) -> Tensor:
    """Frequency 0 in the middle of each axis.

    >>> pf.fft.fftshift(pf.tensor([0, 1, 2, -2, -1]))
    tensor([-2, -1,  0,  1,  2])
    """
    return _rolled("fftshift", input, dim, 1)


def ifftshift(input: Tensor, dim: int | Axes = None) -> Tensor:
    """The inverse of fftshift."""
    return _rolled("ifftshift", input, dim, -1)


def _rolled(op: str, x: Tensor, dim: int | Axes, way: int) -> Tensor:
    listed = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple(normalize_axis(op, a, x.ndim) for a in listed)
    half = tuple(x.shape[a] // 2 if way > 0 else -(x.shape[a] // 2) for a in axes)
    return F["roll"](x, half, axes) if math.prod(x.shape) and axes else x
