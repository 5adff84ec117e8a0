"""pf.linalg: the names of torch.linalg."""

from __future__ import annotations

from pyflame.core.errors import LinAlgError
from pyflame.tensor.arguments import publish
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.factorizations import (
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from pyflame.tensor.ldl import ldl_factor, ldl_factor_ex, ldl_solve
from pyflame.tensor.lu import lu, lu_factor, lu_solve, matrix_exp
from pyflame.tensor.matrix_norms import (
    cond,
    cross,
    diagonal,
    matrix_norm,
    matrix_power,
    multi_dot,
    norm,
    vecdot,
    vector_norm,
)
from pyflame.tensor.old_linalg import eig, eigvals, householder_product
from pyflame.tensor.solutions import (
    cholesky_ex,
    inv_ex,
    lstsq,
    lu_factor_ex,
    solve_ex,
    tensorinv,
    tensorsolve,
    vander,
)

matmul = FUNCTIONS["matmul"]

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

publish(__all__, globals(), __name__, "linalg_")
