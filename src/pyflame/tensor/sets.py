"""Functions whose result depends on values, and so evaluate their tensors at once: unique, bincount, equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.dtype import float32, float64
from pyflame.core.errors import ArgumentError, AxisError, DTypeError, ShapeError, type_name
from pyflame.core.shape import normalize_axis
from pyflame.tensor.creation import place_of, tensor, zeros
from pyflame.tensor.dispatch import FUNCTIONS as OP_FUNCTIONS
from pyflame.tensor.tensor import Tensor

_Array = np.ndarray[Any, Any]


def _host(op: str, x: Any) -> _Array:
    """The values of a tensor, as numbers that NumPy can compare."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"[{op}] expected a tensor but got {type_name(x)}; wrap it in pf.tensor(...)")
    return x.numpy() if x.dtype.compute is x.dtype else x.numpy().astype(np.float32)


def _rows(op: str, x: Tensor, dim: int | None) -> tuple[_Array, int]:
    """The values to compare, one row each, and the axis that they lie along."""
    array = _host(op, x)
    if dim is None:
        return array.reshape(-1, 1), 0
    axis = normalize_axis(op, dim, x.ndim)
    if x.ndim == 0:
        raise AxisError(f"[{op}] expected a tensor with axes for dim={dim} but got a 0-d tensor")
    if 0 in x.shape[:axis] + x.shape[axis + 1 :]:
        raise ShapeError(f"[{op}] expected slices with elements along dim={dim} but got shape {x.shape}")
    moved = np.moveaxis(array, axis, 0)
    return moved.reshape(len(moved), array.size // max(len(moved), 1)), axis


def _grouped(x: Tensor, dim: int | None, axis: int, order: _Array, starts: _Array, inverse: bool, counts: bool) -> Any:
    """What to return for elements (in this order) of which some start a new group."""
    first = order[starts]
    values = x.reshape(-1)[tensor(first)] if dim is None else OP_FUNCTIONS["index_select"](x, axis, tensor(first))
    out = [values.detach()]
    place = place_of(x, None)
    if inverse:
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(starts) - 1
        out.append(tensor(group.reshape(x.shape) if dim is None else group, device=place))
    if counts:
        ends = np.append(np.flatnonzero(starts), len(order))
        out.append(tensor(np.diff(ends), device=place))
    return out[0] if len(out) == 1 else tuple(out)


def _changes(rows: _Array) -> _Array:
    """Whether each row differs from the one before it; the first one does. NaN differs from everything."""
    return np.append(np.ones(min(len(rows), 1), np.bool_), (rows[1:] != rows[:-1]).any(axis=1))


def unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The different elements in order, or the different slices along an axis. Evaluates x; under jit it raises.

    With `return_inverse` also where each element is among them, with `return_counts` how often it occurs. They are
    sorted whether asked for or not.

    >>> pf.unique(pf.tensor([2, 1, 2]), return_counts=True)
    (tensor([1, 2]), tensor([1, 2]))
    """
    rows, axis = _rows("unique", x, dim)
    order = np.lexsort(rows.T[::-1]) if rows.shape[1] else np.arange(len(rows))
    return _grouped(x, dim, axis, order, _changes(rows[order]), return_inverse, return_counts)


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices along an axis, that differ from the one before. Evaluates x; under jit it raises.

    >>> pf.unique_consecutive(pf.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    rows, axis = _rows("unique_consecutive", x, dim)
    return _grouped(x, dim, axis, np.arange(len(rows)), _changes(rows), return_inverse, return_counts)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each whole number from 0 on occurs, or the sum of its weights. Evaluates x; under jit it raises.

    >>> pf.bincount(pf.tensor([0, 2, 2]))
    tensor([1, 0, 2])
    """
    array = _host("bincount", x)
    if x.ndim != 1 or array.dtype.kind not in "iu":
        raise DTypeError(f"[bincount] expected a vector of integers but got {x.dtype.name} of shape {x.shape}")
    if minlength < 0 or (array.size and array.min() < 0):
        raise ArgumentError("[bincount] expected numbers and minlength of at least 0 but got one below")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"[bincount] expected weights of shape {x.shape} but got {weights.shape}")
    size = max(int(array.max()) + 1 if array.size else 0, minlength)
    place = place_of(x, None)
    if weights is None:
        return tensor(np.bincount(array, minlength=size), device=place)
    dtype = float32 if weights.dtype is float32 else float64
    out = OP_FUNCTIONS["index_add"](zeros(size, dtype=dtype, device=place), 0, x, weights.detach().to(dtype))
    return out  # type: ignore[no-any-return]


def equal(x: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements, as a bool. Evaluates both; under jit it raises.

    >>> pf.equal(pf.tensor([1, 2]), pf.tensor([1, 2]))
    True
    """
    for value in (x, other):
        if not isinstance(value, Tensor):
            raise DTypeError(f"[equal] expected two tensors but got {type_name(value)}; use eq for numbers")
    return x.shape == other.shape and bool(OP_FUNCTIONS["all"](OP_FUNCTIONS["eq"](x, other)))


def allclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close, as a bool. Evaluates both tensors; under jit it raises: use isclose(...).all().

    >>> pf.allclose(pf.tensor([1.0]), pf.tensor([1.000001]))
    True
    """
    return bool(OP_FUNCTIONS["all"](OP_FUNCTIONS["isclose"](input, other, rtol, atol, equal_nan)))


def numel(x: Tensor) -> int:
    """How many elements a tensor has.

    >>> pf.numel(pf.ones(2, 3))
    6
    """
    return x.numel()


FUNCTIONS = {f.__name__: f for f in (unique, unique_consecutive, bincount, equal, allclose)}
