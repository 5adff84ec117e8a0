"""Factorisations and solutions, which look at values and so run by themselves, between plans.

aten's forms report what went wrong as a number; ours raise LinAlgError, and then the op runs in torch, so the number is
0 here. Some return LU factors for their gradients.
"""

from __future__ import annotations

from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import EVALUATING, row

# These have aten's form as they are.
EVALUATING.update(
    (
        "cholesky_inverse", "cholesky_solve", "linalg_eig", "linalg_ldl_solve", "linalg_lu_solve",
        "linalg_matrix_exp", "linalg_pinv", "linalg_qr", "linalg_solve_triangular", "lu_unpack", "triangular_solve",
    )
)  # fmt: skip
LARGEST = 256  # rows of a matrix that we factor without NumPy: larger ones are faster in torch's LAPACK


def _no_error(a: Any) -> Any:
    return pf.zeros(a.shape[:-2], dtype=pf.int32)


@row("cholesky", evaluating=True)
def cholesky(a: Any, upper: bool = False) -> Any:
    return pf.linalg.cholesky(a.mT if upper else a, upper=upper)  # the triangle that is named is read


@row("linalg_cholesky_ex", evaluating=True)
def cholesky_ex(a: Any, *, upper: bool = False, check_errors: bool = False) -> tuple[Any, Any]:
    return cholesky(a, upper), _no_error(a)


@row("linalg_inv_ex", evaluating=True)
def inv_ex(a: Any, *, check_errors: bool = False) -> tuple[Any, Any]:
    return pf.linalg.inv(a), _no_error(a)


def _small(a: Any) -> Any:
    if max(a.shape[-2:]) > LARGEST:
        raise pf.NotSupportedError(f"[linalg] expected at most {LARGEST} rows and columns but got {a.shape}")
    return a


@row("linalg_lu", evaluating=True)
def lu(a: Any, *, pivot: bool = True) -> tuple[Any, ...]:
    return tuple(pf.linalg.lu(_small(a), pivot=pivot))


@row("linalg_lu_factor_ex", evaluating=True)
def lu_factor_ex(a: Any, *, pivot: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    return tuple(pf.linalg.lu_factor_ex(_small(a), pivot=pivot, check_errors=check_errors))


@row("linalg_ldl_factor_ex", evaluating=True)
def ldl_factor_ex(a: Any, *, hermitian: bool = False, check_errors: bool = False) -> tuple[Any, ...]:
    return tuple(pf.linalg.ldl_factor_ex(_small(a), hermitian=hermitian, check_errors=check_errors))


def _factors(a: Any) -> tuple[Any, ...]:
    """LU and pivots."""
    return lu_factor_ex(a)[:2]


def _factors_of_transpose(a: Any) -> tuple[Any, ...]:
    """What gradients of determinants expect: factors of the transpose where A is row-major, as LAPACK reads it."""
    value = a._node.data
    return _factors(a.mT if value is None or value.strides is None else a)


@row("_linalg_solve_ex", evaluating=True)
def solve_ex(a: Any, b: Any, *, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    packed, pivots = _factors(a)
    return pf.linalg.solve(a, b, left=left), packed, pivots, _no_error(a)


@row("_linalg_det", evaluating=True)
def det(a: Any) -> tuple[Any, ...]:
    packed, pivots = _factors_of_transpose(a)
    return pf.linalg.det(a), packed, pivots


@row("_linalg_slogdet", evaluating=True)
def slogdet(a: Any) -> tuple[Any, ...]:
    packed, pivots = _factors_of_transpose(a)
    return *pf.linalg.slogdet(a), packed, pivots


@row("_linalg_svd", evaluating=True)
def svd(a: Any, full: bool = False, vectors: bool = True, *, driver: str | None = None) -> tuple[Any, ...]:
    if not vectors:
        return a.new_empty(0), pf.linalg.svdvals(a), a.new_empty(0)
    return tuple(pf.linalg.svd(a, full))


@row("_linalg_eigh", evaluating=True)
def eigh(a: Any, triangle: str = "L", vectors: bool = True) -> tuple[Any, ...]:
    values, found = pf.linalg.eigh(a, triangle)
    return values, found if vectors else a.new_empty(0)


@row("_linalg_eigvals", "linalg_eigvals", evaluating=True)
def eigvals(a: Any) -> Any:
    return pf.linalg.eigvals(a)
