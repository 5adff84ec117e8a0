"""Fourier transforms and windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyflame.bridge.onnx.operators.shapes import ints
from pyflame.bridge.onnx.table import EVERY, Array, Call, operator
from pyflame.bridge.onnx.values import numpy_dtype
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange
from pyflame.tensor.fft import fft, ifft, irfft


@operator("DFT", host=[1, 2])
def dft(call: Call, x: Tensor, length: Array | None = None, axis: Array | None = None) -> Tensor:
    """(..., 1) real or (..., 2) complex numbers in, the same out."""
    along = call.get("axis", 1) if call.opset < 20 else -2 if axis is None else ints(axis)[0]
    along %= x.ndim
    signal = x[..., 0] if x.shape[-1] == 1 else F["complex"](x[..., 0], x[..., 1])
    count = None if length is None else ints(length)[0]
    inverse, half = call.get("inverse", 0), call.get("onesided", 0)
    if inverse and half:
        return irfft(signal, count, along).unsqueeze(-1).to(x.dtype)
    found = (ifft if inverse else fft)(signal, count, along)
    if half:
        found = found.narrow(along, 0, found.shape[along] // 2 + 1)
    return F["stack"]([F["real"](found), F["imag"](found)], -1)


@operator("STFT", host=[1, 3])
def stft(call: Call, x: Tensor, step: Array, window: Tensor | None = None, length: Array | None = None) -> Tensor:
    """(B, T, 1 or 2) -> (B, frames, bins, 2)."""
    size = ints(length)[0] if length is not None else window.shape[0] if window is not None else x.shape[1]
    hop = ints(step)[0]
    frames = 1 + (x.shape[1] - size) // hop
    at = arange(frames).reshape(-1, 1) * hop + arange(size).reshape(1, -1)
    cut = F["index_select"](x, 1, at.reshape(-1)).reshape(x.shape[0], frames, size, x.shape[2])
    cut = cut if window is None else cut * window.reshape(1, 1, -1, 1)
    signal = cut[..., 0] if x.shape[2] == 1 else F["complex"](cut[..., 0], cut[..., 1])
    found = fft(signal, None, -1)
    if call.get("onesided", 1):
        found = found.narrow(2, 0, size // 2 + 1)
    return F["stack"]([F["real"](found), F["imag"](found)], -1)


def _window(*terms: float) -> Callable[..., Array]:
    """A sum of cosines."""

    def made(call: Call, size: Array) -> Array:
        count = ints(size)[0]
        turns = 2 * np.pi * np.arange(count) / (count if call.get("periodic", 1) else max(count - 1, 1))
        found = sum(term * np.cos(n * turns) for n, term in enumerate(terms))
        return np.asarray(found).astype(numpy_dtype(call.get("output_datatype", 1)))

    return made


operator("HannWindow", host=EVERY, folds=False)(_window(0.5, -0.5))
operator("HammingWindow", host=EVERY, folds=False)(_window(25 / 46, -21 / 46))
operator("BlackmanWindow", host=EVERY, folds=False)(_window(0.42, -0.5, 0.08))


@operator("MelWeightMatrix", host=EVERY)
def mel_weight_matrix(call: Call, bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Array:
    """(length // 2 + 1, bins): triangles of equal width on the mel scale, over the places of a spectrum."""
    count, size = ints(bins)[0], ints(length)[0]
    lowest, highest = (2595 * np.log10(1 + float(f.reshape(-1)[0]) / 700) for f in (low, high))
    mel = np.arange(count + 2) * ((highest - lowest) / (count + 2)) + lowest
    corners = ((size + 1) * (700 * (10 ** (mel / 2595) - 1)) // float(rate.reshape(-1)[0])).astype(np.int64)
    out = np.zeros((size // 2 + 1, count))
    for n, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        rising, falling = np.arange(left, centre + 1), np.arange(centre, right)
        out[rising, n] = 1.0 if centre == left else (rising - left) / (centre - left)
        if right > centre:
            out[falling, n] = (right - falling) / (right - centre)
    return out.astype(numpy_dtype(call.get("output_datatype", 1)))
