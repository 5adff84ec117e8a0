"""Gathers of computed values: sums and exact functions are computed behind them, where that stores less."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf

rng = np.random.default_rng(7)
X = rng.normal(size=(6, 5, 40)).astype(np.float32)


def tensor(array: np.ndarray) -> pf.Tensor:
    out = pf.tensor(array)
    pf.eval(out)
    return out


def test_log_probabilities_at_targets_store_no_others():
    x, target = tensor(X[0]), tensor(np.array([3, 0, 39, 7, 7]))
    y = pf.gather(pf.log_softmax(x, 1), 1, target[:, None])
    stored = [np.prod(launch.shape) for launch in pf.explain(y, run=False).launches]
    assert max(stored) <= 5
    shifted = X[0] - X[0].max(1, keepdims=True)
    wanted = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    np.testing.assert_allclose(y.numpy()[:, 0], wanted[range(5), [3, 0, 39, 7, 7]], rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("small", [(6, 5, 1), (6, 1, 40), (1, 5, 1), (40,), (5, 1), ()])
def test_operands_of_every_shape(axis: int, small: tuple[int, ...]):
    x, y = tensor(X), tensor(rng.normal(size=small).astype(np.float32))
    index = rng.integers(X.shape[axis], size=[2 if a == axis else n for a, n in enumerate(X.shape)])
    wanted = np.take_along_axis(y.numpy() - np.maximum(X, y.numpy()), index, axis)
    found = pf.gather(y - pf.maximum(x, y), axis, tensor(index))
    np.testing.assert_array_equal(found.numpy(), wanted)
    rows = pf.index_select(x + y, axis, tensor(index.ravel()[:3]))
    np.testing.assert_array_equal(rows.numpy(), np.take(X + y.numpy(), index.ravel()[:3], axis))


def test_advanced_indices_among_slices():
    x, y = tensor(X), tensor(X[:, :1, :1])
    i, j = np.array([1, 5, 0]), np.array([2, 2, 39])
    np.testing.assert_array_equal((x - y)[i, :, j].numpy(), (X - X[:, :1, :1])[i, :, j])
    np.testing.assert_array_equal((x - y)[:, 1:3, j].numpy(), (X - X[:, :1, :1])[:, 1:3, j])


def test_what_others_read_has_the_same_bits_on_both_sides():
    """A product and a sum that become one instruction round once, apart they round twice."""
    a, b = tensor(X), tensor(X[::-1].copy())
    x = a * b + tensor(X[:, :1])
    assert int((x == x.max(2, keepdim=True).values).sum()) == 30
