"""GradScaler against torch's, with overflows on purpose, inside and outside of a jitted step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import optim
from pyflame.core.errors import ArgumentError, ArgumentTypeError, GradientError, StateDictError, TraceError
from tests.optim.problem import Problem, assert_same, data, pair

OPTIONS: dict[str, Any] = dict(init_scale=64.0, growth_interval=3, growth_factor=4.0, backoff_factor=0.25)
OVERFLOWS = {4: math.inf, 5: math.nan, 13: -math.inf}


def numbers(count: int) -> list[float]:
    return [OVERFLOWS.get(k, x) for k, x in enumerate(data(count))]


class Scaled(Problem):
    """A problem whose loss goes through a scaler."""

    def __init__(self, problem: Problem, scaler: Any, clip: Any) -> None:
        self.__dict__.update(vars(problem))
        self.scaler = scaler
        self.clip = clip

    def step(self, x: Any) -> Any:
        loss = self.loss(x)
        self.scaler.scale(loss).backward()
        if self.clip is not None:
            self.scaler.unscale_(self.optimizer)
            self.clip(self.params, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss


def scaled_pair(clip: bool) -> tuple[Scaled, Scaled]:
    ours, theirs = pair("AdamW", dict(lr=0.05), dict(weight_decay=0.0))
    return (
        Scaled(ours, optim.GradScaler(**OPTIONS), optim.clip_grad_norm_ if clip else None),
        Scaled(theirs, torch.amp.GradScaler("cpu", **OPTIONS), torch.nn.utils.clip_grad_norm_ if clip else None),
    )


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("clip", [False, True], ids=["plain", "clipped"])
def test_against_torch(clip: bool, jitted: bool) -> None:
    ours, theirs = scaled_pair(clip)
    step = pf.jit(ours.step) if jitted else ours.step
    for number, x in enumerate(numbers(25)):
        step(x), theirs.step(x)
        assert ours.scaler.state_dict() == theirs.scaler.state_dict(), f"at step {number}"
        assert_same(ours, theirs, f"after step {number}")
    assert theirs.scaler.get_scale() != 64.0
    steps = [[float(s["step"]) for s in p.optimizer.state_dict()["state"].values()] for p in (ours, theirs)]
    assert steps == [[22.0] * 5] * 2  # three of 25 were skipped
    if jitted:
        assert step.traces == 1  # type: ignore[attr-defined]


def test_update_outside_of_the_jitted_step() -> None:
    ours, theirs = scaled_pair(clip=False)

    @pf.jit
    def step(x: float) -> None:
        ours.scaler.scale(ours.loss(x)).backward()
        ours.scaler.step(ours.optimizer)
        ours.optimizer.zero_grad()

    for number, x in enumerate(numbers(15)):
        step(x), theirs.step(x)
        ours.scaler.update()
        assert ours.scaler.state_dict() == theirs.scaler.state_dict(), f"at step {number}"
    assert_same(ours, theirs, "at the end")
    assert step.traces == 1


def test_two_optimizers_share_a_scale() -> None:
    """An overflow in one skips that one alone, and lowers the scale of both."""
    a, b = (pf.tensor([1.0], requires_grad=True) for _ in range(2))
    first, second = optim.SGD([a], lr=0.1), optim.SGD([b], lr=0.1)
    scaler = optim.GradScaler(init_scale=8.0)

    @pf.jit
    def step(x: float, y: float) -> None:
        scaler.scale([(a * x).sum(), (b * y).sum()])[0].backward()
        scaler.scale(((b * y).sum(),))[0].backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()
        first.zero_grad()
        second.zero_grad()

    step(1.0, math.inf)
    assert (a.item(), b.item(), scaler.get_scale()) == (pytest.approx(0.9), 1.0, 4.0)
    step(1.0, 1.0)
    assert (a.item(), b.item(), scaler.get_scale()) == (pytest.approx(0.8), pytest.approx(0.9), 4.0)
    step(1.0, math.inf)
    assert scaler.get_scale() == 2.0
    scaler.scale(a.sum()).backward()
    scaler.step(first)
    scaler.update()  # the overflow of the other one belongs to the iteration before
    assert scaler.get_scale() == 2.0


def test_growth_stops_below_infinity() -> None:
    ours, theirs = scaled_pair(clip=False)
    for scaler in (ours.scaler, theirs.scaler):
        scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**126, "_growth_tracker": 2})
    for problem in (ours, theirs):
        for p in problem.params:
            p.grad = p.detach() * 0
        problem.scaler.scale(problem.params[0].sum())
        problem.scaler.step(problem.optimizer)
        problem.scaler.update()
    assert ours.scaler.state_dict() == theirs.scaler.state_dict()
    assert ours.scaler.get_scale() == 2.0**126


def test_options_change_without_another_trace() -> None:
    ours, theirs = scaled_pair(clip=False)
    step = pf.jit(ours.step)
    for number, x in enumerate(numbers(14)):
        if number == 7:
            for scaler in (ours.scaler, theirs.scaler):
                scaler.set_growth_factor(2.0)
                scaler.set_backoff_factor(0.5)
                scaler.set_growth_interval(2)
        if number == 10:
            ours.scaler.update(128.0)
            theirs.scaler.update(128.0)
        step(x), theirs.step(x)
        assert ours.scaler.state_dict() == theirs.scaler.state_dict(), f"at step {number}"
    assert step.traces == 1
    assert ours.scaler.get_growth_factor() == 2.0
    assert ours.scaler.get_backoff_factor() == 0.5
    assert ours.scaler.get_growth_interval() == 2


def test_saved_state_goes_on_identically() -> None:
    ours, theirs = scaled_pair(clip=False)
    for x in numbers(8):
        theirs.step(x)
    ours.scaler.load_state_dict(theirs.scaler.state_dict())
    assert ours.scaler.state_dict() == theirs.scaler.state_dict()
    with pytest.raises(StateDictError, match="empty dict"):
        ours.scaler.load_state_dict({})


def test_disabled_does_nothing() -> None:
    ours, _ = pair("SGD", dict(lr=0.1))
    scaler = optim.GradScaler(enabled=False)
    loss = ours.backward(1.0)
    before = ours.numbers()
    assert scaler.scale(loss) is loss
    scaler.unscale_(ours.optimizer)
    scaler.step(ours.optimizer)
    scaler.update()
    assert not np.array_equal(before[0], ours.numbers()[0])
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)


def test_wrong_order() -> None:
    ours, _ = pair("SGD", dict(lr=0.1))
    scaler = optim.GradScaler()
    with pytest.raises(GradientError, match=r"expected step\(optimizer\) before"):
        scaler.update()
    ours.backward(1.0)
    scaler.unscale_(ours.optimizer)
    with pytest.raises(GradientError, match="it is unscaled already"):
        scaler.unscale_(ours.optimizer)
    scaler.step(ours.optimizer)
    with pytest.raises(GradientError, match="one call per optimiser"):
        scaler.step(ours.optimizer)
    with pytest.raises(GradientError, match="it is stepped already"):
        scaler.unscale_(ours.optimizer)
    scaler.update()
    scaler.unscale_(ours.optimizer)


def test_unscaling_and_stepping_belong_into_one_function() -> None:
    """A replay would unscale again what the other function does not know to be unscaled."""
    ours, _ = pair("SGD", dict(lr=0.1))
    scaler = optim.GradScaler()
    ours.backward(1.0)
    pf.jit(lambda: scaler.unscale_(ours.optimizer))()
    with pytest.raises(TraceError, match="in one function"):
        pf.jit(lambda: scaler.step(ours.optimizer))()
    with pytest.raises(TraceError, match="in one function"):
        scaler.step(ours.optimizer)


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="growth_factor above 1"):
        optim.GradScaler(growth_factor=1.0)
    with pytest.raises(ArgumentError, match="backoff_factor below 1"):
        optim.GradScaler(backoff_factor=1.0)
    scaler = optim.GradScaler()
    with pytest.raises(ArgumentTypeError, match="expected a tensor"):
        scaler.scale(3)
    with pytest.raises(ArgumentTypeError, match="expected an optimiser"):
        scaler.step(torch.optim.SGD([torch.ones(1)]))  # type: ignore[arg-type]
    p = pf.ones(2, dtype=pf.float16, requires_grad=True)
    p.grad = pf.ones(2, dtype=pf.float16)
    with pytest.raises(ArgumentError, match="float16"):
        scaler.unscale_(optim.SGD([p]))
