"""A small problem without a model that PyFlame and torch solve side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pyflame as pf
from pyflame import optim

# A matrix, an odd vector, 0-d, one element, more axes. The first three are group 0, the others group 1.
SHAPES: list[tuple[int, ...]] = [(5, 3), (), (1,), (7,), (2, 3, 2)]
STEPS = 50


def arrays(seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(s), dtype=np.float32) for s in SHAPES]


def data(steps: int = STEPS) -> list[float]:
    """A number for each step: what a batch is to a model."""
    return [float(v) for v in np.random.default_rng(1).uniform(0.2, 1.5, steps).astype(np.float32)]


def loss_of(params: list[Any], targets: list[Any], x: Any) -> Any:
    """One formula for both libraries."""
    total = 0.0
    for p, t in zip(params, targets, strict=True):
        total = ((p - t) * (p - t) * x).sum() + (p * x).sum() + total
    return total


class Problem:
    """Parameters and targets in one of the two libraries, and an optimiser over two groups of them."""

    def __init__(self, library: Any, make: Callable[..., Any], group: dict[str, Any] | None = None) -> None:
        self.params = [library.tensor(a, requires_grad=True) for a in arrays()]
        self.targets = [library.tensor(a) for a in arrays(7)]
        self.library = library
        self.optimizer = make([{"params": self.params[:3]}, {"params": self.params[3:], **(group or {})}])

    def loss(self, x: Any, used: list[int] | None = None) -> Any:
        chosen = range(len(self.params)) if used is None else used
        return loss_of([self.params[i] for i in chosen], [self.targets[i] for i in chosen], x)

    def backward(self, x: Any, used: list[int] | None = None) -> Any:
        loss = self.loss(x, used)
        loss.backward()
        return loss

    def step(self, x: Any) -> Any:
        loss = self.backward(x)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def numbers(self) -> list[np.ndarray[Any, Any]]:
        return [np.array(p.detach().numpy()) for p in self.params]


def pair(name: str, options: dict[str, Any], group: dict[str, Any] | None = None) -> tuple[Problem, Problem]:
    """The same problem in PyFlame and in torch."""
    ours, theirs = getattr(optim, name), getattr(torch.optim, name)
    return (
        Problem(pf, lambda groups: ours(groups, **options), group),
        Problem(torch, lambda groups: theirs(groups, foreach=False, **options), group),
    )


def assert_same(ours: Problem, theirs: Problem, what: str, rtol: float = 3e-6, atol: float = 1e-6) -> None:
    for number, (a, b) in enumerate(zip(ours.numbers(), theirs.numbers(), strict=True)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=f"parameter {number} {what}")
