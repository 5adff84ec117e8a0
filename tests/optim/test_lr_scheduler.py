"""Schedules against torch over 60 steps, and beside a jitted step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyflame as pf
from pyflame import optim
from pyflame.core.errors import ArgumentError, ArgumentTypeError, TraceError
from pyflame.optim import lr_scheduler

STEPS = 60
Make = Callable[[Any, Any], Any]  # (module of schedules, optimiser) -> schedule


def optimizers(name: str = "SGD", **options: Any) -> tuple[Any, Any]:
    """The same optimiser of two groups in both libraries."""

    def groups(library: Any) -> list[dict[str, Any]]:
        return [
            {"params": [library.tensor([1.0], requires_grad=True)]},
            {"params": [library.tensor([2.0], requires_grad=True)], "lr": 0.2},
        ]

    options = {"lr": 0.5, **options}
    return getattr(optim, name)(groups(pf), **options), getattr(torch.optim, name)(groups(torch), **options)


CASES: dict[str, Make] = {
    "step": lambda m, o: m.StepLR(o, 7, gamma=0.5),
    "multistep": lambda m, o: m.MultiStepLR(o, [30, 4, 4, 11], gamma=0.3),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.93),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, T_max=13, eta_min=0.01),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, T_0=9),
    "restarts growing": lambda m, o: m.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.02),
    "linear": lambda m, o: m.LinearLR(o, start_factor=0.1, end_factor=0.8, total_iters=20),
    "constant": lambda m, o: m.ConstantLR(o, factor=0.3, total_iters=8),
    "polynomial": lambda m, o: m.PolynomialLR(o, total_iters=40, power=1.7),
    "lambda": lambda m, o: m.LambdaLR(o, lambda e: 1 / (1 + e)),
    "lambdas": lambda m, o: m.LambdaLR(o, [lambda e: 0.9**e, lambda e: math.cos(e)]),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9 if e % 3 else 1.1),
    "one cycle": lambda m, o: m.OneCycleLR(o, max_lr=[1.0, 2.0], total_steps=60),
    "one cycle linear": lambda m, o: m.OneCycleLR(
        o, max_lr=1.0, epochs=6, steps_per_epoch=11, anneal_strategy="linear", pct_start=0.25, base_momentum=0.7
    ),
    "one cycle three phases": lambda m, o: m.OneCycleLR(
        o, max_lr=0.4, total_steps=61, three_phase=True, max_momentum=[0.99, 0.9]
    ),
    "cyclic": lambda m, o: m.CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=7, step_size_down=5),
    "cyclic halving": lambda m, o: m.CyclicLR(o, 0.01, [0.1, 0.2], step_size_up=6, mode="triangular2"),
    "cyclic exponential": lambda m, o: m.CyclicLR(
        o, 0.01, 0.1, step_size_up=6, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "cyclic function": lambda m, o: m.CyclicLR(o, 0.01, 0.1, step_size_up=4, scale_fn=lambda x: 1 / x),
    "sequential": lambda m, o: m.SequentialLR(
        o,
        [
            m.LinearLR(o, start_factor=0.1, total_iters=10),
            m.CosineAnnealingLR(o, T_max=20),
            m.ExponentialLR(o, 0.8),
            m.CosineAnnealingWarmRestarts(o, T_0=5),
        ],
        milestones=[10, 30, 40],
    ),
    "sequential of steps": lambda m, o: m.SequentialLR(
        o, [m.ConstantLR(o, 0.5, total_iters=99), m.StepLR(o, 3), m.MultiStepLR(o, [2, 5])], milestones=[5, 17]
    ),
    "sequential of the rest": lambda m, o: m.SequentialLR(
        o,
        [
            m.LambdaLR(o, lambda e: 0.9**e),
            m.PolynomialLR(o, total_iters=20),
            m.ConstantLR(o, 0.2, total_iters=4),
            m.LinearLR(o),
        ],
        milestones=[8, 33, 45],
    ),
    "chained": lambda m, o: m.ChainedScheduler(
        [m.ConstantLR(o, factor=0.1, total_iters=5), m.ExponentialLR(o, 0.9), m.CosineAnnealingLR(o, T_max=25)]
    ),
    "chain first": lambda m, o: m.SequentialLR(
        o, [m.ChainedScheduler([m.ExponentialLR(o, 0.9), m.StepLR(o, 4)]), m.ExponentialLR(o, 0.7)], milestones=[12]
    ),
}


def numbers(optimizer: Any) -> list[Any]:
    """Everything that schedules set."""
    keys = ("lr", "momentum", "betas")
    return [number for g in optimizer.param_groups for key in keys if key in g for number in _flat(g[key])]


def _flat(value: Any) -> list[float]:
    return list(value) if isinstance(value, tuple) else [value]


# A chain inside of a sequence starts with a step, in torch too, and so warns.
@pytest.mark.filterwarnings(r"ignore:.*before .?optimizer\.step:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str) -> None:
    ours, theirs = optimizers("SGD", momentum=0.9)
    schedule, other = CASES[name](lr_scheduler, ours), CASES[name](torch.optim.lr_scheduler, theirs)
    ours.step(), theirs.step()
    for step in range(STEPS):
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-12, abs=1e-15), f"at step {step}"
        assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
        schedule.step(), other.step()


@pytest.mark.parametrize("name", ["one cycle", "cyclic"])
def test_betas_are_cycled_too(name: str) -> None:
    ours, theirs = optimizers("AdamW")
    schedule, other = CASES[name](lr_scheduler, ours), CASES[name](torch.optim.lr_scheduler, theirs)
    ours.step(), theirs.step()
    for _ in range(STEPS):
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-12)
        schedule.step(), other.step()


@pytest.mark.parametrize("options", [
    dict(patience=2),
    dict(patience=1, cooldown=3, factor=0.5, threshold=0.05, threshold_mode="abs"),
    dict(mode="max", patience=0, min_lr=[0.01, 0.05], threshold=0.2),
    dict(mode="max", threshold_mode="abs", patience=3, factor=0.7, eps=0.02),
])  # fmt: skip
def test_plateau_against_torch(options: dict[str, Any]) -> None:
    ours, theirs = optimizers()
    schedule = lr_scheduler.ReduceLROnPlateau(ours, **options)
    other = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, **options)
    for step in range(STEPS):
        metric = 2.0 / (1 + step // 6) + 0.3 * math.sin(step) * (step > 30)
        schedule.step(pf.tensor(metric) if step % 2 else metric)
        other.step(torch.tensor(metric) if step % 2 else metric)
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-12), f"at step {step}"
    assert ours.param_groups[0]["lr"] < 0.5


def test_restarts_at_fractions_of_epochs() -> None:
    ours, theirs = optimizers()
    schedule = lr_scheduler.CosineAnnealingWarmRestarts(ours, T_0=3, T_mult=2)
    other = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, T_0=3, T_mult=2)
    for step in range(STEPS):
        schedule.step(step / 2.5), other.step(step / 2.5)
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-12), f"at step {step}"


def test_warmup_cosine() -> None:
    optimizer, _ = optimizers()
    schedule = lr_scheduler.WarmupCosine(optimizer, warmup_steps=9, total_steps=29, min_lr=0.1)
    optimizer.step()
    seen = []
    for _ in range(40):
        seen.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    assert seen[:10] == pytest.approx([0.5 * (k + 1) / 10 for k in range(10)])
    assert seen[19] == pytest.approx(0.1 + 0.4 / 2)  # half way down
    assert seen[29:] == [0.1] * 11
    assert sorted(seen[9:], reverse=True) == seen[9:]


def test_a_schedule_does_not_trace_a_jitted_step_again() -> None:
    """Learning rate and betas change at every step; the plan is made once, and reads them."""
    ours, theirs = optimizers("AdamW")
    schedule = lr_scheduler.OneCycleLR(ours, max_lr=0.1, total_steps=STEPS + 1)
    other = torch.optim.lr_scheduler.OneCycleLR(theirs, max_lr=0.1, total_steps=STEPS + 1)

    def train(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            (group["params"][0] ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step = pf.jit(lambda: train(ours))
    for _ in range(STEPS):
        step(), train(theirs)
        schedule.step(), other.step()
    assert step.traces == 1
    for a, b in zip(ours.param_groups, theirs.param_groups, strict=True):
        assert a["params"][0].item() == pytest.approx(b["params"][0].item(), rel=1e-5)


@pytest.mark.filterwarnings(r"ignore:.*before .?optimizer\.step:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_saved_state_goes_on_identically(name: str) -> None:
    first, _ = optimizers("SGD", momentum=0.9)
    schedule = CASES[name](lr_scheduler, first)
    first.step()
    for _ in range(17):
        schedule.step()
    saved = json.loads(json.dumps(schedule.state_dict()))
    second, _ = optimizers("SGD", momentum=0.9)
    other = CASES[name](lr_scheduler, second)
    other.load_state_dict(saved)
    second.load_state_dict(first.state_dict())
    second.stepped = True
    for _ in range(30):
        schedule.step(), other.step()
        assert numbers(first) == numbers(second)
        assert schedule.get_last_lr() == other.get_last_lr()


class Halved:
    """A callable object: its attributes are part of the state."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, epoch: float) -> float:
        return self.factor**epoch


def test_callable_objects_are_saved() -> None:
    optimizer, _ = optimizers()
    saved = lr_scheduler.LambdaLR(optimizer, Halved(0.5)).state_dict()
    other = Halved(0.9)
    lr_scheduler.LambdaLR(optimizer, other).load_state_dict(saved)
    assert other.factor == 0.5
    optimizer, _ = optimizers("SGD", momentum=0.9)
    saved = lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, scale_fn=Halved(0.5)).state_dict()
    other = Halved(0.9)
    lr_scheduler.CyclicLR(optimizer, 0.1, 0.2, scale_fn=other).load_state_dict(saved)
    assert other.factor == 0.5


def test_going_on_from_an_epoch_needs_the_initial_rate() -> None:
    ours, theirs = optimizers()
    with pytest.raises(ArgumentError, match="initial_lr"):
        lr_scheduler.StepLR(ours, 3, last_epoch=5)
    for optimizer in (ours, theirs):
        for group in optimizer.param_groups:
            group["initial_lr"] = 0.7
    schedule = lr_scheduler.CosineAnnealingLR(ours, 10, last_epoch=4)
    other = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 10, last_epoch=4)
    ours.step(), theirs.step()
    for _ in range(8):
        assert numbers(ours) == pytest.approx(numbers(theirs))
        schedule.step(), other.step()


def test_a_phase_of_one_step() -> None:
    """PyTorch divides by zero here."""
    optimizer, _ = optimizers(momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10, pct_start=0.1)
    assert schedule.get_last_lr() == [1.0, 1.0]


def test_a_rate_that_was_zero_comes_back() -> None:
    """PyTorch divides by zero here."""
    optimizer, _ = optimizers()
    schedule = lr_scheduler.ConstantLR(optimizer, factor=0.0, total_iters=2)
    optimizer.step()
    seen = [schedule.get_last_lr()]
    for _ in range(3):
        schedule.step()
        seen.append(schedule.get_last_lr())
    assert seen == [[0.0, 0.0], [0.0, 0.0], [0.5, 0.2], [0.5, 0.2]]


def test_order_of_steps() -> None:
    optimizer, _ = optimizers()
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    with pytest.warns(UserWarning, match=r"before optimizer\.step\(\)"):
        schedule.step()


def test_a_schedule_inside_of_a_jitted_function_is_refused() -> None:
    optimizer, _ = optimizers()
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    optimizer.step()
    with pytest.raises(TraceError, match=r"call scheduler\.step\(\), after the jitted step"):
        pf.jit(schedule.step)()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda o: lr_scheduler.StepLR(3, 1), ArgumentTypeError, "expected an optimiser"),
        (lambda o: lr_scheduler.LambdaLR(o, [lambda e: 1.0]), ArgumentError, "each of 2 parameter groups but got 1"),
        (lambda o: lr_scheduler.LambdaLR(o, 0.5), ArgumentTypeError, "expected a function"),
        (lambda o: lr_scheduler.LinearLR(o, start_factor=0), ArgumentError, r"start_factor in \(0, 1\]"),
        (lambda o: lr_scheduler.ConstantLR(o, factor=2), ArgumentError, r"factor in \[0, 1\]"),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=0), ArgumentError, "T_0"),
        (lambda o: lr_scheduler.WarmupCosine(o, 10, 10), ArgumentError, "warmup_steps < total_steps"),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0), ArgumentError, "total_steps, or epochs"),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=0), ArgumentError, "above 0"),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0, 9, pct_start=2), ArgumentError, "pct_start"),
        (lambda o: lr_scheduler.OneCycleLR(o, 1.0, 9, anneal_strategy="x"), ArgumentError, "'cos' or 'linear'"),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, mode="x"), ArgumentError, "triangular"),
        *[
            (make, ArgumentError, "above 0")
            for bad in (0, -1, math.nan)
            for make in (
                lambda o, n=bad: lr_scheduler.StepLR(o, step_size=n),
                lambda o, n=bad: lr_scheduler.CosineAnnealingLR(o, T_max=n),
                lambda o, n=bad: lr_scheduler.LinearLR(o, total_iters=n),
                lambda o, n=bad: lr_scheduler.PolynomialLR(o, total_iters=n),
                lambda o, n=bad: lr_scheduler.OneCycleLR(o, 1.0, 9, div_factor=n),
                lambda o, n=bad: lr_scheduler.OneCycleLR(o, 1.0, 9, final_div_factor=n),
                lambda o, n=bad: lr_scheduler.OneCycleLR(o, 1.0, total_steps=n),
                lambda o, n=bad: lr_scheduler.CyclicLR(o, 0.1, 1.0, step_size_up=n, cycle_momentum=False),
            )
        ],
        (
            lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, step_size_down=-1),
            ArgumentError,
            "step_size_down of at least 0",
        ),
        (lambda o: lr_scheduler.LambdaLR(o, lambda e: math.nan), ArgumentError, "got NaN at epoch 0"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=math.nan), ArgumentError, "factor below 1"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=1.0), ArgumentError, "factor below 1"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="x"), ArgumentError, "'min' or 'max'"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, threshold_mode="x"), ArgumentError, "'rel' or 'abs'"),
        (lambda o: lr_scheduler.ChainedScheduler([]), ArgumentError, "at least one"),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ReduceLROnPlateau(o)]),
            ArgumentError,
            "takes no metric",
        ),
        (
            lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 1)], [3]),
            ArgumentError,
            "0 milestones for 1 schedulers but got 1",
        ),
        (
            lambda o: lr_scheduler.SequentialLR(
                o, [lr_scheduler.StepLR(o, 1), lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 1)])], [3]
            ),
            ArgumentError,
            "only at the start",
        ),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 1)], optimizers()[0]),
            ArgumentError,
            "of one optimiser",
        ),
    ],
)
def test_errors(make: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(optimizers("SGD", momentum=0.9)[0])


def test_too_many_steps_of_one_cycle() -> None:
    optimizer, _ = optimizers("SGD", momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
    optimizer.step()
    for _ in range(3):
        schedule.step()
    with pytest.raises(ArgumentError, match="at most 3 steps"):
        schedule.step()


def test_momentum_needs_an_optimiser_that_has_it() -> None:
    optimizer = optim.Adagrad([pf.ones(2, requires_grad=True)])
    with pytest.raises(ArgumentError, match="cycle_momentum=False"):
        lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
