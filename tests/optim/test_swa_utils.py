"""optim.swa_utils against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn, optim
from pyflame.optim import swa_utils

KINDS: dict[str, Any] = {
    "equal": lambda u: {},
    "equal, one by one": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "equal, lists": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "exponential": lambda u: {"avg_fn": u.get_ema_avg_fn(0.8)},
    "exponential, lists": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.8)},
    "own": lambda u: {"avg_fn": lambda a, b, n: a + (b - a) / (n + 3)},
}


def pair() -> tuple[Any, Any]:
    """A model with batch normalisation in both libraries, of equal weights."""
    models = [lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 1)) for lib in (pf, torch)]
    models[1].load_state_dict({k: torch.tensor(np.array(v.numpy())) for k, v in models[0].state_dict().items()})
    return models[0], models[1]


def batches(count: int) -> list[Any]:
    return list(np.random.default_rng(0).standard_normal((count, 5, 3)).astype(np.float32))


def same(ours: Any, theirs: Any) -> None:
    want = theirs.state_dict()
    got = ours.state_dict()
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].shape == tuple(value.shape) and str(value.dtype).endswith(got[name].dtype.name)
        np.testing.assert_allclose(got[name].numpy(), value.numpy(), rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", KINDS)
def test_averages(kind: str, jitted: bool, use_buffers: bool) -> None:
    ours, theirs = pair()
    average = swa_utils.AveragedModel(ours, use_buffers=use_buffers, **KINDS[kind](swa_utils))
    # torch's function of lists refuses integers, as BatchNorm's counter
    same_kind = "equal" if use_buffers and kind == "equal, lists" else kind
    options = KINDS[same_kind](torch.optim.swa_utils)
    other = torch.optim.swa_utils.AveragedModel(theirs, use_buffers=use_buffers, **options)
    optimizer, second = optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        ours(x).square().sum().backward()
        optimizer.step()
        average.update_parameters(ours)

    run = pf.jit(step) if jitted else step
    for x in batches(5):
        run(pf.tensor(x))
        second.zero_grad()
        theirs(torch.tensor(x)).square().sum().backward()
        second.step()
        other.update_parameters(theirs)
        same(average, other)
    x = batches(1)[0]
    average.eval(), other.eval()
    got, want = average(pf.tensor(x)), other(torch.tensor(x))
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    again = swa_utils.AveragedModel(ours)
    again.load_state_dict(average.state_dict())
    same(again, other)


def test_update_bn() -> None:
    ours, theirs = pair()
    ours.eval(), theirs.eval()
    swa_utils.update_bn([pf.tensor(x) for x in batches(3)], ours)
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x in batches(3)], theirs)
    same(ours, theirs)
    assert not ours.training and ours[1].momentum == 0.1
    swa_utils.update_bn([(pf.tensor(x), 1) for x in batches(2)], ours, device="cpu")
    torch.optim.swa_utils.update_bn([(torch.tensor(x), 1) for x in batches(2)], theirs)
    same(ours, theirs)
    swa_utils.update_bn(iter(()), nn.Linear(2, 2))  # nothing to do


@pytest.mark.parametrize("epochs", [0, 1, 4])
@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_swalr(strategy: str, epochs: int) -> None:
    rates = []
    for lib in (pf, torch):
        params = [lib.ones(2, requires_grad=True) for _ in range(2)]
        optimizer = lib.optim.SGD([{"params": params[:1], "lr": 0.5}, {"params": params[1:]}], lr=0.1)
        scheduler = lib.optim.swa_utils.SWALR(optimizer, [0.05, 0.2], epochs, strategy)
        seen = []
        for number in range(7):
            optimizer.step()
            scheduler.step()
            seen.append(scheduler.get_last_lr())
            if number == 2:  # go on from what was saved
                saved = scheduler.state_dict()
                scheduler = lib.optim.swa_utils.SWALR(optimizer, [0.05, 0.2], epochs, strategy)
                scheduler.load_state_dict(saved)
                for group, lr in zip(optimizer.param_groups, seen[-1], strict=True):
                    group["lr"] = lr
        rates.append(seen)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-12)


def test_errors() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(pf.ArgumentError, match="avg_fn or multi_avg_fn but got both"):
        swa_utils.AveragedModel(model, avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
    with pytest.raises(pf.ArgumentError, match=r"decay in \[0, 1\] but got 1\.5"):
        swa_utils.get_ema_multi_avg_fn(1.5)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(pf.ArgumentError, match="'cos' or 'linear' but got 'other'"):
        swa_utils.SWALR(optimizer, 0.1, anneal_strategy="other")
    with pytest.raises(pf.ArgumentError, match="at least 0 but got -1"):
        swa_utils.SWALR(optimizer, 0.1, anneal_epochs=-1)
