"""LU factorisations of (batches of) matrices, solutions with them, and the exponential of matrices.

NumPy has no LU: elimination with row pivots runs here on the host, column by column over the whole batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.errors import ArgumentError, LinAlgError, ShapeError
from pyflame.tensor.creation import eye, place_of, tensor
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.factorizations import _again, _host, _matrix, solve_triangular
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS
_Array = np.ndarray[Any, Any]


class LUFactor(NamedTuple):
    """Both triangles in one matrix (L without its ones), and the row, from 1, that each row was exchanged with."""

    LU: Tensor
    pivots: Tensor


class LU(NamedTuple):
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle: A = P @ L @ U."""

    P: Tensor
    L: Tensor
    U: Tensor


# --- factors ----------------------------------------------------------------------------------------------------------


def _eliminate(a: _Array, pivot: bool) -> tuple[_Array, _Array]:
    """The packed triangles of matrices (..., m, n), and their pivots from 0."""
    out = a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:]).copy()
    batch, (m, n) = np.arange(len(out)), a.shape[-2:]
    pivots = np.tile(np.arange(min(m, n)), (len(out), 1))
    for k in range(min(m, n)):
        if pivot:
            column = out[:, k:, k]
            sizes = np.abs(column.real) + np.abs(column.imag)  # of complex numbers LAPACK compares these, too
            pivots[:, k] = best = k + np.argmax(sizes, axis=1)
            here = out[:, k].copy()
            out[:, k] = out[batch, best]
            out[batch, best] = here
        head = out[:, k, k]
        out[:, k + 1 :, k] /= np.where(head == 0, 1, head)[:, None]  # a column of zeros has no multipliers
        out[:, k + 1 :, k + 1 :] -= out[:, k + 1 :, k, None] * out[:, k, None, k + 1 :]
    return out.reshape(a.shape), pivots.reshape(*a.shape[:-2], min(m, n))


def _order(pivots: _Array, rows: int) -> _Array:
    """Which row of the matrix each row of L @ U is: the exchanges, one after the other."""
    exchanges = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    batch, order = np.arange(len(exchanges)), np.tile(np.arange(rows), (len(exchanges), 1))
    for k in range(exchanges.shape[1]):
        here = order[:, k].copy()
        order[:, k] = order[batch, exchanges[:, k]]
        order[batch, exchanges[:, k]] = here
    return order.reshape(*pivots.shape[:-1], rows)


def _permutation(order: _Array, like: Tensor) -> Tensor:
    """P with P @ L @ U = A: the 1 of column i is in row order[i]."""
    columns = np.eye(order.shape[-1], dtype=like.dtype.numpy)[order]
    return tensor(np.swapaxes(columns, -1, -2), device=place_of(like, None))


def _triangles(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L with its ones, and U."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    return F["tril"](packed[..., :k], -1) + eye(m, k, dtype=packed.dtype), F["triu"](packed[..., :k, :])


@custom_gradient
def _packed(ordered: Tensor) -> Any:
    """The packed triangles of matrices whose rows are in order already."""
    out = _host("lu", lambda a: _eliminate(a, pivot=False)[0], ordered, ordered)
    return out, lambda g: _packed_gradient(_again(_packed, out, ordered), g)


def _packed_gradient(packed: Tensor, g: Tensor) -> Tensor:
    # For the leading k rows and columns, A1 = L1 U1: dA1 = L1^-H [tril(L1^H gL, -1) + triu(gU U1^H)] U1^-H.
    # Rows below are L2 = A2 U1^-1 and columns beyond U2 = L1^-1 A2: their gradients reach U1 and L1 too.
    k = min(packed.shape[-2:])
    low, up = _triangles(packed)
    low1, up1, below, beyond = low[..., :k, :], up[..., :k], g[..., k:, :k], g[..., :k, k:]
    square = g[..., :k, :k]
    of_low = low1.mH @ F["tril"](square, -1) - beyond @ up[..., k:].mH
    of_up = F["triu"](square) @ up1.mH - low[..., k:, :].mH @ below
    inner = F["cat"]([F["tril"](of_low, -1) + F["triu"](of_up), beyond], -1)
    right = solve_triangular(low1.mH, inner, upper=True, unitriangular=True)  # L1^-H
    lower = F["cat"]([right[..., :k], below], -2)
    left = solve_triangular(up1, lower.mH, upper=True).mH  # U1^-H
    return left if right.shape[-1] == k else F["cat"]([left, right[..., k:]], -1)


def _factor(op: str, a: Tensor, pivot: bool) -> tuple[Tensor, _Array]:
    """The packed triangles, and the pivots from 0."""
    if pivot not in (True, False):
        raise ArgumentError(f"[{op}] expected pivot to be True or False but got {pivot!r}")
    pivots = _eliminate(_matrix(op, a).detach().numpy(), pivot)[1]
    order = tensor(_order(pivots, a.shape[-2])[..., None], device=place_of(a, None))
    return _packed(F["take_along_axis"](a, order, -2)), pivots


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """Both triangles of A = P @ L @ U in one matrix, and the pivots, from 1. Evaluates A.

    >>> pf.linalg.lu_factor(pf.tensor([[1.0, 2.0], [4.0, 4.0]])).pivots
    tensor([2, 2], dtype=pyflame.int32)
    """
    packed, pivots = _factor("lu_factor", A, pivot)
    if A.numel() and not np.all(np.diagonal(packed.detach().numpy(), axis1=-2, axis2=-1)):
        raise LinAlgError("[lu_factor] expected a matrix that can be solved with but got 0 on U's diagonal; use lu")
    return LUFactor(packed, tensor((pivots + 1).astype(np.int32), device=place_of(A, None)))


def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle: A = P @ L @ U. Evaluates A.

    >>> pf.linalg.lu(pf.tensor([[1.0, 2.0], [4.0, 4.0]])).U
    tensor([[4., 4.],
            [0., 1.]])
    """
    packed, pivots = _factor("lu", A, pivot)
    return LU(_permutation(_order(pivots, A.shape[-2]), A), *_triangles(packed))


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A @ X = B, or X @ A = B if not `left`, from what lu_factor gave; with `adjoint` for A.mH.

    >>> factor = pf.linalg.lu_factor(pf.tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> pf.linalg.lu_solve(*factor, pf.tensor([[2.0], [4.0]]))
    tensor([[1.],
            [1.]])
    """
    packed = _matrix("lu_solve", LU, square=True)
    if not pivots.dtype.is_int or pivots.shape != packed.shape[:-1]:
        raise ShapeError(f"[lu_solve] expected pivots of shape {packed.shape[:-1]} but got {pivots.shape}")
    if not left:  # X A = B is A^H X^H = B^H
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    p = _permutation(_order(pivots.numpy() - 1, packed.shape[-1]), packed)
    if adjoint:  # A^H = U^H L^H P^T
        y = solve_triangular(packed.mH, B, upper=False)
        return p @ solve_triangular(packed.mH, y, upper=True, unitriangular=True)
    y = solve_triangular(packed, p.mT @ B, upper=False, unitriangular=True)
    return solve_triangular(packed, y, upper=True)


# --- the exponential --------------------------------------------------------------------------------------------------

_DEGREE = 18  # of Taylor's polynomial: what it lacks is 1 / 19! < 2^-56 for norms up to 1


def matrix_exp(A: Tensor) -> Tensor:
    """e to the power of square matrices. Evaluates their norms.

    >>> pf.linalg.matrix_exp(pf.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    A = _matrix("matrix_exp", A, square=True)
    norms = np.abs(A.detach().numpy()).sum(-2).max(-1, initial=0.0)
    # e^A = (e^(A / 2^s))^(2^s), with an s for each matrix: one that is too large costs digits
    halvings = np.where(np.isfinite(norms), np.ceil(np.log2(np.maximum(norms, 1.0))), 0.0)[..., None, None]
    scale = tensor(np.exp2(-halvings).astype(A.dtype.real.numpy), device=place_of(A, None))
    x, one = A * scale, eye(A.shape[-1], dtype=A.dtype)
    out = one + x / _DEGREE
    for k in range(_DEGREE - 1, 0, -1):
        out = one + x @ out / k
    for k in range(int(halvings.max(initial=0.0))):
        more = tensor(halvings > k, device=place_of(A, None))
        out = F["where"](more, out @ out, out)
    return out
