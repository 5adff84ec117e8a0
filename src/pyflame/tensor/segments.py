"""Reductions of segments, stretches of an axis that lie one behind the other, and the row pointers that tell them."""

from __future__ import annotations

from typing import Any

from pyflame.core.dtype import int32, int64
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.tensor.creation import arange, full, ones_like, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor

_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
_REDUCE = {"mean": "sum", "max": "amax", "min": "amin"}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """The sum, mean, max, min or prod of each segment of an axis: `lengths` says how long each is, or `offsets` where
    each begins and the last one ends. `unsafe`: that the lengths add up is not looked at, which would evaluate them.

    >>> pf.segment_reduce(pf.arange(5.0), "sum", lengths=pf.tensor([2, 0, 3]))
    tensor([1., 0., 9.])
    """
    if reduce not in _NEUTRAL:
        raise ArgumentError(f"[segment_reduce] expected reduce to be one of {sorted(_NEUTRAL)} but got {reduce!r}")
    if (lengths is None) == (offsets is None) or indices is not None:
        raise ArgumentError("[segment_reduce] expected either lengths or offsets")
    if lengths is not None:
        ends, counts = FUNCTIONS["cumsum"](lengths, -1), lengths
    elif offsets is not None:
        ends, counts = offsets[..., 1:], offsets[..., 1:] - offsets[..., :-1]
    axis, size = axis % data.ndim, data.shape[axis]
    if ends.ndim != axis + 1 or ends.shape[:-1] != data.shape[:axis]:
        raise ShapeError(
            f"[segment_reduce] expected segments of shape {(*data.shape[:axis], 'n')} for axis {axis} but got "
            f"{ends.shape}"
        )
    if not unsafe and lengths is not None and not bool((ends[..., -1] == size).all()):
        raise ShapeError(f"[segment_reduce] expected lengths that add up to {size} but got {lengths.tolist()}")
    places = arange(size).expand((*data.shape[:axis], size))
    which = FUNCTIONS["searchsorted"](ends.contiguous(), places.contiguous(), right=True)
    behind = [1] * (data.ndim - axis - 1)
    index = which.reshape((*which.shape, *behind)).expand(data.shape)
    shape = (*data.shape[:axis], counts.shape[-1], *data.shape[axis + 1 :])
    start = full(shape, _NEUTRAL[reduce] if initial is None else initial, dtype=data.dtype)
    out: Tensor = FUNCTIONS["scatter_reduce"](start, axis, index, data, _REDUCE.get(reduce, reduce))
    if reduce != "mean":
        return out
    each = counts.reshape((*counts.shape, *behind)).to(dtype=data.dtype)
    return out / each if initial is None else FUNCTIONS["where"](each > 0, out / each, out)


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Sorted row numbers as pointers: where the elements of each row begin, and where the last row's end."""
    rows = input.to(dtype=int64)
    counts = FUNCTIONS["scatter_add"](zeros(size + 1, dtype=int64), 0, rows + 1, ones_like(rows))
    pointers: Tensor = FUNCTIONS["cumsum"](counts, 0)
    return pointers.to(dtype=int32 if out_int32 else int64)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Row pointers and columns as (2, n) positions; with `transpose` the columns come first."""
    places = arange(col_indices.shape[0])
    rows = FUNCTIONS["searchsorted"](crow_indices[1:].contiguous(), places, right=True)
    pair = [col_indices, rows] if transpose else [rows, col_indices]
    places_of_all: Tensor = FUNCTIONS["stack"]([part.to(dtype=int32 if out_int32 else int64) for part in pair])
    return places_of_all


_segment_reduce = segment_reduce  # PyTorch has both names
