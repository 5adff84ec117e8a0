"""The CPU's sort kernel where few of many are wanted: the first of equal elements, in their order."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.int8])
@pytest.mark.parametrize(("length", "take"), [(600, 7), (600, 70), (5000, 300)])
def test_few_of_many_with_ties(length: int, take: int, dtype: pf.DType, descending: bool) -> None:
    x = np.random.default_rng(0).integers(-6, 7, (2, length)).astype(dtype.numpy)
    values, positions = pf.topk(pf.tensor(x), take, largest=descending)
    want = np.argsort(-x if descending else x, axis=-1, kind="stable")[:, :take]
    np.testing.assert_array_equal(positions.numpy(), want)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, -1))
