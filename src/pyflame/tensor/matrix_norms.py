"""Norms and products of torch.linalg that are made of other ops: nothing is evaluated, but for singular values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import inf
from typing import Any

from pyflame.core.checks import natural
from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.shape import normalize_axis
from pyflame.tensor.creation import eye
from pyflame.tensor.factorizations import F, inv, svdvals
from pyflame.tensor.tensor import Tensor


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """The norm of order `ord` of the vectors along axes, or of all elements.

    >>> pf.linalg.vector_norm(pf.tensor([3.0, -4.0]), 1)
    tensor(7.)
    """
    return F["norm"](x, ord, dim, keepdim, dtype)


def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: object = None
) -> Tensor:
    """The norm of matrices: 'fro', 'nuc', 1, -1, inf, -inf (sums of rows or columns), 2, -2 (singular values).

    >>> pf.linalg.matrix_norm(pf.tensor([[1.0, -2.0], [3.0, 4.0]]), 1)
    tensor(6.)
    """
    rows, columns = (normalize_axis("matrix_norm", d, A.ndim) for d in dim)
    if rows == columns or A.ndim < 2:
        raise ShapeError(f"[matrix_norm] expected two different axes but got dim={tuple(dim)} for shape {A.shape}")
    x = A if dtype is None else A.to(dtype=dtype)
    if ord == "fro":
        return F["norm"](x, 2, (rows, columns), keepdim)
    moved = x.movedim((rows, columns), (-2, -1))
    if ord in ("nuc", 2, -2):
        values = svdvals(moved)
        out = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, inf, -inf):
        sums = moved.abs().sum(-2 if abs(ord) == 1 else -1)
        out = sums.amax(-1) if ord > 0 else sums.amin(-1)
    else:
        raise ArgumentError(f"[matrix_norm] expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf as ord but got {ord!r}")
    if keepdim:
        for axis in sorted((rows, columns)):
            out = out.unsqueeze(axis)
    return out


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: object = None) -> Tensor:
    """A vector's or a matrix's norm, as `ord` and `dim` say; of all elements without them.

    >>> pf.linalg.norm(pf.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor(5.)
    """
    several = isinstance(dim, (tuple, list)) and len(dim) == 2
    if ord is not None and (several or (dim is None and A.ndim == 2)):
        return matrix_norm(A, ord, dim if several else (-2, -1), keepdim, dtype=dtype)
    if ord is not None and dim is None and A.ndim != 1:
        raise ShapeError(f"[norm] expected one or two axes for ord={ord!r} without dim but got shape {A.shape}")
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number of matrices: the norm times that of the inverse. Evaluates them.

    >>> pf.linalg.cond(pf.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor(2.)
    """
    if p in (None, 2, -2):
        values = svdvals(A)
        return values[..., 0] / values[..., -1] if p != -2 else values[..., -1] / values[..., 0]
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def matrix_power(A: Tensor, n: int) -> Tensor:
    """The product of n equal square matrices; of their inverses for n below 0.

    >>> pf.linalg.matrix_power(pf.tensor([[2.0, 0.0], [0.0, 1.0]]), 3)
    tensor([[8., 0.],
            [0., 1.]])
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise ShapeError(f"[matrix_power] expected square matrices but got shape {A.shape}")
    if n < 0:
        return matrix_power(inv(A), -n)
    bits, square = natural("matrix_power", "n", n), A
    out: Tensor | None = None
    while bits:
        if bits & 1:
            out = square if out is None else out @ square
        bits >>= 1
        square = square @ square if bits else square
    return out if out is not None else eye(A.shape[-1], dtype=A.dtype).expand(*A.shape).clone()


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, from left to right; the first and the last may be vectors.

    >>> pf.linalg.multi_dot([pf.ones(2, 3), pf.ones(3, 4), pf.ones(4)]).shape
    (2,)
    """
    if len(tensors) < 2:
        raise ArgumentError(f"[multi_dot] expected at least two tensors but got {len(tensors)}")
    return functools.reduce(lambda a, b: a @ b, tensors)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Inner products of vectors along an axis, of which the first is conjugated.

    >>> pf.linalg.vecdot(pf.ones(2, 3), pf.ones(2, 3))
    tensor([3., 3.])
    """
    return (x.conj() * y).sum(dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Diagonals of matrices.

    >>> pf.linalg.diagonal(pf.eye(2))
    tensor([1., 1.])
    """
    return F["diagonal"](A, offset, dim1, dim2)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis.

    >>> pf.linalg.cross(pf.tensor([1.0, 0.0, 0.0]), pf.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    return F["cross"](input, other, dim)
