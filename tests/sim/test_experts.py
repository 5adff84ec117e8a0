"""expert_linear on simulated GPUs: few and many lines, ids that change between replays, and what is never decoded."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import encoding
from tests.gpu import expert_cases

TARGETS = ("gfx942", "gfx1100")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [3, 40])
def test_ids_are_data_of_one_plan(rows: int, target: str) -> None:
    """All lines by one matrix, by all of them, and by the last: the parts are others every time."""
    device = pf.device(f"sim:{target}")
    with device:
        x, data, _ = expert_cases.operands("q4_0", rows, 2, 5, 9, 64, pf.float32)
        step = pf.jit(lambda x, data, ids: pf.expert_linear(x, data, ids, encoding="q4_0"))
        stack = encoding("q4_0").decode(data.numpy()).astype(np.float64)
        for ids in (np.zeros((rows, 2), int), np.arange(2 * rows).reshape(rows, 2) % 5, np.full((rows, 2), -1)):
            got = step(x, data, pf.tensor(ids)).numpy()
            want = np.einsum("rw,rsow->rso", x.numpy().astype(np.float64), stack[ids])
            np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("target", ["gfx90a", "gfx950", "gfx1201"])
def test_other_matrix_instructions(target: str) -> None:
    """gfx90a multiplies float16 as float32."""
    with pf.device(f"sim:{target}"):
        x, data, ids = expert_cases.operands("q4_0", 40, 2, 3, 20, 96, pf.float16)
        got = pf.expert_linear(x, data, ids, encoding="q4_0").numpy().astype(np.float64)
        stack = encoding("q4_0").decode(data.numpy()).astype(np.float64)
        want = np.einsum("rw,rsow->rso", x.numpy().astype(np.float64), stack[ids.numpy()])
        np.testing.assert_allclose(got, want, atol=2e-3 * np.abs(want).max())


@pytest.mark.parametrize("rows", [2, 80])
def test_ids_are_checked(rows: int) -> None:
    with pf.device("sim:gfx942"):
        for bad in (3, -4):
            ids = np.zeros(rows, np.int64)
            ids[-1] = bad
            with pytest.raises(pf.IndexError, match=rf"\[expert_linear\] expected an index in \[-3, 2\] but got {bad}"):
                pf.expert_linear(pf.ones(rows, 32), pf.ones(3, 4, 32), pf.tensor(ids)).numpy()


@pytest.mark.slow
def test_who_multiplies() -> None:
    """No stack is decoded or gathered, whatever the number of lines; float64 and odd widths are left to plain ops."""

    def launches(rows: int, width: int = 64, dtype: pf.DType = pf.float32) -> str:
        stack = pf.ones(8, 4, width, dtype=dtype)
        ids = pf.zeros(rows, 2, dtype=pf.int64)
        return str(pf.explain(pf.expert_linear, pf.ones(rows, width, dtype=dtype), stack, ids))

    with pf.device("sim:gfx942"):
        for rows in (1, 32, 33, 500):
            assert "experts_gpu" in launches(rows) and "gather" not in launches(rows)
        assert "experts_gpu" not in launches(1, dtype=pf.float64)
        assert "experts_gpu" not in launches(1, width=37) + launches(500, width=37)


def test_gradients_reach_the_input() -> None:
    with pf.device("sim:gfx1100"):
        x, data, ids = expert_cases.operands("q4_k", 40, 2, 3, 16, 256, pf.float32)
        x.requires_grad_()
        pf.expert_linear(x, data, ids, encoding="q4_k").sum().backward()
        assert x.grad is not None
        want = encoding("q4_k").decode(data.numpy())[ids.numpy()].sum((1, 2))
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-4, atol=1e-4)
