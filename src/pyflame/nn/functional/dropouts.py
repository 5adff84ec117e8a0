"""Dropout: of elements, of whole channels, and the kind that keeps SELU's mean and variance."""

from __future__ import annotations

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.generator import Generator
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import ones, place_of

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
    return F["dropout"](input, p, training, generator)


def _mask(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    return ones(shape, dtype=input.dtype, device=place_of(input, None))


def _channels(op: str, input: Tensor, batched: int) -> tuple[int, ...]:
    """The shape with one number per channel: (N, C, 1, ...), or (C, 1, ...) without a batch."""
    if input.ndim not in (batched - 1, batched):
        raise ShapeError(f"[{op}] expected {batched - 1} or {batched} axes but got shape {input.shape}")
    kept = 2 if input.ndim == batched else 1
    return input.shape[:kept] + (1,) * (input.ndim - kept)


def _by_channel(input: Tensor, shape: tuple[int, ...], p: float, training: bool, generator: Generator | None) -> Tensor:
    kept = F["dropout"](_mask(input, shape), p, training, generator)
    return input * kept if training and p > 0.0 else input


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, L) or (C, L) become 0 with probability p."""
    return _by_channel(input, _channels("dropout1d", input, 3), p, training, generator)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, H, W) become 0 with probability p. As in PyTorch, three axes are (N, C, L)."""
    shape = _channels("dropout2d", input, 3 if input.ndim == 3 else 4)
    return _by_channel(input, shape, p, training, generator)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Whole channels of (N, C, D, H, W) or (C, D, H, W) become 0 with probability p."""
    return _by_channel(input, _channels("dropout3d", input, 5), p, training, generator)


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
    return _alpha("alpha_dropout", input, input.shape, p, training, generator)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False, generator: Generator | None = None
) -> Tensor:
    """Alpha dropout of whole channels of (N, C, ...)."""
    if input.ndim < 2 and training:
        raise ShapeError(f"[feature_alpha_dropout] expected (N, C, ...) but got shape {input.shape}")
    shape = input.shape[:2] + (1,) * (input.ndim - 2)
    return _alpha("feature_alpha_dropout", input, shape, p, training, generator)
