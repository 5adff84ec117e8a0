"""Convolution networks on a real NVIDIA GPU, channels-first and channels-last, with cuDNN and without, beside torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from benchmarks.gpu.models import ours
from benchmarks.models import SMALL
from pyflame.engine.evaluate import clear_plans
from tests.gpu.nvidia import absent
from tests.sim.test_layout import NETWORKS, X, loss_of

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)


@pytest.fixture(params=["cuDNN", "none"])
def libraries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_LIBRARIES", request.param)
    clear_plans()


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(libraries: None, name: str, layout: str, jitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_CONV_LAYOUT", layout)
    torch.manual_seed(5)
    theirs = NETWORKS[name](torch.nn, torch)
    state = {k: v.detach().clone().numpy() for k, v in theirs.state_dict().items()}
    given = torch.tensor(X, requires_grad=True)
    loss_of(theirs, given).backward()
    with pf.device("cuda:0"):
        ours = NETWORKS[name](pf.nn, pf)
        ours.load_state_dict({k: pf.tensor(v) for k, v in state.items()})

        def step(x: pf.Tensor) -> Any:
            loss_of(ours, x).backward()
            return x.grad

        run = pf.jit(step) if jitted else step
        for _ in range(4 if jitted else 1):  # the third call captures a graph, the fourth replays it
            ours.zero_grad()
            dx = run(pf.tensor(X, requires_grad=True))
        assert given.grad is not None
        np.testing.assert_allclose(dx.numpy(), given.grad.numpy(), rtol=1e-3, atol=1e-3)
        for (n, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert p.grad is not None and q.grad is not None
            far = 1e-3 * max(float(q.grad.abs().max()), 1.0)
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=far, err_msg=n)


@pytest.mark.parametrize("name", SMALL)
def test_models_learn(libraries: None, name: str) -> None:
    """A jitted step in bfloat16 autocast with AdamW lowers the loss of one batch."""
    with pf.device("cuda:0"):
        pf.manual_seed(1)
        step = ours(SMALL[name], lr=1e-2)
        losses = [step().item() for _ in range(12)]
        assert np.isfinite(losses).all() and losses[-1] < losses[0]
