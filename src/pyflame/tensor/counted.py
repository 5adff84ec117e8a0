"""Functions whose result's shape may depend on values: where it does, they evaluate what they count."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.tensor.creation import place_of, tensor
from pyflame.tensor.dispatch import FUNCTIONS as OP_FUNCTIONS
from pyflame.tensor.indexing import nonzero
from pyflame.tensor.tensor import Tensor


def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the position that each index names, 0 elsewhere, along a new last axis.

    Without num_classes there are as many as the largest index needs, which evaluates x; under jit that raises.

    >>> pf.one_hot(pf.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if num_classes == -1:
        if not x.dtype.is_int:
            raise DTypeError(f"[one_hot] expected an index of integers but got {x.dtype.name}; cast with .to(pf.int64)")
        if not x.numel():
            raise ArgumentError("[one_hot] expected indices to count the classes of but got none; pass num_classes")
        array = x.numpy()
        if array.min() < 0:
            raise ArgumentError(f"[one_hot] expected indices of at least 0 but got {array.min()}")
        num_classes = int(array.max()) + 1
    return OP_FUNCTIONS["one_hot"](x, num_classes)  # type: ignore[no-any-return]


def repeat_interleave(
    x: Tensor | None = None,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element `repeats` times in place, along an axis or of the flattened tensor.

    A tensor of repeats has one number for each element, which evaluates it; under jit that raises. Alone it gives the
    repeated positions.

    >>> pf.repeat_interleave(pf.tensor([1, 2]), pf.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if x is None or repeats is None:
        return _positions(repeats if x is None else x, None)  # type: ignore[arg-type]
    if not isinstance(repeats, Tensor) or repeats.numel() == 1:
        times = repeats if not isinstance(repeats, Tensor) else int(repeats.item())
        return OP_FUNCTIONS["repeat_interleave"](x, times, dim)  # type: ignore[no-any-return]
    flat = x.reshape(-1) if dim is None else x
    axis = normalize_axis("repeat_interleave", 0 if dim is None else dim, flat.ndim)
    size = flat.shape[axis] if flat.ndim else 1
    if repeats.ndim > 1 or repeats.numel() != size:
        raise ShapeError(
            f"[repeat_interleave] expected one number of repeats, or a vector of {size}, but got {repeats.shape}"
        )
    return OP_FUNCTIONS["index_select"](flat, axis, _positions(repeats, output_size))  # type: ignore[no-any-return]


def _positions(repeats: Tensor, output_size: int | None) -> Tensor:
    """0 repeats[0] times, 1 repeats[1] times, ..."""
    if not repeats.dtype.is_int or repeats.ndim > 1:
        raise DTypeError(
            f"[repeat_interleave] expected a vector of whole numbers of repeats but got {repeats.dtype.name} of shape "
            f"{repeats.shape}"
        )
    times = repeats.numpy().reshape(-1)
    if times.size and times.min() < 0:
        raise ArgumentError(f"[repeat_interleave] expected repeats of at least 0 but got {times.min()}")
    if output_size is not None and output_size != times.sum():
        raise ArgumentError(f"[repeat_interleave] expected output_size={times.sum()} but got {output_size}")
    return tensor(np.repeat(np.arange(len(times)), times), device=place_of(repeats, None))


def where(condition: Tensor, x: Any = None, y: Any = None) -> Any:
    """x where a condition holds, else y. With the condition alone: where it holds, one tensor per axis; evaluates it.

    >>> pf.where(pf.tensor([True, False]), 1.0, 2.0)
    tensor([1., 2.])
    """
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    return OP_FUNCTIONS["where"](condition, x, y)


def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """This tensor where a condition holds, else another."""
    return OP_FUNCTIONS["where"](condition, self, other)  # type: ignore[no-any-return]


FUNCTIONS = {"where": where_method, "repeat_interleave": repeat_interleave}
