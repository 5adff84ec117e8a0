"""More of torch.linalg: least squares, equations over tensors, and forms that report what others raise for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import int64
from pyflame.core.errors import ArgumentError, LinAlgError, ShapeError
from pyflame.tensor.creation import empty, eye, ones_like, place_of, tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.factorizations import _matrix, cholesky, inv, matrix_rank, pinv, solve, svdvals
from pyflame.tensor.lu import _eliminate, _factor
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


class Lstsq(NamedTuple):
    """Solutions, the squares of what is left, ranks, and singular values where the driver has them."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class CholeskyEx(NamedTuple):
    """A triangle, and the order of the first minor that is not positive, or 0."""

    L: Tensor
    info: Tensor


class InvEx(NamedTuple):
    """An inverse, and which pivot is 0, from 1, or 0."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """A solution, and which pivot is 0, from 1, or 0."""

    result: Tensor
    info: Tensor


class LUFactorEx(NamedTuple):
    """Both triangles in one matrix, the pivots from 1, and which diagonal element of U is 0, from 1, or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


_DRIVERS = (None, "gels", "gelsy", "gelsd", "gelss")


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Lstsq:
    """X with the smallest |A @ X - B|, and of several the smallest. Evaluates A.

    The drivers of LAPACK differ in what else they give: `gelsd` and `gelss` have singular values, `gels` no rank, and
    `gelsy`, which is the default, no residuals.

    >>> pf.linalg.lstsq(pf.tensor([[1.0], [1.0]]), pf.tensor([[1.0], [3.0]])).solution
    tensor([[2.0000]])
    """
    A = _matrix("lstsq", A)
    if driver not in _DRIVERS:
        raise ArgumentError(f"[lstsq] expected a driver of {_DRIVERS} but got {driver!r}")
    column = B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]
    right = B.unsqueeze(-1) if column else B
    if right.ndim < 2 or right.shape[-2] != A.shape[-2] or right.dtype is not A.dtype:
        raise ShapeError(
            f"[lstsq] expected right sides of {A.dtype.name} with {A.shape[-2]} rows but got {B.dtype.name} {B.shape}"
        )
    m, n = A.shape[-2:]
    solution = pinv(A, rtol=rcond) @ right
    singular = svdvals(A.detach())
    rank = matrix_rank(A.detach(), rtol=rcond)
    residuals, none = empty(0, dtype=A.dtype.real), empty(0, dtype=A.dtype.real)
    if m > n and driver not in (None, "gelsy") and bool((rank == n).all()):
        off = A @ solution - right
        residuals = (off * off.conj()).real.sum(-2)
    return Lstsq(
        solution.squeeze(-1) if column else solution,
        residuals,
        empty(0, dtype=int64) if driver == "gels" else rank,
        singular if driver in ("gelsd", "gelss") else none,
    )


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse for tensordot over the first `ind` axes of A.

    >>> pf.linalg.tensorinv(pf.eye(6).reshape(2, 3, 6), ind=2).shape
    (6, 2, 3)
    """
    if not 0 < ind <= A.ndim:
        raise ArgumentError(f"[tensorinv] expected ind between 1 and {A.ndim} but got {ind}")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ShapeError(f"[tensorinv] expected as many elements before axis {ind} as behind but got shape {A.shape}")
    return inv(A.reshape(math.prod(rows), -1)).reshape(*columns, *rows)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` are axes of A that are moved to its end first.

    >>> pf.linalg.tensorsolve(pf.eye(6).reshape(2, 3, 6), pf.ones(2, 3)).shape
    (6,)
    """
    if dims is not None:
        A = F["movedim"](A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel() or A.numel() != B.numel() * math.prod(shape):
        raise ShapeError(f"[tensorsolve] expected an A that maps to the shape {B.shape} but got shape {A.shape}")
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(shape)


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element, along a new last axis.

    >>> pf.linalg.vander(pf.tensor([1, 2, 3]))
    tensor([[1, 1, 1],
            [1, 2, 4],
            [1, 3, 9]])
    """
    if not x.ndim and N is None:
        raise ShapeError("[vander] expected at least one axis, or an N, but got a 0-d tensor")
    x = x if x.ndim else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count < 1:
        raise ArgumentError(f"[vander] expected an N of at least 1 but got {N}")
    steps = F["expand"](x.unsqueeze(-1), (*x.shape, count - 1))
    ones = ones_like(x.unsqueeze(-1))
    if x.dtype.is_complex:  # cumprod is not defined for them
        return F["cat"]([F["prod"](steps[..., :n], -1, True) for n in range(count)], -1)
    return F["cumprod"](F["cat"]([ones, steps], -1), -1).to(x.dtype)


# --- what does not raise ----------------------------------------------------------------------------------------------


def _reported(op: str, info: np.ndarray[Any, Any], like: Tensor, check: bool) -> tuple[Tensor, Tensor]:
    """Where there is a result, with two axes for those of a matrix; and the numbers, as a tensor."""
    if check and info.any():
        raise LinAlgError(f"[{op}] expected matrices that it is defined for but got one that is not: info {info.max()}")
    place = place_of(like, None)
    return tensor(info == 0, device=place)[..., None, None], tensor(info.astype(np.int32), device=place)


def _zero_pivots(packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which diagonal element of U is 0, from 1; 0 where none is."""
    zero = np.diagonal(packed, axis1=-2, axis2=-1) == 0
    return np.where(zero.any(-1), zero.argmax(-1) + 1, 0) if zero.shape[-1] else np.zeros(zero.shape[:-1], int)


def _regular(op: str, A: Tensor, check: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The matrices with others in place of those that cannot be inverted, where that was not needed, and the report."""
    A = _matrix(op, A, square=True)
    fine, info = _reported(op, _zero_pivots(_eliminate(A.detach().numpy(), True)[0]), A, check)
    return F["where"](fine, A, eye(A.shape[-1], dtype=A.dtype)), fine, info


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """Inverses, NaN where there is none, and which pivot was 0, from 1.

    >>> pf.linalg.inv_ex(pf.zeros(2, 2)).info
    tensor(1, dtype=pyflame.int32)
    """
    regular, fine, info = _regular("inv_ex", A, check_errors)
    return InvEx(F["where"](fine, inv(regular), math.nan), info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """Solutions, NaN where there is none, and which pivot was 0, from 1.

    >>> pf.linalg.solve_ex(pf.zeros(2, 2), pf.ones(2, 1)).info
    tensor(1, dtype=pyflame.int32)
    """
    regular, fine, info = _regular("solve_ex", A, check_errors)
    out = solve(regular, B, left=left)
    return SolveEx(F["where"](fine if out.ndim >= A.ndim else fine[..., 0], out, math.nan), info)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """Cholesky triangles, NaN where there is none, and the order of the first minor that is not positive.

    >>> pf.linalg.cholesky_ex(pf.tensor([[1.0, 0.0], [0.0, -1.0]])).info
    tensor(2, dtype=pyflame.int32)
    """
    A = _matrix("cholesky_ex", A, square=True)
    flat = A.detach().numpy().reshape(math.prod(A.shape[:-2]), *A.shape[-2:])
    info = np.array([_bad_minor(a) for a in flat], np.int64).reshape(A.shape[:-2])
    fine, told = _reported("cholesky_ex", info, A, check_errors)
    regular = F["where"](fine, A, eye(A.shape[-1], dtype=A.dtype))
    return CholeskyEx(F["where"](fine, cholesky(regular, upper=upper), math.nan), told)


def _bad_minor(a: np.ndarray[Any, Any]) -> int:
    """0 for a matrix that LAPACK factors, which alone knows that of one that is nearly singular."""
    try:
        np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return _first_bad_minor(a) or len(a)
    return 0


def _first_bad_minor(a: np.ndarray[Any, Any]) -> int:
    low = np.tril(a)
    for k in range(len(a)):  # one column after the other, as LAPACK reports it
        head = (low[k, k] - low[k, :k] @ low[k, :k].conj()).real
        if not head > 0:
            return k + 1
        low[k, k] = np.sqrt(head)
        low[k + 1 :, k] = (low[k + 1 :, k] - low[k + 1 :, :k] @ low[k, :k].conj()) / low[k, k]
    return 0


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """As lu_factor, with which diagonal element of U is 0, from 1, instead of an error.

    >>> pf.linalg.lu_factor_ex(pf.zeros(2, 2)).info
    tensor(1, dtype=pyflame.int32)
    """
    packed, pivots = _factor("lu_factor_ex", A, pivot)
    _, info = _reported("lu_factor_ex", _zero_pivots(packed.detach().numpy()), A, check_errors)
    return LUFactorEx(packed, tensor((pivots + 1).astype(np.int32), device=place_of(A, None)), info)
