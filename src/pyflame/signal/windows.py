"""torch.signal.windows: weights of M points, symmetric or (`sym=False`) one period of a periodic function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, float32, float64, get_default_dtype
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor

_Array = np.ndarray[Any, Any]

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _window(op: str, M: int, sym: bool, options: dict[str, Any], values: Callable[[_Array, float], _Array]) -> Tensor:
    """A tensor of values(points 0 to M - 1, the length of a period), of one point 1."""
    dtype = as_dtype(options.pop("dtype", None) or get_default_dtype())
    if not isinstance(M, int) or M < 0:
        raise ArgumentError(f"[{op}] expected a number of points of at least 0 but got {M!r}")
    if dtype not in (float32, float64):
        raise DTypeError(f"[{op}] expected float32 or float64 but got {dtype.name}")
    options.pop("layout", None)
    for word in options.keys() - {"device", "requires_grad"}:
        raise ArgumentError(f"[{op}] expected dtype, device, layout or requires_grad but got {word!r}")
    weights = values(np.arange(float(M)), float(M - 1 if sym else M)) if M > 1 else np.ones(M)
    return tensor(weights.astype(dtype.numpy), **options)


def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """A sum of cosines with the weights a, of which every second is subtracted.

    >>> pf.signal.windows.general_cosine(3, a=[0.5, 0.5])
    tensor([0., 1., 0.])
    """
    weights = list(a or ())
    if not weights:
        raise ArgumentError(f"[general_cosine] expected at least one weight but got {a!r}")

    def values(n: _Array, period: float) -> _Array:
        turned = [(-1) ** i * w * np.cos(2 * math.pi * i * n / period) for i, w in enumerate(weights)]
        return np.asarray(np.sum(turned, axis=0))

    return _window("general_cosine", M, sym, options, values)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos.

    >>> pf.signal.windows.general_hamming(3)
    tensor([0.0800, 1.0000, 0.0800])
    """
    return general_cosine(M, a=[alpha, 1.0 - alpha], sym=sym, **options)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos."""
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.5 - 0.5 cos.

    >>> pf.signal.windows.hann(4, sym=False)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos of twice the angle."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Four cosines, by Nuttall."""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A triangle.

    >>> pf.signal.windows.bartlett(3)
    tensor([0., 1., 0.])
    """
    return _window("bartlett", M, sym, options, lambda n, period: 1.0 - np.abs(2.0 * n / period - 1.0))


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of a sine."""
    return _window("cosine", M, sym, options, lambda n, period: np.sin(math.pi * (n + 0.5) / (period + 1.0)))


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-|n - center| / tau).

    >>> pf.signal.windows.exponential(3)
    tensor([0.3679, 1.0000, 0.3679])
    """
    if tau <= 0:
        raise ArgumentError(f"[exponential] expected a tau above 0 but got {tau}")
    if sym and center is not None:
        raise ArgumentError("[exponential] expected no center for a symmetric window; pass sym=False")

    def values(n: _Array, period: float) -> _Array:
        return np.exp(-np.abs(n - (period / 2.0 if center is None else center)) / tau)

    return _window("exponential", M, sym, options, values)


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-(n - center)^2 / (2 std^2)).

    >>> pf.signal.windows.gaussian(3)
    tensor([0.6065, 1.0000, 0.6065])
    """
    if std <= 0:
        raise ArgumentError(f"[gaussian] expected a std above 0 but got {std}")
    return _window(
        "gaussian", M, sym, options, lambda n, period: np.exp(-0.5 * ((n - period / 2.0) / std) ** 2)
    )  # fmt: skip


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1.

    >>> pf.signal.windows.kaiser(3, beta=0.0)
    tensor([1., 1., 1.])
    """
    if beta < 0:
        raise ArgumentError(f"[kaiser] expected a beta of at least 0 but got {beta}")

    def values(n: _Array, period: float) -> _Array:
        x = np.minimum(2.0 * n / period - 1.0, 1.0)
        return np.i0(beta * np.sqrt(1.0 - x * x)) / np.i0(beta)

    return _window("kaiser", M, sym, options, values)
