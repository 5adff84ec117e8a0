"""The examples in the docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.optim import lr_scheduler

MODULES = """adadelta adafactor adagrad adam adamax asgd ema group lbfgs lion muon nadam optimizer radam rmsprop rprop
scaler sgd swa_utils"""
SCHEDULES = ["base", "combined", "cosine", "cycle", "decay", "plateau"]


def names() -> dict[str, Any]:
    """What the examples take for granted: a model, its optimiser, a loss, and what a training loop has around them."""
    model, head = nn.Linear(2, 1), nn.Linear(1, 1)
    loss = model(pf.ones(4, 2)).sum()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    optimizer.stepped = True
    scaler = optim.GradScaler()
    scaler.scale(model(pf.ones(4, 2)).sum()).backward()
    return {
        "pf": pf,
        "nn": nn,
        "optim": optim,
        "model": model,
        "head": head,
        "weights": [model.weight],
        "biases": [model.bias],
        "loss": loss,
        "norm": pf.tensor(1.0),
        "optimizer": optimizer,
        "scaler": scaler,
        "saved": {"optimizer": optimizer.state_dict()},
        "scheduler": lr_scheduler.ExponentialLR(optimizer, 0.9),
        "validation_loss": 0.5,
        "loader": [],
        "train_step": print,
        "evaluate": lambda model: None,
        **{name: getattr(lr_scheduler, name) for name in lr_scheduler.__all__},
    }


PATHS = [f"optim.{m}" for m in MODULES.split()] + [f"optim.lr_scheduler.{s}" for s in SCHEDULES] + ["tensor.clip"]


@pytest.mark.parametrize("name", PATHS)
def test_examples(name: str) -> None:
    module = importlib.import_module(f"pyflame.{name}")
    examples = [t for t in doctest.DocTestFinder().find(module, globs={}) if t.examples]
    assert examples
    for example in examples:
        example.globs = names()
        result = doctest.DocTestRunner().run(example)
        assert result.failed == 0, example.name
