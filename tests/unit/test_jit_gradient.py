"""Gradients flow through jitted functions, and a jitted module has its module's attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim


def grads(model: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(p.grad.numpy()) for p in model.parameters()]


def test_a_jitted_module_is_differentiable() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    fast = pf.jit(model)
    x = pf.randn(5, 3).requires_grad_()
    results = []
    for run in (model, fast, fast, fast):
        model.zero_grad()
        x.grad = None
        (run(x) ** 2).sum().backward()
        results.append([*grads(model), np.array(x.grad.numpy())])
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert fast.traces == 1


def test_gradients_pass_to_what_the_arguments_were_computed_from() -> None:
    w = pf.ones(3, requires_grad=True)
    cube = pf.jit(lambda a, b: {"y": a * a * a + b, "n": (a > 0).sum(), "z": b * 2})
    for _ in range(2):
        w.grad = None
        out = cube(w * 2, pf.ones(3))
        (out["y"].sum() + (w * 5).sum()).backward()
        np.testing.assert_allclose(w.grad.numpy(), [24.0 + 5.0] * 3)
        assert not out["n"].requires_grad and not out["z"].requires_grad


def test_training_around_a_jitted_model() -> None:
    """As torch.compile is used: the model is jitted, loss and optimiser are not."""
    losses: dict[bool, list[float]] = {}
    for jitted in (False, True):
        pf.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        run = pf.jit(model) if jitted else model
        optimizer = optim.AdamW(run.parameters(), lr=0.05)
        x = pf.randn(16, 4)
        target = x.sum(-1, keepdims=True)
        losses[jitted] = []
        for _ in range(6):
            loss = ((run(x) - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[jitted].append(loss.item())
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert losses[True][-1] < losses[True][0]


def test_state_and_random_numbers_stay_right() -> None:
    """A module that changes state, or draws, is recorded op by op where its gradient is wanted."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    fast = pf.jit(model)
    x = pf.randn(6, 3)
    for step in range(1, 4):
        fast(x).sum().backward()
        assert model[1].num_batches_tracked.item() == step
    assert model[0].weight.grad is not None
    fast.eval()
    with pf.no_grad():
        a, b = fast(x), model(x)
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    assert model[1].num_batches_tracked.item() == 3


def test_a_whole_step_stays_one_plan() -> None:
    model = nn.Linear(3, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @pf.jit
    def step(x: Any) -> Any:
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = pf.randn(4, 3)
    losses = [step(x) for _ in range(3)]
    assert step.traces == 1 and losses[2].item() < losses[0].item() and not losses[0].requires_grad


def test_attributes_of_the_module() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
    fast = pf.jit(model)
    assert list(fast.parameters()) == list(model.parameters())
    assert list(fast.state_dict()) == ["0.weight", "0.bias"]
    assert fast.eval() is model and not fast.training
    assert pf.jit(nn.Linear(2, 3)).weight.shape == (3, 2)
    with pytest.raises(AttributeError):
        fast.nothing_of_that_name
    with pytest.raises(AttributeError):
        pf.jit(lambda x: x).parameters


def test_higher_derivatives_say_what_to_do() -> None:
    square = pf.jit(lambda a: (a * a).sum())
    x = pf.ones(2, requires_grad=True)
    with pytest.raises(pf.GradientError, match="for higher ones"):
        pf.autograd.grad(square(x), x, create_graph=True)


def test_a_module_that_was_moved_to_where_it_is_gets_gradients() -> None:
    model = nn.Linear(3, 2).to("cpu")
    pf.jit(model)(pf.ones(4, 3)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
