"""torch.sparse's functions of sparse tensors: sums, softmax and addmm. Gradients reach the values.

Which elements belong together is found on the host, from the positions, as `coalesce` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.core.errors import DTypeError
from pyflame.core.shape import normalize_axis
from pyflame.tensor.creation import full, place_of, tensor, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.sparse import SparseTensor, mm
from pyflame.tensor.tensor import Tensor

__all__ = ["addmm", "log_softmax", "softmax", "sum"]

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


def _checked(op: str, input: Any) -> SparseTensor:
    if not isinstance(input, SparseTensor):
        raise DTypeError(f"[sparse.{op}] expected a sparse tensor but got {type(input).__name__}; use pf.{op}")
    return input


def sum(input: SparseTensor, dim: int | Sequence[int] | None = None, dtype: object = None) -> Any:
    """The sum of all elements, or along axes: a sparse tensor, unless no sparse axis is left.

    >>> pf.sparse.sum(pf.sparse_coo_tensor([[0, 1, 1], [1, 0, 1]], [2.0, 3.0, 4.0], (2, 2)), 1).to_dense()
    tensor([2., 7.])
    """
    x = _checked("sum", input)
    values = x._elements if dtype is None else x._elements.to(dtype=as_dtype(dtype))
    if dim is None:
        return values.sum()
    sparse = x._places.shape[0]
    axes = {normalize_axis("sparse.sum", d, x.ndim) for d in ((dim,) if isinstance(dim, int) else dim)}
    dense = tuple(a - sparse + 1 for a in sorted(axes) if a >= sparse)
    values = values.sum(dense) if dense else values
    left = [a for a in range(sparse) if a not in axes]
    if not left:
        return values.sum(0)
    places = F["stack"]([x._places[a] for a in left])
    shape = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    return SparseTensor(places, values, shape).coalesce()


def addmm(mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), with a sparse mat1.

    >>> pf.sparse.addmm(pf.ones(2, 1), pf.eye(2).to_sparse(), pf.ones(2, 1), alpha=2.0)
    tensor([[3.],
            [3.]])
    """
    return mat * beta + mm(_checked("addmm", mat1), mat2) * alpha


def _shifted(op: str, input: Any, dim: int, dtype: object) -> tuple[SparseTensor, Tensor, Callable[[Tensor], Tensor]]:
    """A sparse tensor in order, its values less the largest of their line along an axis, and a function that gives each
    element the sum over its line. Only elements that are there count."""
    x = _checked(op, input).coalesce()
    axis = normalize_axis(f"sparse.{op}", dim, x.ndim)
    values = x._elements if dtype is None else x._elements.to(dtype=as_dtype(dtype))
    sparse = x._places.shape[0]
    if axis >= sparse:
        along = axis - sparse + 1
        return x, values - values.detach().amax(along, keepdims=True), lambda v: v.sum(along, keepdims=True)
    others = np.delete(x._places.numpy(), axis, 0)
    _, line = np.unique(others, axis=1, return_inverse=True)
    if not len(others):
        line = np.zeros(x._nnz(), np.int64)
    place = place_of(values, None)
    lines = tensor(line.reshape(-1).astype(np.int64), device=place)
    shape = (int(line.max(initial=-1)) + 1, *values.shape[1:])
    index = lines.reshape(-1, *[1] * (values.ndim - 1)).expand(*values.shape)
    start = full(shape, float("-inf"), dtype=values.dtype, device=place)
    largest = F["scatter_reduce"](start, 0, index, values.detach(), "amax")

    def summed(v: Tensor) -> Tensor:
        total = F["index_add"](zeros(*shape, dtype=v.dtype, device=place), 0, lines, v)
        return F["index_select"](total, 0, lines)

    return x, values - F["index_select"](largest, 0, lines), summed


def softmax(input: SparseTensor, dim: int, *, dtype: object = None) -> SparseTensor:
    """Softmax along an axis over the elements that are there, as if all others were -inf.

    >>> pf.sparse.softmax(pf.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3)), 1).values()
    tensor([0.5000, 0.5000])
    """
    x, shifted, summed = _shifted("softmax", input, dim, dtype)
    powers = shifted.exp()
    return x._with(powers / summed(powers))


def log_softmax(input: SparseTensor, dim: int, *, dtype: object = None) -> SparseTensor:
    """The logarithm of `softmax`.

    >>> pf.sparse.log_softmax(pf.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3)), 1).values()
    tensor([-0.6931, -0.6931])
    """
    x, shifted, summed = _shifted("log_softmax", input, dim, dtype)
    return x._with(shifted - summed(shifted.exp()).log())
