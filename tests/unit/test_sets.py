"""unique, bincount and equal: what evaluates at once, against torch; and indices of triangles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyflame as pf

ROWS = np.array([[2, 1, 2, 2], [2, 1, 2, 2], [0, 5, 0, 0], [2, 1, 2, 1]])
CASES = {
    "integers": np.array([3, 1, 3, 3, 2, 2]),
    "floats": np.array([0.5, -1.0, 0.5, np.inf, -0.0, 0.0, np.nan, np.nan]),
    "bools": np.array([True, False, True]),
    "matrix": ROWS,
    "number": np.array(4),
    "empty": np.zeros((0, 3)),
}


def check(got: object, want: object) -> None:
    gots, wants = (v if isinstance(v, tuple) else (v,) for v in (got, want))
    for g, w in zip(gots, wants, strict=True):
        assert g.dtype is pf.as_dtype(w.dtype)
        np.testing.assert_array_equal(g.numpy(), w.numpy())


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_unique(case: str, both: bool) -> None:
    x, options = CASES[case], {"return_inverse": both, "return_counts": both}
    check(pf.unique(pf.tensor(x), **options), torch.unique(torch.from_numpy(x), **options))
    check(pf.tensor(x).unique_consecutive(**options), torch.from_numpy(x).unique_consecutive(**options))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_unique_slices(dim: int) -> None:
    options = {"return_inverse": True, "return_counts": True, "dim": dim}
    check(pf.unique(pf.tensor(ROWS), **options), torch.unique(torch.from_numpy(ROWS), **options))
    check(
        pf.unique_consecutive(pf.tensor(ROWS), **options), torch.unique_consecutive(torch.from_numpy(ROWS), **options)
    )
    cube = pf.tensor(ROWS.reshape(4, 2, 2))
    check(pf.unique(cube, dim=0), torch.unique(torch.from_numpy(ROWS.reshape(4, 2, 2)), dim=0))


@pytest.mark.parametrize(("shape", "dim"), [((0, 3), 0), ((3, 0), 1), ((0,), 0)])
def test_unique_along_an_empty_axis(shape: tuple[int, ...], dim: int) -> None:
    options = {"return_inverse": True, "return_counts": True, "dim": dim}
    check(pf.unique(pf.ones(shape), **options), torch.unique(torch.ones(shape), **options))


@pytest.mark.parametrize(("shape", "dim"), [((0, 3), 1), ((3, 0), 0), ((0, 0), 0)])
def test_unique_of_empty_slices_is_refused(shape: tuple[int, ...], dim: int) -> None:
    with pytest.raises(pf.ShapeError, match="expected slices with elements"):
        pf.unique(pf.ones(shape), dim=dim)


def test_unique_of_small_floats() -> None:
    x = pf.tensor([2.0, 1.0, 2.0], dtype=pf.bfloat16)
    out, where = pf.unique(x, return_inverse=True)
    assert out.dtype is pf.bfloat16 and out.tolist() == [1.0, 2.0] and where.tolist() == [1, 0, 1]


def test_bincount() -> None:
    x, weights = np.array([4, 1, 1, 0]), np.array([0.5, 1.0, 2.0, 4.0])
    for w in (None, weights, weights.astype(np.float32), np.arange(4)):
        for least in (0, 2, 8):
            given = [None, None] if w is None else [pf.tensor(w), torch.from_numpy(w)]
            check(pf.bincount(pf.tensor(x), given[0], least), torch.bincount(torch.from_numpy(x), given[1], least))
    assert pf.bincount(pf.zeros(0, dtype=pf.int64)).shape == (0,)
    for bad in (pf.tensor([-1]), pf.tensor([0.5]), pf.tensor([[1]])):
        with pytest.raises(pf.PyFlameError, match=r"\[bincount\] expected"):
            pf.bincount(bad)


def test_equal() -> None:
    x = pf.tensor([1.0, 2.0])
    assert pf.equal(x, pf.tensor([1.0, 2.0])) is True
    assert x.equal(pf.tensor([1.0, 3.0])) is False
    assert not pf.equal(x, pf.tensor([[1.0, 2.0]])) and not pf.equal(x, pf.tensor([1.0, float("nan")]))
    assert pf.equal(pf.zeros(0), pf.zeros(0))


@pytest.mark.parametrize("fn", [pf.unique, pf.unique_consecutive, lambda x: pf.bincount(x), lambda x: pf.equal(x, x)])
def test_under_jit_they_raise(fn: object) -> None:
    with pytest.raises(pf.TraceError, match="expected"):
        pf.jit(fn)(pf.tensor([1, 2, 2]))


@pytest.mark.parametrize("offset", [-2, 0, 1, 9])
@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (4, 2), (0, 3), (1, 1)])
def test_indices_of_triangles(rows: int, columns: int, offset: int) -> None:
    check(pf.tril_indices(rows, columns, offset), torch.tril_indices(rows, columns, offset))
    check(pf.triu_indices(rows, columns, offset), torch.triu_indices(rows, columns, offset))
