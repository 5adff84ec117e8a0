"""The largest and the smallest element: values, positions, or both.

PyTorch's `max` and `min` over one axis give (values, indices), and the gradient goes to that one element; over all
elements, and in `amax` and `amin`, equals share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyflame.core.dtype import int32, int64
from pyflame.core.errors import ArgumentError, AxisError
from pyflame.core.shape import Shape, drop_axes, keep_axes, normalize_axis, reduced_axes
from pyflame.ir import F, Meta, Node, Sample, cast, composite, primitive
from pyflame.ir.opdef import COMPOSITE
from pyflame.ops.base import ValuesIndices

_CUBE = np.linspace(-2.0, 2.5, 24).reshape(2, 3, 4)
_NAN = np.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, 2.0]])
_TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])


def _not_empty(op: str, shape: Shape, axes: Shape) -> None:
    if 0 in [shape[a] for a in axes]:
        raise AxisError(f"[{op}] expected at least one element to choose from but got shape {shape} over axes {axes}")


def _expand_back(g: Node, x_meta: Meta, axes: Shape) -> Node:
    return F.expand(F.reshape(g, keep_axes(x_meta.shape, axes)), x_meta.shape)


def _places(x: Node, axis: int) -> Node:
    """The position of each element along an axis, in a shape that broadcasts against x."""
    size = x.shape[axis]
    return F.reshape(cast(F.iota((size,)), int32 if size < 2**31 else int64), (size, *[1] * (x.ndim - 1 - axis)))


def _first_extreme(x: Node, axis: int, largest: bool) -> Node:
    x = cast(x, x.dtype.compute)
    best = _expand_back((F.reduce_max if largest else F.reduce_min)(x, (axis,)), x.meta, (axis,))
    found = F.eq(x, best)
    if x.dtype.is_float:
        found = F.logical_or(found, F.ne(x, x))
    return cast(F.reduce_min(F.where(found, _places(x, axis), x.shape[axis] - 1), (axis,)), int64)


@primitive(
    COMPOSITE,
    infer=lambda m, axis, largest: (drop_axes(m.shape, (axis,)), int64),
    attrs=("axis", "largest"),
    reference=lambda x, axis, largest: np.asarray((np.argmax if largest else np.argmin)(x, axis=axis)),
    decompose=_first_extreme,
    differentiable=False,
    public=False,
)
def first_extreme(x: Node, axis: int, largest: bool) -> Any:
    """The first position along an axis that holds its extreme; NaN counts as the extreme."""
    return (x,), (axis, largest)


def _extreme_along_grad(g: Node, x: Node, axis: int, largest: bool) -> tuple[Node]:
    # the gradient goes to the element that was chosen, not to its equals
    chosen = _expand_back(F.first_extreme(x, axis, largest), x.meta, (axis,))
    return (F.where(F.eq(_places(x, axis), chosen), _expand_back(g, x.meta, (axis,)), 0.0),)


@primitive(
    COMPOSITE,
    infer=lambda m, axis, largest: (drop_axes(m.shape, (axis,)), m.dtype),
    attrs=("axis", "largest"),
    reference=lambda x, axis, largest: (np.max if largest else np.min)(x, axis=axis),
    decompose=lambda x, axis, largest: (F.reduce_max if largest else F.reduce_min)(x, (axis,)),
    grad=_extreme_along_grad,
    public=False,
)
def extreme_along(x: Node, axis: int, largest: bool) -> Any:
    """The extreme along one axis, whose gradient goes to the first element that has it."""
    return (x,), (axis, largest)


def _extreme(op: str, x: Node, axis: Any, keepdims: bool) -> Node:
    axes = reduced_axes(op, axis, x.ndim)
    _not_empty(op, x.shape, axes)
    out = (F.reduce_max if op.endswith("max") else F.reduce_min)(x, axes)
    return F.reshape(out, keep_axes(x.shape, axes)) if keepdims else out


def _extreme_or_pair(op: str, x: Node, axis: Any, keepdims: bool) -> Node | ValuesIndices:
    """PyTorch's max and min: elementwise, over all elements, or along one axis."""
    if isinstance(axis, Node) or (axis is None and not keepdims):
        elementwise = F.maximum if op == "max" else F.minimum
        return elementwise(x, axis) if axis is not None else _extreme(op, x, None, False)
    if axis is None or isinstance(axis, (tuple, list)):
        raise ArgumentError(
            f"[{op}] expected one axis, since it gives values and indices, but got axis={axis!r} and "
            f"keepdims={keepdims}; use a{op} for values over several axes"
        )
    at = normalize_axis(op, axis, x.ndim)
    if x.ndim == 0:
        return ValuesIndices(x, F.full_const(0, int64))
    _not_empty(op, x.shape, (at,))
    found = ValuesIndices(F.extreme_along(x, at, op == "max"), F.first_extreme(x, at, op == "max"))
    shape = keep_axes(x.shape, (at,))
    return ValuesIndices(*[F.reshape(out, shape) for out in found]) if keepdims else found


def _extreme_samples() -> list[Sample]:
    return [
        Sample((_CUBE, 1)),
        Sample((_CUBE,)),
        Sample((_CUBE[:, ::2].T, 0, True)),
        Sample((np.array(3.0),)),
        Sample((np.array(3.0), 0)),
        Sample((np.linspace(0.1, 1.0, 7 * 131).reshape(7, 131), 0)),
        Sample((np.linspace(0.1, 1.0, 7 * 131).reshape(7, 131), -1)),
        Sample((np.ones((3, 1, 5)), 1)),
        Sample((_NAN, 0), grad=False),
        Sample((_NAN,), grad=False),
        Sample((_TIES, 1)),
        Sample((_TIES,)),
        Sample((np.ones((0, 3)), 1)),
        Sample((np.array([[3, -7], [5, 2]]), 0)),
        Sample((np.array([[True, False], [False, False]]), 1)),
    ]


def _torch_extreme(name: str) -> Callable[..., Any]:
    def oracle(torch: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(torch, name)(x) if axis is None else getattr(torch, name)(x, axis, keepdims)

    return oracle


def _numpy_extreme(best: Callable[..., Any], where: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        if axis is None or x.ndim == 0:
            return best(x) if axis is None else (x, np.zeros((), np.int64))
        return best(x, axis=axis, keepdims=keepdims), where(x, axis=axis, keepdims=keepdims)

    return reference


@composite(reference=_numpy_extreme(np.max, np.argmax), torch=_torch_extreme("max"), samples=_extreme_samples)
def max(x: Node, axis: Any = None, keepdims: bool = False) -> Node | ValuesIndices:
    """The largest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals.

    With a second tensor it is the elementwise `maximum`. Over several axes use `amax`, which gives values only.

    >>> pf.tensor([[1.0, 5.0], [7.0, 2.0]]).max(1).indices
    tensor([1, 0])
    """
    return _extreme_or_pair("max", x, axis, keepdims)


@composite(reference=_numpy_extreme(np.min, np.argmin), torch=_torch_extreme("min"), samples=_extreme_samples)
def min(x: Node, axis: Any = None, keepdims: bool = False) -> Node | ValuesIndices:
    """The smallest element, NaN where there is one. Along an axis it gives (values, indices): the first of equals.

    With a second tensor it is the elementwise `minimum`. Over several axes use `amin`, which gives values only.

    >>> pf.tensor([[1.0, 5.0], [7.0, 2.0]]).min(1).values
    tensor([1., 2.])
    """
    return _extreme_or_pair("min", x, axis, keepdims)


def _torch_reduce(name: str) -> Callable[..., Any]:
    def oracle(torch: Any, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return getattr(torch, name)(x, dim=() if axis is None else axis, keepdim=keepdims)

    return oracle


def _several_axes_samples() -> list[Sample]:
    return [
        Sample((_CUBE, (0, 1))),
        Sample((_CUBE, (0, -1), True)),
        Sample((_CUBE,)),
        Sample((_CUBE, -2)),
        Sample((_TIES, 1)),
        Sample((_NAN, 0), grad=False),
        Sample((np.array(3.0),)),
        Sample((np.ones((0, 3)), 1)),
        Sample((np.array([[3, -7], [5, 2]]), 0)),
    ]


@composite(
    reference=lambda x, axis=None, keepdims=False: x.max(axis=axis, keepdims=keepdims),
    torch=_torch_reduce("amax"),
    samples=_several_axes_samples,
)
def amax(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The largest element over axes, NaN where there is one; equals share the gradient.

    >>> pf.amax(pf.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=0)
    tensor([7., 5.])
    """
    return _extreme("amax", x, axis, keepdims)


@composite(
    reference=lambda x, axis=None, keepdims=False: x.min(axis=axis, keepdims=keepdims),
    torch=_torch_reduce("amin"),
    samples=_several_axes_samples,
)
def amin(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """The smallest element over axes, NaN where there is one; equals share the gradient.

    >>> pf.amin(pf.tensor([[1.0, 5.0], [7.0, 2.0]]), axis=0)
    tensor([1., 2.])
    """
    return _extreme("amin", x, axis, keepdims)


def _position(op: str, x: Node, axis: Any, keepdims: bool) -> Node:
    """Where the extreme lies along an axis, or in the flattened tensor."""
    at = 0 if axis is None else normalize_axis(op, axis, x.ndim)
    flat = F.reshape(x, (x.size,)) if axis is None or x.ndim == 0 else x
    _not_empty(op, flat.shape, (at,))
    out = F.first_extreme(flat, at, op == "argmax")
    if not keepdims:
        return out
    return F.reshape(out, [1] * x.ndim if axis is None else keep_axes(x.shape, (at,)))


def _position_samples() -> list[Sample]:
    return [
        Sample((_CUBE, 1)),
        Sample((_CUBE,)),
        Sample((np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), 1)),
        Sample((np.array([[1.0, np.nan, 3.0, np.nan], [np.inf, -np.inf, 2.0, 1.0]]), -1, True)),
        Sample((np.sin(np.arange(5 * 257.0)).reshape(5, 257).T, 0)),
        Sample((np.array(2.0),)),
        Sample((np.array([3, 9, 9, 1, 1]), 0)),
        Sample((np.ones((0, 4)), 1)),
    ]


def _numpy_position(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keepdims=False: np.asarray(fn(x, axis=axis, keepdims=keepdims))


@composite(reference=_numpy_position(np.argmax), torch="argmax", samples=_position_samples, differentiable=False)
def argmax(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Where the largest element lies along an axis, or in the flattened tensor; the first of equals or NaNs.

    >>> pf.tensor([1.0, 5.0, 5.0]).argmax()
    tensor(1)
    """
    return _position("argmax", x, axis, keepdims)


@composite(reference=_numpy_position(np.argmin), torch="argmin", samples=_position_samples, differentiable=False)
def argmin(x: Node, axis: Any = None, keepdims: bool = False) -> Node:
    """Where the smallest element lies along an axis, or in the flattened tensor; the first of equals or NaNs.

    >>> pf.tensor([4.0, 1.0, 1.0]).argmin()
    tensor(1)
    """
    return _position("argmin", x, axis, keepdims)
