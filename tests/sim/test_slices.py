"""Slices of what is in a GPU's memory are pointers into it, at any element: no kernel may rely on their alignment."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import plan_stats


@pytest.mark.parametrize("dtype", [pf.float32, pf.float16])
def test_where_a_slice_begins_is_data_on_a_gpu_too(dtype: pf.DType) -> None:
    array = np.random.default_rng(0).standard_normal((9, 16)).astype(dtype.numpy)
    with pf.device("sim:gfx942"):
        x = pf.tensor(array)
        flat = x.reshape(-1)
        (flat[0:64] * 2).sum().item(), (x[:, 0:4] @ x[:, 0:4].T).numpy()
        plans = plan_stats.misses
        for i in (1, 2, 3, 5, 8, 11):
            part = array.reshape(-1)[i : i + 64].astype(np.float64)
            total = (flat[i : i + 64] * 2).sum().item()  # not in the assert, which would keep what it is made of
            assert total == pytest.approx(2 * part.sum(), abs=0.05)
            columns = array[:, i : i + 4].astype(np.float64)
            got = (x[:, i : i + 4] @ x[:, i : i + 4].T).numpy()
            np.testing.assert_allclose(got, columns @ columns.T, rtol=2e-2, atol=2e-2)
            element = x[i % 9, i].item()
            assert element == array[i % 9, i]
        assert plan_stats.misses == plans


def test_assignments_and_long_loops_on_a_gpu() -> None:
    array = np.zeros((6, 4), np.float32)
    with pf.device("sim:gfx942"):
        x = pf.tensor(array)
        for i in range(5):
            x[i : i + 2] = pf.full((4,), float(i))
            array[i : i + 2] = i
            np.testing.assert_array_equal(x.numpy(), array)
        y = pf.tensor(array)
        for _ in range(70):  # one graph, computed in portions
            y = y * 0.5 + (y.sum(axis=1, keepdims=True) * 0.01)
            array = array * np.float32(0.5) + array.sum(1, keepdims=True) * np.float32(0.01)
        np.testing.assert_allclose(y.numpy(), array, rtol=1e-3, atol=1e-12)
