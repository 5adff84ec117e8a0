"""Training, kernels and copies on `cuda:0`, compared with the CPU: the programs of tests/runtime/test_emulated.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.devices import GPUS
from tests.gpu.function_errors import FUNCTIONS, check, check_remainders
from tests.runtime import test_emulated as emulated

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS["cuda"].count() == 0, reason=GPUS["cuda"].why_absent() or "there is one"),
]


@pytest.fixture
def gpu() -> Iterator[str]:
    with pf.device("cuda:0"):
        yield "cuda:0"


test_mlp = emulated.test_mlp_learns_as_on_the_cpu
test_cnn = emulated.test_cnn_learns_as_on_the_cpu
test_gpt = emulated.test_gpt_learns_as_on_the_cpu
test_kernels = emulated.test_kernels
test_in_place = emulated.test_state_is_updated_in_place
test_moves = emulated.test_moves_between_devices


def test_bad_index(gpu: str) -> None:
    rows = pf.embedding(pf.ones(4, 2), pf.tensor([0, 9]))
    with pytest.raises(pf.IndexError, match=r"expected an index in \[-4, 3\] but got 9"):
        rows.numpy()


@pytest.mark.parametrize(
    "program",
    [
        lambda: pf.randn(513, 700) @ pf.randn(700, 300),
        lambda: pf.randn(8, 129, 65) @ pf.randn(8, 65, 33),
        lambda: pf.softmax(pf.randn(1000, 5000), -1),
        lambda: pf.conv2d(pf.randn(4, 16, 33, 31), pf.randn(24, 16, 3, 3), padding=1, stride=2),
        lambda: pf.sort(pf.randn(20, 5000), -1)[0],
        lambda: pf.cumsum(pf.randn(7, 30000), 1) / 100.0,
        lambda: pf.randn(3000, 1700).T.contiguous(),
    ],
)
def test_large(gpu: str, program: Callable[[], Any]) -> None:
    emulated.agree(gpu, program, rtol=1e-3, atol=2e-3)


def test_info(gpu: str) -> None:
    info = pf.device_info()
    assert info["type"] == "cuda" and info["arch"].startswith("sm_") and info["total_memory"] > 1 << 30
    assert np.isfinite(pf.randn(10).numpy()).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Instructions of the GPU's own stand for polynomials."""
    print(f"{name}: {check(name, 'cuda:0', 1 << 20):.2f} ulp")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders(dtype: type) -> None:
    check_remainders("cuda:0", dtype, 1 << 18)
