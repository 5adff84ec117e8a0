"""Rows of a table by index, one by one or summed up in bags."""

from __future__ import annotations

from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.ops import F
from pyflame.nn.parameter import settle
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, full, place_of, zeros
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.gradients import no_grad


def _dense(op: str, sparse: bool) -> None:
    if sparse:
        raise ArgumentError(f"[{op}] expected sparse=False but got True; gradients are dense tensors here")


def _counts(indices: Tensor, rows: int) -> Tensor:
    """How often each row is asked for."""
    place = place_of(indices, None)
    flat = indices.reshape(-1)
    return F["index_add"](zeros(rows, device=place), 0, flat, full(flat.shape, 1.0, device=place))


def _renormed(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are asked for down to a norm of at most max_norm, in place."""
    with no_grad():
        norms = F["norm"](weight, norm_type, 1, True)
        used = _counts(indices, weight.shape[0]).unsqueeze(1) > 0.0
        factor = F["where"](used & (norms > max_norm), max_norm / (norms + 1e-7), 1.0)
        weight.copy_(weight * factor)
    settle([weight])


@custom_gradient
def _divided_gradient(rows: Tensor, often: Tensor) -> Any:
    return rows, lambda g: ((g / often).to(rows.dtype), None)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` at `input`. The row at `padding_idx` gets no gradient.

    `max_norm` scales longer rows down in place; `scale_grad_by_freq` divides a row's gradient by how often it is used.

    >>> nn.functional.embedding(pf.tensor([1, 0]), pf.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[3., 4.],
            [1., 2.]])
    """
    _dense("embedding", sparse)
    if max_norm is not None:
        _renormed(weight, input, max_norm, norm_type)
    rows: Tensor = F["embedding"](weight, input, padding_idx)
    if not scale_grad_by_freq:
        return rows
    return _divided_gradient(rows, F["take"](_counts(input, weight.shape[0]), input, 0).unsqueeze(-1))  # type: ignore[no-any-return]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or maximum of several rows: (bags, n) indices, or a list of them with the offset of each bag.

    >>> table = pf.tensor([[1.0], [2.0], [4.0]])
    >>> nn.functional.embedding_bag(pf.tensor([0, 1, 2]), table, pf.tensor([0, 1]), mode="sum")
    tensor([[1.],
            [6.]])
    """
    if mode not in ("sum", "mean", "max"):
        raise ArgumentError(f"[embedding_bag] expected mode 'sum', 'mean' or 'max' but got {mode!r}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ArgumentError(
            "[embedding_bag] expected per_sample_weights of the indices' shape and mode='sum' but got "
            f"{per_sample_weights.shape} for {input.shape} and mode={mode!r}"
        )
    if input.ndim != (1 if offsets is not None else 2):
        wanted = "(bags, n) without offsets" if offsets is None else "(n,) with offsets"
        raise ShapeError(f"[embedding_bag] expected indices of shape {wanted} but got {input.shape}")
    padding_idx = padding_idx if padding_idx is None else padding_idx % weight.shape[0]
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(-1)
    place = place_of(input, None)
    if offsets is None:
        bags, n = input.shape
        bag = arange(bags, device=place).repeat_interleave(n)
        rows, input = rows.reshape(bags * n, -1), input.reshape(-1)
    else:
        bags = offsets.shape[0] - include_last_offset
        bag = F["searchsorted"](offsets[:bags], arange(input.shape[0], device=place), right=True) - 1
    return _reduced(rows, bag, bags, mode, None if padding_idx is None else input != padding_idx)


def _reduced(rows: Tensor, bag: Tensor, bags: int, mode: str, counted: Tensor | None) -> Tensor:
    """Rows of the same bag as one row. An empty bag gives zeros."""
    columns = rows.shape[1]
    empty = zeros(bags, columns, dtype=rows.dtype, device=place_of(rows, None))
    if mode == "max":
        low = rows if counted is None else F["where"](counted.unsqueeze(1), rows, float("-inf"))
        index = bag.unsqueeze(1).expand(-1, columns)
        best: Tensor = F["scatter_reduce"](empty, 0, index, low, "amax", False)
        return best if counted is None else F["where"](best == float("-inf"), 0.0, best)
    weights = full(bag.shape, 1.0, dtype=rows.dtype, device=place_of(rows, None))
    if counted is not None:
        weights = F["where"](counted, weights, 0.0)
        rows = rows * weights.unsqueeze(1)
    total: Tensor = F["index_add"](empty, 0, bag, rows)
    if mode == "sum":
        return total
    count = F["index_add"](zeros(bags, dtype=rows.dtype, device=place_of(rows, None)), 0, bag, weights)
    return total / F["clamp"](count, 1.0).unsqueeze(1)
