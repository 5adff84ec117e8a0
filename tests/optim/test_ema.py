"""Weight averaging against torch's AveragedModel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import pyflame as pf
from pyflame import optim
from pyflame.core.errors import ArgumentError, StateDictError
from tests.optim.problem import arrays, data


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("decay", [0.9, None], ids=["exponential", "equal"])
def test_against_torch(decay: float | None, jitted: bool) -> None:
    params = [pf.tensor(a, requires_grad=True) for a in arrays()]
    model = torch.nn.ParameterList([torch.tensor(a) for a in arrays()])
    average = optim.WeightAverage(params, decay)
    other = AveragedModel(model, multi_avg_fn=None if decay is None else get_ema_multi_avg_fn(decay))

    def change(x: float) -> None:
        with pf.no_grad():
            for p in params:
                p *= x
        average.update()

    step = pf.jit(change) if jitted else change
    for x in data(12):
        step(x)
        with torch.no_grad():
            for q in model:
                q *= x
        other.update_parameters(model)
        for a, b in zip(average.averages, other.module, strict=True):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=2e-6, atol=1e-7)
    if jitted:
        assert step.traces == 1  # type: ignore[attr-defined]


def test_applied_for_a_while() -> None:
    p = pf.tensor([1.0, 2.0], requires_grad=True)
    average = optim.WeightAverage([p], decay=0.5)
    average.update()
    with pf.no_grad():
        p += 2.0
    average.update()
    with average.applied():
        np.testing.assert_allclose(p.detach().numpy(), [2.0, 3.0])
    np.testing.assert_allclose(p.detach().numpy(), [3.0, 4.0])
    average.copy_to_params()
    np.testing.assert_allclose(p.detach().numpy(), [2.0, 3.0])
    assert p.requires_grad and p.is_leaf


def test_saved_and_loaded() -> None:
    p = pf.tensor([1.0, 2.0], requires_grad=True)
    first, second = optim.WeightAverage([p], None), optim.WeightAverage([p], None)
    first.update()
    with pf.no_grad():
        p *= 3.0
    second.load_state_dict(first.state_dict())
    first.update(), second.update()
    np.testing.assert_array_equal(first.averages[0].numpy(), [2.0, 4.0])
    np.testing.assert_array_equal(second.averages[0].numpy(), first.averages[0].numpy())
    assert second.state_dict()["updates"] == 2
    with pytest.raises(StateDictError, match="shapes"):
        optim.WeightAverage([pf.ones(3)]).load_state_dict(first.state_dict())


def test_errors() -> None:
    with pytest.raises(ArgumentError, match=r"decay in \[0, 1\] but got 2"):
        optim.WeightAverage([pf.ones(2)], decay=2)
    with pytest.raises(ArgumentError, match="empty list"):
        optim.WeightAverage([])
