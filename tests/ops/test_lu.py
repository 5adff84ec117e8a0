"""LU factors, solutions with them and the matrix exponential, against torch: values, gradients, dtypes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf


def matrix(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("name", ["lu", "lu_factor"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (4, 6), (2, 6, 4), (1, 1), (2, 0, 0)])
def test_factors_and_their_gradients(name: str, shape: tuple[int, ...]) -> None:
    def weighted(parts: Any) -> Any:
        return sum((p * p.cos()).sum() for p in parts if p.requires_grad)

    a, b = pf.tensor(matrix(*shape), requires_grad=True), torch.tensor(matrix(*shape), requires_grad=True)
    got, want = getattr(pf.linalg, name)(a), getattr(torch.linalg, name)(b)
    for g, w in zip(got, want, strict=True):
        assert g.dtype.name == str(w.dtype)[6:]
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-10, atol=1e-12)
    if np.prod(shape):
        weighted(got).backward(), weighted(want).backward()
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-9)


def test_factors_without_pivots_and_of_singular_matrices() -> None:
    a = matrix(3, 3)
    p, low, up = pf.linalg.lu(pf.tensor(a), pivot=False)
    np.testing.assert_array_equal(p.numpy(), np.eye(3))
    np.testing.assert_allclose((low @ up).numpy(), a, rtol=1e-10)
    np.testing.assert_array_equal(pf.linalg.lu(pf.zeros(2, 2)).U.numpy(), np.zeros((2, 2)))
    with pytest.raises(pf.linalg.LinAlgError, match="diagonal"):
        pf.linalg.lu_factor(pf.zeros(2, 2))
    with pytest.raises(pf.DTypeError, match="int64"):
        pf.linalg.lu(pf.ones(2, 2).long())


@pytest.mark.slow
def test_second_derivative_of_factors() -> None:
    def twice(lib: Any) -> Any:
        a = lib.tensor(matrix(3, 3), requires_grad=True)
        (g,) = lib.autograd.grad((lib.linalg.lu(a)[2] ** 3).sum(), [a], create_graph=True)
        return lib.autograd.grad((g**2).sum(), [a])[0].numpy()

    np.testing.assert_allclose(twice(pf), twice(torch), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_solutions(left: bool, adjoint: bool) -> None:
    right = matrix(2, 3, 4) if left else matrix(2, 4, 3)

    def solved(lib: Any) -> Any:
        a, b = lib.tensor(matrix(2, 3, 3), requires_grad=True), lib.tensor(right, requires_grad=True)
        out = lib.linalg.lu_solve(*lib.linalg.lu_factor(a), b, left=left, adjoint=adjoint)
        (out * out).sum().backward()
        return out.detach().numpy(), a.grad.numpy(), b.grad.numpy()

    for got, want in zip(solved(pf), solved(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-9)


def test_solution_by_its_older_name() -> None:
    a, b = matrix(3, 3), matrix(3, 2)
    got = pf.lu_solve(pf.tensor(b), *pf.linalg.lu_factor(pf.tensor(a)))
    np.testing.assert_allclose(got.numpy(), np.linalg.solve(a, b), rtol=1e-10)
    with pytest.raises(pf.ShapeError, match="pivots"):
        pf.linalg.lu_solve(pf.eye(3), pf.tensor([1, 2]), pf.ones(3, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 40.0])
def test_matrix_exponential(dtype: str, scale: float) -> None:
    def computed(lib: Any) -> Any:
        skew = matrix(2, 5, 5)
        skew = (skew - np.swapaxes(skew, -1, -2)) * np.array([scale, 1.0])[:, None, None]  # each with its own scaling
        a = lib.tensor(skew, dtype=getattr(lib, dtype), requires_grad=True)
        out = lib.matrix_exp(a)
        (out * lib.arange(5)).sum().backward()
        return out.detach().numpy(), a.grad.numpy()

    near = 1e-10 if dtype == "float64" else 2e-3
    for got, want in zip(computed(pf), computed(torch), strict=True):
        np.testing.assert_allclose(got, want, rtol=near, atol=near)


def test_matrix_exponential_of_odd_matrices() -> None:
    assert pf.linalg.matrix_exp(pf.zeros(0, 0)).shape == (0, 0)
    np.testing.assert_array_equal(pf.matrix_exp(pf.zeros(2, 2)).numpy(), np.eye(2))
    np.testing.assert_allclose(pf.matrix_exp(pf.tensor([[0.0, 1.0], [0.0, 0.0]])).numpy(), [[1, 1], [0, 1]])
    assert np.isnan(pf.matrix_exp(pf.tensor([[float("nan")]])).item())
    with pytest.raises(pf.ShapeError, match="square"):
        pf.matrix_exp(pf.ones(2, 3))
