"""Elementwise arithmetic of several tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import bool_, complex128, float64
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.ir import (
    F,
    Node,
    Sample,
    as_node,
    as_number,
    cast,
    common_dtype,
    composite,
    elementwise,
    is_number,
    primitive,
)
from pyflame.ir.declare import broadcast_infer
from pyflame.ir.opdef import CONST, ELEMENTWISE
from pyflame.ops.base import over, pair_samples

# --- arithmetic -----------------------------------------------------------------------------------------------------


@elementwise("{x} + {y}", reference=np.add, grad=lambda g: (g, g), torch="add", samples=pair_samples())
def add(x: Node, y: Node, *, alpha: float = 1) -> Node:
    """x + alpha * y; `or` for bools.

    >>> pf.add(pf.tensor([1.0, 2.0]), 0.5)
    tensor([1.5000, 2.5000])
    """


@elementwise(
    "{x} - {y}",
    reference=np.subtract,
    grad=lambda g: (g, -g),
    dtype="number",
    torch="sub",
    samples=pair_samples(),
    no_bools=True,
)
def sub(x: Node, y: Node, *, alpha: float = 1) -> Node:
    """x - alpha * y.

    >>> pf.sub(pf.tensor([1.0, 2.0]), 0.5)
    tensor([0.5000, 1.5000])
    """


@elementwise(
    "{x} * {y}", reference=np.multiply, grad=lambda g, x, y: (g * y, g * x), torch="mul", samples=pair_samples()
)
def mul(x: Node, y: Node) -> Node:
    """x * y; `and` for bools.

    >>> pf.mul(pf.tensor([1.0, 2.0]), 1.5)
    tensor([1.5000, 3.0000])
    """


@elementwise(
    "{x} / {y}",
    reference=np.true_divide,
    # d(x/y) = dx/y - x/y * dy/y
    grad=lambda g, y, out: (g / y, -(g * out) / y),
    dtype="float",
    torch="true_divide",
    cost=4,
    samples=pair_samples(),
)
def true_divide(x: Node, y: Node) -> Node:
    """x / y, always in floating point.

    >>> pf.true_divide(pf.tensor([1, 2]), 4)
    tensor([0.2500, 0.5000])
    """


def _div_reference(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    quotient = np.true_divide(x, y)
    return quotient if rounding_mode is None else np.trunc(quotient).astype(np.result_type(x, y))


@composite(
    reference=_div_reference,
    torch="div",
    samples=lambda: [
        Sample(args, {"rounding_mode": mode}, grad)
        for mode in (None, "floor", "trunc")
        for args, grad in (
            ((np.array([[-7.0, 7.0], [5.5, -0.5]]), np.array([2.0, 3.0])), True),
            ((np.array([-7, 7, 5]), np.array([2, -2, 4])), True),
            ((np.array([math.nan, math.inf, -1.0, 0.0]), np.array([[0.0], [math.inf]])), False),
        )
    ],
)
def div(x: Node | float, y: Node | float, rounding_mode: str | None = None) -> Node:
    """x / y in floating point; with rounding_mode "floor" or "trunc" rounded, and then integers stay integers.

    >>> pf.div(pf.tensor([-7, 7]), 2, rounding_mode="trunc")
    tensor([-3,  3])
    """
    if rounding_mode is None:
        return F.true_divide(x, y)
    if rounding_mode == "floor":
        return F.floor_div(x, y)
    if rounding_mode != "trunc":
        raise ArgumentError(f"[div] expected rounding_mode None, 'floor' or 'trunc' but got {rounding_mode!r}")
    return F.trunc(F.true_divide(x, y)) if common_dtype("div", (x, y)).is_float else F.integer_div(x, y)


def _toward_zero(x: Any, y: Any) -> Any:
    divisor = y + (y == 0)
    down = np.floor_divide(x, divisor)
    return (down + ((x % divisor != 0) & ((x < 0) != (y < 0)))) * (y != 0)


@elementwise(
    # Neither x / 0 nor the smallest integer / -1 may reach the divide instruction: both trap.
    "{y} == 0 ? 0 : {y} < 0 && {y} == -1 ? -{x} : {x} / {y}",
    reference=_toward_zero,
    dtype="number",
    cost=4,
    public=False,
)
def integer_div(x: Node, y: Node) -> Node:
    """Integer division that rounds towards 0; 0 where y is 0."""


@elementwise(
    "pf_floordiv({x}, {y})",
    reference=np.floor_divide,
    grad=lambda g: (F.full_const(0, g.dtype, g.shape), F.full_const(0, g.dtype, g.shape)),
    dtype="number",
    cost=8,
    torch=lambda torch, x, y: torch.div(x, y, rounding_mode="floor"),
    samples=pair_samples(),
)
def floor_div(x: Node, y: Node) -> Node:
    """x / y rounded down; 0 where integers are divided by 0.

    >>> pf.floor_div(pf.tensor([-7, 7]), 2)
    tensor([-4,  3])
    """


@elementwise(
    "pf_mod({x}, {y})",
    reference=np.mod,
    # x mod y = x - y * floor(x / y)
    grad=lambda g, x, y: (g, -(g * F.floor_div(x, y))),
    dtype="number",
    cost=8,
    torch="remainder",
    samples=pair_samples(),
)
def mod(x: Node, y: Node) -> Node:
    """The rest of x / y, with y's sign (Python's %, torch.remainder); 0 where integers are divided by 0.

    >>> pf.mod(pf.tensor([-7, 7]), 3)
    tensor([2, 1])
    """


@primitive(
    ELEMENTWISE,
    infer=broadcast_infer("fmod", "same"),
    srcs=("x", "y"),
    reference=np.fmod,
    c="pf_fmod({x}, {y})",
    # fmod(x, y) = x - y * trunc(x / y)
    grad=lambda g, x, y: (g, -(g * F.div(x, y, "trunc"))),
    cost=8,
    torch="fmod",
    samples=pair_samples(),
)
def fmod(x: Node | float, y: Node | float) -> Any:
    """The rest of x / y, with x's sign (C's fmod).

    >>> pf.fmod(pf.tensor([-7, 7]), 3)
    tensor([-1,  1])
    """
    dtype = common_dtype("fmod", (x, y))
    if not dtype.is_float:
        return x - F.integer_div(x, y) * y
    return (as_node(x, dtype), as_node(y, dtype)), ()


@composite(
    reference=lambda x, y, alpha=1: y - alpha * x,
    torch="rsub",
    samples=lambda: [*pair_samples()()[:3], Sample((np.arange(3.0), 2.0), {"alpha": 3})],
    method=False,
)
def rsub(x: Node, y: Any, *, alpha: float = 1) -> Node:
    """y - alpha * x: sub with its arguments exchanged.

    >>> pf.rsub(pf.tensor([1.0, 2.0]), 5.0)
    tensor([4., 3.])
    """
    return F.sub(y, x, alpha=alpha)


# --- powers ---------------------------------------------------------------------------------------------------------

# Exponents that are cheaper another way; for integers only the whole ones above 0.
_POWERS: dict[float, Callable[[Node], Node]] = {
    1: lambda x: x,
    2: lambda x: F.square(x),
    3: lambda x: F.square(x) * x,
    4: lambda x: F.square(F.square(x)),
    0.5: lambda x: F.sqrt(x),
    -0.5: lambda x: F.rsqrt(x),
    -1: lambda x: F.reciprocal(x),
    -2: lambda x: F.square(F.reciprocal(x)),  # in this order its gradient at 0 is infinite, not NaN
}


def _pow_grad(g: Node, x: Node, y: Node) -> tuple[Node, Node | None]:
    # d(x^y) = y x^(y-1) dx + x^y log(x) dy; 0 rather than NaN where y = 0, and where x = 0 <= y
    if y.op.kind == CONST and not y.attrs:
        power = float(y.data)
        return F.full_const(0, g.dtype, g.shape) if power == 0 else g * F.pow(x, power - 1.0) * power, None
    slope = F.where(F.eq(y, 0.0), 0.0, g * y * F.pow(x, y - 1.0))
    settled = F.logical_and(F.eq(x, 0.0), y >= 0.0)
    return slope, F.where(settled, 0.0, g * F.pow(x, y) * F.log(x))


def _pow_samples() -> list[Sample]:
    x = np.random.default_rng(6).uniform(0.2, 2.0, (4, 3))
    numbers = [Sample((x, p)) for p in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 2.5, -3.0)]
    zeros = [Sample((np.array([0.0, 0.0, 2.0, -2.0]), np.array([0.0, 2.0, 0.0, 3.0])))]
    odd = np.array([math.nan, math.inf, -math.inf, -2.0, 0.0, 0.5])
    integers = [
        Sample((np.arange(-3, 4), 3)),
        Sample((np.arange(-3, 4), np.array([[0], [5]]))),
        Sample((np.arange(4), 0.5)),
    ]
    return [
        *numbers,
        *zeros,
        Sample((x, x.T[:3, 0])),
        Sample((2, x)),
        *integers,
        Sample((odd[:, None], odd), grad=False),
    ]


@primitive(
    ELEMENTWISE,
    infer=broadcast_infer("pow", "same"),
    srcs=("x", "y"),
    reference=np.power,
    c="pf_pow({x}, {y})",
    grad=_pow_grad,
    cost=30,
    torch="pow",
    samples=_pow_samples,
)
def pow(x: Any, exponent: Any) -> Any:
    """x to the power of the exponent.

    >>> pf.pow(pf.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    dtype = common_dtype("pow", (x, exponent))
    if dtype.is_complex:  # a complex number and real ones: complex nodes have a form of their own
        return F.pow(as_node(x, dtype), as_node(exponent, dtype))
    if dtype is bool_:
        raise DTypeError("[pow] expected numbers but got bools; cast with .to(pf.int64)")
    if is_number(exponent):
        exponent = as_number(exponent)
        if not dtype.is_float and exponent < 0:
            raise ArgumentError(
                f"[pow] expected an exponent of at least 0 for integers but got {exponent}; cast to floating point"
            )
        cheaper = _POWERS.get(exponent)
        if cheaper is not None:
            return cheaper(as_node(x, dtype))
    if not dtype.is_float:
        return F.integer_pow(as_node(x, dtype), as_node(exponent, dtype))
    return (as_node(x, dtype), as_node(exponent, dtype)), ()


@elementwise(
    "pf_ipow({x}, {y})",
    reference=lambda x, y: np.where(
        y < 0, np.where(np.abs(x) == 1, np.where(y % 2, x, 1), 0), np.power(x, np.maximum(y, 0))
    ),
    dtype="number",
    cost=16,
    public=False,
)
def integer_pow(x: Node, y: Node) -> Node:
    """x to the power y for integers; a negative y gives 0, but for x = 1 and x = -1."""


@composite(
    reference=lambda x, y: np.float_power(x, y),
    torch="float_power",
    samples=lambda: [
        Sample((np.array([1.5, 2.0]), 2)),
        Sample((np.arange(1, 4), np.array([[0.5], [-2.0]]))),
        Sample((2, np.arange(3))),
    ],
)
def float_power(x: Any, exponent: Any) -> Node:
    """x to the power of the exponent, in float64.

    >>> pf.float_power(pf.tensor([2]), -1)
    tensor([0.5000], dtype=pyflame.float64)
    """
    wide = complex128 if common_dtype("float_power", (x, exponent)).is_complex else float64
    return F.pow(*[cast(v, wide) if isinstance(v, Node) else v for v in (x, exponent)])


# --- extremes and angles --------------------------------------------------------------------------------------------


def _shared(g: Node, x: Node, y: Node, first_loses: Node, second_loses: Node) -> tuple[Node, Node]:
    # the winner takes the gradient; equal values share it
    share = F.where(F.eq(x, y), g * 0.5, g)
    return F.where(first_loses, 0.0, share), F.where(second_loses, 0.0, share)


@elementwise(
    "pf_max({x}, {y})",
    reference=np.maximum,
    grad=lambda g, x, y: _shared(g, x, y, x < y, x > y),
    torch="maximum",
    samples=pair_samples(number=None),
)
def maximum(x: Node, y: Node) -> Node:
    """The larger of x and y; NaN where either is NaN.

    >>> pf.maximum(pf.tensor([1.0, 4.0]), pf.tensor([2.0, 3.0]))
    tensor([2., 4.])
    """


@elementwise(
    "pf_min({x}, {y})",
    reference=np.minimum,
    grad=lambda g, x, y: _shared(g, x, y, x > y, x < y),
    torch="minimum",
    samples=pair_samples(number=None),
)
def minimum(x: Node, y: Node) -> Node:
    """The smaller of x and y; NaN where either is NaN.

    >>> pf.minimum(pf.tensor([1.0, 4.0]), pf.tensor([2.0, 3.0]))
    tensor([1., 3.])
    """


def _unless_nan(wins: Callable[[Node, Node], Node]) -> Callable[..., Any]:
    def grad(g: Node, x: Node, y: Node) -> tuple[Node, Node]:
        # the winner takes the gradient, of equals the first; a NaN loses
        first = F.logical_or(wins(x, y), F.isnan(y))
        return F.where(first, g, 0.0), F.where(first, 0.0, g)

    return grad


@elementwise(
    "{y} > {x} || {x} != {x} ? {y} : {x}",
    reference=np.fmax,
    grad=_unless_nan(lambda x, y: x >= y),
    torch="fmax",
    samples=pair_samples(number=None),
)
def fmax(x: Node, y: Node) -> Node:
    """The larger of x and y; where one is NaN the other.

    >>> pf.fmax(pf.tensor([1.0, float("nan")]), pf.tensor([2.0, 3.0]))
    tensor([2., 3.])
    """


@elementwise(
    "{y} < {x} || {x} != {x} ? {y} : {x}",
    reference=np.fmin,
    grad=_unless_nan(lambda x, y: x <= y),
    torch="fmin",
    samples=pair_samples(number=None),
)
def fmin(x: Node, y: Node) -> Node:
    """The smaller of x and y; where one is NaN the other.

    >>> pf.fmin(pf.tensor([1.0, float("nan")]), pf.tensor([2.0, 3.0]))
    tensor([1., 3.])
    """


@elementwise(
    "pf_copysign({x}, {y})",
    reference=np.copysign,
    grad=lambda g, x, out: (g * F.sign(x) * F.sign(out), F.full_const(0, g.dtype, g.shape)),
    dtype="float",
    torch="copysign",
    samples=pair_samples(),
)
def copysign(x: Node, y: Node) -> Node:
    """The size of x with the sign of y, whose zeros have one too.

    >>> pf.copysign(pf.tensor([1.0, 2.0]), pf.tensor([-3.0, -0.0]))
    tensor([-1., -2.])
    """


@composite(
    reference=lambda x, values: np.where(x == 0, values, x > 0),
    torch="heaviside",
    samples=lambda: [
        Sample((np.array([[-1.0, 0.0, 2.0], [0.0, -0.0, math.nan]]), np.array([0.5, 1.0, 3.0])), grad=False),
        Sample((np.arange(-2, 3), np.array(7))),
    ],
    differentiable=False,
)
def heaviside(x: Node, values: Node) -> Node:
    """0 below 0, 1 above, and `values` at 0.

    >>> pf.heaviside(pf.tensor([-1.0, 0.0, 2.0]), pf.tensor(0.5))
    tensor([0.0000, 0.5000, 1.0000])
    """
    dtype = common_dtype("heaviside", (x, values))
    return F.where(F.eq(x, 0), as_node(values, dtype), cast(F.gt(x, 0), dtype))


def _atan2_grad(g: Node, y: Node, x: Node) -> tuple[Node, Node]:
    # d atan2(y, x) = (x dy - y dx) / (x^2 + y^2), and 0 where both are 0
    square = x * x + y * y
    scaled = over(g, square)
    return scaled * x, -(scaled * y)


@elementwise(
    "pf_atan2({y}, {x})",
    reference=np.arctan2,
    grad=_atan2_grad,
    dtype="float",
    cost=24,
    torch="atan2",
    samples=pair_samples(number=None, integers=False),
)
def atan2(y: Node, x: Node) -> Node:
    """The angle of the point (x, y), in [-pi, pi].

    >>> pf.atan2(pf.tensor([1.0]), pf.tensor([-1.0]))
    tensor([2.3562])
    """


# --- sums of products -----------------------------------------------------------------------------------------------


@elementwise(
    # The end that is nearer is the one that is exact.
    "{weight} < ({T})0.5 ? {x} + {weight} * ({end} - {x}) : {end} - ({end} - {x}) * (({T})1 - {weight})",
    reference=lambda x, end, weight: x + weight * (end - x),
    grad=lambda g, x, end, weight: (g * (1.0 - weight), g * weight, g * (end - x)),
    dtype="float",
    cost=4,
    torch="lerp",
    samples=lambda: [
        Sample((np.arange(4.0), np.full(4, 10.0), 0.25)),
        Sample((np.arange(4.0), np.arange(12.0).reshape(3, 4), np.array([0.1, 0.6, 1.0, 1.5]))),
    ],
)
def lerp(x: Node, end: Node, weight: Node) -> Node:
    """x + weight * (end - x): from x to end as the weight goes from 0 to 1.

    >>> pf.lerp(pf.tensor([0.0, 2.0]), pf.tensor([10.0, 10.0]), 0.5)
    tensor([5., 6.])
    """


@composite(
    reference=lambda x, y, z, value=1: x + value * (y * z),
    torch="addcmul",
    samples=lambda: [
        Sample((np.arange(4.0), np.arange(12.0).reshape(3, 4), np.full(4, 0.5))),
        Sample((np.arange(4.0), np.full(4, 3.0), np.full(4, 0.5)), {"value": 2.5}),
    ],
)
def addcmul(x: Node, y: Node, z: Node, value: float = 1) -> Node:
    """x + value * y * z.

    >>> pf.addcmul(pf.tensor([1.0]), pf.tensor([2.0]), pf.tensor([3.0]), value=0.5)
    tensor([4.])
    """
    return x + (y * z if value == 1 else y * z * value)


@composite(
    reference=lambda x, y, z, value=1: x + value * (y / z),
    torch="addcdiv",
    samples=lambda: [
        Sample((np.arange(4.0), np.arange(12.0).reshape(3, 4), np.full(4, 0.5))),
        Sample((np.arange(4.0), np.full(4, 3.0), np.full(4, 0.5)), {"value": 2.5}),
    ],
)
def addcdiv(x: Node, y: Node, z: Node, value: float = 1) -> Node:
    """x + value * y / z.

    >>> pf.addcdiv(pf.tensor([1.0]), pf.tensor([6.0]), pf.tensor([2.0]), value=0.5)
    tensor([2.5000])
    """
    return x + (y / z if value == 1 else y / z * value)
