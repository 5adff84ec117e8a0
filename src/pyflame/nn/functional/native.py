"""Functions of `torch` itself below nn.functional: norms with their statistics, modes as numbers, dropout in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.functional.dropouts import _by_channel, alpha_dropout, feature_alpha_dropout
from pyflame.nn.functional.embeddings import _renormed
from pyflame.nn.functional.norms import batch_norm
from pyflame.nn.functional.sampling import affine_grid, grid_sample
from pyflame.nn.ops import F
from pyflame.tensor import Tensor

Sizes = Sequence[int]


def _statistics(x: Tensor, axes: tuple[int, ...], eps: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The mean, and 1 / sqrt(var + eps)."""
    return x.mean(axes, keepdims=keepdim), (x.var(axes, correction=0, keepdims=keepdim) + eps).rsqrt()


def native_layer_norm(
    input: Tensor, normalized_shape: Sizes, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm, and the mean and 1 / sqrt(var + eps) that it went by.

    >>> [t.shape for t in pf.native_layer_norm(pf.randn(2, 3, 4), (4,), None, None, 1e-5)]
    [(2, 3, 4), (2, 3, 1), (2, 3, 1)]
    """
    out = F["layer_norm"](input, normalized_shape, weight, bias, eps)
    axes = tuple(range(input.ndim - len(tuple(normalized_shape)), input.ndim))
    return (out, *_statistics(input, axes, eps, True))


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """group_norm, and each group's mean and 1 / sqrt(var + eps).

    >>> [t.shape for t in pf.native_group_norm(pf.randn(2, 6, 4), None, None, 2, 6, 4, 3, 1e-5)]
    [(2, 6, 4), (2, 3), (2, 3)]
    """
    if input.shape[:2] != (N, C) or input.numel() != N * C * HxW:
        raise ShapeError(f"[native_group_norm] expected ({N}, {C}, ...) with {HxW} pixels but got {input.shape}")
    out = F["group_norm"](input, group, weight, bias, eps)
    return (out, *_statistics(input.reshape(N, group, -1), (2,), eps, False))


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """batch_norm, and in training the batch's mean and 1 / sqrt(var + eps); without, two tensors without elements."""
    out = batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return out, input.new_empty(0), input.new_empty(0)
    axes = tuple(a for a in range(input.ndim) if a != 1)
    return (out, *_statistics(input, axes, eps, False))


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """dropout, and a mask that is True where elements stayed.

    >>> out, mask = pf.native_dropout(pf.ones(100), 0.5, True)
    >>> bool(((out != 0) == mask).all())
    True
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"[native_dropout] expected a probability in [0, 1] but got {p!r}")
    if train is False or p == 0.0:
        return input.clone(), input.new_ones(input.shape, dtype=bool_)
    kept = F["dropout"](input.detach() * 0.0 + 1.0, p, True)  # 0, or what a kept element is multiplied by
    return input * kept, kept != 0.0


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all axes but one; over all of them for dim -1.

    >>> pf.norm_except_dim(pf.ones(2, 4)).tolist()
    [[2.0], [2.0]]
    """
    if dim == -1:
        return F["norm"](v, pow)
    return F["norm"](v, pow, tuple(a for a in range(v.ndim) if a != dim), True)


def constant_pad_nd(input: Tensor, pad: Sizes, value: float = 0) -> Tensor:
    """pad with a number: two numbers of elements for each axis, the last axis first.

    >>> pf.constant_pad_nd(pf.ones(2), (1, 0), 5.0).tolist()
    [5.0, 1.0, 1.0]
    """
    return F["pad"](input, tuple(pad), "constant", value)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """A convolution over as many axes as the weight has behind its first two, or a transposed one.

    >>> x, w = pf.randn(1, 3, 8, 8), pf.randn(4, 3, 3, 3)
    >>> pf.convolution(x, w, None, (2, 2), (1, 1), (1, 1), False, (0, 0), 1).shape
    (1, 4, 4, 4)
    """
    rank = weight.ndim - 2
    if rank not in (1, 2, 3):
        raise ShapeError(f"[convolution] expected a weight with 3 to 5 axes but got shape {weight.shape}")
    if transposed:
        fn = F[f"conv_transpose{rank}d"]
        return fn(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return F[f"conv{rank}d"](input, weight, bias, stride, padding, dilation, groups)


def affine_grid_generator(theta: Tensor, size: Sizes, align_corners: bool) -> Tensor:
    """nn.functional.affine_grid."""
    return affine_grid(theta, size, align_corners)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """nn.functional.grid_sample with its modes as numbers: bilinear, nearest; zeros, border, reflection.

    >>> pf.grid_sampler(pf.ones(1, 3, 4, 4), pf.zeros(1, 2, 2, 2), 0, 0, False).shape
    (1, 3, 2, 2)
    """
    modes, pads = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if interpolation_mode not in range(3) or padding_mode not in range(3):
        raise ArgumentError(
            f"[grid_sampler] expected modes from 0 to 2 but got {interpolation_mode!r} and {padding_mode!r}"
        )
    return grid_sample(input, grid, modes[interpolation_mode], pads[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows at these indices down to a norm of at most max_norm, in place.

    >>> pf.embedding_renorm_(pf.tensor([[3.0, 4.0], [3.0, 4.0]]), pf.tensor([0]), 1.0, 2.0)[1].tolist()
    [3.0, 4.0]
    """
    _renormed(input, indices, max_norm, norm_type)
    return input


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Whole channels of (N, C, ...) become 0 with probability p; the others are divided by 1 - p."""
    if input.ndim < 2:
        raise ShapeError(f"[feature_dropout] expected (N, C, ...) but got shape {input.shape}")
    return _by_channel(input, input.shape[:2] + (1,) * (input.ndim - 2), p, train, None)


def _in_place(name: str, function: Callable[..., Tensor]) -> Callable[..., Any]:
    def method(input: Tensor, p: float, train: bool) -> Tensor:
        return input.copy_(function(input, p, train))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`{name.removesuffix('_')}`, in place."
    return method


dropout_ = _in_place("dropout_", F["dropout"])
alpha_dropout_ = _in_place("alpha_dropout_", alpha_dropout)
feature_dropout_ = _in_place("feature_dropout_", feature_dropout)
feature_alpha_dropout_ = _in_place("feature_alpha_dropout_", feature_alpha_dropout)
