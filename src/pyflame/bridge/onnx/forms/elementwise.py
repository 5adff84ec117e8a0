"""Elementwise ops in ONNX: one operator, or a few."""

from __future__ import annotations

import math

from pyflame.bridge.onnx.writer import Form, Writer, form
from pyflame.core.dtype import bool_
from pyflame.ir import Node

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "bitwise_and": "BitwiseAnd", "bitwise_not": "BitwiseNot", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "ceil": "Ceil", "clamp_max": "Min", "clamp_min": "Max", "clone": "Identity",
    "contiguous": "Identity", "cos": "Cos", "cosh": "Cosh", "eq": "Equal", "erf": "Erf", "exp": "Exp",
    "floor": "Floor", "ge": "GreaterOrEqual", "gt": "Greater", "integer_div": "Div", "isinf": "IsInf",
    "isnan": "IsNaN", "le": "LessOrEqual", "log": "Log", "logical_and": "And", "logical_not": "Not",
    "logical_or": "Or", "logical_xor": "Xor", "lt": "Less", "maximum": "Max", "minimum": "Min", "mul": "Mul",
    "neg": "Neg", "pow": "Pow", "integer_pow": "Pow", "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round",
    "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "sub": "Sub", "tan": "Tan",
    "tanh": "Tanh", "true_divide": "Div", "where": "Where",
}  # fmt: skip
_BOOLS = {"Add": "Or", "Mul": "And", "Max": "Or", "Min": "And"}


def _same(name: str) -> Form:
    def written(w: Writer, node: Node, *inputs: str) -> str:
        on_bools = bool(node.srcs) and all(s.dtype is bool_ for s in node.srcs)
        return w.add(_BOOLS.get(name, name) if on_bools else name, *inputs)

    return written


for _op, _name in _SAME.items():
    form(_op)(_same(_name))


@form("cast")
def cast(w: Writer, node: Node, x: str) -> str:
    return w.cast(x, node.dtype)


@form("after")
def after(w: Writer, node: Node, x: str, other: str) -> str:
    return w.add("Identity", x)


@form("ne")
def not_equal(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Not", w.add("Equal", x, y))


@form("isfinite")
def is_finite(w: Writer, node: Node, x: str) -> str:
    return w.add("Not", w.add("Or", w.add("IsInf", x), w.add("IsNaN", x)))


@form("logical_not")
def logical_not(w: Writer, node: Node, x: str) -> str:
    return w.add("Not", x if node.srcs[0].dtype is bool_ else w.cast(x, bool_))


@form("floor_div")
def floor_div(w: Writer, node: Node, x: str, y: str) -> str:
    if node.dtype.is_float:
        return w.add("Floor", w.add("Div", x, y))
    return w.add("Div", w.add("Sub", x, w.add("Mod", x, y)), y)


@form("mod")
def mod(w: Writer, node: Node, x: str, y: str) -> str:
    if not node.dtype.is_float:
        return w.add("Mod", x, y)
    return w.add("Sub", x, w.add("Mul", w.add("Floor", w.add("Div", x, y)), y))


@form("fmod")
def fmod(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Mod", x, y, fmod=1)


@form("left_shift")
def left_shift(w: Writer, node: Node, x: str, y: str) -> str:
    return w.add("Mul", x, w.add("Pow", w.number(2, node), y))


@form("square")
def square(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, x)


@form("rsqrt")
def rsqrt(w: Writer, node: Node, x: str) -> str:
    return w.add("Reciprocal", w.add("Sqrt", x))


@form("exp2")
def exp2(w: Writer, node: Node, x: str) -> str:
    return w.add("Pow", w.number(2.0, node), x)


@form("log2")
def log2(w: Writer, node: Node, x: str) -> str:
    return w.add("Div", w.add("Log", x), w.number(math.log(2), node))


@form("log10")
def log10(w: Writer, node: Node, x: str) -> str:
    return w.add("Div", w.add("Log", x), w.number(math.log(10), node))


@form("erfc")
def erfc(w: Writer, node: Node, x: str) -> str:
    return w.add("Sub", w.number(1.0, node), w.add("Erf", x))


@form("trunc")
def trunc(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", w.add("Sign", x), w.add("Floor", w.add("Abs", x)))


@form("lerp")
def lerp(w: Writer, node: Node, x: str, end: str, weight: str) -> str:
    return w.add("Add", x, w.add("Mul", weight, w.add("Sub", end, x)))


# --- activations ------------------------------------------------------------------------------------------------------


@form("silu")
def silu(w: Writer, node: Node, x: str) -> str:
    return w.add("Mul", x, w.add("Sigmoid", x))


@form("gelu")
def gelu(w: Writer, node: Node, x: str) -> str:
    if w.opset >= 20:
        return w.add("Gelu", x)
    half = w.add("Mul", x, w.number(0.5, node))
    turned = w.add("Erf", w.add("Mul", x, w.number(1 / math.sqrt(2), node)))
    return w.add("Mul", half, w.add("Add", turned, w.number(1.0, node)))


@form("gelu_tanh")
def gelu_tanh(w: Writer, node: Node, x: str) -> str:
    if w.opset >= 20:
        return w.add("Gelu", x, approximate="tanh")
    cube = w.add("Mul", w.add("Mul", x, x), x)
    inner = w.add("Add", x, w.add("Mul", cube, w.number(0.044715, node)))
    curved = w.add("Tanh", w.add("Mul", inner, w.number(math.sqrt(2 / math.pi), node)))
    return w.add("Mul", w.add("Mul", x, w.number(0.5, node)), w.add("Add", curved, w.number(1.0, node)))


@form("leaky_relu")
def leaky_relu(w: Writer, node: Node, x: str, slope: str) -> str:
    return w.add("Where", w.add("Greater", x, w.number(0, node)), x, w.add("Mul", x, slope))


@form("elu")
def elu(w: Writer, node: Node, x: str, alpha: str) -> str:
    below = w.add("Mul", alpha, w.add("Sub", w.add("Exp", w.add("Min", x, w.number(0, node))), w.number(1, node)))
    return w.add("Where", w.add("Greater", x, w.number(0, node)), x, below)


@form("hardtanh")
def hardtanh(w: Writer, node: Node, x: str, low: str, high: str) -> str:
    return w.add("Min", w.add("Max", x, low), high)


@form("softplus")
def softplus(w: Writer, node: Node, x: str, beta: str, threshold: str) -> str:
    scaled = w.add("Mul", x, beta)
    curved = w.add("Div", w.add("Softplus", scaled), beta)
    return w.add("Where", w.add("Greater", scaled, threshold), x, curved)
