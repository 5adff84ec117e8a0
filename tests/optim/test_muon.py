"""Muon against torch's. Its update is computed in bfloat16, so the two agree to what that keeps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import optim
from tests.optim.problem import data, loss_of

SHAPES = [(5, 3), (3, 8), (4, 4), (1, 6)]
OPTIONS: list[dict[str, Any]] = [
    dict(lr=0.05),
    dict(lr=0.05, nesterov=False, weight_decay=0.0, momentum=0.5, adjust_lr_fn="match_rms_adamw"),
    dict(lr=0.02, ns_steps=3, ns_coefficients=(2.0, -1.5, 0.5), eps=1e-3, adjust_lr_fn="original"),
]


class Run:
    """Matrices of one of the two libraries on their way to targets."""

    def __init__(self, lib: Any, options: dict[str, Any]) -> None:
        rng = np.random.default_rng(0)
        self.params = [lib.tensor(rng.standard_normal(s).astype(np.float32), requires_grad=True) for s in SHAPES]
        self.targets = [lib.tensor(rng.standard_normal(s).astype(np.float32)) for s in SHAPES]
        self.optimizer = lib.optim.Muon(self.params, **options)

    def step(self, x: Any) -> None:
        loss_of(self.params, self.targets, x).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def numbers(self) -> list[Any]:
        return [np.array(p.detach().numpy()) for p in self.params]


def close(ours: Run, theirs: Run, atol: float) -> None:
    for a, b in zip(ours.numbers(), theirs.numbers(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("options", OPTIONS, ids=["default", "plain", "coefficients"])
def test_against_torch(options: dict[str, Any], jitted: bool) -> None:
    ours, theirs = Run(pf, options), Run(torch, options)
    step = pf.jit(ours.step) if jitted else ours.step
    for number, x in enumerate(data(8)):
        step(x), theirs.step(x)
        close(ours, theirs, 0.03 * options["lr"] * (number + 1))
    if jitted:
        assert step.traces == 1  # type: ignore[attr-defined]
    moved = [np.abs(a - b).max() for a, b in zip(ours.numbers(), Run(pf, options).numbers(), strict=True)]
    assert min(moved) > 2 * options["lr"]  # far more than the tolerance


def test_state_goes_both_ways() -> None:
    ours, theirs = Run(pf, OPTIONS[0]), Run(torch, OPTIONS[0])
    assert ours.optimizer.state_dict()["state"] == {}
    for x in data(4):
        theirs.step(x)
    for p, q in zip(ours.params, theirs.params, strict=True):
        with pf.no_grad():
            p.copy_(pf.tensor(q.detach()))
    ours.optimizer.load_state_dict(theirs.optimizer.state_dict())
    for x in data(4):
        ours.step(x), theirs.step(x)
    close(ours, theirs, 0.03 * OPTIONS[0]["lr"] * 4)
    saved = copy.deepcopy(ours.optimizer.state_dict())
    assert [sorted(entry) for entry in saved["state"].values()] == [["momentum_buffer"]] * len(SHAPES)
    for i, entry in theirs.optimizer.state_dict()["state"].items():
        np.testing.assert_allclose(
            saved["state"][i]["momentum_buffer"].numpy(), entry["momentum_buffer"].numpy(), atol=0.02
        )
    assert saved["param_groups"][0].keys() == theirs.optimizer.state_dict()["param_groups"][0].keys()


def test_errors() -> None:
    p = pf.ones(2, 3, requires_grad=True)
    with pytest.raises(pf.ArgumentError, match=r"parameters of 2 axes but got one of shape \(3,\)"):
        optim.Muon([pf.ones(3, requires_grad=True)])
    with pytest.raises(pf.ArgumentError, match="adjust_lr_fn among"):
        optim.Muon([p], adjust_lr_fn="other")
    with pytest.raises(pf.ArgumentError, match="fewer than 100 ns_steps but got 100"):
        optim.Muon([p], ns_steps=100)
    with pytest.raises(pf.ArgumentError, match="3 ns_coefficients but got 2"):
        optim.Muon([p], ns_coefficients=(1.0, 2.0))  # type: ignore[arg-type]
    with pytest.raises(pf.ArgumentError, match="beta2_decay of at most 0"):
        optim.Adafactor([p], beta2_decay=0.1)
    with pytest.raises(pf.ArgumentError, match="d of at least 1"):
        optim.Adafactor([p], d=0.5)
    with pytest.raises(pf.ArgumentError, match="eps of at least 0"):
        optim.Adafactor([p], eps=(-1.0, 0.0))
