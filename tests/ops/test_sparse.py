"""Sparse matrices in coordinate form against torch: values, gradients, a graph network, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from tests.needs import needs_torch, torch

INDICES = [[0, 2, 2, 0, 1], [1, 3, 0, 1, 2]]  # one position twice
VALUES = [1.0, -2.0, 3.0, 0.5, 4.0]
DENSE = np.random.default_rng(0).normal(size=(4, 3))


def run(t: Any, what: str) -> list[Any]:
    values = t.tensor(VALUES, dtype=t.float64, requires_grad=True)
    dense = t.tensor(DENSE, requires_grad=True)
    a = t.sparse_coo_tensor(t.tensor(INDICES), values, (3, 4))
    out = {
        "to_dense": lambda: a.to_dense() * 2,
        "mm": lambda: t.sparse.mm(a, dense),
        "spmm": lambda: t.spmm(a, dense),
        "matmul": lambda: (a * 3.0) @ dense,
        "vector": lambda: a @ dense[:, 0],
        "transposed": lambda: a.t() @ dense[:3],
        "coalesced": lambda: t.sparse.mm(a.coalesce(), dense),
    }[what]()
    (out * out).sum().backward()
    grads = [values.grad, dense.grad if what != "to_dense" else values.grad]
    return [np.array(v.tolist()) for v in (out, *grads)]


@needs_torch
@pytest.mark.parametrize("what", ["to_dense", "mm", "spmm", "matmul", "vector", "transposed", "coalesced"])
def test_values_and_gradients(what: str) -> None:
    for got, want in zip(run(pf, what), run(torch, what), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)


@needs_torch
def test_what_it_is() -> None:
    for t in (pf, torch):
        a = t.sparse_coo_tensor(INDICES, VALUES)
        assert tuple(a.shape) == (3, 4) and a.is_sparse and not a.is_coalesced() and a._nnz() == 5
        b = a.coalesce()
        assert b.is_coalesced() and b.indices().tolist() == [[0, 1, 2, 2], [1, 2, 0, 3]]
        assert b.values().tolist() == [1.5, 4.0, 3.0, -2.0]
        again = b.to_dense().to_sparse()
        assert again.indices().tolist() == b.indices().tolist() and again.values().tolist() == b.values().tolist()
        rows = t.sparse_coo_tensor([[0, 2]], t.ones(2, 3), (4, 3))
        assert rows.to_dense().sum(1).tolist() == [3.0, 0.0, 3.0, 0.0]


def test_graph_convolution_under_jit() -> None:
    adjacency = pf.sparse_coo_tensor(INDICES, VALUES, (4, 4))
    weight = pf.nn.Parameter(pf.tensor(DENSE.astype(np.float32).T))
    optimizer = pf.optim.SGD([weight], lr=0.1)
    x = pf.ones(4, 3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = (pf.spmm(adjacency, x @ weight) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    jitted = pf.jit(step)
    losses = [float(jitted()) for _ in range(4)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pf.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (3,)), pf.IndexError),
        (lambda: pf.sparse_coo_tensor([[0, 1]], [1.0], (3,)), pf.ShapeError),
        (lambda: pf.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 2)), pf.ShapeError),
        (lambda: pf.sparse.mm(pf.sparse_coo_tensor(INDICES, VALUES), pf.ones(3, 2)), pf.ShapeError),
        (lambda: pf.sparse.mm(pf.ones(2, 2), pf.ones(2, 2)), pf.DTypeError),
        (lambda: pf.sparse_coo_tensor(INDICES, VALUES) * pf.ones(3, 4), pf.ArgumentError),
        (lambda: pf.sparse_coo_tensor(INDICES, VALUES, sise=(3, 4)), pf.ArgumentTypeError),
    ],
)
def test_refused(call: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()
