"""Windows, and the short-time Fourier transform over them, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core import dtype as dt
from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.tensor.creation import arange, ones, tensor, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.fft import fft, ifft, irfft, rfft
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


def _window(op: str, length: int, periodic: bool, shape: Any, dtype: object, device: object, grad: bool) -> Tensor:
    """`shape` of positions from 0 to 1; a periodic window is a symmetric one of one more without its end."""
    if length < 0:
        raise ArgumentError(f"[{op}] expected a window_length of 0 or more but got {length}")
    kind = as_dtype(dtype) if dtype is not None else dt.default.float
    if not kind.is_float:
        raise ArgumentError(f"[{op}] expected a float dtype but got {kind.name}")
    last = length if periodic else length - 1
    values = np.ones(length) if length <= 1 else shape(np.arange(length) / last)
    return tensor(values, dtype=kind, device=device, requires_grad=grad)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """0.5 - 0.5 cos(2 pi t).

    >>> pf.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    shape = lambda t: 0.5 - 0.5 * np.cos(2 * np.pi * t)  # noqa: E731
    return _window("hann_window", window_length, periodic, shape, dtype, device, requires_grad)


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: object = None,
    device: object = None, requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos(2 pi t)."""
    shape = lambda t: alpha - beta * np.cos(2 * np.pi * t)  # noqa: E731
    return _window("hamming_window", window_length, periodic, shape, dtype, device, requires_grad)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t)."""
    shape = lambda t: 0.42 - 0.5 * np.cos(2 * np.pi * t) + 0.08 * np.cos(4 * np.pi * t)  # noqa: E731
    return _window("blackman_window", window_length, periodic, shape, dtype, device, requires_grad)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A triangle: 1 - |2 t - 1|."""
    shape = lambda t: 1 - np.abs(2 * t - 1)  # noqa: E731
    return _window("bartlett_window", window_length, periodic, shape, dtype, device, requires_grad)


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: object = None, device: object = None,
    requires_grad: bool = False, layout: object = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """I0(beta sqrt(1 - (2 t - 1)^2)) / I0(beta)."""
    shape = lambda t: np.i0(beta * np.sqrt(np.maximum(1 - (2 * t - 1) ** 2, 0))) / np.i0(beta)  # noqa: E731
    return _window("kaiser_window", window_length, periodic, shape, dtype, device, requires_grad)


def _frame(op: str, n_fft: int, win_length: int | None, window: Tensor | None, like: Tensor) -> Tensor:
    """The window in the middle of a frame."""
    length = n_fft if win_length is None else win_length
    if not 0 < length <= n_fft:
        raise ArgumentError(f"[{op}] expected 0 < win_length <= {n_fft} but got {length}")
    if window is None:
        window = ones(length, dtype=like.dtype, device=like.device)
    if window.shape != (length,):
        raise ShapeError(f"[{op}] expected a window of {length} points but got shape {window.shape}")
    left = (n_fft - length) // 2
    return F["pad"](window, (left, n_fft - length - left))


def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Fourier transforms of overlapping frames: (..., time) -> (..., frequencies, frames).

    >>> pf.stft(pf.randn(400), 64, return_complex=True).shape
    (33, 26)
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"[stft] expected (time) or (batch, time) but got shape {input.shape}")
    if return_complex is None and not input.dtype.is_complex:
        raise ArgumentError("[stft] expected return_complex but got None; pass return_complex=True")
    hop = n_fft // 4 if hop_length is None else hop_length
    if hop <= 0:
        raise ArgumentError(f"[stft] expected a positive hop_length but got {hop}")
    x = input[None] if input.ndim == 1 else input
    if center:
        x = F["pad"](x[:, None], (n_fft // 2, n_fft // 2), mode=pad_mode)[:, 0]
    if not 0 < n_fft <= x.shape[-1]:
        raise ArgumentError(f"[stft] expected 0 < n_fft <= {x.shape[-1]} but got {n_fft}")
    frames = x.unfold(-1, n_fft, hop) * _frame("stft", n_fft, win_length, window, input.real)
    one = not input.dtype.is_complex if onesided is None else onesided
    out = (rfft if one else fft)(frames, norm="ortho" if normalized else None).transpose(-1, -2)
    out = out[0] if input.ndim == 1 else out
    return F["view_as_real"](out) if return_complex is False else out


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None, return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal of a short-time Fourier transform: frames are added up and divided by the squares of their windows.

    >>> x = pf.randn(400)
    >>> w = pf.hann_window(64)
    >>> bool((pf.istft(pf.stft(x, 64, window=w, return_complex=True), 64, window=w) - x[:400]).abs().max() < 1e-5)
    True
    """
    if input.ndim not in (2, 3) or not input.dtype.is_complex:
        raise ShapeError(f"[istft] expected complex (frequencies, frames) but got {input.dtype.name} {input.shape}")
    hop = n_fft // 4 if hop_length is None else hop_length
    spectra = (input[None] if input.ndim == 2 else input).transpose(-1, -2)
    one = spectra.shape[-1] != n_fft if onesided is None else onesided
    if one and return_complex:
        raise ArgumentError("[istft] expected onesided=False with return_complex but got half a spectrum")
    if spectra.shape[-1] != (n_fft // 2 + 1 if one else n_fft):
        raise ShapeError(f"[istft] expected {n_fft // 2 + 1 if one else n_fft} frequencies but got {spectra.shape[-1]}")
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ifft(spectra, norm=norm)
    else:  # of a whole spectrum the first half counts
        frames = irfft(spectra[..., : n_fft // 2 + 1], n_fft, norm=norm)
    shape = _frame("istft", n_fft, win_length, window, frames.real)
    out, envelope = (_added(f, hop) for f in (frames * shape, (shape * shape).expand(frames.shape[-2], n_fft)[None]))
    start = n_fft // 2 if center else 0
    end = out.shape[-1] - (n_fft // 2 if center and length is None else 0) if length is None else start + length
    stop = min(end, out.shape[-1])
    out, envelope = out[..., start:stop], envelope[..., start:stop]
    if float(envelope.abs().min()) < 1e-11:
        raise ArgumentError(
            "[istft] expected windows that overlap everywhere but got 0 somewhere; use a smaller hop_length"
        )
    out = F["pad"](out / envelope, (0, end - stop))
    return out[0] if input.ndim == 2 else out


def _added(frames: Tensor, hop: int) -> Tensor:
    """(..., frames, n) -> (..., time): frames that begin `hop` apart, added up."""
    batch, count, n = frames.shape
    where = arange(count)[:, None] * hop + arange(n)
    total = zeros(batch, (count - 1) * hop + n, dtype=frames.dtype, device=frames.device)
    return F["index_add"](total, 1, where.reshape(-1), frames.reshape(batch, -1))
