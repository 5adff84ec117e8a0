"""Numbers taken apart: common divisors and multiples, neighbours, mantissas and exponents."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import DType, bfloat16, float16, int32
from pyflame.ir import F, Node, Sample, as_node, cast, common_dtype, composite, elementwise, primitive
from pyflame.ir.declare import broadcast_infer
from pyflame.ir.opdef import ELEMENTWISE
from pyflame.ops.base import want_floats

_ODD = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-40, -3.5, 1e30])
_WHOLE = np.array([[0, 12, -18, 7], [60, -(2**40), 1, 2**62]])
_OTHER = np.array([8, 30, 0, -21])


class Frexp(NamedTuple):
    """x = mantissa * 2**exponent."""

    mantissa: Any
    exponent: Any


# --- divisors -------------------------------------------------------------------------------------------------------


@elementwise(
    "pf_gcd({x}, {y})",
    reference=np.gcd,
    dtype="integer",
    cost=100,
    torch="gcd",
    samples=lambda: [Sample((_WHOLE, _OTHER)), Sample((_WHOLE.T, _OTHER[:2])), Sample((_WHOLE[:0], _OTHER))],
)
def gcd(x: Node, y: Node) -> Node:
    """The greatest common divisor of integers, never negative; that of 0 and 0 is 0.

    >>> pf.gcd(pf.tensor([12, 7]), pf.tensor([-18, 0]))
    tensor([6, 7])
    """


@elementwise(
    "pf_lcm({x}, {y})",
    reference=np.lcm,
    dtype="integer",
    cost=100,
    torch="lcm",
    samples=lambda: [Sample((_WHOLE[:, :3], _OTHER[:3])), Sample((_WHOLE.T[:3], _OTHER[:2]))],
)
def lcm(x: Node, y: Node) -> Node:
    """The least common multiple of integers, never negative unless it overflows; 0 where one is 0.

    >>> pf.lcm(pf.tensor([4, 5]), pf.tensor([6, 0]))
    tensor([12,  0])
    """


# --- floating point -------------------------------------------------------------------------------------------------


def _next_of(dtype: DType) -> Any:
    """NumPy's nextafter of a 16-bit type, of float32 values."""
    return lambda x, y: np.nextafter(x.astype(dtype.numpy), y.astype(dtype.numpy)).astype(np.float32)


def _nextafter_grad(g: Node, x: Node, y: Node) -> tuple[Node, Node]:
    # a step moves with x, and stops where it has arrived
    none = F.full_const(0, g.dtype, g.shape)
    return F.where(F.eq(x, y), none, g), none


# Fused 16-bit chains hold float32 values, whose neighbours are others.
_NEXT_OF_HALF = {float16: "f16", bfloat16: "bf16"}
for _dtype, _name in _NEXT_OF_HALF.items():
    primitive(
        ELEMENTWISE,
        infer=broadcast_infer("nextafter", "same"),
        srcs=("x", "y"),
        reference=_next_of(_dtype),
        c=f"pf_nextafter_{_name}({{x}}, {{y}})",
        grad=_nextafter_grad,
        cost=12,
        name=f"nextafter_{_name}",
        public=False,
    )(lambda x, y: ((x, y), ()))


@primitive(
    ELEMENTWISE,
    infer=broadcast_infer("nextafter", "same"),
    srcs=("x", "y"),
    reference=np.nextafter,
    c="pf_nextafter({x}, {y})",
    grad=_nextafter_grad,
    cost=8,
    torch="nextafter",
    samples=lambda: [
        Sample((np.linspace(-2.0, 2.0, 6).reshape(2, 3), np.array([1.0, 0.4, -3.0]))),
        Sample((_ODD[np.isfinite(_ODD)][:, None], _ODD), grad=False),
        Sample((_ODD[:0], _ODD[:1])),
    ],
)
def nextafter(x: Node, y: Node) -> Any:
    """The next number after x in the direction of y, in their dtype.

    >>> pf.nextafter(pf.tensor([1.0]), pf.tensor([2.0])) - 1 == pf.finfo(pf.float32).eps
    tensor([True])
    """
    dtype = common_dtype("nextafter", (x, y))
    want_floats("nextafter", dtype)
    x, y = as_node(x, dtype), as_node(y, dtype)
    if dtype in _NEXT_OF_HALF:
        return getattr(F, f"nextafter_{_NEXT_OF_HALF[dtype]}")(x, y)
    return (x, y), ()


@elementwise(
    "pf_exponent({x})",
    reference=lambda x: np.frexp(x)[1].astype(x.dtype),
    cost=6,
    public=False,
)
def exponent(x: Node) -> Node:
    """The exponent of frexp, as a float."""


@elementwise(
    "pf_mantissa({x})",
    reference=lambda x: np.frexp(x)[0],
    # mantissa = x * 2^-exponent
    grad=lambda g, x: (g / F.exp2(F.exponent(x)),),
    cost=6,
    public=False,
)
def mantissa(x: Node) -> Node:
    """The mantissa of frexp."""


@composite(
    reference=np.frexp,
    torch="frexp",
    samples=lambda: [Sample((np.array([[0.3, -5.0, 1024.0], [1e-30, 0.5, -0.75]]),)), Sample((_ODD,), grad=False)],
)
def frexp(x: Node) -> Frexp:
    """Mantissas in [0.5, 1) with the sign of x, and int32 exponents: x = mantissa * 2**exponent.

    >>> pf.frexp(pf.tensor([8.0, -3.0])).mantissa
    tensor([ 0.5000, -0.7500])
    """
    want_floats("frexp", x.dtype)
    return Frexp(F.mantissa(x), cast(F.exponent(x), int32))
