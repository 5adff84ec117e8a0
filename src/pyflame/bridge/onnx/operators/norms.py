"""Softmax and normalisations."""

from __future__ import annotations

import numpy as np

from pyflame.bridge.onnx.operators.shapes import constant_pad
from pyflame.bridge.onnx.table import Call, operator
from pyflame.bridge.onnx.values import numpy_dtype, our_dtype
from pyflame.core.dtype import DType, float32, int64
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange


def _rows(call: Call, x: Tensor) -> tuple[Tensor, int]:
    """Before opset 13 all axes from `axis` on are one."""
    if call.opset >= 13:
        return x, call.get("axis", -1) % max(x.ndim, 1)
    axis = call.get("axis", 1) % x.ndim
    return x.reshape(int(np.prod(x.shape[:axis])), -1), 1


@operator("Softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    rows, axis = _rows(call, x)
    return F["softmax"](rows, axis).reshape(x.shape)


@operator("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    rows, axis = _rows(call, x)
    return F["log_softmax"](rows, axis).reshape(x.shape)


@operator("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    rows, axis = _rows(call, x)
    shape = [1] * rows.ndim
    shape[axis] = rows.shape[axis]
    best = F["argmax"](rows, axis, True).to(int64)
    return (arange(rows.shape[axis]).reshape(shape) == best).to(x.dtype).reshape(x.shape)


@operator("BatchNormalization")
def batch_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
    eps, momentum = call.get("epsilon", 1e-5), call.get("momentum", 0.9)
    if not call.get("training_mode", 0):
        return (F["batch_norm"](x, mean, var, scale, bias, False, 0.0, eps).to(x.dtype),)
    axes = (0, *range(2, x.ndim))
    now, spread = F["mean"](x, axes), F["var"](x, axes, unbiased=False)
    out = F["batch_norm"](x, now, spread, scale, bias, False, 0.0, eps)
    return out, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


@operator("InstanceNormalization")
def instance_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F["instance_norm"](x, None, None, scale, bias, True, 0.0, call.get("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = call.get("num_groups")
    if call.opset < 21:  # one number for each group
        each = x.shape[1] // groups
        scale, bias = F["repeat_interleave"](scale, each), F["repeat_interleave"](bias, each)
    return F["group_norm"](x, groups, scale, bias, call.get("epsilon", 1e-5))


def _computed_in(call: Call, x: Tensor) -> DType:
    code = call.get("stash_type", 1)
    return our_dtype(numpy_dtype(code)) or float32 if x.dtype.itemsize < 4 else x.dtype


@operator("LayerNormalization")
def layer_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, eps = call.get("axis", -1) % x.ndim, call.get("epsilon", 1e-5)
    if call.outputs == 1 and scale.shape == x.shape[axis:] and (bias is None or bias.shape == scale.shape):
        return (F["layer_norm"](x, x.shape[axis:], scale, bias, eps),)
    axes = tuple(range(axis, x.ndim))
    wide = x.to(_computed_in(call, x))
    mean = F["mean"](wide, axes, True)
    centred = wide - mean
    inverse = F["rsqrt"](F["mean"](centred * centred, axes, True) + eps)
    out = (centred * inverse).to(x.dtype) * scale
    return out if bias is None else out + bias, mean, inverse


@operator("RMSNormalization")
def rms_norm(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    wide = x.to(_computed_in(call, x))
    inverse = F["rsqrt"](F["mean"](wide * wide, axes, True) + call.get("epsilon", 1e-5))
    return (wide * inverse).to(x.dtype) * scale


@operator("LpNormalization")
def lp_norm(call: Call, x: Tensor) -> Tensor:
    axis, p = call.get("axis", -1), call.get("p", 2)
    norm = F["sum"](x.abs(), axis, True) if p == 1 else F["sqrt"](F["sum"](x * x, axis, True))
    return F["where"](norm == 0, 0.0, x / norm)


@operator("MeanVarianceNormalization")
def mean_variance_norm(call: Call, x: Tensor) -> Tensor:
    axes = tuple(call.get("axes", [0, 2, 3]))
    centred = x - F["mean"](x, axes, True)
    return centred / (F["sqrt"](F["mean"](centred * centred, axes, True)) + 1e-9)


@operator("LRN")
def local_response_norm(call: Call, x: Tensor) -> Tensor:
    size, alpha = call.get("size"), call.get("alpha", 1e-4)
    before = (size - 1) // 2
    squares = constant_pad(x * x, {1: (before, size - 1 - before)})
    total = squares.narrow(1, 0, x.shape[1])
    for at in range(1, size):
        total = total + squares.narrow(1, at, x.shape[1])
    return x / F["pow"](total * (alpha / size) + call.get("bias", 1.0), call.get("beta", 0.75))
