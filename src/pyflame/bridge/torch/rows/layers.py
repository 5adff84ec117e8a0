"""Convolutions, norms and softmax: aten's forms return what its own backward ops want to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import gradients, row
from pyflame.ir import F
from pyflame.tensor.dispatch import call


def _convolved(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
) -> Any:
    rank = x.ndim - 2
    stride, padding, dilation, more = (
        tuple(v) * rank if len(v) == 1 else tuple(v) for v in (stride, padding, dilation, more)
    )
    if transposed:
        return getattr(pf, f"conv_transpose{rank}d")(x, w, b, stride, padding, more, groups, dilation)
    return getattr(pf, f"conv{rank}d")(x, w, b, stride, padding, dilation, groups)


@row("convolution", "_convolution")
def convolution(x: Any, w: Any, b: Any, *geometry: Any) -> Any:
    return _convolved(x, w, b, *geometry[:6])


@row("convolution_backward")
def convolution_backward(g: Any, x: Any, w: Any, bias_sizes: Any, *rest: Any) -> tuple[Any, Any, Any]:
    *geometry, wanted = rest
    dx, dw = gradients(lambda a, b: _convolved(a, b, None, *geometry), [x, w], g, wanted[:2])
    return dx, dw, g.sum((0, *range(2, g.ndim))) if wanted[2] else None


@row("_softmax", "_safe_softmax")
def softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return pf.softmax(x, dim, dtype=pf.float32 if half_to_float is True else None)


@row("_log_softmax")
def log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    return pf.log_softmax(x, dim, dtype=pf.float32 if half_to_float else None)


@row("gelu_backward")
def gelu_backward(g: Any, x: Any, approximate: str = "none") -> Any:
    """In one pass of the dtype that it has: torch's decomposition would round to it, and sums read what is rounded."""
    return g * call(F.gelu_tanh_slope if approximate == "tanh" else F.gelu_slope, (x,), {})


def _statistics(x: Any, axes: Sequence[int], eps: float) -> tuple[Any, Any]:
    """Mean and 1 / deviation as aten's norms return them."""
    wide = x.to(pf.float32) if x.dtype.itemsize < 4 else x
    var, mean = pf.var_mean(wide, tuple(axes), correction=0, keepdims=True)
    return mean, pf.rsqrt(var + eps)


@row("native_layer_norm")
def native_layer_norm(x: Any, shape: Any, w: Any, b: Any, eps: float) -> tuple[Any, Any, Any]:
    mean, scale = _statistics(x, range(x.ndim - len(shape), x.ndim), eps)
    return pf.layer_norm(x, tuple(shape), w, b, eps), mean, scale


@row("native_group_norm")
def native_group_norm(
    x: Any, w: Any, b: Any, n: int, c: int, inner: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    mean, scale = _statistics(x.reshape(n, groups, c // groups * inner), (2,), eps)
    return pf.group_norm(x, groups, w, b, eps), mean.reshape(n, groups), scale.reshape(n, groups)


def _batch_norm(
    x: Any, w: Any, b: Any, running: tuple[Any, Any], training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """(out, mean, 1 / deviation, next running mean, next running variance); statistics of 0 elements at inference."""
    if not training:
        out = pf.batch_norm(x, *running, w, b, False, momentum, eps)
        return out, pf.zeros(0), pf.zeros(0), *running
    mean, scale = call(F.channel_mean, (x,), {}), pf.rsqrt(call(F.channel_variance, (x,), {}) + eps)
    new = pf.batch_norm_stats(x, *running, momentum) if running[0] is not None else (None, None)
    return pf.batch_norm(x, None, None, w, b, True, momentum, eps), mean, scale, *new


@row("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: Any, w: Any, b: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(x, w, b, (running_mean, running_var), training, momentum, eps)


@row("_native_batch_norm_legit.no_stats")
def batch_norm_without_running(x: Any, w: Any, b: Any, training: bool, momentum: float, eps: float) -> tuple[Any, ...]:
    return _batch_norm(x, w, b, (None, None), training, momentum, eps)[:3]


@row("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    x: Any, w: Any, b: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, ...]:
    return _batch_norm(x, w, b, (running_mean, running_var), False, momentum, eps)[:3]


@row("elu")
def elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    return pf.where(x > 0, x * scale, pf.expm1(x * input_scale) * (alpha * scale))


@row("_trilinear")
def trilinear(
    a: Any, b: Any, c: Any, expand1: Any, expand2: Any, expand3: Any, sumdim: Any, unroll_dim: int = 1
) -> Any:
    for dims, at in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in dims:
            a, b, c = (x.unsqueeze(dim) if n == at else x for n, x in enumerate((a, b, c)))
    return (a * b * c).sum(tuple(sumdim))


@row("_weight_norm_interface_backward", unused=(3,))
def weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> tuple[Any, ...]:
    axes = tuple(a for a in range(v.ndim) if a != dim)
    return tuple(gradients(lambda v, g: v * (g / pf.linalg.vector_norm(v, 2, axes, True)), [v, g], grad))
