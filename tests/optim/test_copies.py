"""copy.deepcopy and pickle of optimisers, schedules and scalers: state is kept and training goes on identically."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.optim import lr_scheduler
from tests.optim.test_lr_scheduler import CASES

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.3),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.5),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Lion": lambda p: optim.Lion(p, lr=0.1),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}
X = pf.tensor(np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3))


def train(model: nn.Module, optimizer: optim.Optimizer, steps: int = 3) -> None:
    for _ in range(steps):
        (model(X) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def numbers(model: nn.Module) -> list[Any]:
    return [np.array(p.detach().numpy()) for p in model.parameters()]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_model_and_optimizer_together(name: str, way: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = OPTIMIZERS[name]([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.2}])
    train(model, optimizer)
    other, its = WAYS[way]((model, optimizer))
    assert its.param_groups[0]["params"][0] is other.weight and other.weight is not model.weight
    start = numbers(model)
    train(other, its)
    np.testing.assert_equal(numbers(model), start)  # the copy is on its own
    train(model, optimizer)
    np.testing.assert_equal(numbers(model), numbers(other))


@pytest.mark.parametrize("way", WAYS)
def test_an_optimizer_alone_copies_its_parameters(way: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.named_parameters(), lr=0.1)
    train(model, optimizer)
    made = WAYS[way](optimizer)
    mine = made.param_groups[0]["params"]
    assert mine[0] is not model.weight and mine[0].tolist() == model.weight.tolist()
    assert made.param_groups[0]["param_names"] == ["weight", "bias"]
    assert made.state_dict()["state"][0]["exp_avg"].tolist() == optimizer.state[model.weight]["exp_avg"].tolist()
    made.param_groups[0]["lr"] = 0.5
    assert optimizer.param_groups[0]["lr"] == 0.1


# Made of lambdas, which Python cannot pickle.
LAMBDAS = ("lambda", "lambdas", "multiplicative", "cyclic function", "sequential of the rest")


@pytest.mark.parametrize(("name", "way"), [(n, w) for n in CASES for w in WAYS if w == "deepcopy" or n not in LAMBDAS])
def test_schedules(name: str, way: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.5, momentum=0.9)
    schedule = CASES[name](lr_scheduler, optimizer)
    train(model, optimizer, 1)
    schedule.step()
    its, other = WAYS[way]((optimizer, schedule))
    assert other.optimizer is its
    for _ in range(5):
        schedule.step()
        other.step()
        assert [dict(g, params=None) for g in its.param_groups] == [
            dict(g, params=None) for g in optimizer.param_groups
        ]
    assert other.get_last_lr() == schedule.get_last_lr()


@pytest.mark.parametrize("way", WAYS)
def test_plateau_scaler_and_average(way: str) -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.AdamW(model.parameters())
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    scaler = optim.GradScaler(init_scale=8.0)
    average = optim.WeightAverage(model.parameters())
    scaler.scale((model(X) ** 2).sum()).backward()
    scaler.step(optimizer)
    with pytest.raises(pf.StateDictError, match=r"call update\(\) first"):
        WAYS[way](scaler)
    scaler.update()
    average.update()
    plateau.step(1.0)
    its, made, mine, kept = WAYS[way]((optimizer, plateau, scaler, average))
    for schedule in (plateau, made):
        schedule.step(2.0)
    assert its.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)
    assert mine.state_dict() == scaler.state_dict()
    assert kept.params[0] is its.param_groups[0]["params"][0]
    assert kept.averages[0].tolist() == average.averages[0].tolist()
