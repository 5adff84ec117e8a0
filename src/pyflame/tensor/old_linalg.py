"""Linear algebra under PyTorch's names outside of torch.linalg (svd, triangular_solve, lu_unpack, low ranks), products
of Householder's reflections, and eigenvalues of matrices that need not be symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import complex64, complex128, float64
from pyflame.core.errors import ArgumentError, GradientError, ShapeError
from pyflame.core.state import state
from pyflame.tensor import factorizations, random
from pyflame.tensor.creation import empty, eye, place_of, tensor
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.factorizations import QR, _matrix, solve_triangular
from pyflame.tensor.lu import LU, _order, _permutation, _triangles
from pyflame.tensor.solutions import lu_factor_ex
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS
_Array = np.ndarray[Any, Any]


class OldSVD(NamedTuple):
    """Left singular vectors, singular values, and right singular vectors as columns."""

    U: Tensor
    S: Tensor
    V: Tensor


class OldLU(NamedTuple):
    """Both triangles in one matrix, and the pivots, from 1."""

    LU_data: Tensor
    pivots: Tensor


class TriangularSolve(NamedTuple):
    """A solution, and the matrix it was solved with."""

    solution: Tensor
    cloned_coefficient: Tensor


class Eig(NamedTuple):
    """Eigenvalues, in no order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


# --- eigenvalues ------------------------------------------------------------------------------------------------------


@custom_gradient
def _eig(a: Tensor) -> Any:
    try:
        values, vectors = np.linalg.eig(a.detach().numpy())
    except np.linalg.LinAlgError as error:
        raise ArgumentError(f"[eig] expected finite matrices but got others: {error}") from None
    dtype = complex128 if a.dtype in (float64, complex128) else complex64
    found = tuple(tensor(v.astype(dtype.numpy), device=place_of(a, None)) for v in (values, vectors))

    def backward(gl: Tensor, gv: Tensor) -> Any:
        if state.grad_enabled:
            raise GradientError("[eig] expected one derivative, since there is no second here; use eigh if symmetric")
        found = _eig_gradient(values, vectors, gl.numpy(), gv.numpy())
        found = found if a.dtype.is_complex else np.real(found)
        return tensor(found.astype(a.dtype.numpy), device=place_of(a, None))

    return found, backward


def _eig_gradient(values: _Array, vectors: _Array, gl: _Array, gv: _Array) -> _Array:
    """V^-H (diag(gL) + (V^H gV - V^H V diag(re(V^H gV))) / conj(l_j - l_i)) V^H, of real matrices its real part.

    Vectors have norm 1 and any phase, so only functions that do not depend on phases have a gradient.
    """
    turned = np.conj(np.swapaxes(vectors, -1, -2))
    inner = turned @ gv
    inner = inner - turned @ vectors * np.real(np.diagonal(inner, axis1=-2, axis2=-1))[..., None, :]
    one = np.eye(values.shape[-1])
    inner = inner * (1 - one) / (np.conj(values[..., None, :] - values[..., :, None]) + one) + gl[..., None, :] * one
    return np.linalg.solve(turned, inner @ turned)


def eig(A: Tensor) -> Eig:
    """Eigenvalues and eigenvectors of square matrices, complex. Evaluates them.

    >>> pf.linalg.eig(pf.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues
    tensor([0.+1.j, 0.-1.j])
    """
    return Eig(*_eig(_matrix("eig", A, square=True)))


def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex. Evaluates them."""
    return eig(A).eigenvalues


# --- reflections ------------------------------------------------------------------------------------------------------


def householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of reflections 1 - tau v v^T, whose vectors v are below the diagonal of input.

    >>> pf.linalg.householder_product(pf.tensor([[0.0], [1.0]]), pf.tensor([1.0]))
    tensor([[ 0.],
            [-1.]])
    """
    a = _matrix("householder_product", input)
    m, n = a.shape[-2:]
    if m < n or tau.shape[:-1] != a.shape[:-2] or tau.shape[-1:] > (n,) or tau.dtype is not a.dtype:
        raise ShapeError(
            f"[householder_product] expected matrices (..., m, n) with m >= n and at most n factors for each but got "
            f"{a.shape} and {tau.shape}"
        )
    count = tau.shape[-1]
    vectors = F["tril"](a[..., :count], -1) + eye(m, count, dtype=a.dtype)
    out = F["expand"](eye(m, n, dtype=a.dtype), a.shape)
    for k in reversed(range(count)):
        v = vectors[..., k : k + 1]
        out = out - tau[..., k, None, None] * (v @ (v.mH @ out))
    return out


orgqr = householder_product


class Geqrf(NamedTuple):
    """Reflectors below the diagonal with R on and above it, and the reflectors' scales."""

    a: Tensor
    tau: Tensor


def _reflectors(a: _Array) -> tuple[_Array, _Array]:
    packed, tau = np.linalg.qr(a, mode="raw")
    return np.swapaxes(packed, -1, -2), tau


def geqrf(input: Tensor) -> Geqrf:
    """LAPACK's form of the QR factorisation, which householder_product takes. Evaluates its argument; no gradient.

    >>> a, tau = pf.geqrf(pf.tensor([[3.0, 1.0], [4.0, 2.0]]))
    >>> pf.allclose(pf.linalg.householder_product(a, tau) @ a.triu(), pf.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-5)
    True
    """
    a = _matrix("geqrf", input, real=True)
    return Geqrf(*factorizations._host("geqrf", _reflectors, a, a))


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """`other` times the whole orthogonal matrix of geqrf's reflectors, from the left or the right.

    >>> a, tau = pf.geqrf(pf.eye(2))
    >>> pf.ormqr(a, tau, pf.ones(2, 1)).abs().tolist()
    [[1.0], [1.0]]
    """
    a = _matrix("ormqr", input, real=True)
    rows, columns = a.shape[-2:]
    # reflectors without a scale change nothing: with them the product has all its columns
    wide = a if columns >= rows else F["pad"](a, (0, rows - columns))
    whole = householder_product(wide[..., :rows], F["pad"](tau, (0, rows - tau.shape[-1])))
    q = whole.mT if transpose else whole
    if other.shape[-2 if left else -1] != rows:
        raise ShapeError(f"[ormqr] expected {rows} {'rows' if left else 'columns'} but got shape {other.shape}")
    return q @ other if left else other @ q


# --- old names --------------------------------------------------------------------------------------------------------


def qr(input: Tensor, some: bool = True, *, mode: str | None = None) -> QR:
    """input = Q @ R; Q is square unless `some`, which `mode` says in linalg.qr's words. Evaluates it.

    >>> pf.qr(pf.ones(4, 2), some=False).Q.shape
    (4, 4)
    """
    return factorizations.qr(input, mode or ("reduced" if some else "complete"))


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """linalg.cholesky under its older name, which takes `upper` by position, too.

    >>> pf.cholesky(pf.tensor([[4.0, 2.0], [2.0, 2.0]]), True)
    tensor([[2., 1.],
            [0., 1.]])
    """
    return factorizations.cholesky(input, upper=upper)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse, without singular values up to rcond times the largest. Evaluates it.

    >>> pf.pinverse(pf.tensor([[2.0, 0.0], [0.0, 0.5]]), rcond=0.5)[0]
    tensor([0.5000, 0.0000])
    """
    return factorizations.pinv(input, rcond)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """Both triangles of A = P @ L @ U in one matrix, and the pivots; with `get_infos` where U has a first 0, from 1.

    >>> pf.lu(pf.tensor([[1.0, 2.0], [4.0, 4.0]]))[1]
    tensor([2, 2], dtype=pyflame.int32)
    """
    packed, pivots, infos = lu_factor_ex(A, pivot=pivot)
    return (packed, pivots, infos) if get_infos else OldLU(packed, pivots)


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVD:
    """input = U @ diag(S) @ V.T; U and V have as many columns as S unless `some` is False. Evaluates it.

    >>> pf.svd(pf.ones(4, 2)).V.shape
    (2, 2)
    """
    u, s, vh = factorizations.svd(input, not some)
    if not compute_uv:
        return OldSVD(u.detach() * 0, s, vh.detach().mT * 0)
    return OldSVD(u, s, vh.mT)


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """X with A @ X = b for a triangle A, or its transpose; and A.

    >>> pf.triangular_solve(pf.tensor([[2.0]]), pf.tensor([[4.0]])).solution
    tensor([[0.5000]])
    """
    left = A.mT if transpose else A
    out = solve_triangular(left, b, upper=upper is not transpose, unitriangular=unitriangular)
    return TriangularSolve(out, A.clone())


def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """The permutation and the triangles that linalg.lu_factor packed; empty tensors for what is not asked for.

    >>> pf.lu_unpack(*pf.linalg.lu_factor(pf.eye(2))).L.shape
    (2, 2)
    """
    packed = _matrix("lu_unpack", LU_data, real=True)
    none = empty(0, dtype=packed.dtype)
    p = _permutation(_order(LU_pivots.numpy() - 1, packed.shape[-2]), packed) if unpack_pivots else none
    low, up = _triangles(packed) if unpack_data else (none, none)
    return LU(p, low, up)


class Lobpcg(NamedTuple):
    """Eigenvalues, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: None = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> Lobpcg:
    """The k largest or smallest eigenvalues of symmetric matrices with their vectors; with B those of A x = B x lambda.

    All are computed, by eigh, whatever the options of PyTorch's iteration say, and so to the last digits.

    >>> pf.lobpcg(pf.tensor([[2.0, 0.0], [0.0, 5.0]]), 1).eigenvalues
    tensor([5.])
    """
    a = _matrix("lobpcg", A, square=True, real=True)
    count = (1 if X is None else X.shape[-1]) if k is None else k
    if not 1 <= count <= a.shape[-1]:
        raise ArgumentError(f"[lobpcg] expected k from 1 to {a.shape[-1]} but got {count}")
    if B is None:
        values, vectors = factorizations.eigh(a)
    else:  # with B = L L^T, L^-1 A L^-T has the same eigenvalues, and vectors L^T x
        low = factorizations.cholesky(_matrix("lobpcg", B, square=True, real=True))
        half = solve_triangular(low, a, upper=False)
        values, turned = factorizations.eigh(solve_triangular(low, half.mT, upper=False))
        vectors = solve_triangular(low.mT, turned, upper=True)
    if largest is None or largest:
        values, vectors = F["flip"](values, -1), F["flip"](vectors, -1)
    return Lobpcg(values[..., :count], vectors[..., :count])


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> OldSVD:
    """The q largest singular values and their vectors, about, from products with random matrices.

    >>> pf.svd_lowrank(pf.ones(8, 6), q=2).S.shape
    (2,)
    """
    a = _matrix("svd_lowrank", A, real=True) if M is None else _matrix("svd_lowrank", A, real=True) - M
    wanted = 6 if q is None else q
    if not 0 < wanted <= min(a.shape[-2:]):
        raise ArgumentError(f"[svd_lowrank] expected a q between 1 and {min(a.shape[-2:])} but got {q}")
    # a basis of what a maps most of a random space to (Halko, Martinsson and Tropp, algorithm 4.4)
    basis = factorizations.qr(a @ random.randn(*a.shape[:-2], a.shape[-1], wanted, dtype=a.dtype)).Q
    for _ in range(2 if niter is None else niter):
        basis = factorizations.qr(a @ factorizations.qr(a.mT @ basis).Q).Q
    u, s, vh = factorizations.svd(basis.mT @ a, False)
    return OldSVD(basis @ u, s, vh.mT)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> OldSVD:
    """The q main components of rows, about: the singular values of A without the mean of its rows.

    >>> pf.pca_lowrank(pf.randn(8, 6), q=2).V.shape
    (6, 2)
    """
    a = _matrix("pca_lowrank", A, real=True)
    wanted = min(6, *a.shape[-2:]) if q is None else q
    return svd_lowrank(a - a.mean(-2, True) if center else a, wanted, niter)
