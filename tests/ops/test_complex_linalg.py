"""torch.linalg of complex matrices against torch: values, gradients and, for some, gradients of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal((2, 3, n)) + 1j * RNG.standard_normal((2, 3, n)) for n in (3, 2))


def positive(lib: Any, a: Any) -> Any:
    return a @ a.mH + lib.eye(3)


# Factors whose phases are free are put together again: gradients are those of what does not depend on them.
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "solve": lambda lib, a, b: lib.linalg.solve(a, b),
    "solve vector": lambda lib, a, b: lib.linalg.solve(a[0], b[0, :, 0]),
    "solve right": lambda lib, a, b: lib.linalg.solve(a, b.mH, left=False) * 1,
    "solve_triangular": lambda lib, a, b: lib.linalg.solve_triangular(a.triu(), b, upper=True),
    "inv": lambda lib, a, b: lib.linalg.inv(a),
    "inv_ex": lambda lib, a, b: lib.linalg.inv_ex(a).inverse,
    "det": lambda lib, a, b: lib.linalg.det(a),
    "logdet": lambda lib, a, b: lib.logdet(a),
    "slogdet": lambda lib, a, b: lib.linalg.slogdet(a),
    "qr": lambda lib, a, b: lib.linalg.qr(a),
    "qr tall": lambda lib, a, b: lib.linalg.qr(b),
    "cholesky": lambda lib, a, b: lib.linalg.cholesky(positive(lib, a)),
    "cholesky_ex": lambda lib, a, b: lib.linalg.cholesky_ex(positive(lib, a), upper=True).L,
    "cholesky_solve": lambda lib, a, b: lib.cholesky_solve(b, lib.linalg.cholesky(positive(lib, a))),
    "eigvalsh": lambda lib, a, b: lib.linalg.eigvalsh(positive(lib, a)),
    "eigh": lambda lib, a, b: together(*lib.linalg.eigh(positive(lib, a))),
    "svdvals": lambda lib, a, b: lib.linalg.svdvals(a),
    "svd": lambda lib, a, b: (lambda u, s, vh: (u * s.sin().unsqueeze(-2)) @ vh)(*lib.linalg.svd(a)),
    "svd tall": lambda lib, a, b: (lambda u, s, vh: (u * s.sin().unsqueeze(-2)) @ vh)(*lib.linalg.svd(b, False)),
    "lstsq": lambda lib, a, b: lib.linalg.lstsq(b, a).solution,
    "pinv": lambda lib, a, b: lib.linalg.pinv(b),
    "pinv hermitian": lambda lib, a, b: lib.linalg.pinv(positive(lib, a), hermitian=True),
    "matrix_power": lambda lib, a, b: lib.linalg.matrix_power(a, -2),
    "matrix_exp": lambda lib, a, b: lib.linalg.matrix_exp(a),
    "matrix_norm": lambda lib, a, b: lib.linalg.matrix_norm(a, 2) + lib.linalg.matrix_norm(a, "nuc"),
    "cond": lambda lib, a, b: lib.linalg.cond(a),
    "eigvals": lambda lib, a, b: in_order(lib.linalg.eigvals(a)),
    "eig": lambda lib, a, b: rebuilt(lib, *lib.linalg.eig(a)),
    "householder_product": lambda lib, a, b: lib.linalg.householder_product(b, a[:, 0, :2]),
    "vander": lambda lib, a, b: lib.linalg.vander(a, N=3),
    "lu": lambda lib, a, b: lib.linalg.lu(a)[1:],
    "lu_solve": lambda lib, a, b: lib.linalg.lu_solve(*lib.linalg.lu_factor(a), b, adjoint=True),
    "tensorinv": lambda lib, a, b: lib.linalg.tensorinv(a[0].reshape(3, 3, 1), 1),
}
TWICE = ("solve", "inv", "det", "cholesky", "pinv", "lu_solve")


def in_order(values: Any) -> Any:
    """Sums of powers, which do not depend on the order."""
    return tuple((values**n).sum(-1) for n in (1, 2, 3))


def rebuilt(lib: Any, values: Any, vectors: Any) -> Any:
    return (vectors * values.sin().unsqueeze(-2)) @ lib.linalg.inv(vectors)


def together(values: Any, vectors: Any) -> Any:
    return (vectors * values.log().unsqueeze(-2)) @ vectors.mH


def results(lib: Any, name: str) -> list[Any]:
    """Results, gradients of a real function of them, and where asked gradients of a function of those."""
    inputs = [lib.tensor(v, requires_grad=True) for v in (A, B)]
    out = CASES[name](lib, *inputs)
    outs = list(out) if isinstance(out, tuple) else [out]
    found, twice = list(outs), name in TWICE
    for again in range(1 + twice):
        total = sum((v.abs() ** 2 / 2 + (v.imag if v.is_complex() else v)).sum() for v in outs)
        options = {"create_graph": twice and not again, "allow_unused": True}
        outs = [g for g in lib.autograd.grad(total, inputs, **options) if g is not None]
        found += outs
    return [v.detach().resolve_conj().numpy() for v in found]


@pytest.mark.share(4)
@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str) -> None:
    ours, theirs = results(pf, name), results(torch, name)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_what_it_reads() -> None:
    a = pf.tensor(A)
    assert pf.linalg.eigvalsh(a, "U").dtype is pf.float64 and pf.linalg.matrix_rank(a).tolist() == [3, 3]
    np.testing.assert_allclose(
        pf.linalg.eigvalsh(a).numpy(), torch.linalg.eigvalsh(torch.tensor(A)).numpy(), rtol=1e-12
    )
    with pytest.raises(pf.DTypeError, match="ldl"):
        pf.linalg.ldl_factor(a)
