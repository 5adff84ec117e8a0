"""Elementwise ops of two and three tensors: arithmetic, comparison, logic and choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import bool_
from pyflame.core.shape import broadcast_shapes
from pyflame.ir import F, Node, as_node, cast, common_dtype, elementwise, primitive
from pyflame.ir.opdef import ELEMENTWISE


@elementwise("{x} + {y}", reference=np.add, grad=lambda g: (g, g), torch="add")
def add(x: Node, y: Node) -> Node:
    """x + y."""


@elementwise("{x} - {y}", reference=np.subtract, grad=lambda g: (g, -g), torch="sub")
def sub(x: Node, y: Node) -> Node:
    """x - y."""


@elementwise("{x} * {y}", reference=np.multiply, grad=lambda g, x, y: (g * y, g * x), torch="mul")
def mul(x: Node, y: Node) -> Node:
    """x * y."""


@elementwise(
    "{x} / {y}",
    reference=np.true_divide,
    # d(x/y) = dx/y - x/y * dy/y
    grad=lambda g, y, out: (g / y, -(g * out) / y),
    dtype="float",
    torch="div",
    cost=4,
)
def div(x: Node, y: Node) -> Node:
    """x / y, always in floating point."""


@elementwise("pf_max({x}, {y})", reference=np.maximum, grad=lambda g, x, y: _split_ties(g, x, y, F.gt(x, y)), torch="maximum")
def maximum(x: Node, y: Node) -> Node:
    """The larger of x and y; NaN where either is NaN."""


def _split_ties(g: Node, x: Node, y: Node, first: Node) -> tuple[Node, Node]:
    # The winner takes the gradient; equal values share it.
    half = F.where(F.eq(x, y), g * 0.5, 0.0)
    other = F.logical_not(first)
    return F.where(first, g, half), F.where(F.logical_and(other, F.ne(x, y)), g, half)


@elementwise("{x} < {y}", reference=np.less, dtype="compare", torch="lt")
def lt(x: Node, y: Node) -> Node:
    """x < y."""


@elementwise("{x} <= {y}", reference=np.less_equal, dtype="compare", torch="le")
def le(x: Node, y: Node) -> Node:
    """x <= y."""


@elementwise("{x} > {y}", reference=np.greater, dtype="compare", torch="gt")
def gt(x: Node, y: Node) -> Node:
    """x > y."""


@elementwise("{x} >= {y}", reference=np.greater_equal, dtype="compare", torch="ge")
def ge(x: Node, y: Node) -> Node:
    """x >= y."""


@elementwise("{x} == {y}", reference=np.equal, dtype="compare", torch="eq")
def eq(x: Node, y: Node) -> Node:
    """x == y."""


@elementwise("{x} != {y}", reference=np.not_equal, dtype="compare", torch="ne")
def ne(x: Node, y: Node) -> Node:
    """x != y."""


@elementwise("!({x})", reference=np.logical_not, dtype="compare", torch="logical_not")
def logical_not(x: Node) -> Node:
    """not x."""


@primitive(
    ELEMENTWISE,
    infer=lambda c, x, y: (broadcast_shapes("where", c.shape, x.shape, y.shape), x.dtype),
    srcs=("condition", "x", "y"),
    reference=np.where,
    c="{condition} ? {x} : {y}",
    grad=lambda g, condition: (None, F.where(condition, g, 0.0), F.where(condition, 0.0, g)),
    torch="where",
)
def where(condition: Node, x: Any, y: Any) -> Any:
    """x where the condition holds, else y."""
    dtype = common_dtype("where", (x, y))
    return (cast(condition, bool_), as_node(x, dtype), as_node(y, dtype)), ()
