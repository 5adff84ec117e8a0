"""Batch norms folded into the layer before them, for inference."""

from __future__ import annotations

import copy
from typing import TypeVar

from pyflame.core.errors import ArgumentError
from pyflame.nn.module import Module
from pyflame.nn.norm import _BatchNorm
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor

M = TypeVar("M", bound=Module)

__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval"]


def fuse_conv_bn_eval(conv: M, bn: _BatchNorm, transpose: bool = False) -> M:
    """A convolution that also does what the batch norm behind it does.

    >>> conv, bn = nn.Conv2d(3, 8, 3).eval(), nn.BatchNorm2d(8).eval()
    >>> fused = nn.utils.fusion.fuse_conv_bn_eval(conv, bn)
    >>> x = pf.randn(1, 3, 5, 5)
    >>> bool((fused(x) - bn(conv(x))).abs().max() < 1e-5)
    True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: M, bn: _BatchNorm) -> M:
    """A linear layer that also does what the batch norm behind it does."""
    return _fused("fuse_linear_bn_eval", linear, bn, 0)


def _fused(op: str, layer: M, bn: _BatchNorm, axis: int) -> M:
    """w' = w * scale, b' = (b - mean) * scale + beta, with scale = gamma / sqrt(var + eps)."""
    if layer.training or bn.training:
        raise ArgumentError(f"[{op}] expected modules in eval mode but got one that trains; call .eval() on both")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError(f"[{op}] expected running statistics but got a batch norm without them")
    out: M = copy.deepcopy(layer)
    weight: Tensor = out.weight
    scale = (bn.running_var + bn.eps).rsqrt()
    scale = scale if bn.weight is None else scale * bn.weight
    bias = -bn.running_mean if out.bias is None else out.bias - bn.running_mean
    bias = bias * scale if bn.bias is None else bias * scale + bn.bias
    shape = [1] * weight.ndim
    shape[axis] = -1
    out.weight = Parameter((weight * scale.reshape(shape)).detach(), weight.requires_grad)
    out.bias = Parameter(bias.detach(), weight.requires_grad)
    return out
