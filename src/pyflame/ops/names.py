"""Other names of ops, PyTorch's and NumPy's: each does the same, and is a function of its own."""

from __future__ import annotations

# Elementwise ops take numbers beside tensors. Of these PyTorch wants tensors: as the first argument, or as both.
TENSORS_FIRST = ("clamp_max", "clamp_min", "copysign", "eq", "fmod", "ge", "gt", "le", "lt", "ne")
TENSORS_ONLY = (
    "atan2", "fmax", "fmin", "gcd", "hypot", "lcm", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "nextafter",
)  # fmt: skip

ALIASES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "bce_loss": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "broadcast_to": "expand",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "conj_physical": "conj",
    "divide": "div",
    "fix": "trunc",
    "floor_divide": "floor_div",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "moveaxis": "movedim",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "ravel": "flatten",
    "remainder": "mod",
    "row_stack": "vstack",
    "sgn": "sign",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "take_along_dim": "take_along_axis",
    "trapz": "trapezoid",
    "view": "reshape",
    "view_as": "reshape_as",
}
