"""expert_linear on a real NVIDIA GPU: the cases of the simulators, and the shapes of large models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.encoding import encoding
from tests.gpu import expert_cases
from tests.gpu.nvidia import absent

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

GPU = "cuda:0"
LOOSE = {4: 1e-4, 2: 2e-2}


@pytest.mark.parametrize("name", expert_cases.CASES)
def test_cases(name: str) -> None:
    def made(device: str) -> list[Any]:
        with pf.device(device):
            return [t.numpy().astype(np.float64) for t in expert_cases.CASES[name]()]

    for got, want in zip(made(GPU), made("cpu"), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-2 * np.abs(want).max())  # the CPU rounds x to 8 bits


@pytest.mark.parametrize("dtype", [pf.float32, pf.float16, pf.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "q8_0", "int4_g128", "mxfp4", None])
def test_layers(name: str | None, tokens: int, dtype: pf.DType) -> None:
    with pf.device(GPU):
        x, data, ids = expert_cases.operands(name, tokens, 4, 16, 200, 512, dtype)
        got = pf.expert_linear(x, data, ids, encoding=name).numpy().astype(np.float64)
    stack = encoding(name).decode(data.numpy()) if name else data.numpy()
    wide = np.broadcast_to(x.numpy().astype(np.float64)[:, None], (tokens, 4, 512))
    want = np.empty(got.shape)
    for matrix in range(16):
        mine = ids.numpy() % 16 == matrix
        want[mine] = wide[mine] @ stack[matrix].astype(np.float64).T
    np.testing.assert_allclose(got, want, atol=LOOSE[dtype.itemsize] * np.abs(want).max())


@pytest.mark.parametrize("rows", [2, 80])
def test_ids_are_checked(rows: int) -> None:
    ids = np.zeros(rows, np.int64)
    ids[-1] = 3
    with (
        pf.device(GPU),
        pytest.raises(pf.IndexError, match=r"\[expert_linear\] expected an index in \[-3, 2\] but got 3"),
    ):
        pf.expert_linear(pf.ones(rows, 32), pf.ones(3, 4, 32), pf.tensor(ids)).numpy()
