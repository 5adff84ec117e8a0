"""Linear algebra as in torch.linalg: inverses, determinants, factorisations and norms of (batches of) matrices.

Factorisations run in LAPACK, through NumPy, on the host: they evaluate their argument at once, and raise under jit.
Their gradients are matrix products and solves over tensors, so they can be differentiated again where the rule is
written with functions of the argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import float32, float64
from pyflame.core.errors import ArgumentError, DTypeError, LinAlgError, ShapeError, type_name
from pyflame.core.state import state
from pyflame.tensor.creation import eye, full_like, place_of, tensor, zeros_like
from pyflame.tensor.custom import custom_gradient
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS
_Array = np.ndarray[Any, Any]


class Slogdet(NamedTuple):
    """The sign of a determinant, and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


class QR(NamedTuple):
    """A matrix with orthonormal columns and an upper triangle."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """Left singular vectors, singular values, and right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Eigh(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _matrix(op: str, a: Any, square: bool = False, real: bool = False) -> Tensor:
    if not isinstance(a, Tensor):
        raise DTypeError(f"[{op}] expected a tensor but got {type_name(a)}; wrap it in pf.tensor(...)")
    if a.dtype.real not in (float32, float64) or (real and a.dtype.is_complex):
        raise DTypeError(f"[{op}] expected float32 or float64 but got {a.dtype.name}; cast with .to(pf.float32)")
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ShapeError(f"[{op}] expected {'square ' * square}matrices (..., n, m) but got shape {a.shape}")
    return a


def _host(op: str, fn: Callable[..., Any], like: Tensor, *tensors: Tensor, **options: Any) -> Any:
    """A function of NumPy's, applied to the values of tensors; the results as tensors."""
    try:
        with np.errstate(all="ignore"):
            out = fn(*[t.detach().numpy() for t in tensors], **options)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"[{op}] expected a matrix that it is defined for but got one that is not: {error}") from None
    place, real = place_of(like, None), like.dtype.real.numpy
    outs = out if isinstance(out, tuple) else (out,)
    made = [tensor(np.asarray(o, like.dtype.numpy if np.iscomplexobj(o) else real), device=place) for o in outs]
    return tuple(made) if isinstance(out, tuple) else made[0]


def _again(fn: Callable[..., Any], known: Any, *args: Any) -> Any:
    """A result that a gradient needs: computed again from the arguments where the gradient is differentiated too."""
    return fn(*args) if state.grad_enabled else known


# --- inverses and solutions -------------------------------------------------------------------------------------------


@custom_gradient
def _inv(a: Tensor) -> Any:
    out = _host("inv", np.linalg.inv, a, a)

    def backward(g: Tensor) -> Any:  # d(A^-1) = -A^-1 dA A^-1
        y = _again(_inv, out, a).mH
        return -(y @ g @ y)

    return out, backward


def inv(a: Tensor) -> Tensor:
    """The inverse of square matrices. Evaluates them.

    >>> pf.linalg.inv(pf.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    return _inv(_matrix("inv", a, square=True))  # type: ignore[no-any-return]


@custom_gradient
def _solve(a: Tensor, b: Tensor) -> Any:
    out = _host("solve", np.linalg.solve, a, a, b)

    def backward(g: Tensor) -> tuple[Tensor, Tensor]:  # X = A^-1 B: dB = A^-H g, dA = -dB X^H
        gb = _solve(a.mH, g)
        return -(gb @ _again(_solve, out, a, b).mH), gb

    return out, backward


def solve(a: Tensor, b: Tensor, *, left: bool = True) -> Tensor:
    """X with a @ X = b, or X @ a = b if not `left`; b may hold vectors. Evaluates both.

    >>> pf.linalg.solve(pf.tensor([[2.0, 0.0], [0.0, 4.0]]), pf.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    a = _matrix("solve", a, square=True)
    if not left:
        return solve(a.mT, b.mT).mT
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else _matrix("solve", b)
    if right.dtype is not a.dtype or right.shape[-2] != a.shape[-1]:
        raise ShapeError(f"[solve] expected right sides of {a.dtype.name} that fit {a.shape} but got {b.shape}")
    batch = np.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    a, right = a.expand(*batch, *a.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    out = _solve(a, right)
    return out.squeeze(-1) if vector else out  # type: ignore[no-any-return]


def solve_triangular(a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with a @ X = b, or X @ a = b if not `left`, of the triangle of a that is named. Evaluates both.

    >>> pf.linalg.solve_triangular(pf.tensor([[2.0, 9.0], [0.0, 4.0]]), pf.tensor([[2.0], [0.0]]), upper=True)
    tensor([[1.],
            [0.]])
    """
    a = _matrix("solve_triangular", a, square=True)
    triangle = F["triu" if upper else "tril"](a, int(upper) - int(not upper) if unitriangular else 0)
    if unitriangular:
        triangle = triangle + eye(a.shape[-1], dtype=a.dtype)
    return solve(triangle, b, left=left)


# --- determinants -----------------------------------------------------------------------------------------------------


@custom_gradient
def _slogdet(a: Tensor) -> Any:
    sign, size = _host("slogdet", lambda x: tuple(np.linalg.slogdet(x)), a, a)

    def backward(gs: Tensor, g: Tensor) -> Any:  # d log|det A| = Re tr(A^-1 dA); a complex sign turns by the rest of it
        turned = (gs.conj() * _again(_slogdet, (sign, size), a)[0]).imag * 1j if a.dtype.is_complex else 0
        return (g - turned)[..., None, None] * inv(a).mH

    return (sign, size), backward


def slogdet(a: Tensor) -> Slogdet:
    """The sign of the determinant of square matrices, and the logarithm of its size. Evaluates them.

    >>> pf.linalg.slogdet(pf.eye(2)).sign
    tensor(1.)
    """
    return Slogdet(*_slogdet(_matrix("slogdet", a, square=True)))


def logdet(a: Tensor) -> Tensor:
    """The logarithm of the determinant, NaN where that is negative. Evaluates its argument.

    >>> pf.logdet(pf.eye(2))
    tensor(0.)
    """
    sign, size = slogdet(a)
    if a.dtype.is_complex:
        return sign.log() + size
    return F["where"](sign < 0, float("nan"), size)


@custom_gradient
def _det(a: Tensor) -> Any:
    out = _host("det", np.linalg.det, a, a)

    def backward(g: Tensor) -> Any:  # d det A = tr(adj(A) dA), and adj(A) has a value where A has no inverse
        return g[..., None, None] * _adjugate(a).mH

    return out, backward


def _adjugate(a: Tensor) -> Tensor:
    """det(A) A^-1, from the singular values: products of all but one of them."""
    u, s, vh = svd(a, full_matrices=False)
    n = s.shape[-1]
    others = F["where"](eye(n, dtype=s.dtype) == 1, 1.0, s.unsqueeze(-2)).prod(-1)
    sign: Tensor = _det(u) * _det(vh)
    sign = sign if a.dtype.is_complex else sign.detach()  # 1 or -1
    return sign[..., None, None] * (vh.mH * others.unsqueeze(-2)) @ u.mH


def det(a: Tensor) -> Tensor:
    """The determinant of square matrices. Evaluates them.

    >>> pf.linalg.det(pf.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor(8.)
    """
    return _det(_matrix("det", a, square=True))  # type: ignore[no-any-return]


# --- factorisations ---------------------------------------------------------------------------------------------------


@custom_gradient
def _cholesky(a: Tensor) -> Any:
    out = _host("cholesky", np.linalg.cholesky, a, a)

    def backward(g: Tensor) -> Any:  # S = L^-H P L^-1 with P the lower half of L^H g; the gradient is Hermitian
        low = _again(_cholesky, out, a)
        half = F["tril"](low.mH @ g)
        half = half - 0.5 * _diagonal(half)
        s = _solve(low.mH, _solve(low.mH, half.mH).mH)
        return 0.5 * (s + s.mH)

    return out, backward


def cholesky(a: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangle L with L @ L.mH = a, of Hermitian positive matrices; or its adjoint. Evaluates them.

    >>> pf.linalg.cholesky(pf.tensor([[4.0, 0.0], [0.0, 9.0]]))
    tensor([[2., 0.],
            [0., 3.]])
    """
    low = _cholesky(_matrix("cholesky", a, square=True))
    return low.mH if upper else low  # type: ignore[no-any-return]


@custom_gradient
def _qr(a: Tensor) -> Any:
    q, r = _host("qr", lambda x: tuple(np.linalg.qr(x)), a, a)

    def backward(gq: Tensor, gr: Tensor) -> Any:
        # dA = (gQ + Q M') R^-H, where M = R gR^H - gQ^H Q and M' is its lower half, mirrored
        q_, r_ = _again(_qr, (q, r), a)
        m = r_ @ gr.mH - gq.mH @ q_
        low = F["tril"](m, -1)
        mirrored = low + low.mH + _diagonal(m).real
        return _solve(r_, (gq + q_ @ mirrored).mH).mH

    return (q, r), backward


def qr(a: Tensor, mode: str = "reduced") -> QR:
    """a = Q @ R with orthonormal columns Q and an upper triangle R. Evaluates a.

    >>> pf.linalg.qr(pf.randn(4, 2)).R.shape
    (2, 2)
    """
    a = _matrix("qr", a)
    rows, columns = a.shape[-2:]
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"[qr] expected mode 'reduced', 'complete' or 'r' but got {mode!r}")
    if mode != "r" and rows < columns:  # the first columns make Q
        q, r = _qr(a[..., :rows])
        return QR(q, F["cat"]([r, q.mH @ a[..., rows:]], -1))
    if mode == "reduced" or (mode == "complete" and rows == columns):
        return QR(*_qr(a))
    if mode == "r":
        return QR(a.new_empty(0), _host("qr", np.linalg.qr, a, a, mode="r"))
    return QR(*_host("qr", lambda x: tuple(np.linalg.qr(x, mode="complete")), a, a))


@custom_gradient
def _eigh(a: Tensor, *, triangle: Any) -> Any:
    values, vectors = _host("eigh", lambda x: tuple(np.linalg.eigh(x, triangle)), a, a)

    def backward(gl: Tensor, gv: Tensor) -> Any:
        # V (diag(gL) + skew(V^H gV) / (l_j - l_i)) V^H, which is Hermitian: V turns, so only skew changes count
        low, v = _again(functools.partial(_eigh, triangle=triangle), (values, vectors), a)
        inner = _over_gaps(v.mH @ gv, low) / 2 + F["diag_embed"](gl)
        return v @ inner @ v.mH

    return (values, vectors), backward


def _over_gaps(m: Tensor, values: Tensor) -> Tensor:
    """(m - m^H) / (v_j - v_i), with 0 on the diagonal: a vector's own phase is free."""
    return _over(m - m.mH - (_diagonal(m - m.mH) if m.is_complex() else 0), values.unsqueeze(-2) - values.unsqueeze(-1))


def _over(x: Tensor, y: Tensor) -> Tensor:
    """x / y with 0 / 0 = 0: vectors of equal values have no direction of their own, and x = 0 does not ask for one."""
    still = x == 0
    return F["where"](still, 0.0, x / F["where"](still, 1.0, y))


def eigh(a: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues and eigenvectors of Hermitian matrices, of which one triangle is read. Evaluates them.

    >>> pf.linalg.eigh(pf.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    tensor([1., 2.])
    """
    a = _matrix("eigh", a, square=True)
    if UPLO not in ("L", "U"):
        raise ArgumentError(f"[eigh] expected UPLO 'L' or 'U' but got {UPLO!r}")
    return Eigh(*_eigh(a, triangle=UPLO))


def eigvalsh(a: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of Hermitian matrices, in ascending order. Evaluates them.

    >>> pf.linalg.eigvalsh(pf.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    return eigh(a, UPLO).eigenvalues


@custom_gradient
def _svd(a: Tensor, *, full: bool = False) -> Any:
    """U, S and Vh; with `full` also what makes U and Vh square, on which nothing that has a gradient depends."""
    wide, s, tall = _host("svd", lambda x: tuple(np.linalg.svd(x, full_matrices=full)), a, a)
    k = s.shape[-1]
    u, vh = wide[..., :k], tall[..., :k, :]

    def backward(gu: Tensor, gs: Tensor, gvh: Tensor, *rest: Tensor) -> Any:
        # A gradient is U (skew(U^H gU) / E S + S skew(V^H gV) / E + diag(gS)) V^H, E_ij = s_j^2 - s_i^2, and what of
        # gU and gV lies outside of the spaces of U and V
        u_, s_, vh_ = _again(_svd, (u, s, vh), a)
        v, gv = vh_.mH, gvh.mH
        left, right = (_over_gaps(m, s_ * s_) for m in (u_.mH @ gu, v.mH @ gv))
        inner = left * s_.unsqueeze(-2) + s_.unsqueeze(-1) * right + F["diag_embed"](gs)
        if a.dtype.is_complex:  # U and V turn by one phase
            inner = inner + _over(_diagonal(u_.mH @ gu).imag, s_.unsqueeze(-2)) * 1j
        out = u_ @ inner @ vh_
        if a.shape[-2] > s_.shape[-1]:
            out = out + _over(gu - u_ @ (u_.mH @ gu), s_.unsqueeze(-2)) @ vh_
        if a.shape[-1] > s_.shape[-1]:
            out = out + u_ @ _over(gvh - (gvh @ v) @ vh_, s_.unsqueeze(-1))
        return out

    return (u, s, vh, wide[..., k:], tall[..., k:, :])[: 5 if full else 3], backward


def svd(a: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """a = U @ diag(S) @ Vh; with full_matrices U and Vh are square. Evaluates a. `driver` is without effect.

    >>> pf.linalg.svd(pf.tensor([[3.0, 0.0], [0.0, 4.0]])).S
    tensor([4., 3.])
    """
    a = _matrix("svd", a)
    if not full_matrices or a.shape[-1] == a.shape[-2]:
        return SVD(*_svd(a))
    u, s, vh, left, right = _svd(a, full=True)
    return SVD(F["cat"]([u, left], -1), s, F["cat"]([vh, right], -2))


def svdvals(a: Tensor, *, driver: str | None = None) -> Tensor:
    """Singular values, in descending order. Evaluates a. `driver` is without effect.

    >>> pf.linalg.svdvals(pf.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.])
    """
    return svd(a, False).S


def _kept(s: Tensor, a: Tensor, atol: Any, rtol: Any) -> Tensor:
    """Which singular values count: those above rtol times the largest, and above atol. Without both, PyTorch's rtol."""
    if rtol is None and atol is None:
        rtol = max(a.shape[-2:]) * float(np.finfo(a.dtype.numpy).eps)
    bars = []
    if rtol is not None:
        bars.append(s.amax(-1, True) * (rtol.unsqueeze(-1) if isinstance(rtol, Tensor) else rtol))
    if atol is not None:
        bars.append(atol.unsqueeze(-1) if isinstance(atol, Tensor) else full_like(s[..., :1], atol))
    return s > (bars[0] if len(bars) == 1 else F["maximum"](*bars))


@custom_gradient
def _pinv(a: Tensor, *, atol: Any, rtol: Any, hermitian: bool) -> Any:
    u, s, vh = svd(_symmetric(a) if hermitian else a, False)
    kept = _kept(s, a, atol, rtol)
    inverse: Tensor = F["where"](kept, 1.0 / F["where"](kept, s, 1.0), 0.0)
    out = (vh.mH * inverse.unsqueeze(-2)) @ u.mH

    def backward(g: Tensor) -> Any:
        # of constant rank (Golub and Pereyra): Y = A^+ has -Y^H g Y^H + (1 - A Y) g^H Y Y^H + Y^H Y g^H (1 - Y A)
        y = _again(functools.partial(_pinv, atol=atol, rtol=rtol, hermitian=hermitian), out, a)
        left, right = g.mH @ y, y @ g.mH
        return (left - a @ (y @ left)) @ y.mH + y.mH @ (right - (right @ y) @ a) - y.mH @ g @ y.mH

    return out, backward


def pinv(a: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudo-inverse, without singular values up to atol, or up to rtol times the largest. Evaluates a.

    `hermitian` says that a is symmetric, and has its lower triangle read alone; `rcond` is rtol's older name.

    >>> pf.linalg.pinv(pf.tensor([[2.0, 0.0]]))
    tensor([[0.5000],
            [0.0000]])
    """
    a = _matrix("pinv", a, square=hermitian)
    if 0 in a.shape[-2:]:
        return zeros_like(a.mT)
    return _pinv(a, atol=atol, rtol=rtol if rcond is None else rcond, hermitian=hermitian)  # type: ignore[no-any-return]


def _symmetric(a: Tensor) -> Tensor:
    """A matrix made of the lower triangle of another."""
    low = F["tril"](_matrix("linalg", a, square=True), -1)
    return low + low.mH + _diagonal(a).real


def _diagonal(a: Tensor) -> Tensor:
    """The matrix with zeros beside its diagonal."""
    return F["diag_embed"](F["diagonal"](a, 0, -2, -1))


def matrix_rank(a: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values are above atol (or tol), and above rtol times the largest. Evaluates a.

    >>> pf.linalg.matrix_rank(pf.ones(3, 3))
    tensor(1)
    """
    s = svdvals(_symmetric(a) if hermitian else a).detach()
    return _kept(s, a, tol if atol is None else atol, rtol).sum(-1) if s.shape[-1] else s.sum(-1).long()


inverse = inv  # PyTorch's older name
METHODS = {"det": det, "inverse": inv, "logdet": logdet, "slogdet": slogdet}
