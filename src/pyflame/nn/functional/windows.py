"""Functions over windows and channels that are made of others: power-average pooling, response norm, shuffles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pyflame.core.errors import ShapeError
from pyflame.nn.ops import F
from pyflame.tensor import Tensor

Sizes = int | Sequence[int]


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Each element over a power of the mean square of its neighbours across channels, of (N, C, ...).

    >>> nn.functional.local_response_norm(pf.ones(1, 4, 2), 2).shape
    (1, 4, 2)
    """
    if input.ndim < 3:
        raise ShapeError(f"[local_response_norm] expected (N, C, ...) with 3 axes or more but got shape {input.shape}")
    n, c, *rest = input.shape
    if 0 in input.shape:
        return input
    squares = (input * input).reshape(n, 1, c, -1)
    padded = F["pad"](squares, (0, 0, size // 2, (size - 1) // 2))
    mean = F["avg_pool2d"](padded, (size, 1), 1).reshape(n, c, *rest)
    return input / (mean * alpha + k) ** beta


def _power_pool(input: Tensor, p: float, kernel: Sizes, stride: Any, ceil_mode: bool, rank: int) -> Tensor:
    count = kernel**rank if isinstance(kernel, int) else math.prod(kernel)
    means = F[f"avg_pool{rank}d"](input**p, kernel, stride, 0, ceil_mode)
    return (F["sign"](means) * F["relu"](F["abs"](means)) * count) ** (1.0 / p)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: int, stride: int | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of (N, C, L).

    >>> nn.functional.lp_pool1d(pf.tensor([[[3.0, 4.0]]]), 2, 2)
    tensor([[[5.]]])
    """
    return _power_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of (N, C, H, W).

    >>> nn.functional.lp_pool2d(pf.ones(1, 1, 2, 2), 2, 2)
    tensor([[[[2.]]]])
    """
    return _power_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of (N, C, D, H, W).

    >>> nn.functional.lp_pool3d(pf.ones(1, 1, 2, 2, 2), 3, 2)
    tensor([[[[[2.]]]]])
    """
    return _power_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of (N, C, ...) dealt out among groups: (N, g, C/g, ...) -> (N, C/g, g, ...).

    >>> nn.functional.channel_shuffle(pf.arange(4.0).reshape(1, 4, 1), 2).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    if input.ndim < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"[channel_shuffle] expected (N, C, ...) with C a multiple of {groups} but got shape {input.shape}"
        )
    n, c, *rest = input.shape
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution along the first axis of (time, batch, channels), with a weight (width, in, out).

    >>> nn.functional.conv_tbc(pf.ones(5, 2, 3), pf.ones(3, 3, 4), pf.zeros(4), 1).shape
    (5, 2, 4)
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise ShapeError(
            f"[conv_tbc] expected (time, batch, channels) and (width, in, out) but got {input.shape}, {weight.shape}"
        )
    return F["conv1d"](input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1^T A x2 + b over the last axes.

    >>> nn.functional.bilinear(pf.ones(2, 3), pf.ones(2, 4), pf.ones(5, 3, 4)).shape
    (2, 5)
    """
    out = F["einsum"]("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias
