"""Evaluation in C of graphs whose plan is known (engine/gpu_run.c), kernels given to NVIDIA's driver from there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import known
from pyflame.engine.devices import get_device
from pyflame.tensor import Tensor
from tests.gpu.nvidia import absent
from tests.rows import said_of_each
from tests.unit.test_known import PROGRAMS, _joined, _written

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_cuda")]
if absent():
    pytest.skip(absent(), allow_module_level=True)
CUDA = DeviceId("cuda")


@pytest.fixture
def on_cuda() -> Any:
    with pf.device(str(CUDA)):
        yield


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return said_of_each(monkeypatch)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_gives_what_python_gives(
    program: Callable[[], list[Tensor]], said: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[bytes]:
        made = program()
        for tensor in made:
            pf.eval(tensor)
        return [t.detach().numpy().tobytes() for t in made]

    for _ in range(4):
        run()
    said.clear()
    found = [run() for _ in range(4)]
    assert known.RAN in said or program in (_written, _joined)
    monkeypatch.setattr(known, "in_c", None)
    assert [run() for _ in range(4)] == found


def test_the_driver_is_called_from_c() -> None:
    assert get_device(CUDA).gpu.native_calls is not None  # type: ignore[union-attr]


def test_numbers_and_bad_indices(said: list[int]) -> None:
    x, good, bad = pf.arange(12.0).reshape(4, 3) + 0.0, pf.tensor([1, 2]), pf.tensor([1, 9])
    pf.eval(x, good, bad)
    for number in (0.5, 2.0, -1.0, 3.0, 4.0, 0.5):
        want = number * np.arange(12, dtype=np.float32).reshape(4, 3)[[1, 2]]
        np.testing.assert_array_equal((x[good] * number).numpy(), want)
    assert known.RAN in said
    pf.eval(x[bad] * 0.5)
    with pytest.raises(pf.IndexError, match=r"test_calls_on_nvidia\.py"):
        pf.synchronize()
    pf.synchronize()


def test_training_is_as_on_the_cpu() -> None:
    def losses(device: str) -> list[float]:
        with pf.device(device):
            pf.manual_seed(0)
            model = pf.nn.Sequential(
                pf.nn.Embedding(50, 32), pf.nn.Flatten(), pf.nn.Linear(4 * 32, 64), pf.nn.Dropout(0.1)
            )
            optimizer = pf.optim.AdamW(model.parameters(), lr=1e-2)
            out = []
            for _ in range(30):
                x, y = pf.randint(0, 50, (16, 4)), pf.randint(0, 64, (16,))
                optimizer.zero_grad()
                loss = pf.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                out.append(loss.item())
            return out

    np.testing.assert_allclose(losses(str(CUDA)), losses("cpu"), rtol=2e-4)
