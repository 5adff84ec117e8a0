"""Elementwise ops of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import bool_, int64
from pyflame.core.errors import DTypeError
from pyflame.ir import F, Meta, Node, Sample, cast, composite, elementwise, primitive
from pyflame.ir.opdef import ELEMENTWISE

_SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.5, -0.5)


def _span(low: float, high: float) -> Callable[[], list[Sample]]:
    """Samples inside an interval, and one with everything a float can hold."""

    def make() -> list[Sample]:
        x = np.random.default_rng(3).uniform(low, high, (5, 7))
        views = [Sample((a,)) for a in (x, x.T[::2], x[:1, :1], x[0, 0, ...], x[:0])]
        return [*views, Sample((np.array(_SPECIAL),), grad=False)]

    return make


def _zero(g: Node) -> tuple[Node]:
    """The gradient of a step function."""
    return (F.full_const(0, g.dtype, g.shape),)


def _function(reference: Any, grad: Callable[..., Any], cost: int, low: float, high: float) -> Callable[[Any], Any]:
    """Declare a real function: its C text is pf_<name>, its oracle torch's of the same name, tried on an interval."""

    def declare(fn: Any) -> Any:
        c, name = f"pf_{fn.__name__}({{x}})", fn.__name__
        return elementwise(
            c, reference=reference, grad=grad, dtype="float", cost=cost, torch=name, samples=_span(low, high)
        )(fn)

    return declare


# --- arithmetic -----------------------------------------------------------------------------------------------------


@elementwise("-{x}", reference=np.negative, grad=lambda g: (-g,), dtype="number", torch="neg", samples=_span(-2, 2))
def neg(x: Node) -> Node:
    """-x.

    >>> pf.neg(pf.tensor([1.0, -2.0]))
    tensor([-1.,  2.])
    """


@elementwise(
    "pf_abs({x})",
    reference=np.abs,
    grad=lambda g, x: (g * F.sign(x),),
    dtype="number",
    torch="abs",
    samples=_span(-2, 2),
)
def abs(x: Node) -> Node:
    """The absolute value.

    >>> pf.abs(pf.tensor([1.0, -2.0]))
    tensor([1., 2.])
    """


@elementwise(
    "({T})(({x} > 0) - ({x} < 0))",
    reference=lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)),
    grad=_zero,
    torch="sign",
    samples=_span(-2, 2),
)
def sign(x: Node) -> Node:
    """-1, 0 or 1; 0 for NaN.

    >>> pf.sign(pf.tensor([3.0, 0.0, -2.0]))
    tensor([ 1.,  0., -1.])
    """


def _same(x: Meta) -> tuple[tuple[int, ...], Any]:
    return x.shape, x.dtype


@primitive(
    ELEMENTWISE,
    infer=_same,
    reference=np.square,
    c="{x} * {x}",
    grad=lambda g, x: (g * x * 2.0,),
    torch="square",
    samples=_span(-2, 2),
)
def square(x: Node) -> Any:
    """x * x.

    >>> pf.square(pf.tensor([3.0, -2.0]))
    tensor([9., 4.])
    """
    return (cast(x, int64) if x.dtype is bool_ else x,), ()


@_function(np.sqrt, lambda g, out: (g * 0.5 / out,), 4, 0.1, 4)
def sqrt(x: Node) -> Node:
    """The square root; NaN below 0.

    >>> pf.sqrt(pf.tensor([4.0, 9.0]))
    tensor([2., 3.])
    """


@_function(lambda x: 1 / np.sqrt(x), lambda g, out: (g * out * out * out * -0.5,), 4, 0.1, 4)
def rsqrt(x: Node) -> Node:
    """1 / sqrt(x).

    >>> pf.rsqrt(pf.tensor([4.0, 16.0]))
    tensor([0.5000, 0.2500])
    """


@elementwise(
    "({T})1 / {x}",
    reference=lambda x: 1 / x,
    grad=lambda g, out: (-(g * out * out),),
    dtype="float",
    cost=4,
    torch="reciprocal",
    samples=_span(0.2, 4),
)
def reciprocal(x: Node) -> Node:
    """1 / x.

    >>> pf.reciprocal(pf.tensor([4.0, -2.0]))
    tensor([ 0.2500, -0.5000])
    """


# --- exponentials and logarithms ------------------------------------------------------------------------------------


@_function(np.exp, lambda g, out: (g * out,), 12, -3, 3)
def exp(x: Node) -> Node:
    """e to the power x.

    >>> pf.exp(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """


@_function(np.exp2, lambda g, out: (g * out * math.log(2),), 12, -3, 3)
def exp2(x: Node) -> Node:
    """2 to the power x.

    >>> pf.exp2(pf.tensor([0.0, 3.0]))
    tensor([1., 8.])
    """


@_function(np.expm1, lambda g, out: (g * (out + 1.0),), 14, -2, 2)
def expm1(x: Node) -> Node:
    """exp(x) - 1, exact near 0.

    >>> pf.expm1(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.7183])
    """


@_function(np.log, lambda g, x: (g / x,), 14, 0.1, 5)
def log(x: Node) -> Node:
    """Natural logarithm; -inf at 0, NaN below.

    >>> pf.log(pf.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """


@_function(np.log2, lambda g, x: (g / (x * math.log(2)),), 14, 0.1, 5)
def log2(x: Node) -> Node:
    """Logarithm to base 2.

    >>> pf.log2(pf.tensor([1.0, 8.0]))
    tensor([0., 3.])
    """


@_function(np.log10, lambda g, x: (g / (x * math.log(10)),), 14, 0.1, 5)
def log10(x: Node) -> Node:
    """Logarithm to base 10.

    >>> pf.log10(pf.tensor([1.0, 100.0]))
    tensor([0., 2.])
    """


@_function(np.log1p, lambda g, x: (g / (x + 1.0),), 16, -0.9, 3)
def log1p(x: Node) -> Node:
    """log(1 + x), exact near 0.

    >>> pf.log1p(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.6931])
    """


# --- trigonometry ---------------------------------------------------------------------------------------------------


@_function(np.sin, lambda g, x: (g * F.cos(x),), 16, -7, 7)
def sin(x: Node) -> Node:
    """Sine of an angle in radians.

    >>> pf.sin(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8415])
    """


@_function(np.cos, lambda g, x: (-(g * F.sin(x)),), 16, -7, 7)
def cos(x: Node) -> Node:
    """Cosine of an angle in radians.

    >>> pf.cos(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 0.5403])
    """


@_function(np.tan, lambda g, out: (g * (out * out + 1.0),), 20, -1.4, 1.4)  # tan' = 1 + tan^2
def tan(x: Node) -> Node:
    """Tangent of an angle in radians.

    >>> pf.tan(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5574])
    """


@_function(np.arcsin, lambda g, x: (g * F.rsqrt(1.0 - x * x),), 16, -0.9, 0.9)
def asin(x: Node) -> Node:
    """The angle in [-pi/2, pi/2] whose sine is x.

    >>> pf.asin(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.5708])
    """


@_function(np.arccos, lambda g, x: (-(g * F.rsqrt(1.0 - x * x)),), 16, -0.9, 0.9)
def acos(x: Node) -> Node:
    """The angle in [0, pi] whose cosine is x.

    >>> pf.acos(pf.tensor([0.0, 1.0]))
    tensor([1.5708, 0.0000])
    """


@_function(np.arctan, lambda g, x: (g / (x * x + 1.0),), 16, -3, 3)
def atan(x: Node) -> Node:
    """The angle in (-pi/2, pi/2) whose tangent is x.

    >>> pf.atan(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7854])
    """


@_function(np.sinh, lambda g, x: (g * F.cosh(x),), 18, -3, 3)
def sinh(x: Node) -> Node:
    """Hyperbolic sine.

    >>> pf.sinh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 1.1752])
    """


@_function(np.cosh, lambda g, x: (g * F.sinh(x),), 16, -3, 3)
def cosh(x: Node) -> Node:
    """Hyperbolic cosine.

    >>> pf.cosh(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 1.5431])
    """


@_function(np.tanh, lambda g, out: (g * (1.0 - out * out),), 16, -3, 3)  # tanh' = 1 - tanh^2
def tanh(x: Node) -> Node:
    """Hyperbolic tangent.

    >>> pf.tanh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """


@_function(np.arcsinh, lambda g, x: (g * F.rsqrt(x * x + 1.0),), 20, -3, 3)
def asinh(x: Node) -> Node:
    """Inverse hyperbolic sine.

    >>> pf.asinh(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8814])
    """


@_function(np.arccosh, lambda g, x: (g * F.rsqrt(x * x - 1.0),), 20, 1.2, 4)
def acosh(x: Node) -> Node:
    """Inverse hyperbolic cosine; NaN below 1.

    >>> pf.acosh(pf.tensor([1.0, 2.0]))
    tensor([0.0000, 1.3170])
    """


@_function(np.arctanh, lambda g, x: (g / (1.0 - x * x),), 20, -0.9, 0.9)
def atanh(x: Node) -> Node:
    """Inverse hyperbolic tangent; NaN outside of [-1, 1].

    >>> pf.atanh(pf.tensor([0.0, 0.5]))
    tensor([0.0000, 0.5493])
    """


@composite(
    reference=np.deg2rad, torch="deg2rad", samples=lambda: [*_span(-360, 360)(), Sample((np.zeros(2, np.int64),))]
)
def deg2rad(x: Node) -> Node:
    """An angle in degrees, in radians.

    >>> pf.deg2rad(pf.tensor([180.0]))
    tensor([3.1416])
    """
    return x * (math.pi / 180)


@composite(reference=np.rad2deg, torch="rad2deg", samples=lambda: [*_span(-7, 7)(), Sample((np.zeros(2, np.int64),))])
def rad2deg(x: Node) -> Node:
    """An angle in radians, in degrees.

    >>> pf.rad2deg(pf.tensor([3.0]))
    tensor([171.8873])
    """
    return x * (180 / math.pi)


_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


@_function(
    np.vectorize(math.erf, otypes=[np.float64]), lambda g, x: (g * F.exp(-(x * x)) * _TWO_OVER_ROOT_PI,), 20, -3, 3
)
def erf(x: Node) -> Node:
    """The error function.

    >>> pf.erf(pf.tensor([0.0, 1.0]))
    tensor([0.0000, 0.8427])
    """


@_function(
    np.vectorize(math.erfc, otypes=[np.float64]), lambda g, x: (g * F.exp(-(x * x)) * -_TWO_OVER_ROOT_PI,), 24, -3, 3
)
def erfc(x: Node) -> Node:
    """1 - erf(x), exact where that is tiny.

    >>> pf.erfc(pf.tensor([0.0, 1.0]))
    tensor([1.0000, 0.1573])
    """


# --- rounding -------------------------------------------------------------------------------------------------------


def _whole(op: str, x: Node) -> Any:
    """Integers are whole already."""
    if x.dtype is bool_:
        raise DTypeError(f"[{op}] expected numbers but got bools; cast with .to(pf.int64)")
    return ((x,), ()) if x.dtype.has_gradient else x


@primitive(
    ELEMENTWISE, infer=_same, reference=np.floor, c="pf_floor({x})", grad=_zero, torch="floor", samples=_span(-3, 3)
)
def floor(x: Node) -> Any:
    """The largest whole number that is not above x.

    >>> pf.floor(pf.tensor([1.7, -1.2]))
    tensor([ 1., -2.])
    """
    return _whole("floor", x)


@primitive(
    ELEMENTWISE, infer=_same, reference=np.ceil, c="pf_ceil({x})", grad=_zero, torch="ceil", samples=_span(-3, 3)
)
def ceil(x: Node) -> Any:
    """The smallest whole number that is not below x.

    >>> pf.ceil(pf.tensor([1.2, -1.7]))
    tensor([ 2., -1.])
    """
    return _whole("ceil", x)


@primitive(
    ELEMENTWISE, infer=_same, reference=np.trunc, c="pf_trunc({x})", grad=_zero, torch="trunc", samples=_span(-3, 3)
)
def trunc(x: Node) -> Any:
    """x without its fraction.

    >>> pf.trunc(pf.tensor([1.7, -1.7]))
    tensor([ 1., -1.])
    """
    return _whole("trunc", x)


@primitive(
    ELEMENTWISE,
    infer=_same,
    reference=np.rint,
    c="pf_round({x})",
    grad=_zero,
    torch="round",
    samples=lambda: [
        *_span(-3, 3)(),
        Sample((np.array([0.5, 1.5, 2.5, -0.5]),)),
        Sample((np.array([1.2345, -0.567]),), {"decimals": 2}),
        Sample((np.array([1234.0, -567.0]),), {"decimals": -2}),
    ],
)
def round(x: Node, decimals: int = 0) -> Any:
    """The nearest whole number, halves to the even one; or to this many decimals.

    >>> pf.round(pf.tensor([0.5, 1.5, 2.4]))
    tensor([0., 2., 2.])
    """
    if decimals == 0:
        return _whole("round", x)
    if not x.dtype.is_float:
        raise DTypeError(
            f"[round] expected floating point for decimals={decimals} but got {x.dtype.name}; cast it first"
        )
    scale = 10.0 ** (decimals if decimals > 0 else -decimals)
    return F.round(x * scale) / scale if decimals > 0 else F.round(x / scale) * scale


@composite(reference=lambda x: x - np.trunc(x), torch="frac", samples=lambda: _span(-3, 3)()[:-1])
def frac(x: Node) -> Node:
    """The fraction of x, with x's sign.

    >>> pf.frac(pf.tensor([1.5, -2.25]))
    tensor([ 0.5000, -0.2500])
    """
    return x - F.trunc(x)


# --- questions ------------------------------------------------------------------------------------------------------


@elementwise("{x} != {x}", reference=np.isnan, dtype="compare", torch="isnan", samples=_span(-2, 2))
def isnan(x: Node) -> Node:
    """Whether x is NaN.

    >>> pf.isnan(pf.tensor([1.0, float("nan")]))
    tensor([False,  True])
    """


@elementwise("pf_abs({x}) == INFINITY", reference=np.isinf, dtype="compare", torch="isinf", samples=_span(-2, 2))
def isinf(x: Node) -> Node:
    """Whether x is infinite.

    >>> pf.isinf(pf.tensor([1.0, float("-inf")]))
    tensor([False,  True])
    """


@elementwise("pf_abs({x}) < INFINITY", reference=np.isfinite, dtype="compare", torch="isfinite", samples=_span(-2, 2))
def isfinite(x: Node) -> Node:
    """Whether x is neither NaN nor infinite.

    >>> pf.isfinite(pf.tensor([1.0, float("nan")]))
    tensor([ True, False])
    """


@elementwise("{x} == INFINITY", reference=np.isposinf, dtype="compare", torch="isposinf", samples=_span(-2, 2))
def isposinf(x: Node) -> Node:
    """Whether x is infinite and above 0.

    >>> pf.isposinf(pf.tensor([float("inf"), float("-inf")]))
    tensor([ True, False])
    """


@elementwise("{x} == -INFINITY", reference=np.isneginf, dtype="compare", torch="isneginf", samples=_span(-2, 2))
def isneginf(x: Node) -> Node:
    """Whether x is infinite and below 0.

    >>> pf.isneginf(pf.tensor([float("inf"), float("-inf")]))
    tensor([False,  True])
    """


@composite(
    reference=np.signbit,
    torch="signbit",
    samples=lambda: [*_span(-2, 2)(), Sample((np.arange(-2, 2),)), Sample((np.array([True, False]),))],
    differentiable=False,
)
def signbit(x: Node) -> Node:
    """Whether x has a minus: below 0, or the 0 that is approached from there.

    >>> pf.signbit(pf.tensor([1.0, -0.0]))
    tensor([False,  True])
    """
    return F.lt(F.copysign(1.0, x) if x.dtype.is_float else x, 0)


@elementwise("!({x})", reference=np.logical_not, dtype="compare", torch="logical_not", samples=_span(-2, 2))
def logical_not(x: Node) -> Node:
    """Whether x is 0 or False.

    >>> pf.logical_not(pf.tensor([True, False]))
    tensor([False,  True])
    """


@primitive(
    ELEMENTWISE,
    infer=_same,
    reference=np.bitwise_not,
    c="~{x}",
    torch="bitwise_not",
    samples=lambda: [
        Sample((np.array([[0, 1, -7], [127, 5, 2]]),)),
        Sample((np.array([True, False]),)),
        Sample((np.array(3, np.uint8),)),
    ],
)
def bitwise_not(x: Node) -> Any:
    """Every bit of an integer turned over; `not` for bools.

    >>> pf.bitwise_not(pf.tensor([0, 5]))
    tensor([-1, -6])
    """
    if x.dtype.is_float:
        raise DTypeError(f"[bitwise_not] expected integers or bools but got {x.dtype.name}; cast with .to(pf.int64)")
    return F.logical_not(x) if x.dtype is bool_ else ((x,), ())
