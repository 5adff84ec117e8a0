"""Dropout: of elements, of whole channels, and the kind that keeps SELU's mean and variance."""

from __future__ import annotations

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.generator import Generator
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import ones, place_of
from pyflame.tensor.dispatch import replaced

# SELU's value at minus infinity: what alpha dropout puts in place of an element.
_SATURATED = -1.7580993408473766


def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Each element becomes 0 with probability p; the others are divided by 1 - p. Without `training`, x itself."""
    if not training and isinstance(input, Tensor) and isinstance(p, (int, float)) and 0 <= p <= 1:
        return input
    out = F["dropout"](input, p, training, generator)
    return replaced("dropout", input, out) if inplace and training else out


def _mask(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    return ones(shape, dtype=input.dtype, device=place_of(input, None))


def _channels(op: str, input: Tensor, kept: int) -> tuple[int, ...]:
    """The shape with one number per channel: its first axes (N, C), or (C) without a batch, then ones."""
    if input.ndim < kept:
        raise ShapeError(f"[{op}] expected (N, C, ...) but got shape {input.shape}")
    return input.shape[:kept] + (1,) * (input.ndim - kept)


def _by_channel(input: Tensor, shape: tuple[int, ...], p: float, training: bool, generator: Generator | None) -> Tensor:
    kept = F["dropout"](_mask(input, shape), p, training, generator)
    return input * kept if training and p > 0.0 else input


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, L) or (C, L) become 0 with probability p."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"[dropout1d] expected 2 or 3 axes but got shape {input.shape}")
    out = _by_channel(input, _channels("dropout1d", input, input.ndim - 1), p, training, generator)
    return replaced("dropout1d", input, out) if inplace and training else out


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, H, W) become 0 with probability p. As in PyTorch, any axes are (N, C, ...)."""
    out = _by_channel(input, _channels("dropout2d", input, 2), p, training, generator)
    return replaced("dropout2d", input, out) if inplace and training else out


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) become 0 with probability p."""
    out = _by_channel(input, _channels("dropout3d", input, 2 if input.ndim == 5 else 1), p, training, generator)
    return replaced("dropout3d", input, out) if inplace and training else out


def _alpha(op: str, input: Tensor, shape: tuple[int, ...], p: float, training: bool, g: Generator | None) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"[{op}] expected a probability but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input * 0.0
    keep = 1.0 - p
    # y = a (x m + s (1 - m)) + b, with a and b such that mean and variance stay those of x
    scale: float = (keep + _SATURATED**2 * keep * p) ** -0.5
    mask = F["bernoulli"](_mask(input, shape), keep, g)
    return (input * mask + (1.0 - mask) * _SATURATED) * scale - scale * _SATURATED * p


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Dropout for networks of SELU: elements become its saturated value, and mean and variance stay."""
    out = _alpha("alpha_dropout", input, input.shape, p, training, generator)
    return replaced("alpha_dropout", input, out) if inplace and training else out


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Alpha dropout of whole channels of (N, C, ...)."""
    shape = _channels("feature_alpha_dropout", input, 2) if training else input.shape
    out = _alpha("feature_alpha_dropout", input, shape, p, training, generator)
    return replaced("feature_alpha_dropout", input, out) if inplace and training else out
