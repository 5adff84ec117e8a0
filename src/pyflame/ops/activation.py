"""Activations. The costly ones are one C expression each; softmax and log_softmax are kept whole in the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype, float32
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import Shape, broadcast_shapes, keep_axes, normalize_axis
from pyflame.ir import F, Meta, Node, Sample, as_node, cast, composite, elementwise, primitive
from pyflame.ir.opdef import COMPOSITE, ELEMENTWISE
from pyflame.ops.base import want_number


def _samples(*settings: dict[str, Any]) -> Callable[[], list[Sample]]:
    """Small, large, strided, empty and 0-d inputs, with each of these arguments."""

    def make() -> list[Sample]:
        x = np.random.default_rng(11).uniform(-4, 4, (5, 7))
        out = [Sample((a,), s) for s in (settings or ({},)) for a in (x, x.T[::2] * 8)]
        out += [Sample((a,)) for a in (x[0, 0, ...], x[:1, :1], x[:0])]
        return [*out, Sample((np.array([math.nan, math.inf, -math.inf, 0.0, 90.0, -90.0]),), grad=False)]

    return make


def _floating(op: str, x: Node) -> Node:
    """An activation's input: integers count as float32."""
    return x if x.dtype.is_float else cast(x, float32)


def _shape_of_all(*metas: Meta) -> tuple[Shape, Any]:
    return broadcast_shapes("activation", *[m.shape for m in metas]), metas[0].dtype


# --- straight pieces ------------------------------------------------------------------------------------------------


@elementwise(
    "{y} <= 0 ? ({T})0 : {x}",
    reference=lambda x, y: np.where(y <= 0, 0, x),
    grad=lambda g, y: (F.relu_back(g, y), None),
    public=False,
)
def relu_back(x: Node, y: Node) -> Node:
    """x, and 0 where y is not above 0: the gradient of relu. NaN lets it through, as in PyTorch."""


@elementwise(
    "{x} < 0 ? ({T})0 : {x}",
    reference=lambda x: np.where(x < 0, 0, x),
    grad=lambda g, out: (F.relu_back(g, out),),
    dtype="number",
    torch="relu",
    samples=_samples(),
)
def relu(x: Node) -> Node:
    """max(x, 0).

    >>> pf.relu(pf.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """


def _leaky_grad(g: Node, x: Node, negative_slope: Node) -> tuple[Node, Node]:
    return F.where(x > 0.0, g, g * negative_slope), F.where(x > 0.0, 0.0, g * x)


@primitive(
    ELEMENTWISE,
    infer=_shape_of_all,
    srcs=("x", "negative_slope"),
    reference=lambda x, slope: np.where(x > 0, x, x * slope),
    c="{x} > 0 ? {x} : {x} * {negative_slope}",
    grad=_leaky_grad,
    torch="nn.functional.leaky_relu",
    samples=_samples({}, {"negative_slope": 0.2}),
)
def leaky_relu(x: Node, negative_slope: Any = 0.01) -> Any:
    """x where it is positive, else negative_slope * x.

    >>> pf.leaky_relu(pf.tensor([-1.0, 2.0]), negative_slope=0.1)
    tensor([-0.1000,  2.0000])
    """
    x = _floating("leaky_relu", x)
    return (x, as_node(negative_slope, x.dtype)), ()


def _prelu_reference(x: Any, weight: Any) -> Any:
    slope = weight if weight.size == 1 or x.ndim < 2 else weight.reshape(1, -1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, x * slope.reshape(()) if weight.size == 1 else x * slope)


@composite(
    reference=_prelu_reference,
    torch="nn.functional.prelu",
    samples=lambda: [
        Sample((np.linspace(-2, 2, 24).reshape(2, 3, 4), np.array([0.1, 0.2, 0.3]))),
        Sample((np.linspace(-2, 2, 6).reshape(2, 3).T, np.array([0.25]))),
        Sample((np.linspace(-2, 2, 5), np.array([0.25]))),
    ],
)
def prelu(x: Node, weight: Node) -> Node:
    """leaky_relu with learned slopes: one for all, or one per channel (axis 1).

    >>> pf.prelu(pf.tensor([-1.0, 2.0]), pf.tensor([0.25]))
    tensor([-0.2500,  2.0000])
    """
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.size not in (1, channels) or weight.ndim > 1:
        raise ShapeError(
            f"[prelu] expected a vector of 1 or {channels} slopes for an input of shape {x.shape} but got shape "
            f"{weight.shape}"
        )
    shape = () if weight.size == 1 else (channels, *[1] * (x.ndim - 2))
    return F.leaky_relu(x, F.reshape(weight, shape))


@primitive(
    ELEMENTWISE,
    infer=_shape_of_all,
    srcs=("x", "low", "high"),
    reference=np.clip,
    c="pf_clamp({x}, {low}, {high})",
    # unlike clamp, no gradient at the bounds themselves
    grad=lambda g, x, low, high: (F.where(F.logical_and(x > low, x < high), g, 0.0), None, None),
    torch="nn.functional.hardtanh",
    samples=_samples({}, {"min_val": -0.5, "max_val": 2.0}),
)
def hardtanh(x: Node, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """x, held between min_val and max_val.

    >>> pf.hardtanh(pf.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ArgumentError(f"[hardtanh] expected min_val <= max_val but got {min_val} and {max_val}")
    return (x, as_node(min_val, x.dtype), as_node(max_val, x.dtype)), ()


@composite(reference=lambda x: np.clip(x, 0, 6), torch="nn.functional.relu6", samples=_samples())
def relu6(x: Node) -> Node:
    """min(max(x, 0), 6).

    >>> pf.relu6(pf.tensor([-1.0, 2.0, 9.0]))
    tensor([0., 2., 6.])
    """
    return F.hardtanh(x, 0.0, 6.0)


@composite(
    reference=lambda x: np.clip(x + 3, 0, 6) / 6,
    torch=lambda torch, x: torch.nn.functional.relu6(x + 3) / 6,  # its own has a float32 1/6 in float64's gradient
    samples=_samples(),
)
def hardsigmoid(x: Node) -> Node:
    """relu6(x + 3) / 6: three straight pieces near sigmoid.

    >>> pf.hardsigmoid(pf.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """
    return F.hardtanh(x + 3.0, 0.0, 6.0) * (1 / 6)


@composite(
    reference=lambda x: x * np.clip(x + 3, 0, 6) / 6,
    torch="nn.functional.hardswish",
    samples=_samples(),
)
def hardswish(x: Node) -> Node:
    """x * hardsigmoid(x).

    >>> pf.hardswish(pf.tensor([-4.0, 3.0]))
    tensor([-0., 3.])
    """
    return x * F.hardsigmoid(x)


@composite(reference=lambda x: x / (1 + np.abs(x)), torch="nn.functional.softsign", samples=_samples())
def softsign(x: Node) -> Node:
    """x / (1 + |x|).

    >>> pf.softsign(pf.tensor([-1.0, 3.0]))
    tensor([-0.5000,  0.7500])
    """
    return x / (F.abs(x) + 1.0)


# --- smooth ---------------------------------------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1) / (1 + z)


def _softplus(x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
    return np.where(x * beta > threshold, x, np.logaddexp(x * beta, 0) / beta)


@elementwise(
    "pf_sigmoid({x})",
    reference=_sigmoid,
    grad=lambda g, out: (g * out * (1.0 - out),),
    dtype="float",
    cost=16,
    torch="sigmoid",
    samples=_samples(),
)
def sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x)).

    >>> pf.sigmoid(pf.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """


@primitive(
    ELEMENTWISE,
    infer=_shape_of_all,
    srcs=("x", "beta", "threshold"),
    reference=_softplus,
    c="{x} * {beta} > {threshold} ? {x} : pf_softplus({x} * {beta}) / {beta}",
    # d/dx log(1 + exp(bx)) / b = sigmoid(bx)
    grad=lambda g, x, beta, threshold: (F.where(x * beta > threshold, g, g * F.sigmoid(x * beta)), None, None),
    cost=24,
    torch="nn.functional.softplus",
    samples=_samples({}, {"beta": 2.0, "threshold": 5.0}),
)
def softplus(x: Node, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x is above the threshold.

    >>> pf.softplus(pf.tensor([0.0, 30.0]))
    tensor([ 0.6931, 30.0000])
    """
    x = _floating("softplus", x)
    return (x, as_node(beta, x.dtype), as_node(threshold, x.dtype)), ()


@composite(reference=lambda x: -np.logaddexp(-x, 0), torch="nn.functional.logsigmoid", samples=_samples())
def logsigmoid(x: Node) -> Node:
    """log(sigmoid(x)), exact for large |x|.

    >>> pf.logsigmoid(pf.tensor([0.0, -50.0]))
    tensor([ -0.6931, -50.0000])
    """
    return -F.softplus(-x, 1.0, math.inf)


def _silu_grad(g: Node, x: Node) -> tuple[Node]:
    # (x s)' = s + x s (1 - s)
    s = F.sigmoid(x)
    return (g * s * (x * (1.0 - s) + 1.0),)


@elementwise(
    "pf_silu({x})",
    reference=lambda x: x * _sigmoid(x),
    grad=_silu_grad,
    dtype="float",
    cost=16,
    torch="nn.functional.silu",
    samples=_samples(),
)
def silu(x: Node) -> Node:
    """x * sigmoid(x), also called swish.

    >>> pf.silu(pf.tensor([0.0, 2.0]))
    tensor([0.0000, 1.7616])
    """


@composite(reference=lambda x: x * np.tanh(np.logaddexp(x, 0)), torch="nn.functional.mish", samples=_samples())
def mish(x: Node) -> Node:
    """x * tanh(softplus(x)).

    >>> pf.mish(pf.tensor([0.0, 2.0]))
    tensor([0.0000, 1.9440])
    """
    return x * F.tanh(F.softplus(x))


@primitive(
    ELEMENTWISE,
    infer=_shape_of_all,
    srcs=("x", "alpha"),
    reference=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    c="{x} > 0 ? {x} : {alpha} * pf_expm1({x})",
    # the minimum keeps exp from overflowing where its result is not used, for the sake of second derivatives
    grad=lambda g, x, alpha: (F.where(x <= 0.0, g * alpha * F.exp(F.minimum(x, 0.0)), g), None),
    cost=16,
    torch="nn.functional.elu",
    samples=_samples({}, {"alpha": 0.7}),
)
def elu(x: Node, alpha: float = 1.0) -> Any:
    """x where it is positive, else alpha * (exp(x) - 1).

    >>> pf.elu(pf.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    x = _floating("elu", x)
    return (x, as_node(alpha, x.dtype)), ()


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@composite(
    reference=lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    torch="nn.functional.selu",
    samples=_samples(),
)
def selu(x: Node) -> Node:
    """The elu whose outputs keep mean 0 and variance 1 through deep networks.

    >>> pf.selu(pf.tensor([-1.0, 2.0]))
    tensor([-1.1113,  2.1014])
    """
    return F.elu(x, _SELU_ALPHA) * _SELU_SCALE


_ROOT_HALF = math.sqrt(0.5)
# tanh gelu is x * sigmoid(w) with w = x (a + b x^2)
_GELU_A = 2 * math.sqrt(2 / math.pi)
_GELU_B = 0.044715 * _GELU_A


@composite(
    reference=lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
    torch="celu",
    samples=_samples({}, {"alpha": 0.5}),
    method=False,
)
def celu(x: Node, alpha: float = 1.0) -> Node:
    """x where it is positive, else alpha * (exp(x / alpha) - 1).

    >>> pf.celu(pf.tensor([-1.0, 2.0]), alpha=2.0)
    tensor([-0.7869,  2.0000])
    """
    scale = want_number("celu", "alpha", alpha)
    if scale == 0:
        raise ArgumentError("[celu] expected an alpha other than 0 but got 0")
    x = _floating("celu", x)
    return F.elu(x) if scale == 1 else F.elu(x / scale) * scale


def _numpy_normal(x: Any) -> Any:
    """The share of a normal distribution below x."""
    return 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(x * -_ROOT_HALF)


def _numpy_gelu_tanh_slope(x: Any) -> Any:
    s = _sigmoid(x * (_GELU_A + _GELU_B * x * x))
    return s + x * s * (1 - s) * (_GELU_A + 3 * _GELU_B * x * x)


def _gelu_slope_grad(g: Node, x: Node) -> tuple[Node]:
    # (P + x p)' = p (2 - x^2), since p' = -x p
    square = x * x
    return (g * (2.0 - square) * F.exp(square * -0.5) * (1 / math.sqrt(2 * math.pi)),)


def _gelu_tanh_slope_grad(g: Node, x: Node) -> tuple[Node]:
    # (s + x s')' = 2 s' + x s'',  s' = s (1 - s) w',  s'' = s (1 - s) (w'^2 (1 - 2 s) + w''),  w'' = 6 b x
    square = x * x
    s = F.sigmoid(x * (square * _GELU_B + _GELU_A))
    slope = square * (3 * _GELU_B) + _GELU_A
    return (g * s * (1.0 - s) * (slope * (slope * x * (1.0 - s * 2.0) + 2.0) + square * (6 * _GELU_B)),)


@elementwise(
    "pf_gelu_slope({x})",
    reference=lambda x: _numpy_normal(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi),
    grad=_gelu_slope_grad,
    dtype="float",
    cost=24,
    public=False,
)
def gelu_slope(x: Node) -> Node:
    """The derivative of gelu: P(x) + x p(x), P and p the normal distribution and its density."""


@elementwise(
    "pf_gelu_tanh_slope({x})",
    reference=_numpy_gelu_tanh_slope,
    grad=_gelu_tanh_slope_grad,
    dtype="float",
    cost=24,
    public=False,
)
def gelu_tanh_slope(x: Node) -> Node:
    """The derivative of gelu_tanh: s + x s (1 - s) w' of s = sigmoid(w), w' = a + 3 b x^2."""


@primitive(
    ELEMENTWISE,
    infer=_shape_of_all,
    reference=lambda x: x * _numpy_normal(x),
    c="pf_gelu({x})",
    grad=lambda g, x: (g * F.gelu_slope(x),),
    cost=24,
    torch="nn.functional.gelu",
    samples=lambda: _samples({}, {"approximate": "tanh"})()[:-1],  # torch's float32 gives NaN for +inf
)
def gelu(x: Node, approximate: str = "none") -> Any:
    """x times the share of a normal distribution that lies below x; approximate="tanh" is the formula of GPT-2.

    >>> pf.gelu(pf.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    if approximate == "tanh":
        return F.gelu_tanh(x)
    if approximate != "none":
        raise ArgumentError(f"[gelu] expected approximate 'none' or 'tanh' but got {approximate!r}")
    return (_floating("gelu", x),), ()


@elementwise(
    "pf_gelu_tanh({x})",
    reference=lambda x: x * _sigmoid(x * (_GELU_A + _GELU_B * x * x)),
    grad=lambda g, x: (g * F.gelu_tanh_slope(x),),
    dtype="float",
    cost=20,
    public=False,
)
def gelu_tanh(x: Node) -> Node:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""


# --- over an axis ---------------------------------------------------------------------------------------------------


def _axis_samples(*more: Sample) -> list[Sample]:
    x = np.random.default_rng(12).uniform(-4, 4, (3, 5, 4))
    axes = [
        Sample((a, axis))
        for a, axis in ((x, -1), (x, 1), (x.T, 0), (x[0, 0, 0, ...], 0), (x[:0], 1), (x[:, :, :1] * 30, 1))
    ]
    odd = np.array([[math.inf, 1.0], [-math.inf, 1.0], [math.nan, 1.0], [-math.inf, -math.inf]])
    return [*axes, Sample((odd, 1), grad=False), *more]


def _over_axis(op: str, x: Node, axis: int, dim: int | None, dtype: object) -> Any:
    axis = normalize_axis(op, axis if dim is None else dim, x.ndim)
    x = cast(x, as_dtype(dtype)) if dtype is not None else _floating(op, x)
    return F.reshape(getattr(F, op)(F.reshape(x, (1,))), ()) if x.ndim == 0 else ((x,), (axis,))


def _shifted(x: Node, axis: int) -> tuple[Node, Node]:
    """x minus its maximum, so that exp cannot overflow; and the sum of that exp."""
    kept = keep_axes(x.shape, (axis,))
    shifted = x - F.reshape(F.reduce_max(x, (axis,)), kept)
    return shifted, F.reshape(F.reduce_sum(F.exp(shifted), (axis,)), kept)


def _softmax(x: Node, axis: int) -> Node:
    shifted, total = _shifted(x, axis)
    return F.exp(shifted) * F.reciprocal(total)  # one division a row


def _log_softmax(x: Node, axis: int) -> Node:
    shifted, total = _shifted(x, axis)
    return shifted - F.log(total)


def _log_softmax_reference(x: Any, axis: int) -> Any:
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


@primitive(
    COMPOSITE,
    infer=lambda x, p, axis: (p.shape, p.dtype),
    attrs=("axis",),
    srcs=("x", "p"),
    reference=lambda x, p, axis: (x - np.sum(x * p, axis, keepdims=True)) * p,
    decompose=lambda x, p, axis: (x - F.sum(x * p, axis, True)) * p,
    public=False,
)
def softmax_back(x: Node, p: Node, axis: int) -> Any:
    """p (x - sum(x p)): the gradient of p = softmax."""
    return (x, p), (axis,)


@primitive(
    COMPOSITE,
    infer=lambda x, axis: (x.shape, x.dtype),
    attrs=("axis",),
    reference=lambda x, axis: np.exp(_log_softmax_reference(x, axis)),
    decompose=_softmax,
    grad=lambda g, out, axis: (F.softmax_back(g, out, axis),),
    cost=16,
    autocast="high",
    torch="softmax",
    samples=_axis_samples,
)
def softmax(x: Node, axis: int = -1, dtype: object = None, *, dim: int | None = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis, computed without overflow.

    >>> pf.softmax(pf.tensor([1.0, 2.0, 3.0]))
    tensor([0.0900, 0.2447, 0.6652])
    """
    return _over_axis("softmax", x, axis, dim, dtype)


@primitive(
    COMPOSITE,
    infer=lambda x, axis: (x.shape, x.dtype),
    attrs=("axis",),
    reference=_log_softmax_reference,
    decompose=_log_softmax,
    # l = log softmax(x): dx = g - exp(l) sum(g)
    grad=lambda g, out, axis: (g - F.exp(out) * F.sum(g, axis, True),),
    cost=16,
    autocast="high",
    torch="log_softmax",
    samples=_axis_samples,
)
def log_softmax(x: Node, axis: int = -1, dtype: object = None, *, dim: int | None = None) -> Any:
    """log(softmax(x)) along an axis, exact where the softmax is tiny.

    >>> pf.log_softmax(pf.tensor([1.0, 2.0, 3.0]))
    tensor([-2.4076, -1.4076, -0.4076])
    """
    return _over_axis("log_softmax", x, axis, dim, dtype)


def _glu_reference(x: Any, axis: int = -1) -> Any:
    first, second = np.split(x, 2, axis)
    return first * _sigmoid(second)


@composite(
    reference=_glu_reference,
    torch="nn.functional.glu",
    samples=lambda: [
        Sample((np.linspace(-3, 3, 24).reshape(3, 8),)),
        Sample((np.linspace(-3, 3, 24).reshape(3, 4, 2), 1)),
        Sample((np.linspace(-3, 3, 24).reshape(3, 8).T, 0)),
        Sample((np.zeros((0, 4)),)),
    ],
)
def glu(x: Node, axis: int = -1, *, dim: int | None = None) -> Node:
    """a * sigmoid(b), where a and b are the halves of x along an axis.

    >>> pf.glu(pf.tensor([1.0, 2.0, 0.0, 0.0]))
    tensor([0.5000, 1.0000])
    """
    axis = normalize_axis("glu", axis if dim is None else dim, x.ndim)
    if x.ndim == 0 or x.shape[axis] % 2:
        raise ShapeError(f"[glu] expected an even size on axis {axis} but got shape {x.shape}")
    half = x.shape[axis] // 2
    halves = [
        F.slice(x, tuple((at if a == axis else 0, 1, half if a == axis else s) for a, s in enumerate(x.shape)))
        for at in (0, half)
    ]
    return halves[0] * F.sigmoid(halves[1])
