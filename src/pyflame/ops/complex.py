"""Complex numbers. Kernels move them, take them apart and put them together; all arithmetic is of their parts.

So no kernel computes with them, and gradients need no rules of their own: the gradient of a real number with respect
to z = x + iy is its gradient with respect to x plus i times that with respect to y, which is PyTorch's convention too.
`COMPLEX` says how ops that know real numbers compute with complex ones; what is not in it raises a typed error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pyflame.core.dtype import DType, as_dtype, bool_, complex_of, float32, float64
from pyflame.core.errors import DTypeError, ShapeError
from pyflame.core.shape import Shape
from pyflame.ir import F, Node, Sample, as_node, cast, common_dtype, composite, is_number, primitive
from pyflame.ir.declare import COMPLEX
from pyflame.ir.opdef import ELEMENTWISE

Fn = TypeVar("Fn", bound=Callable[..., Any])

_Z = np.array([[1.0 + 2.0j, -0.5 + 0.25j, 3.0 - 1.0j], [0.0 + 1.0j, -2.0 + 0.0j, 0.75 - 0.5j]])
_W = np.array([0.5 - 1.0j, 2.0 + 0.5j, -1.0 + 1.5j])

# --- apart and together ---------------------------------------------------------------------------------------------


@primitive(
    ELEMENTWISE,
    infer=lambda m: (m.shape, m.dtype.real),
    reference=lambda x: x.real.copy(),
    c="({x}).re",
    grad=lambda g: (F.complex(g, F.full_const(0, g.dtype)),),
    takes_complex=True,
    torch="real",
    samples=lambda: [Sample((_Z,)), Sample((_Z.real,)), Sample((np.arange(3),))],
    method=False,
)
def real(x: Node) -> Any:
    """The real parts of complex numbers; real numbers as they are.

    >>> pf.real(pf.tensor([1 + 2j]))
    tensor([1.])
    """
    return ((x,), ()) if x.dtype.is_complex else x


@primitive(
    ELEMENTWISE,
    infer=lambda m: (m.shape, m.dtype.real),
    reference=lambda x: x.imag.copy(),
    c="({x}).im",
    grad=lambda g: (F.complex(F.full_const(0, g.dtype), g),),
    takes_complex=True,
    torch="imag",
    samples=lambda: [Sample((_Z,))],
    method=False,
)
def imag(x: Node) -> Any:
    """The imaginary parts of complex numbers.

    >>> pf.imag(pf.tensor([1 + 2j]))
    tensor([2.])
    """
    if not x.dtype.is_complex:
        raise DTypeError(f"[imag] expected complex numbers but got {x.dtype.name}")
    return (x,), ()


@primitive(
    ELEMENTWISE,
    infer=lambda a, b: (np.broadcast_shapes(a.shape, b.shape), complex_of(a.dtype)),
    srcs=("real", "imag"),
    reference=lambda real, imag: (real + 1j * imag).astype(np.result_type(real.dtype, np.complex64)),
    c="pf_complex_{S}({real}, {imag})",
    grad=lambda g: (F.real(g), F.imag(g)),
    torch=lambda torch, real, imag: torch.complex(*torch.broadcast_tensors(real, imag)),
    samples=lambda: [Sample((_Z.real, _Z.imag)), Sample((_Z.real, _Z.imag[0])), Sample((_Z.real[0, 0, ...], _W.imag))],
    method=False,
)
def complex(real: Node, imag: Node) -> Any:
    """Complex numbers from their real and imaginary parts.

    >>> pf.complex(pf.tensor([1.0]), pf.tensor([2.0]))
    tensor([1.+2.j])
    """
    if real.dtype is not imag.dtype or real.dtype not in (float32, float64):
        raise DTypeError(
            f"[complex] expected parts that are both float32 or float64 but got {real.dtype.name} and "
            f"{imag.dtype.name}; cast with .to(...)"
        )
    return (real, imag), ()


def _parts(z: Any, dtype: DType) -> tuple[Node, Node]:
    """The real and the imaginary parts of anything that an op takes, in the parts' dtype."""
    if isinstance(z, Node) and z.dtype.is_complex:
        return cast(F.real(z), dtype), cast(F.imag(z), dtype)
    if isinstance(z, Node) or is_number(z):
        return as_node(z, dtype), F.full_const(0, dtype)
    return as_node(z.real, dtype), as_node(z.imag, dtype)


def _pairs(op: str, *values: Any) -> list[tuple[Node, Node]]:
    wide = common_dtype(op, values).real
    return [_parts(v, wide) for v in values]


@composite(
    torch=lambda torch, abs, angle: torch.polar(abs, angle),
    samples=lambda: [Sample((np.array([1.0, 2.0, 0.5]), np.array([0.0, 2.0, -4.0])))],
    method=False,
)
def polar(abs: Node, angle: Node) -> Node:
    """Complex numbers from their absolute values and angles.

    >>> pf.polar(pf.tensor([2.0]), pf.tensor([0.0]))
    tensor([2.+0.j])
    """
    return F.complex(abs * F.cos(angle), abs * F.sin(angle))


@composite(torch="view_as_complex", samples=lambda: [Sample((np.stack([_Z.real, _Z.imag], -1),))], method=False)
def view_as_complex(x: Node) -> Node:
    """Complex numbers from a last axis of size 2: the real and the imaginary part.

    >>> pf.view_as_complex(pf.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    if not x.dtype.is_float or x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(
            f"[view_as_complex] expected floats with a last axis of size 2 but got {x.dtype.name} of shape {x.shape}"
        )
    return F.complex(F.select(x, -1, 0), F.select(x, -1, 1))


@composite(torch="view_as_real", samples=lambda: [Sample((_Z,)), Sample((_W[0, ...],))], method=False)
def view_as_real(x: Node) -> Node:
    """The real and the imaginary parts of complex numbers, along a new last axis.

    >>> pf.view_as_real(pf.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    return F.stack([F.real(x), F.imag(x)], -1)


@composite(torch="conj", samples=lambda: [Sample((_Z,)), Sample((_Z.real,))])
def conj(x: Node) -> Node:
    """Complex numbers with their imaginary parts negated; real numbers as they are.

    >>> pf.conj(pf.tensor([1 + 2j]))
    tensor([1.-2.j])
    """
    return F.complex(F.real(x), F.neg(F.imag(x))) if x.dtype.is_complex else x


@composite(
    torch="angle",
    samples=lambda: [Sample((_Z,)), Sample((np.array([1.0, -2.0, 0.0]),)), Sample((np.arange(-1, 2),))],
)
def angle(x: Node) -> Node:
    """The angle of each number with the positive real axis, in radians.

    >>> pf.angle(pf.tensor([1j]))
    tensor([1.5708])
    """
    if not x.dtype.is_complex:
        wide = x if x.dtype.is_float else cast(x, float32)
        return F.where(F.isnan(wide), wide, F.where(wide < 0.0, as_node(math.pi, wide.dtype), 0.0))
    re, im = F.real(x), F.imag(x)
    zero = _is_zero(re, im)  # it has no angle: 0, and no gradient
    return F.where(zero, 0.0, F.atan2(im, F.where(zero, 1.0, re)))


# --- forms of ops for complex numbers -------------------------------------------------------------------------------


def _form(name: str) -> Callable[[Fn], Fn]:
    """Say how an op computes with complex numbers."""

    def declare(fn: Fn) -> Fn:
        COMPLEX[name] = fn
        return fn

    return declare


def _is_zero(re: Node, im: Node) -> Node:
    return F.logical_and(F.eq(re, 0.0), F.eq(im, 0.0))


def _each_part(name: str) -> None:
    """Ops that take the parts as they come."""

    def form(x: Node, *args: Any, **kwargs: Any) -> Node:
        op = getattr(F, name)
        return F.complex(op(F.real(x), *args, **kwargs), op(F.imag(x), *args, **kwargs))

    COMPLEX[name] = form


for _name in ("neg", "reduce_sum", "running_sum"):
    _each_part(_name)


@_form("cast")
def _cast(x: Node, dtype: object) -> Node:
    dtype = as_dtype(dtype)
    if not dtype.is_complex:
        if dtype is bool_:
            return F.ne(x, 0)
        return cast(F.real(x), dtype)
    return F.complex(*_parts(x, dtype.real))


@_form("add")
def _add(x: Any, y: Any) -> Node:
    (a, b), (c, d) = _pairs("add", x, y)
    return F.complex(a + c, b + d)


@_form("sub")
def _sub(x: Any, y: Any) -> Node:
    (a, b), (c, d) = _pairs("sub", x, y)
    return F.complex(a - c, b - d)


@_form("mul")
def _mul(x: Any, y: Any) -> Node:
    wide = common_dtype("mul", (x, y)).real
    for z, w in ((x, y), (y, x)):  # by a real number: a product for each part
        if is_number(w) or (isinstance(w, Node) and not w.dtype.is_complex):
            factor = as_node(w, wide)
            a, b = _parts(z, wide)
            return F.complex(a * factor, b * factor)
    (a, b), (c, d) = _parts(x, wide), _parts(y, wide)
    return F.complex(a * c - b * d, a * d + b * c)


@_form("true_divide")
def _div(x: Any, y: Any) -> Node:
    (a, b), (c, d) = _pairs("div", x, y)
    if is_number(y) or (isinstance(y, Node) and not y.dtype.is_complex):
        return F.complex(a / c, b / c)
    size = c * c + d * d
    return F.complex((a * c + b * d) / size, (b * c - a * d) / size)


@_form("reciprocal")
def _reciprocal(x: Node) -> Node:
    return _div(1.0, x)


@_form("square")
def _square(x: Node) -> Node:
    return _mul(x, x)


@_form("eq")
def _eq(x: Any, y: Any) -> Node:
    (a, b), (c, d) = _pairs("eq", x, y)
    return F.logical_and(F.eq(a, c), F.eq(b, d))


@_form("ne")
def _ne(x: Any, y: Any) -> Node:
    return F.logical_not(_eq(x, y))


@_form("where")
def _where(condition: Node, x: Any, y: Any) -> Node:
    if condition.dtype.is_complex:
        condition = F.ne(condition, 0)
    (a, b), (c, d) = _pairs("where", x, y)
    return F.complex(F.where(condition, a, c), F.where(condition, b, d))


@_form("abs")
def _abs(x: Node) -> Node:
    re, im = F.real(x), F.imag(x)
    zero = _is_zero(re, im)  # where the gradient is 0, as PyTorch's
    return F.where(zero, 0.0, F.hypot(F.where(zero, 1.0, re), im))


@_form("sign")
def _sign(x: Node) -> Node:
    size = _abs(x)
    return _div(x, F.where(F.eq(size, 0.0), 1.0, size))


@_form("exp")
def _exp(x: Node) -> Node:
    return F.polar(F.exp(F.real(x)), F.imag(x))


@_form("log")
def _log(x: Node) -> Node:
    return F.complex(F.log(_abs(x)), F.angle(x))


@_form("log2")
def _log2(x: Node) -> Node:
    return _mul(_log(x), 1.0 / math.log(2.0))


@_form("log10")
def _log10(x: Node) -> Node:
    return _mul(_log(x), 1.0 / math.log(10.0))


@_form("log1p")
def _log1p(x: Node) -> Node:
    return _log(_add(x, 1.0))


@_form("exp2")
def _exp2(x: Node) -> Node:
    return _exp(_mul(x, math.log(2.0)))


@_form("expm1")
def _expm1(x: Node) -> Node:
    return _sub(_exp(x), 1.0)


@_form("sqrt")
def _sqrt(x: Node) -> Node:
    re, im = F.real(x), F.imag(x)
    zero = _is_zero(re, im)
    re = F.where(zero, 1.0, re)
    right = F.ge(re, 0.0)
    # not abs of the parts, whose derivative is 0 on the axes themselves
    half = F.sqrt((F.hypot(re, im) + F.where(right, re, F.neg(re))) * 0.5)
    other = im / (half * 2.0)
    first = F.where(right, half, other * F.copysign(F.full_const(1.0, im.dtype), im))
    second = F.where(right, other, F.copysign(half, im))
    return F.complex(F.where(zero, 0.0, first), F.where(zero, 0.0, second))


@_form("rsqrt")
def _rsqrt(x: Node) -> Node:
    return _reciprocal(_sqrt(x))


@_form("pow")
def _pow(x: Any, y: Any) -> Node:
    if is_number(y) and y == 2:
        return _mul(x, x)
    base = as_node(x, common_dtype("pow", (x, y)))
    zero = F.eq(base, 0)
    out = _exp(_mul(_log(F.where(zero, 1.0, base)), y))
    at_zero = F.where(F.eq(y, 0), 1.0, 0.0) if isinstance(y, Node) else 1.0 if y == 0 else 0.0
    return F.where(zero, at_zero, out)


@_form("sin")
def _sin(x: Node) -> Node:
    a, b = F.real(x), F.imag(x)
    return F.complex(F.sin(a) * F.cosh(b), F.cos(a) * F.sinh(b))


@_form("cos")
def _cos(x: Node) -> Node:
    a, b = F.real(x), F.imag(x)
    return F.complex(F.cos(a) * F.cosh(b), F.neg(F.sin(a) * F.sinh(b)))


@_form("sinh")
def _sinh(x: Node) -> Node:
    a, b = F.real(x), F.imag(x)
    return F.complex(F.sinh(a) * F.cos(b), F.cosh(a) * F.sin(b))


@_form("cosh")
def _cosh(x: Node) -> Node:
    a, b = F.real(x), F.imag(x)
    return F.complex(F.cosh(a) * F.cos(b), F.sinh(a) * F.sin(b))


@_form("tan")
def _tan(x: Node) -> Node:
    return _div(_sin(x), _cos(x))


@_form("tanh")
def _tanh(x: Node) -> Node:
    return _div(_sinh(x), _cosh(x))


@_form("sigmoid")
def _sigmoid(x: Node) -> Node:
    return _reciprocal(_add(1.0, _exp(COMPLEX["neg"](x))))


@_form("silu")
def _silu(x: Node) -> Node:
    return _mul(x, _sigmoid(x))


@_form("lerp")
def _lerp(x: Any, end: Any, weight: Any) -> Node:
    return _add(x, _mul(weight, _sub(end, x)))


@_form("logaddexp")
def _logaddexp(x: Any, y: Any) -> Node:
    wide = common_dtype("logaddexp", (x, y))
    x, y = as_node(x, wide), as_node(y, wide)
    large = F.ge(F.real(x), F.real(y))
    top, low = _where(large, x, y), _where(large, y, x)
    none = F.eq(F.real(top), -math.inf)  # both are 0: nothing to add
    off = _sub(low, _where(none, 0.0, top))
    return _where(none, top, _add(top, _log1p(_exp(off))))


@_form("reduce_logsumexp")
def _logsumexp(x: Node, axes: Shape) -> Node:
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    most = F.reshape(F.reduce_max(F.real(x), axes), kept)
    most = F.where(F.isfinite(most), most, 0.0)
    total = _log(F.reduce_sum(_exp(_sub(x, most)), axes))
    return _add(total, F.reshape(most, total.shape))


# --- inverse functions: Kahan's, exact near the branch points, on the side of a cut that a signed zero names ---------


def _roots(re: Node, im: Node) -> tuple[tuple[Node, Node], tuple[Node, Node]]:
    """The parts of sqrt(1 - z) and of sqrt(1 + z)."""
    low, high = _sqrt(F.complex(1.0 - re, F.neg(im))), _sqrt(F.complex(1.0 + re, im))
    return (F.real(low), F.imag(low)), (F.real(high), F.imag(high))


def _asin_of(re: Node, im: Node) -> tuple[Node, Node]:
    (a, b), (c, d) = _roots(re, im)
    return F.atan2(re, a * c - b * d), F.asinh(a * d - b * c)


def _atanh_of(re: Node, im: Node) -> tuple[Node, Node]:
    square = im * im
    far = F.log1p(re * 4.0 / ((1.0 - re) * (1.0 - re) + square)) * 0.25
    return far, F.atan2(im * 2.0, (1.0 - re) * (1.0 + re) - square) * 0.5


@_form("acos")
def _acos(x: Node) -> Node:
    (a, b), (c, d) = _roots(F.real(x), F.imag(x))
    return F.complex(F.atan2(a, c) * 2.0, F.asinh(c * b - d * a))


@_form("asin")
def _asin(x: Node) -> Node:
    return F.complex(*_asin_of(F.real(x), F.imag(x)))


@_form("atanh")
def _atanh(x: Node) -> Node:
    return F.complex(*_atanh_of(F.real(x), F.imag(x)))


@_form("acosh")
def _acosh(x: Node) -> Node:
    re, im = F.real(x), F.imag(x)
    low, high = _sqrt(F.complex(re - 1.0, im)), _sqrt(F.complex(re + 1.0, im))
    a, b, c, d = F.real(low), F.imag(low), F.real(high), F.imag(high)
    return F.complex(F.asinh(a * c + b * d), F.atan2(b, c) * 2.0)


@_form("asinh")
def _asinh(x: Node) -> Node:
    turned = _asin_of(F.neg(F.imag(x)), F.real(x))  # asin(iz) / i
    return F.complex(turned[1], F.neg(turned[0]))


@_form("atan")
def _atan(x: Node) -> Node:
    turned = _atanh_of(F.neg(F.imag(x)), F.real(x))
    return F.complex(turned[1], F.neg(turned[0]))


def _logical(name: str) -> None:
    def form(*args: Any) -> Node:
        op: Callable[..., Node] = getattr(F, name)
        return op(*[F.ne(a, 0) if isinstance(a, Node) else bool(a) for a in args])

    COMPLEX[name] = form


for _name in ("logical_and", "logical_or", "logical_xor", "logical_not"):
    _logical(_name)


def _either(name: str, join: str) -> None:
    COMPLEX[name] = lambda x: getattr(F, join)(getattr(F, name)(F.real(x)), getattr(F, name)(F.imag(x)))


_either("isnan", "logical_or")
_either("isinf", "logical_or")
_either("isfinite", "logical_and")


@_form("matmul")
def _matmul(x: Node, y: Node) -> Node:
    if not x.dtype.is_complex:
        return F.complex(F.matmul(cast(x, y.dtype.real), F.real(y)), F.matmul(cast(x, y.dtype.real), F.imag(y)))
    if not y.dtype.is_complex:
        return F.complex(F.matmul(F.real(x), cast(y, x.dtype.real)), F.matmul(F.imag(x), cast(y, x.dtype.real)))
    (a, b), (c, d) = _pairs("matmul", x, y)
    return F.complex(F.matmul(a, c) - F.matmul(b, d), F.matmul(a, d) + F.matmul(b, c))


@_form("conv_general")
def _conv_general(x: Node, w: Node, *geometry: Any) -> Node:
    (a, b), (c, d) = _pairs("conv", x, w)
    conv = F.conv_general
    return F.complex(conv(a, c, *geometry) - conv(b, d, *geometry), conv(a, d, *geometry) + conv(b, c, *geometry))


@_form("reduce_prod")
def _reduce_prod(x: Node, axes: Shape) -> Node:
    """By halves: elements are multiplied pairwise until one is left."""
    rows = F.reshape(
        F.movedim(x, axes, tuple(range(len(axes)))), (-1, *[n for a, n in enumerate(x.shape) if a not in axes])
    )
    if rows.shape[0] == 0:
        return F.full_const(1, x.dtype, rows.shape[1:])
    while (count := rows.shape[0]) > 1:
        half = count // 2
        both = _mul(F.narrow(rows, 0, 0, half), F.narrow(rows, 0, half, half))
        rows = both if count % 2 == 0 else F.cat([both, F.narrow(rows, 0, count - 1, 1)], 0)
    return F.select(rows, 0, 0)


@_form("scatter_at")
def _scatter_at(base: Node, values: Node, *args: Any, **kwargs: Any) -> Node:
    (a, b), (c, d) = _pairs("scatter", base, values)
    return F.complex(F.scatter_at(a, c, *args, **kwargs), F.scatter_at(b, d, *args, **kwargs))
