"""Triangles and Cholesky factors inside of the graph: unrolled, one step per dimension, so that gradients flow through
them and pf.jit takes them; they are meant for up to some hundred dimensions.
"""

from __future__ import annotations

import numpy as np

from pyflame.distributions.distribution import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import eye, tensor


def cholesky(matrix: Tensor) -> Tensor:
    """The lower triangle L with L L^T = matrix, of (..., n, n)."""
    rest = (matrix + matrix.mT) * 0.5  # so that gradients are symmetric, as the matrix is
    columns: list[Tensor] = []
    for j in range(matrix.shape[-1]):
        column = rest[..., :, 0] / F["sqrt"](rest[..., :1, 0])
        columns.append(F["pad"](column, (j, 0)))
        below = column[..., 1:]
        rest = rest[..., 1:, 1:] - below.unsqueeze(-1) * below.unsqueeze(-2)
    return F["stack"](columns, -1)


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """X with lower @ X = right, of (..., n, n) and (..., n, k), whose batches broadcast."""
    rows: list[Tensor] = []
    for i in range(lower.shape[-1]):
        row = right[..., 0, :] / lower[..., i, i].unsqueeze(-1)
        rows.append(row)
        right = right[..., 1:, :] - lower[..., i + 1 :, i].unsqueeze(-1) * row.unsqueeze(-2)
    return F["stack"](rows, -2)


def squared_distance(lower: Tensor, away: Tensor) -> Tensor:
    """away^T (L L^T)^-1 away, of (..., n, n) and (..., n)."""
    return (solve_lower(lower, away.unsqueeze(-1)) ** 2).sum((-2, -1))


def inverse_lower(lower: Tensor) -> Tensor:
    """L^-1."""
    return solve_lower(lower, eye(lower.shape[-1], dtype=lower.dtype, device=lower.device))


def half_log_det(lower: Tensor) -> Tensor:
    """log det L, half of that of L L^T."""
    return F["log"](F["diagonal"](lower, 0, -2, -1)).sum(-1)


def lower_triangle(matrix: Tensor, diagonal: int = 0) -> Tensor:
    """The elements up to a diagonal, row by row: (..., n, n) -> (..., m)."""
    n = matrix.shape[-1]
    rows, columns = np.tril_indices(n, diagonal)
    where = tensor(rows * n + columns, dtype="int64", device=matrix.device)
    return F["index_select"](matrix.flatten(-2), -1, where)


def from_lower_triangle(vector: Tensor, n: int, diagonal: int = 0) -> Tensor:
    """Its inverse: (..., m) -> (..., n, n), with zeros above the diagonal."""
    rows, columns = np.tril_indices(n, diagonal)
    where = np.full((n, n), len(rows))  # the element after the last one, a zero
    where[rows, columns] = np.arange(len(rows))
    padded = F["pad"](vector, (0, 1))
    index = tensor(where.reshape(-1), dtype="int64", device=vector.device)
    return F["index_select"](padded, -1, index).reshape(*vector.shape[:-1], n, n)
