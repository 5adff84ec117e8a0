"""pf.linalg against torch.linalg: values, gradients up to second order, batches, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

RNG = np.random.default_rng(5)
SQUARE = RNG.normal(size=(2, 4, 4))
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2) + 3 * np.eye(4)
TALL, WIDE = RNG.normal(size=(5, 3)), RNG.normal(size=(2, 3, 5))
SINGULAR = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.5, 1.0, 3.0]])

FORMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "inv": (lambda t, a: t.linalg.inv(a), [SQUARE]),
    "det": (lambda t, a: t.linalg.det(a), [SQUARE]),
    "slogdet": (lambda t, a: t.linalg.slogdet(a).logabsdet, [SQUARE]),
    "logdet": (lambda t, a: t.logdet(a), [POSITIVE]),
    "solve": (lambda t, a, b: t.linalg.solve(a, b), [SQUARE, RNG.normal(size=(4, 3))]),
    "solve of vectors": (lambda t, a, b: t.linalg.solve(a, b), [SQUARE, RNG.normal(size=(2, 4))]),
    "solve from the right": (lambda t, a, b: t.linalg.solve(a, b, left=False), [SQUARE, RNG.normal(size=(2, 3, 4))]),
    "solve_triangular": (
        lambda t, a, b: t.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        [SQUARE, RNG.normal(size=(2, 4, 3))],
    ),
    "cholesky": (lambda t, a: t.linalg.cholesky(a @ a.mT + 3 * t.eye(4, dtype=t.float64)), [SQUARE]),
    "cholesky upper": (lambda t, a: t.linalg.cholesky(a + a.mT, upper=True), [POSITIVE]),
    "qr": (lambda t, a: sum((x * x * x).sum() for x in t.linalg.qr(a)), [TALL]),
    "eigh": (lambda t, a: t.linalg.eigh(a + a.mT).eigenvectors.abs(), [SQUARE]),
    "eigvalsh": (lambda t, a: t.linalg.eigvalsh(a, "U"), [SQUARE]),
    "svd of a tall matrix": (lambda t, a: sum((x * x).mT.abs().sum() for x in t.linalg.svd(a, False)[::2]), [TALL]),
    "svd of wide matrices": (lambda t, a: t.linalg.svd(a, full_matrices=False).Vh.abs(), [WIDE]),
    "svdvals": (lambda t, a: t.linalg.svdvals(a), [WIDE]),
    "pinv": (lambda t, a: t.linalg.pinv(a), [TALL]),
    "cond": (lambda t, a: t.linalg.cond(a), [SQUARE]),
    "matrix_power": (lambda t, a: t.linalg.matrix_power(a, 5), [SQUARE]),
    "matrix_power below 0": (lambda t, a: t.linalg.matrix_power(a, -2), [SQUARE]),
    "multi_dot": (lambda t, a, b: t.linalg.multi_dot([a, b, a]), [TALL, RNG.normal(size=(3, 5))]),
    "norm": (lambda t, a: t.linalg.norm(a), [SQUARE]),
    "norm of a vector": (lambda t, a: t.linalg.norm(a, 3), [TALL[0]]),
    "norm along": (lambda t, a: t.linalg.norm(a, 1, dim=-1, keepdim=True), [SQUARE]),
    "vector_norm": (lambda t, a: t.linalg.vector_norm(a, inf, dim=(0, 2)), [SQUARE]),
    **{
        f"matrix_norm {order}": (
            lambda t, a, order=order: t.linalg.matrix_norm(a, order, keepdim=order == 2),
            [SQUARE],
        )
        for order in ("fro", "nuc", 1, -1, 2, -2, inf, -inf)
    },
    "matrix_norm of axes": (lambda t, a: t.linalg.matrix_norm(a, 1, dim=(2, 0)), [SQUARE]),
    "vecdot": (lambda t, a: t.linalg.vecdot(a, a * 2), [SQUARE]),
}


def run(t: Any, form: Callable[..., Any], arrays: list[Any], again: bool) -> list[Any]:
    leaves = [t.tensor(a, requires_grad=True) for a in arrays]
    out = form(t, *leaves)
    weight = t.tensor(np.cos(np.arange(out.numel())).reshape(tuple(out.shape)))
    grads = t.autograd.grad((out * weight).sum(), leaves, create_graph=again)
    found = [out, *grads]
    if again:
        found += t.autograd.grad(sum((g * g).sum() for g in grads), leaves)
    # added to zeros: torch has tensors of zeros without memory
    return [np.array((v.detach() + t.zeros(tuple(v.shape), dtype=t.float64)).tolist()) for v in found]


ONCE = ("matrix_power below 0",)  # torch overwrites what its own second derivative needs


@needs_torch
@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients(name: str) -> None:
    form, arrays = FORMS[name]
    again = name not in ONCE
    for got, want in zip(run(pf, form, arrays, again), run(torch, form, arrays, again), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def test_gradient_of_the_determinant_of_a_singular_matrix() -> None:
    """It is the adjugate, which needs no inverse."""
    a = pf.tensor(SINGULAR, requires_grad=True)
    pf.linalg.det(a).backward()
    minors = [[np.linalg.det(np.delete(np.delete(SINGULAR, i, 0), j, 1)) for j in range(3)] for i in range(3)]
    signs = (-1.0) ** np.add.outer(range(3), range(3))
    np.testing.assert_allclose(a.grad.numpy(), signs * np.array(minors), atol=1e-12)


@needs_torch
def test_results_without_gradients() -> None:
    for t in (pf, torch):
        assert t.linalg.matrix_rank(t.tensor(SINGULAR)).item() == 2
        assert t.linalg.qr(t.tensor(WIDE), mode="complete").Q.shape == (2, 3, 3)
        assert t.linalg.svd(t.tensor(TALL)).U.shape == (5, 5)
        assert t.linalg.slogdet(t.tensor(SQUARE)).sign.abs().tolist() == [1.0, 1.0]
        assert t.tensor(SQUARE).inverse().shape == (2, 4, 4) and t.tensor(SQUARE).det().shape == (2,)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pf.linalg.inv(pf.zeros(2, 2)), pf.linalg.LinAlgError),
        (lambda: pf.linalg.cholesky(-pf.eye(2)), RuntimeError),
        (lambda: pf.linalg.inv(pf.ones(2, 3)), pf.ShapeError),
        (lambda: pf.linalg.inv(pf.ones(2, 2, dtype=pf.int64)), pf.DTypeError),
        (lambda: pf.linalg.solve(pf.eye(2), pf.ones(3)), pf.ShapeError),
        (lambda: pf.linalg.matrix_norm(pf.ones(2, 2), 3), pf.ArgumentError),
        (lambda: pf.linalg.matrix_norm(pf.ones(2, 2), dim=(0, -2)), pf.ShapeError),
        (lambda: pf.linalg.norm(pf.ones(2, 2, 2), 2), pf.ShapeError),
        (lambda: pf.linalg.inv(pf.eye(2), left=True), pf.ArgumentTypeError),
        (lambda: pf.jit(pf.linalg.inv)(pf.eye(2)), pf.TraceError),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()
