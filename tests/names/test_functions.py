"""Functions of torch that are made of others, against torch: values, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
POSITIVE = RNG.random((3, 4)) + 0.1
SQUARE = RNG.standard_normal((4, 4))
SIGNAL = RNG.standard_normal((2, 200))
LOWER = np.linalg.cholesky(SQUARE @ SQUARE.T + 4 * np.eye(4))
RISING = np.cumsum(RNG.random(5) + 0.1)


def hann(lib: Any, length: int) -> Any:
    return lib.hann_window(length, dtype=lib.float64) + 0.1


Case = tuple[str, Callable[..., Any], tuple[Any, ...]]
CASES: list[Case] = [
    ("adjoint", lambda L, x: L.adjoint(x), (X,)),
    ("adjoint of complex", lambda L, x: L.adjoint(L.complex(x, x * 2)).real, (X,)),
    ("isreal", lambda L, x: L.isreal(x), (X,)),
    ("fill", lambda L, x: L.fill(x, 2.5), (X,)),
    ("detach", lambda L, x: L.detach(x) * x, (X,)),
    ("chain_matmul", lambda L, x, y: L.chain_matmul(x, y, x), (SQUARE, SQUARE + 1)),
    ("frobenius_norm", lambda L, x: L.frobenius_norm(x, (0, 2)), (X,)),
    ("nuclear_norm", lambda L, x: L.nuclear_norm(x, (0, 1)), (SQUARE,)),
    ("cholesky_solve", lambda L, b, a: L.cholesky_solve(b, L.tril(a)), (RNG.standard_normal((4, 2)), LOWER)),
    ("cholesky_solve upper", lambda L, b, a: L.cholesky_solve(b, L.triu(a), upper=True), (SQUARE, LOWER.T.copy())),
    ("cholesky_inverse", lambda L, a: L.cholesky_inverse(L.tril(a)), (LOWER,)),
    ("cumulative_trapezoid", lambda L, x: L.cumulative_trapezoid(x, dx=0.5, dim=1), (X,)),
    ("cumulative_trapezoid at x", lambda L, x, t: L.cumulative_trapezoid(x, t), (X, RISING)),
    ("combinations", lambda L, x: L.combinations(x, 3), (X[0, 0],)),
    ("combinations again", lambda L, x: L.combinations(x, 2, with_replacement=True), (X[0, 0],)),
    ("diagonal_scatter", lambda L, x, y: L.diagonal_scatter(x, y, 1), (SQUARE, X[0, 0, :3])),
    ("gradient", lambda L, x: L.gradient(x), (X,)),
    ("gradient spaced", lambda L, x: L.gradient(x, spacing=[0.5, 2.0], dim=(0, 2), edge_order=2), (X,)),
    ("gradient at", lambda L, x, t: L.gradient(x, spacing=[t], dim=2), (X, RISING)),
    ("gradient at, order 2", lambda L, x, t: L.gradient(x, spacing=[t], dim=[2], edge_order=2), (X, RISING)),
    ("stft", lambda L, x: L.view_as_real(L.stft(x, 32, return_complex=True, window=L.ones(32).double())), (SIGNAL,)),
    ("stft options", lambda L, x: L.stft(x, 30, 7, 20, L.hann_window(20, dtype=L.float64), False, normalized=True,
                                         onesided=False, return_complex=False), (SIGNAL[0],)),
    ("istft", lambda L, x: L.istft(L.stft(x, 32, 8, window=hann(L, 32), return_complex=True), 32, 8,
                                   window=hann(L, 32)), (SIGNAL,)),
    ("istft length", lambda L, x: L.istft(L.stft(x, 32, 8, 24, hann(L, 24), return_complex=True), 32, 8,
                                          24, hann(L, 24), length=190), (SIGNAL[0],)),
    ("pixel_shuffle", lambda L, x: L.pixel_shuffle(x.reshape(1, 4, 3, 5), 2), (X,)),
    ("threshold", lambda L, x: L.threshold(x, 0.1, -2.0), (X,)),
    ("pairwise_distance", lambda L, x, y: L.pairwise_distance(x, y), (X[0], X[1])),
    ("special.entr", lambda L, x: L.special.entr(x), (POSITIVE,)),
    ("special.ndtr", lambda L, x: L.special.ndtr(x), (X,)),
    ("special.ndtri", lambda L, x: L.special.ndtri(L.sigmoid(x)), (X,)),
    ("special.log_ndtr", lambda L, x: L.special.log_ndtr(x * 8), (X,)),
    ("special.xlog1py", lambda L, x, y: L.special.xlog1py(x, y), (X[0, :3, :4], POSITIVE)),
    ("special.multigammaln", lambda L, x: L.special.multigammaln(x + 2, 3), (POSITIVE,)),
    ("special.expit", lambda L, x: L.special.expit(x) + L.special.gammaln(x * x + 1) + L.special.psi(x * x + 1), (X,)),
]  # fmt: skip
CASES += [
    (f"{name}_copy", call, (X,))
    for name, call in {
        "alias": lambda L, x: L.alias_copy(x),
        "diagonal": lambda L, x: L.diagonal_copy(x, 0, 1, 2), "expand": lambda L, x: L.expand_copy(x, (2, 3, 4, 5)),
        "permute": lambda L, x: L.permute_copy(x, (2, 0, 1)), "select": lambda L, x: L.select_copy(x, 1, 2),
        "split": lambda L, x: L.split_copy(x, 2, 1), "squeeze": lambda L, x: L.squeeze_copy(x[:1]),
        "t": lambda L, x: L.t_copy(x[0]), "transpose": lambda L, x: L.transpose_copy(x, 0, 2),
        "unbind": lambda L, x: L.unbind_copy(x, 1), "unfold": lambda L, x: L.unfold_copy(x, 2, 2, 2),
        "unsqueeze": lambda L, x: L.unsqueeze_copy(x, 1), "view": lambda L, x: L.view_copy(x, (12, 5)),
    }.items()
]  # fmt: skip


@pytest.mark.parametrize(("call", "arrays"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_function(call: Callable[..., Any], arrays: tuple[Any, ...]) -> None:
    def run(lib: Any) -> list[Any]:
        given = [lib.tensor(a, requires_grad=True) for a in arrays]
        out = call(lib, *given)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        smooth = [o for o in out if o.requires_grad]
        if smooth:
            sum((o * o).sum() for o in smooth).backward()
        return [o.detach().numpy() for o in out] + [g.grad.numpy() for g in given if g.grad is not None]

    for ours, theirs in zip(run(pf), run(torch), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 16])
@pytest.mark.parametrize("periodic", [True, False])
def test_windows(name: str, length: int, periodic: bool) -> None:
    ours, theirs = (getattr(lib, f"{name}_window")(length, periodic) for lib in (pf, torch))
    assert ours.dtype == pf.float32
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


def test_places_in_a_tensor() -> None:
    flat = np.array([[0, 5], [11, 23]])
    ours, theirs = (lib.unravel_index(lib.tensor(flat), (2, 3, 4)) for lib in (pf, torch))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_questions() -> None:
    x = pf.ones(2, 3)
    assert pf.is_signed(x) and not pf.is_signed(x.to(pf.uint8)) and pf.is_same_size(x, x * 2)
    assert pf.resolve_conj(x) is x and pf.resolve_neg(x) is x
    pf.detach_copy(x).zero_(), pf.view_copy(x, (6,)).zero_()
    assert x.sum().item() == 6


def test_modules_by_their_path() -> None:
    import pyflame.fft
    import pyflame.linalg as linalg
    from pyflame.sparse import sparse_coo_tensor
    from pyflame.special import expit

    assert pf.fft is pyflame.fft and linalg is pf.linalg and pf.special.expit is expit
    assert linalg.norm(pf.ones(4)).item() == 2
    assert sparse_coo_tensor([[0], [1]], [2.0], (2, 2)).to_dense().tolist() == [[0, 2], [0, 0]]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (pf.ArgumentError, lambda: pf.stft(pf.ones(8), 16, center=False, return_complex=True)),
        (pf.ArgumentError, lambda: pf.stft(pf.ones(80), 16, 0, return_complex=True)),
        (pf.ArgumentError, lambda: pf.stft(pf.ones(80), 16)),
        (pf.ShapeError, lambda: pf.stft(pf.ones(80), 16, window=pf.ones(3), return_complex=True)),
        (pf.ShapeError, lambda: pf.istft(pf.ones(8, 3), 16)),
        (pf.ArgumentError, lambda: pf.hann_window(-1)),
        (pf.ArgumentError, lambda: pf.hann_window(3, dtype=pf.int64)),
        (pf.ShapeError, lambda: pf.combinations(pf.ones(2, 2))),
        (pf.ArgumentError, lambda: pf.gradient(pf.ones(4), edge_order=3)),
        (pf.ShapeError, lambda: pf.gradient(pf.ones(1))),
        (pf.ArgumentError, lambda: pf.unravel_index(pf.ones(1), (2,))),
    ],
)
def test_errors(error: type[Exception], call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=r"\[\w+\] expected"):
        call()
