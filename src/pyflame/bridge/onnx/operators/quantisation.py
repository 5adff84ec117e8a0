"""Quantised integers with a scale and a zero point: QDQ pairs and operators over integers.

Products of integers are computed exactly, as int32; scales are applied behind them in float32.
"""

from __future__ import annotations

import numpy as np

from pyflame.bridge.onnx.operators.convolution import convolve
from pyflame.bridge.onnx.operators.elementwise import _cast
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.bridge.onnx.values import numpy_dtype, to_tensor
from pyflame.core import dtype as dt
from pyflame.core.dtype import DType
from pyflame.nn.ops import F
from pyflame.tensor import Tensor

# least and greatest value by dtype
_RANGES = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
    "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3),
}  # fmt: skip


def _spread(call: Call, x: Tensor, part: Tensor | None) -> Tensor | None:
    """A scale or zero point in the shape of x: one number, one for each channel, or one for each block."""
    if part is None or part.numel() == 1:
        return part if part is None else part.reshape(())
    axis = call.get("axis", 1) % x.ndim
    block = call.get("block_size", 0)
    if part.ndim == 1 and not block:
        shape = [1] * x.ndim
        shape[axis] = -1
        return part.reshape(shape)
    return F["repeat_interleave"](part, block, axis).narrow(axis, 0, x.shape[axis])


def _quantised(scaled: Tensor, zero: Tensor | None, name: str) -> Tensor:
    """Rounded to even, moved by the zero point and held in range."""
    low, high = _RANGES[name]
    found = F["round"](scaled)
    found = found if zero is None else found + zero.to(found.dtype)
    return found.clamp(low, high)


@operator("QuantizeLinear", raw=True)
def quantize_linear(
    call: Call, x: Tensor | Array, scale: Tensor | Array, zero: Tensor | Array | None = None
) -> Tensor | Array:
    code = call.get("output_dtype", 0)
    wanted = np.dtype(np.uint8) if zero is None else zero.dtype.numpy if isinstance(zero, Tensor) else zero.dtype
    wanted = numpy_dtype(code) if code else wanted
    values, by, offset = _tensor(x), _tensor(scale), None if zero is None else _tensor(zero)
    wide = dt.float64 if values.dtype is dt.float64 else dt.float32
    precision = call.get("precision", 0)
    of_scale = values.to(wide) / _given(_spread(call, values, by)).to(wide)
    scaled = of_scale.to(_ours(numpy_dtype(precision))) if precision else of_scale
    if wanted.name not in _RANGES:
        return _cast(call, scaled, wanted)
    found = _quantised(scaled, _spread(call, values, offset), wanted.name)
    return _cast(call, found.to(dt.int32), wanted)


@operator("DequantizeLinear", raw=True)
def dequantize_linear(
    call: Call, x: Tensor | Array, scale: Tensor | Array, zero: Tensor | Array | None = None
) -> Tensor:
    values, by = _tensor(x), _tensor(scale)
    code = call.get("output_dtype", 0)
    out = _ours(numpy_dtype(code)) if code else by.dtype
    wide = values.to(dt.float32)
    offset = _spread(call, values, None if zero is None else _tensor(zero))
    wide = wide if offset is None else wide - offset.to(dt.float32)
    return (wide * _given(_spread(call, values, by)).to(dt.float32)).to(out)


def _tensor(x: Tensor | Array) -> Tensor:
    return x if isinstance(x, Tensor) else to_tensor(x)


def _given(x: Tensor | None) -> Tensor:
    assert x is not None
    return x


def _ours(dtype: np.dtype[np.generic]) -> DType:
    return dt.as_dtype(dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = F["amin"](x).clamp_max(0.0), F["amax"](x).clamp_min(0.0)
    scale = (high - low) / 255.0
    zero = F["round"](-low / scale).clamp(0.0, 255.0)
    return _quantised(x / scale, zero, "uint8").to(dt.uint8), scale, zero.to(dt.uint8)


def _moved(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Integers without their zero point, as int32."""
    if zero is None:
        return x.to(dt.int32)
    if zero.ndim == 1 and zero.numel() > 1 and axis is not None:
        shape = [1] * x.ndim
        shape[axis] = -1
        zero = zero.reshape(shape)
    elif zero.numel() == 1:
        zero = zero.reshape(())
    return x.to(dt.int32) - zero.to(dt.int32)


def _exact(x: Tensor) -> Tensor:
    """Integers as float64, in which sums of products of bytes are exact: convolutions take floats."""
    return x.to(dt.float64)


@operator("MatMulInteger")
def matmul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    left = _moved(a, a_zero, a.ndim - 2 if a.ndim > 1 else None)
    return F["matmul"](left, _moved(b, b_zero, b.ndim - 1)).to(dt.int32)


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    return F["round"](convolve(call, _exact(_moved(x, x_zero)), _exact(_moved(w, w_zero, 0)))).to(dt.int32)


@operator("QLinearMatMul")
def qlinear_matmul(
    call: Call, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor,
) -> Tensor:  # fmt: skip
    product = F["matmul"](_moved(a, a_zero, a.ndim - 2), _moved(b, b_zero, b.ndim - 1))
    by = _row(a_scale, a.ndim, -2) * _row(b_scale, b.ndim, -1) / _row(y_scale, a.ndim, -2)
    low, high = _RANGES[y_zero.dtype.name]
    scaled = F["round"](product.to(dt.float32) * by.to(dt.float32)) + _row(y_zero, a.ndim, -2).to(dt.float32)
    return scaled.clamp(low, high).to(dt.int32).to(y_zero.dtype)


def _row(part: Tensor, rank: int, axis: int) -> Tensor:
    """A parameter for all, or one for each row or column."""
    if part.numel() == 1:
        return part.reshape(())
    shape = [1] * max(rank, part.ndim)
    shape[axis] = -1
    return part.reshape(shape) if part.ndim == 1 else part


@operator("QLinearConv")
def qlinear_conv(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor,
    y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    whole = F["round"](convolve(call, _exact(_moved(x, x_zero)), _exact(_moved(w, w_zero, 0))))
    shape = (1, -1, *[1] * (x.ndim - 2))
    whole = whole if bias is None else whole + bias.to(dt.float64).reshape(shape)
    by = (x_scale.reshape(()) * w_scale / y_scale.reshape(())).to(dt.float32)
    scaled = whole.to(dt.float32) * (by.reshape(()) if by.numel() == 1 else by.reshape(shape))
    return _quantised(scaled, y_zero.reshape(()), y_zero.dtype.name).to(dt.int32).to(y_zero.dtype)
