"""Rewrites of assignments: what is read back needs none, and a tensor put together from its own parts is itself."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from tests.plans import launches

X = np.arange(24.0, dtype=np.float32).reshape(4, 6)


def tensor(array: np.ndarray = X) -> pf.Tensor:
    out = pf.tensor(array)
    pf.eval(out)
    return out


def test_a_slice_of_what_was_joined_is_the_part():
    x, y = tensor(), tensor(X + 100)
    part = pf.cat([x, y], 1)[:, 6:]
    assert launches(part) == 0
    np.testing.assert_array_equal(part.numpy(), X + 100)
    np.testing.assert_array_equal(pf.cat([x, y], 1)[:, 2:6].numpy(), X[:, 2:])


def test_a_slice_beside_an_assignment_does_not_wait_for_it():
    x = tensor()
    y = x * 2
    y[1:3, 2:4] = 7.0
    np.testing.assert_array_equal(y[3:].numpy(), X[3:] * 2)
    np.testing.assert_array_equal(y[1:3, 2:4].numpy(), np.full((2, 2), 7.0))
    np.testing.assert_array_equal(y[2:4, 1:3].numpy(), [[26.0, 7.0], [38.0, 40.0]])


def test_the_last_assignment_is_read():
    x = tensor() * 1
    x[:, 2:4] = 1.0
    x[:, 3:5] = 2.0
    want = X.copy()
    want[:, 2:4], want[:, 3:5] = 1, 2
    for at in (np.s_[:, 2:4], np.s_[:, 3:5], np.s_[:, 5:], np.s_[::-1, 2:4]):
        np.testing.assert_array_equal(x[at].numpy(), want[at])


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_in_their_places_are_the_whole(axis: int):
    x = tensor()
    first, second = x.chunk(2, axis)
    whole = pf.cat([first, second], axis)
    assert launches(whole) == 0
    np.testing.assert_array_equal(whole.numpy(), X)


def test_parts_in_other_places_are_not():
    x = tensor()
    first, second = x.chunk(2, 1)
    np.testing.assert_array_equal(pf.cat([second, first], 1).numpy(), np.roll(X, 3, 1))
    np.testing.assert_array_equal(pf.cat([first, second * 1], 1).numpy(), X)
    np.testing.assert_array_equal(pf.cat([first, second], 0).numpy(), np.concatenate([X[:, :3], X[:, 3:]]))
    np.testing.assert_array_equal(pf.cat([first, x[:, 2:5]], 1).numpy(), X[:, [0, 1, 2, 2, 3, 4]])
    other = tensor(X + 100)
    np.testing.assert_array_equal(pf.cat([first, other[:, 3:]], 1).numpy(), np.hstack([X[:, :3], X[:, 3:] + 100]))


def test_another_shape_may_hold_the_same_places():
    """(4, 6) in two columns of 3 is (4, 2, 3) in two slices."""
    x = tensor()
    whole = pf.stack([x.narrow(1, 0, 3), x.narrow(1, 3, 3)], 1)  # x[:, :3] may be a leaf over that memory
    assert launches(whole) == 0
    np.testing.assert_array_equal(whole.numpy(), X.reshape(4, 2, 3))
