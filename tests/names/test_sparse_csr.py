"""Sparse matrices in compressed rows, against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
STARTS, COLUMNS, VALUES = [0, 2, 2, 5], [1, 3, 0, 1, 3], [1.0, 2.0, 3.0, 4.0, 5.0]
LIBRARIES = [pytest.param(torch, id="torch"), pytest.param(pf, id="pyflame")]
DENSE = [[0.0, 1.0, 0.0, 2.0], [0.0] * 4, [3.0, 4.0, 0.0, 5.0]]


def made(lib: Any, **options: Any) -> Any:
    return lib.sparse_csr_tensor(lib.tensor(STARTS), lib.tensor(COLUMNS), lib.tensor(VALUES), (3, 4), **options)


@pytest.mark.parametrize("lib", LIBRARIES)
def test_what_it_is(lib: Any) -> None:
    for m in (made(lib), lib.tensor(DENSE).to_sparse_csr(), lib.tensor(DENSE).to_sparse().to_sparse_csr()):
        assert (m.crow_indices().tolist(), m.col_indices().tolist(), m.values().tolist()) == (STARTS, COLUMNS, VALUES)
        assert m.to_dense().tolist() == DENSE and tuple(m.shape) == (3, 4) and m._nnz() == 5
        assert m.layout is lib.sparse_csr and m.is_sparse_csr and not m.is_sparse
        assert m.to_sparse().layout is lib.sparse_coo and m.to_sparse().coalesce().values().tolist() == VALUES
        assert (m * 2).values().tolist() == [2.0, 4.0, 6.0, 8.0, 10.0] and (m * 2).layout is lib.sparse_csr
        assert m.to(lib.float64).dtype is lib.float64 and m.to_sparse_csr().to_dense().tolist() == DENSE
        assert m.t().to_dense().tolist() == np.transpose(DENSE).tolist()
        with pytest.raises((RuntimeError, NotImplementedError)):
            m.indices()
    assert lib.ones(2).layout is lib.strided and not lib.ones(2).is_sparse_csr


@pytest.mark.parametrize("form", ["csr", "coo"])
@pytest.mark.parametrize("lib", LIBRARIES)
def test_products(lib: Any, form: str) -> None:
    m = made(lib) if form == "csr" else lib.tensor(DENSE).to_sparse()
    right, vector, left = lib.arange(8.0).reshape(4, 2), lib.arange(4.0), lib.arange(6.0).reshape(2, 3)
    want = (np.array(DENSE) @ right.numpy()).tolist()
    for out in (m @ right, lib.mm(m, right), lib.matmul(m, right), lib.sparse.mm(m, right), m.matmul(right)):
        assert out.tolist() == want
    along = (np.array(DENSE) @ vector.numpy()).tolist()
    assert [out.tolist() for out in (m @ vector, lib.mv(m, vector), lib.matmul(m, vector))] == [along] * 3
    assert (left @ m).tolist() == (left.numpy() @ np.array(DENSE)).tolist()
    with pytest.raises((RuntimeError, ValueError)):
        m @ lib.ones(3, 3)


def test_gradients() -> None:
    values, right = pf.tensor(VALUES, requires_grad=True), pf.ones(4, 2, requires_grad=True)
    m = pf.sparse_csr_tensor(STARTS, COLUMNS, values, (3, 4))
    (m @ right * pf.tensor([[1.0], [2.0], [3.0]])).sum().backward()
    assert values.grad.tolist() == [2.0, 2.0, 6.0, 6.0, 6.0]
    assert right.grad[:, 0].tolist() == [9.0, 13.0, 0.0, 17.0]


def test_wrong_ones() -> None:
    assert pf.sparse_csr_tensor(STARTS, COLUMNS, VALUES).shape == (3, 4)
    for starts, columns, values, size in (
        ([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)),
        ([1, 2], [0], [1.0], (1, 1)),
        ([0, 1], [3], [1.0], (1, 2)),
        ([0, 1], [0], [1.0, 2.0], (1, 2)),
        ([0, 1], [0], [1.0], (2, 2)),
        ([[0, 1]], [[0]], [[1.0]], (1, 1, 1)),
    ):
        with pytest.raises(pf.PyFlameError, match=r"\[sparse_csr_tensor\] expected"):
            pf.sparse_csr_tensor(starts, columns, values, size)
    with pytest.raises(pf.ShapeError, match="expected a matrix"):
        pf.ones(2, 2, 2).to_sparse_csr()
