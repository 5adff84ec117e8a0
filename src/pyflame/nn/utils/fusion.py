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

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv: M, bn: _BatchNorm, transpose: bool = False) -> M:
    """A convolution that also does what the batch norm behind it does.

    >>> conv, bn = nn.Conv2d(3, 8, 3).eval(), nn.BatchNorm2d(8).eval()
    >>> fused = nn.utils.fusion.fuse_conv_bn_eval(conv, bn)
    >>> x = pf.randn(1, 3, 5, 5)
    >>> bool((fused(x) - bn(conv(x))).abs().max() < 1e-5)
    True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, transpose)


def fuse_linear_bn_eval(linear: M, bn: _BatchNorm) -> M:
    """A linear layer that also does what the batch norm behind it does."""
    return _fused("fuse_linear_bn_eval", linear, bn, False)


def _fused(op: str, layer: M, bn: _BatchNorm, transpose: bool) -> M:
    if layer.training or bn.training:
        raise ArgumentError(f"[{op}] expected modules in eval mode but got one that trains; call .eval() on both")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError(f"[{op}] expected running statistics but got a batch norm without them")
    out: M = copy.deepcopy(layer)
    out.weight, out.bias = fuse_conv_bn_weights(
        out.weight, out.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return out


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """w' = w * scale, b' = (b - mean) * scale + beta, with scale = gamma / sqrt(var + eps).

    >>> one, zero = pf.ones(2), pf.zeros(2)
    >>> weight, bias = nn.utils.fuse_conv_bn_weights(pf.ones(2, 3, 1, 1), None, zero, one, 0.0, one * 2, one)
    >>> weight.sum().item(), bias.tolist()
    (12.0, [1.0, 1.0])
    """
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else scale * bn_w
    bias = -bn_rm if conv_b is None else conv_b - bn_rm
    bias = bias * scale if bn_b is None else bias * scale + bn_b
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    learned = conv_w.requires_grad
    weight = (conv_w * scale.reshape(shape)).detach().to(conv_w.dtype)
    kind = conv_w.dtype if conv_b is None else conv_b.dtype
    return Parameter(weight, learned), Parameter(bias.detach().to(kind), learned)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """As fuse_conv_bn_weights, of a linear layer."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
