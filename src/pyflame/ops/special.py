"""Special functions: of the gamma family, of the error function, with limits at 0, and sums that do not overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, GradientError
from pyflame.ir import F, Node, Sample, as_node, cast, common_dtype, composite, elementwise, primitive
from pyflame.ir.declare import broadcast_infer
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import over, pair_samples, want_number, want_whole

_HALF_ROOT_PI = math.sqrt(math.pi) / 2
_X = np.array([[0.3, 1.5, 4.2], [-0.7, -2.3, 25.0]])
_ODD = np.array([0.0, -0.0, -1.0, -3.0, math.inf, math.nan, 1.0, 2.0, 1e-5, 1e5])


# --- gamma ----------------------------------------------------------------------------------------------------------


@elementwise(
    "pf_lgamma({x})",
    reference=np.vectorize(lambda x: _numpy_lgamma(x), otypes=[np.float64]),
    grad=lambda g, x: (g * F.digamma(x),),
    dtype="float",
    cost=60,
    torch="lgamma",
    samples=lambda: [Sample((_X,)), Sample((_X.T[::2],)), Sample((_ODD,), grad=False), Sample((_X[:0],))],
)
def lgamma(x: Node) -> Node:
    """The logarithm of |gamma(x)|.

    >>> pf.lgamma(pf.tensor([1.0, 5.0]))
    tensor([0.0000, 3.1781])
    """


@elementwise(
    "pf_digamma({x})",
    reference=np.vectorize(lambda x: _numpy_digamma(x), otypes=[np.float64]),
    grad=lambda g, x: (g * F.polygamma(1, x),),
    dtype="float",
    cost=60,
    torch="digamma",
    samples=lambda: [Sample((_X,)), Sample((_X.T[::2],)), Sample((_ODD,), grad=False), Sample((_X[:0],))],
)
def digamma(x: Node) -> Node:
    """The derivative of lgamma; NaN at whole numbers below 0.

    >>> pf.digamma(pf.tensor([1.0, 2.0]))
    tensor([-0.5772,  0.4228])
    """


def _numpy_lgamma(x: float) -> float:
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _numpy_digamma(x: float) -> float:
    if x <= 0 and x == math.floor(x):
        return math.copysign(math.inf, -x) if x == 0 else math.nan
    if x < 0:  # reflection
        return _numpy_digamma(1 - x) - math.pi / math.tan(math.pi * x)
    below = 0.0
    while x < 20:
        below, x = below - 1 / x, x + 1
    return below + math.log(x) - 0.5 / x - (1 / 12 - (1 / 120 - 1 / (252 * x * x)) / (x * x)) / (x * x)


def _of_second(name: str, slope: Callable[[Node, Node, Node], Node]) -> Callable[..., tuple[None, Node]]:
    """The gradient of a function whose derivative by its first argument is not known, as PyTorch does not know it."""

    def rule(g: Node, srcs: tuple[Node, Node], parents: tuple[object, object]) -> tuple[None, Node]:
        if parents[0] is not None:
            raise GradientError(
                f"[{name}] expected a gradient to be wanted for its second argument only but the first one wants one; "
                "use .detach() on that"
            )
        return None, slope(g, *srcs)

    return rule


def _numpy_zeta(s: float, q: float) -> float:
    if q <= 0 and q == math.floor(q):
        return math.inf
    if s == 1:  # the harmonic series
        return math.inf
    total = 0.0
    while q < 40:
        total, q = total + math.pow(q, -s), q + 1
    if math.isinf(q) or math.isinf(s):
        return total
    return total + math.pow(q, -s) * (q / (s - 1) + 0.5 + s / (12 * q) - s * (s + 1) * (s + 2) / (720 * q**3))


@elementwise(
    "pf_zeta({s}, {q})",
    reference=np.vectorize(_numpy_zeta, otypes=[np.float64]),
    # a term (q + k)^-s has the slope -s (q + k)^-(s+1)
    grad=_of_second("zeta", lambda g, s, q: -(g * s * F.zeta(s + 1.0, q))),
    dtype="float",
    cost=200,
    torch=lambda torch, s, q: torch.special.zeta(s.detach(), q),
    samples=lambda: [
        Sample((np.array([2.0, 3.0, 4.5]), np.array([0.3, 1.5, 9.0])), grad=False),
        Sample((np.array([math.inf, 2.0]), np.array([1.0, math.nan])), grad=False),
    ],
    method=False,
)
def zeta(s: Node, q: Node) -> Node:
    """Hurwitz's zeta: the sum of (q + k)^-s over all k from 0 on. It has no gradient for s.

    >>> pf.special.zeta(pf.tensor([2.0]), pf.tensor([1.0]))
    tensor([1.6449])
    """


@composite(
    torch="polygamma",
    samples=lambda: [
        *[Sample((n, _X)) for n in (0, 1, 2, 3)],
        Sample((1, np.array([math.inf, math.nan, 0.0])), grad=False),
    ],
    method=False,
)
def polygamma(n: int, x: Node) -> Node:
    """The derivative of order n of digamma.

    >>> pf.polygamma(1, pf.tensor([1.0]))
    tensor([1.6449])
    """
    order = want_whole("polygamma", "n", n)
    if not 0 <= order <= 170:  # beyond, its scale is no float64
        raise ArgumentError(f"[polygamma] expected an order in [0, 170] but got {order}")
    if order == 0:
        return F.digamma(x)
    scale = float(math.factorial(order))
    return F.zeta(order + 1.0, x) * (scale if order % 2 else -scale)


def _numpy_igammac(a: float, x: float) -> float:
    """Q(a, x) as an integral of t^(a-1) e^-t over t = x + e^s, by equal steps, which are exact for such a bell."""
    if not (a >= 0 and x >= 0) or a == x == 0:
        return math.nan
    if a == 0 or x == 0 or math.isinf(x):
        return 1.0 if x == 0 else 0.0
    s = np.arange(-60.0, math.log(a + 100.0), 0.01)
    t = x + np.exp(s)
    return float(np.exp((a - 1) * np.log(t) - t - math.lgamma(a) + s).sum() * 0.01)


# torch's are less exact for a above 20
_IGAMMA = (np.array([[0.3, 1.5, 4.2], [0.7, 12.3, 15.0]]), np.array([[0.7, 1.5, 0.9], [6.3, 10.0, 28.0]]))
_IGAMMA_ENDS = (np.array([0.0, 1.0, 1.0, -1.0, math.nan, 0.0]), np.array([1.0, 0.0, math.inf, 1.0, 1.0, 0.0]))


def _igamma_slope(g: Node, a: Node, x: Node) -> Node:
    """x^(a-1) e^-x / gamma(a) times g."""
    return g * F.exp((a - 1.0) * F.log(x) - x - F.lgamma(a))


@elementwise(
    "pf_igamma({a}, {x})",
    reference=np.vectorize(lambda a, x: 1.0 - _numpy_igammac(a, x), otypes=[np.float64]),
    grad=_of_second("igamma", _igamma_slope),
    dtype="float",
    cost=300,
    torch=lambda torch, a, x: torch.igamma(a.detach(), x),
    samples=lambda: [Sample(_IGAMMA, grad=False), Sample(_IGAMMA_ENDS, grad=False)],
)
def igamma(a: Node, x: Node) -> Node:
    """The lower incomplete gamma function of x, divided by gamma(a). It has no gradient for a.

    >>> pf.igamma(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([0.6321])
    """


@elementwise(
    "pf_igammac({a}, {x})",
    reference=np.vectorize(_numpy_igammac, otypes=[np.float64]),
    grad=_of_second("igammac", lambda g, a, x: -_igamma_slope(g, a, x)),
    dtype="float",
    cost=300,
    torch=lambda torch, a, x: torch.igammac(a.detach(), x),
    samples=lambda: [Sample(_IGAMMA, grad=False), Sample(_IGAMMA_ENDS, grad=False)],
)
def igammac(a: Node, x: Node) -> Node:
    """The upper incomplete gamma function of x, divided by gamma(a): 1 - igamma. It has no gradient for a.

    >>> pf.igammac(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([0.3679])
    """


# --- the error function's inverse -----------------------------------------------------------------------------------


def _numpy_erfinv(x: float) -> float:
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    y, before = 0.0, -1.0
    while y > before:  # Newton's steps from 0 never pass the root
        off = abs(x) - math.erf(y) if abs(x) < 0.5 else math.erfc(y) - (1 - abs(x))
        before, y = y, y + off * _HALF_ROOT_PI * math.exp(y * y)
    return math.copysign(y, x)


@elementwise(
    "pf_erfinv({x})",
    reference=np.vectorize(_numpy_erfinv, otypes=[np.float64]),
    grad=lambda g, out: (g * F.exp(out * out) * _HALF_ROOT_PI,),
    dtype="float",
    cost=24,
    torch="erfinv",
    samples=lambda: [
        Sample((np.linspace(-0.95, 0.95, 35).reshape(5, 7),)),
        Sample((np.linspace(-0.95, 0.95, 35).reshape(5, 7).T[::2],)),
        Sample((np.array([1.0, -1.0, 2.0, math.nan, 0.0, -0.0, 1e-20, 0.9999]),), grad=False),
    ],
)
def erfinv(x: Node) -> Node:
    """The number whose erf is x: infinite at -1 and 1, NaN beyond.

    >>> pf.erfinv(pf.tensor([0.0, 0.5]))
    tensor([0.0000, 0.4769])
    """


# --- Bessel functions -------------------------------------------------------------------------------------------------


def _numpy_bessel(order: int, scaled: bool) -> Callable[[float], float]:
    """The integral of e^(x (cos t - 1)) cos(n t) / pi over [0, pi], by the trapezoid rule: it is exact here."""

    def bessel(x: float) -> float:
        if math.isinf(x):
            return (0.0 if scaled else math.inf) if x > 0 or order == 0 else (-0.0 if scaled else -math.inf)
        t = np.linspace(0.0, math.pi, 400 + 8 * int(min(math.sqrt(abs(x)), 1e5)) if x == x else 2)
        y = np.trapezoid(np.exp(abs(x) * (np.cos(t) - 1.0)) * np.cos(order * t), t) / math.pi
        return float((math.copysign(y, x) if order else y) * (1.0 if scaled else np.exp(abs(x))))

    return bessel


def _over_x(y: Node, x: Node) -> Node:
    """y / x for an odd function with slope 1/2 at 0."""
    return F.where(F.eq(x, 0.0), 0.5, y / F.where(F.eq(x, 0.0), 1.0, x))


# I0' = I1 and I1' = I0 - I1 / x; e^-|x| adds -sign(x) times the function
_BESSEL: dict[str, tuple[Callable[..., Any], str]] = {
    "i0": (lambda g, x: (g * F.i1(x),), "The modified Bessel function of the first kind, order 0."),
    "i0e": (lambda g, x, out: (g * (F.i1e(x) - F.sign(x) * out),), "i0(x), times e^-|x|."),
    "i1": (
        lambda g, x, out: (g * (F.i0(x) - _over_x(out, x)),),
        "The modified Bessel function of the first kind, order 1.",
    ),
    "i1e": (lambda g, x, out: (g * (F.i0e(x) - F.sign(x) * out - _over_x(out, x)),), "i1(x), times e^-|x|."),
}


def _bessel(name: str, grad: Callable[..., Any], doc: str) -> None:
    def fn(x: Node) -> Node:
        """See below: the four differ in name, gradient and text."""

    fn.__name__, fn.__doc__ = name, doc
    elementwise(
        f"pf_{name}({{x}})",
        reference=np.vectorize(_numpy_bessel(int(name[1]), name.endswith("e")), otypes=[np.float64]),
        grad=grad,
        dtype="float",
        cost=60,
        torch=lambda torch, x: getattr(torch.special, name)(x),
        samples=lambda: [
            Sample((_X,)),
            Sample((_X.T[::2] * 3.0,)),
            Sample((np.array([0.0, -0.0, 8.0]),)),
            Sample((np.array([math.nan, 85.0, -80.0]),), grad=False),  # torch has NaN at infinity
            Sample((_X[:0],)),
        ],
        method=name == "i0",
    )(fn)


for _name, (_grad, _doc) in _BESSEL.items():
    _bessel(_name, _grad, _doc)


# --- with limits ----------------------------------------------------------------------------------------------------


@composite(
    reference=np.sinc,
    torch="sinc",
    samples=lambda: [Sample((_X,)), Sample((np.array([0.0, 1.0, -0.5, 2.5]),)), Sample((np.zeros(2, np.int64),))],
)
def sinc(x: Node) -> Node:
    """sin(pi x) / (pi x), and 1 at 0.

    >>> pf.sinc(pf.tensor([0.0, 0.5]))
    tensor([1.0000, 0.6366])
    """
    angle = F.where(F.eq(x, 0), 1.0, x) * math.pi  # never 0, so that no gradient is NaN
    return F.where(F.eq(x, 0), 1.0, F.sin(angle) / angle)


def _xlogy_grad(g: Node, x: Node, y: Node) -> tuple[Node, Node]:
    return F.where(F.logical_and(F.eq(x, 0.0), y <= 0.0), 0.0, F.xlogy(g, y)), g * x / y


@elementwise(
    "{y} != {y} ? {y} : {x} == 0 ? ({T})0 : {x} * pf_log({y})",
    reference=lambda x, y: np.where(np.isnan(y), y, np.where(x == 0, 0, x * np.log(y))),
    grad=_xlogy_grad,
    dtype="float",
    cost=16,
    torch="xlogy",
    samples=lambda: [
        Sample((np.array([[0.0, 1.0, -2.0], [0.5, 3.0, 0.0]]), np.array([0.5, 2.0, 0.1]))),
        Sample((np.array([0.0, 2.0]), 3.0)),
        Sample((2, np.array([1.0, 2.0]))),
        Sample((np.array([0.0, 0.0, 1.0, 0.0, 1.0]), np.array([0.0, math.nan, 0.0, -1.0, math.inf])), grad=False),
        Sample((np.array([0.0, 0.0]), np.array([0.0, -1.0]))),
    ],
)
def xlogy(x: Node, y: Node) -> Node:
    """x * log(y), and 0 where x is 0, unless y is NaN.

    >>> pf.xlogy(pf.tensor([0.0, 2.0]), pf.tensor([0.0, 1.5]))
    tensor([0.0000, 0.8109])
    """


def _logit_grad(g: Node, x: Node) -> tuple[Node]:
    # d log(x / (1 - x)) = dx / (x (1 - x)); there is no such x outside of [0, 1]
    inside = F.logical_and(x >= 0.0, x <= 1.0)
    return (F.where(inside, g / (x * (1.0 - x)), math.nan),)


@primitive(
    COMPOSITE,
    infer=lambda m: (m.shape, m.dtype),
    reference=lambda x: np.log(x / (1 - x)),
    decompose=lambda x: F.log(x / (1.0 - x)),
    grad=_logit_grad,
    cost=20,
    torch="logit",
    samples=lambda: [
        Sample((np.linspace(0.05, 0.95, 6).reshape(2, 3),)),
        Sample((np.array([-0.5, 0.0, 0.05, 0.5, 0.99, 1.5]), 0.1)),
        Sample((np.array([0.0, 1.0, -1.0, 2.0, math.nan]),), grad=False),
    ],
)
def logit(x: Node, eps: float | None = None) -> Any:
    """log(x / (1 - x)), sigmoid's inverse; with eps x is kept within [eps, 1 - eps].

    >>> pf.logit(pf.tensor([0.5, 0.9]))
    tensor([0.0000, 2.1972])
    """
    if eps is not None:
        edge = want_number("logit", "eps", eps)
        x = F.clamp(x, edge, 1.0 - edge)
    return (x if x.dtype.is_float else cast(x, float32),), ()


# --- without overflow -----------------------------------------------------------------------------------------------


def _two_floats(op: str, x: Any, y: Any) -> tuple[Node, Node]:
    dtype = common_dtype(op, (x, y))
    dtype = dtype if dtype.has_gradient else float32
    return as_node(x, dtype), as_node(y, dtype)


def _hypot(x: Node, y: Node) -> Node:
    """large * sqrt(1 + (small / large)^2): no square overflows."""
    a, b = F.abs(x), F.abs(y)
    large, small = F.maximum(a, b), F.minimum(a, b)
    ratio = over(small, large)
    endless = F.logical_or(F.isinf(x), F.isinf(y))
    return F.where(endless, math.inf, large * F.sqrt(ratio * ratio + 1.0))


@primitive(
    COMPOSITE,
    infer=broadcast_infer("hypot", "same"),
    srcs=("x", "y"),
    reference=np.hypot,
    decompose=_hypot,
    grad=lambda g, x, y, out: (g * (x / out), g * (y / out)),
    cost=12,
    torch="hypot",
    samples=lambda: [
        *pair_samples(number=None, integers=False)(),
        Sample((np.array([1e30, 3e-30]), np.array([1e30, 4e-30]))),
    ],
)
def hypot(x: Node | float, y: Node | float) -> Any:
    """sqrt(x * x + y * y), without overflow.

    >>> pf.hypot(pf.tensor([3.0]), pf.tensor([4.0]))
    tensor([5.])
    """
    return _two_floats("hypot", x, y), ()


def _log_add(x: Node, y: Node, grow: Callable[[Node], Node], scale: float) -> Node:
    """max + log(1 + base^-|x - y|); equal infinities stay what they are."""
    more = F.log1p(grow(-F.abs(x - y)))
    return F.where(F.logical_and(F.eq(x, y), F.isinf(x)), x, F.maximum(x, y) + (more if scale == 1 else more * scale))


def _log_add_grad(g: Node, x: Node, y: Node, scale: float) -> tuple[Node, Node]:
    # the shares of the two in the sum, which are equal where both are infinite
    off = F.where(F.logical_and(F.eq(x, y), F.isinf(x)), 0.0, x - y) * scale
    return g * F.sigmoid(off), g * F.sigmoid(-off)


def _log_add_samples() -> list[Sample]:
    wide = np.array([-800.0, 0.0, 700.0])
    odd = np.array([math.nan, math.inf, -math.inf, 1.0])
    return [
        *pair_samples(number=None, integers=False)()[:-1],
        Sample((wide, wide[:, None])),
        Sample((odd[:, None], odd), grad=False),
    ]


@primitive(
    COMPOSITE,
    infer=broadcast_infer("logaddexp", "same"),
    srcs=("x", "y"),
    reference=np.logaddexp,
    decompose=lambda x, y: _log_add(x, y, F.exp, 1),
    grad=lambda g, x, y: _log_add_grad(g, x, y, 1.0),
    cost=30,
    torch="logaddexp",
    samples=_log_add_samples,
)
def logaddexp(x: Node | float, y: Node | float) -> Any:
    """log(exp(x) + exp(y)), without overflow.

    >>> pf.logaddexp(pf.tensor([1000.0]), pf.tensor([1000.0]))
    tensor([1000.6932])
    """
    return _two_floats("logaddexp", x, y), ()


@primitive(
    COMPOSITE,
    infer=broadcast_infer("logaddexp2", "same"),
    srcs=("x", "y"),
    reference=np.logaddexp2,
    decompose=lambda x, y: _log_add(x, y, F.exp2, 1 / math.log(2)),
    grad=lambda g, x, y: _log_add_grad(g, x, y, math.log(2)),
    cost=30,
    torch="logaddexp2",
    samples=_log_add_samples,
)
def logaddexp2(x: Node | float, y: Node | float) -> Any:
    """log2(2**x + 2**y), without overflow.

    >>> pf.logaddexp2(pf.tensor([1.0]), pf.tensor([1.0]))
    tensor([2.])
    """
    return _two_floats("logaddexp2", x, y), ()
