"""Comparison, logic, bits and choice, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import bool_
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import broadcast_shapes
from pyflame.ir import F, Node, Sample, as_node, common_dtype, composite, elementwise, primitive
from pyflame.ir.opdef import ELEMENTWISE
from pyflame.ops.base import pair_samples


def _integer_pairs() -> list[Sample]:
    x, y = np.array([[-7, 6, 5], [0, 3, 2]]), np.array([3, 1, 2])
    return [
        Sample((x, y)),
        Sample((x.T, 3)),
        Sample((x > 0, y > 1)),
        Sample((x[0, 0, ...], y[0, ...])),
        Sample((x[:0], y)),
    ]


# --- comparison -----------------------------------------------------------------------------------------------------


@elementwise("{x} < {y}", reference=np.less, dtype="compare", torch="lt", samples=pair_samples(number=1))
def lt(x: Node, y: Node) -> Node:
    """x < y.

    >>> pf.lt(pf.tensor([1.0, 2.0]), 2.0)
    tensor([ True, False])
    """


@elementwise("{x} <= {y}", reference=np.less_equal, dtype="compare", torch="le", samples=pair_samples(number=1))
def le(x: Node, y: Node) -> Node:
    """x <= y.

    >>> pf.le(pf.tensor([1.0, 3.0]), 2.0)
    tensor([ True, False])
    """


@elementwise("{x} > {y}", reference=np.greater, dtype="compare", torch="gt", samples=pair_samples(number=1))
def gt(x: Node, y: Node) -> Node:
    """x > y.

    >>> pf.gt(pf.tensor([1.0, 3.0]), 2.0)
    tensor([False,  True])
    """


@elementwise("{x} >= {y}", reference=np.greater_equal, dtype="compare", torch="ge", samples=pair_samples(number=1))
def ge(x: Node, y: Node) -> Node:
    """x >= y.

    >>> pf.ge(pf.tensor([1.0, 2.0]), 2.0)
    tensor([False,  True])
    """


@elementwise("{x} == {y}", reference=np.equal, dtype="compare", torch="eq", samples=pair_samples(number=1))
def eq(x: Node, y: Node) -> Node:
    """x == y.

    >>> pf.eq(pf.tensor([1.0, 2.0]), 2.0)
    tensor([False,  True])
    """


@elementwise("{x} != {y}", reference=np.not_equal, dtype="compare", torch="ne", samples=pair_samples(number=1))
def ne(x: Node, y: Node) -> Node:
    """x != y.

    >>> pf.ne(pf.tensor([1.0, 2.0]), 2.0)
    tensor([ True, False])
    """


def _isclose_reference(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return np.isclose(x, y, rtol, atol, equal_nan)


def _close_samples() -> list[Sample]:
    x, y = np.array([1.0, 2.0, math.nan, math.inf, 1e-9]), np.array([1.000001, 2.1, math.nan, math.inf, 0.0])
    return [
        Sample((x, y)),
        Sample((x, y), {"equal_nan": True, "atol": 1e-10}),
        Sample((x[:2], y[:2]), {"rtol": 0.1}),
        Sample((x > 1, y > 0)),
        Sample((np.array([100_000, 7, -3]), np.array([100_001, 8, -3]))),
    ]


@composite(reference=_isclose_reference, torch="isclose", samples=_close_samples)
def isclose(x: Node, y: Node, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Node:
    """Whether |x - y| <= atol + rtol * |y|; infinities are close when they are equal.

    >>> pf.isclose(pf.tensor([1.0, 2.0]), pf.tensor([1.000001, 2.1]))
    tensor([ True, False])
    """
    if rtol < 0 or atol < 0:
        raise ArgumentError(f"[isclose] expected rtol and atol of at least 0 but got {rtol} and {atol}")
    if common_dtype("isclose", (x, y)) is bool_:
        return F.eq(x, y)
    near = F.logical_and(F.abs(x - y) <= F.abs(y) * rtol + atol, F.isfinite(y))
    close = F.logical_or(near, F.eq(x, y))
    return F.logical_or(close, F.logical_and(F.isnan(x), F.isnan(y))) if equal_nan else close


_FEW = 16  # values to look for one by one: beyond that they are sorted


@composite(
    reference=lambda elements, test_elements, assume_unique=False, invert=False: np.isin(
        elements, test_elements, invert=invert
    ),
    torch="isin",
    samples=lambda: [
        Sample((np.array([[1, 5], [7, 2]]), np.array([2, 1, 9]))),
        Sample((np.array([1.0, math.nan, 3.0]), np.array([math.nan, 3.0])), {"invert": True}),
        Sample((np.arange(40) * 3 % 41, np.arange(0, 60, 2))),
        Sample((np.array([0.5, 1.5, math.nan, 90.0]), np.arange(50) / 2.0)),
        Sample((np.array([1, 2]), np.zeros(0, np.int64))),
        Sample((np.array([1, 2]), 2)),
        Sample((2, np.array([1, 2]))),
    ],
    method=False,
    differentiable=False,
)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Node:
    """Whether each element is among the test elements; with `invert`, whether it is not.

    >>> pf.isin(pf.tensor([1, 2, 3]), pf.tensor([3, 1]))
    tensor([ True, False,  True])
    """
    dtype = common_dtype("isin", (elements, test_elements))
    x, tests = as_node(elements, dtype), F.reshape(as_node(test_elements, dtype), (-1,))
    if tests.size <= _FEW:
        found = F.any(F.eq(F.reshape(x, (*x.shape, 1)), tests), -1)
    else:
        order = F.take(tests, F.argsort(tests))
        at = F.clamp_max(F.searchsorted(order, F.reshape(x, (-1,))), tests.size - 1)
        found = F.eq(F.reshape(F.gather(order, 0, at), x.shape), x)
    return F.logical_not(found) if invert else found


# --- logic and bits -------------------------------------------------------------------------------------------------


@elementwise(
    "({x} != 0) & ({y} != 0)",
    reference=np.logical_and,
    dtype="compare",
    torch="logical_and",
    samples=pair_samples(number=None),
)
def logical_and(x: Node, y: Node) -> Node:
    """Whether both are true (not 0).

    >>> pf.logical_and(pf.tensor([True, True]), pf.tensor([True, False]))
    tensor([ True, False])
    """


@elementwise(
    "({x} != 0) | ({y} != 0)",
    reference=np.logical_or,
    dtype="compare",
    torch="logical_or",
    samples=pair_samples(number=None),
)
def logical_or(x: Node, y: Node) -> Node:
    """Whether one of them is true (not 0).

    >>> pf.logical_or(pf.tensor([False, True]), pf.tensor([False, False]))
    tensor([False,  True])
    """


@elementwise(
    "({x} != 0) ^ ({y} != 0)",
    reference=np.logical_xor,
    dtype="compare",
    torch="logical_xor",
    samples=pair_samples(number=None),
)
def logical_xor(x: Node, y: Node) -> Node:
    """Whether exactly one of them is true (not 0).

    >>> pf.logical_xor(pf.tensor([True, True]), pf.tensor([True, False]))
    tensor([False,  True])
    """


@elementwise("{x} & {y}", reference=np.bitwise_and, dtype="int", torch="bitwise_and", samples=_integer_pairs)
def bitwise_and(x: Node, y: Node) -> Node:
    """x & y, bit by bit.

    >>> pf.bitwise_and(pf.tensor([6, 5]), 3)
    tensor([2, 1])
    """


@elementwise("{x} | {y}", reference=np.bitwise_or, dtype="int", torch="bitwise_or", samples=_integer_pairs)
def bitwise_or(x: Node, y: Node) -> Node:
    """x | y, bit by bit.

    >>> pf.bitwise_or(pf.tensor([6, 5]), 3)
    tensor([7, 7])
    """


@elementwise("{x} ^ {y}", reference=np.bitwise_xor, dtype="int", torch="bitwise_xor", samples=_integer_pairs)
def bitwise_xor(x: Node, y: Node) -> Node:
    """x ^ y, bit by bit.

    >>> pf.bitwise_xor(pf.tensor([6, 5]), 3)
    tensor([5, 6])
    """


def _shift_samples() -> list[Sample]:
    x = np.array([[-7, 6, 5], [0, 3, 2]])
    return [Sample((x, np.array([3, 1, 2]))), Sample((x.T, 3)), Sample((x, 80)), Sample((x, -1)), Sample((x[:0], 1))]


def _shift_reference(shift: Callable[[Any, Any], Any], over: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def reference(x: Any, y: Any) -> Any:
        bits = x.dtype.itemsize * 8
        return np.where((y < 0) | (y >= bits), over(x), shift(x, np.clip(y, 0, bits - 1)))

    return reference


@elementwise(
    "{y} < 0 || {y} >= (int)sizeof({T}) * 8 ? 0 : (int64_t)((uint64_t){x} << {y})",
    reference=_shift_reference(np.left_shift, np.zeros_like),
    dtype="int",
    torch="bitwise_left_shift",
    samples=_shift_samples,
)
def left_shift(x: Node, y: Node) -> Node:
    """x << y; 0 where y is negative or all bits are shifted out.

    >>> pf.left_shift(pf.tensor([1, 3]), 2)
    tensor([ 4, 12])
    """


@elementwise(
    "({T})-1 < ({T})0 ? (int64_t){x} >> ({y} < 0 || {y} > 63 ? 63 : {y})"
    " : {y} > 63 ? 0 : (int64_t)((uint64_t){x} >> {y})",  # without a sign
    reference=_shift_reference(np.right_shift, lambda x: -(x < 0).astype(x.dtype)),
    dtype="int",
    torch="bitwise_right_shift",
    samples=_shift_samples,
)
def right_shift(x: Node, y: Node) -> Node:
    """x >> y, keeping the sign; 0 or -1 where y is negative or all bits are shifted out.

    >>> pf.right_shift(pf.tensor([4, -8]), 2)
    tensor([ 1, -2])
    """


# --- choice ---------------------------------------------------------------------------------------------------------


def _where_samples() -> list[Sample]:
    x = np.random.default_rng(8).standard_normal((4, 5))
    return [
        Sample((x > 0, x, x * 2)),
        Sample((x[:, :1] > 0, x.T.reshape(4, 5)[::-1], 0.5)),
        Sample((x > 0, 1.0, x[0])),
        Sample((np.array(True), x[1, 1, ...], x[2, 2, ...])),
        Sample((x[:0] > 0, x[:0], x[:1])),
        Sample((np.array([True, False]), np.array([math.nan, 1.0]), np.array([1.0, math.nan])), grad=False),
    ]


@primitive(
    ELEMENTWISE,
    takes_complex=True,
    infer=lambda c, x, y: (broadcast_shapes("where", c.shape, x.shape, y.shape), x.dtype),
    srcs=("condition", "x", "y"),
    reference=np.where,
    c="{condition} ? {x} : {y}",
    grad=lambda g, condition: (None, F.where(condition, g, 0.0), F.where(condition, 0.0, g)),
    torch="where",
    samples=_where_samples,
)
def where(condition: Node, x: Any, y: Any) -> Any:
    """x where the condition holds, else y.

    >>> pf.where(pf.tensor([True, False]), pf.tensor([1.0, 2.0]), 0.0)
    tensor([1., 0.])
    """
    dtype = common_dtype("where", (x, y))
    return (as_node(condition, bool_), as_node(x, dtype), as_node(y, dtype)), ()


def _clamp_samples() -> list[Sample]:
    x = np.random.default_rng(9).uniform(-3, 3, (4, 5))
    odd = np.array([math.nan, math.inf, -math.inf, 1.0, -1.0])
    return [
        Sample((x, -1.0, 1.5)),
        Sample((x.T[::2],), {"min": 0.0}),
        Sample((x,), {"max": 0.5}),
        Sample((x, x[:1] - 0.5, x[:, :1] + 2.0)),
        Sample((x, 2.0, 1.0)),
        Sample((np.arange(5), 1, 3)),
        Sample((np.arange(5),), {"min": 0.5}),
        Sample((x[:0], 0.0, 1.0)),
        Sample((odd, -1.0, 1.0), grad=False),
        Sample((x[0], np.array(math.nan), np.array(2.0)), grad=False),
    ]


@composite(
    reference=lambda x, min=None, max=None: np.minimum(
        np.maximum(x, -np.inf if min is None else min), np.inf if max is None else max
    ),
    torch="clamp",
    samples=_clamp_samples,
)
def clamp(x: Node, min: Any = None, max: Any = None) -> Node:
    """x, but no less than min and no more than max: numbers, tensors or None.

    >>> pf.clamp(pf.tensor([-2.0, 0.5, 3.0]), min=0.0, max=1.0)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise ArgumentError("[clamp] expected min, max or both but got neither")
    dtype = common_dtype("clamp", tuple(a for a in (x, min, max) if a is not None))
    out = as_node(x, dtype)
    if min is not None:
        out = F.clamp_min(out, as_node(min, dtype))
    return out if max is None else F.clamp_max(out, as_node(max, dtype))


@elementwise(
    "pf_max({x}, {min})",
    reference=np.maximum,
    grad=lambda g, x, min: (F.where(x >= min, g, 0.0), F.where(x < min, g, 0.0)),
    torch="clamp_min",
    samples=pair_samples(),
)
def clamp_min(x: Node, min: Node) -> Node:
    """x, but no less than min. Unlike maximum's, the gradient of a tie belongs to x alone.

    >>> pf.clamp_min(pf.tensor([-2.0, 0.5]), 0.0)
    tensor([0.0000, 0.5000])
    """


@elementwise(
    "pf_min({x}, {max})",
    reference=np.minimum,
    grad=lambda g, x, max: (F.where(x <= max, g, 0.0), F.where(x > max, g, 0.0)),
    torch="clamp_max",
    samples=pair_samples(),
)
def clamp_max(x: Node, max: Node) -> Node:
    """x, but no more than max. Unlike minimum's, the gradient of a tie belongs to x alone.

    >>> pf.clamp_max(pf.tensor([-2.0, 0.5]), 0.0)
    tensor([-2.,  0.])
    """


@composite(
    reference=lambda x, mask, value: np.asarray(np.where(mask, value, x), x.dtype),
    torch="masked_fill",
    samples=lambda: [
        Sample((np.arange(12.0).reshape(3, 4), np.arange(4) > 1, -1.5)),
        Sample((np.arange(4.0), np.arange(12).reshape(3, 4) % 2 == 0, np.array(7.0))),
        Sample((np.arange(4), np.arange(4) > 1, 9)),
    ],
)
def masked_fill(x: Node, mask: Node, value: Any) -> Node:
    """x with `value` where the mask holds, in x's dtype.

    >>> pf.masked_fill(pf.tensor([1.0, 2.0]), pf.tensor([True, False]), 0.0)
    tensor([0., 2.])
    """
    if mask.dtype is not bool_:
        raise DTypeError(
            f"[masked_fill] expected a mask of bools but got {mask.dtype.name}; compare it, e.g. mask != 0"
        )
    if isinstance(value, Node) and value.ndim:
        raise ShapeError(
            f"[masked_fill] expected a number or a 0-d tensor as value but got shape {value.shape}; use where"
        )
    return F.where(mask, as_node(value, x.dtype), x)


@composite(
    reference=lambda x, nan=0.0, posinf=None, neginf=None: np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf),
    torch="nan_to_num",
    samples=lambda: [
        Sample((np.array([1.0, -2.0]), 3.0)),
        Sample((np.array([math.nan, math.inf, -math.inf, 2.0]), 0.5, 7.0, -7.0)),
        Sample((np.arange(3),)),
    ],
)
def nan_to_num(x: Node, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Node:
    """x with NaN and the infinities replaced; None stands for the largest and smallest number of x's dtype.

    >>> pf.nan_to_num(pf.tensor([1.0, float("nan")]))
    tensor([1., 0.])
    """
    if not x.dtype.is_float:
        return x
    from pyflame.core.limits import finfo  # imports ml_dtypes, which few programs need

    limit = finfo(x.dtype).max
    low = F.where(F.eq(x, -math.inf), -limit if neginf is None else neginf, x)
    high = F.where(F.eq(x, math.inf), limit if posinf is None else posinf, low)
    return F.where(F.isnan(x), nan, high)
