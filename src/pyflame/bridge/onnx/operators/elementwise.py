"""Elementwise operators. Most are an op of the catalogue under another name."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from pyflame.bridge.onnx.fold import Folder
from pyflame.bridge.onnx.table import Array, Call, operator
from pyflame.bridge.onnx.values import numpy_dtype, our_dtype, to_host, widened
from pyflame.core import dtype as dt
from pyflame.core.dtype import DType
from pyflame.core.optional import optional
from pyflame.nn.ops import F
from pyflame.tensor import Tensor

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish", "IsNaN": "isnan", "Log": "log", "Mish": "mish",
    "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt",
    "LessOrEqual": "le", "Mul": "mul", "Or": "logical_or", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _renamed(op: str) -> Callable[..., Tensor]:
    return lambda call, *inputs: F[op](*inputs)


def _folded(op: str) -> Callable[..., Tensor]:
    return lambda call, *inputs: reduce(F[op], inputs)


for _name, _op in {**_UNARY, **_BINARY}.items():
    operator(_name)(_renamed(_op))
for _name, _op in _VARIADIC.items():
    operator(_name)(_folded(_op))


@operator("Mean")
def mean(call: Call, *inputs: Tensor) -> Tensor:
    return reduce(F["add"], inputs) / len(inputs)


@operator("Div")
def div(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """Integers divide towards zero."""
    return F["div"](x, y, rounding_mode=None if x.dtype.is_float else "trunc")


@operator("Mod")
def mod(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return F["fmod" if call.get("fmod", 0) else "mod"](x, y)


@operator("Pow")
def power(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """The result has the dtype of x."""
    if x.dtype.is_int and y.dtype.is_float:
        return F["pow"](x.to(dt.float64), y).to(x.dtype)
    return F["pow"](x, y).to(x.dtype)


@operator("BitShift")
def bit_shift(call: Call, x: Tensor, y: Tensor) -> Tensor:
    return F["left_shift" if call.get("direction") == "LEFT" else "right_shift"](x, y)


@operator("Where")
def where(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return F["where"](condition, x, y)


@operator("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    low = call.get("min") if low is None else low
    high = call.get("max") if high is None else high
    x = x if low is None else F["maximum"](x, low) if isinstance(low, Tensor) else x.clamp_min(low)
    return x if high is None else F["minimum"](x, high) if isinstance(high, Tensor) else x.clamp_max(high)


@operator("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    if not call.get("detect_negative", 1):
        return F["isposinf"](x)
    return F["isinf" if call.get("detect_positive", 1) else "isneginf"](x)


# --- activations ------------------------------------------------------------------------------------------------------


@operator("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    return F["celu"](x, alpha=call.get("alpha", 1.0))


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return F["elu"](x, alpha=call.get("alpha", 1.0))


@operator("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    return F["mul"](F["elu"](x, alpha=alpha), gamma)


@operator("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    return F["gelu"](x, approximate=call.get("approximate", "none"))


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return F["clamp"](x * call.get("alpha", 0.2) + call.get("beta", 0.5), 0.0, 1.0)


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return F["leaky_relu"](x, negative_slope=call.get("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    return F["where"](x < 0, x * slope, x)


@operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return F["where"](x > call.get("alpha", 1.0), x, 0.0)


@operator("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    lambd, bias = call.get("lambd", 0.5), call.get("bias", 0.0)
    return F["where"](x < -lambd, x + bias, F["where"](x > lambd, x - bias, 0)).to(x.dtype)


@operator("Softplus")
def softplus(call: Call, x: Tensor) -> Tensor:
    return F["softplus"](x)


@operator("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    return x * F["sigmoid"](x * call.get("alpha", 1.0))


# --- dtypes -----------------------------------------------------------------------------------------------------------


@operator("Cast", raw=True)
def cast(call: Call, x: Tensor | Array) -> Tensor | Array:
    return _cast(call, x, numpy_dtype(call.get("to")))


@operator("CastLike", raw=True)
def cast_like(call: Call, x: Tensor | Array, like: Tensor | Array) -> Tensor | Array:
    return _cast(call, x, like.dtype.numpy if isinstance(like, Tensor) else like.dtype)


def _cast(call: Call, x: Tensor | Array, wanted: np.dtype[Any]) -> Tensor | Array:
    """On the engine where it has both dtypes and its casts are ONNX's; else with ONNX's own arithmetic on the host."""
    ours = our_dtype(wanted)
    if ours is None or ours in dt.FLOAT8 or isinstance(x, np.ndarray):
        return _cast_on_host(call, to_host(x), wanted)
    return _whole(x, ours).to(ours)


def _whole(x: Tensor, wanted: DType) -> Tensor:
    """Floats that become integers are cut off at the point first, so that narrow integers wrap as NumPy's do."""
    return x.to(dt.int64) if x.dtype.is_float and wanted.is_int and wanted.itemsize < 4 else x


def _cast_on_host(call: Call, x: Array, wanted: np.dtype[Any]) -> Array:
    helper = optional("onnx.helper", "onnx", "onnx")
    code = helper.np_dtype_to_tensor_dtype(wanted)
    if wanted.kind in "OSU":
        raise call.refuse("casts to strings")
    more = {k: call.get(k) for k in ("saturate", "round_mode") if call.get(k) is not None}
    node = helper.make_node("Cast", ["x"], ["y"], to=code, **more)
    return Folder(node, [helper.make_opsetid("", call.opset)])([x])[0]


@operator("BitCast", host=[0])
def bit_cast(call: Call, x: Array) -> Array:
    return widened(x.view(numpy_dtype(call.get("to"))))
