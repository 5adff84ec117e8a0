"""Every optimiser step for step against torch, jitted and not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import optim
from tests.optim.problem import STEPS, Problem, assert_same, data, pair

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SGD", dict(lr=0.05), dict(weight_decay=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9, weight_decay=0.02, maximize=True), dict(lr=0.001)),
    ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True), dict(weight_decay=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.8, dampening=0.5), dict(dampening=0.0, momentum=0.7)),
    ("Adam", dict(lr=0.03), dict(betas=(0.8, 0.99999), eps=1e-3)),
    ("Adam", dict(lr=0.03, weight_decay=0.1, amsgrad=True), dict(weight_decay=0.0)),
    ("Adam", dict(lr=0.03, maximize=True), dict(lr=0.01)),
    ("AdamW", dict(lr=0.03, weight_decay=0.2), dict(weight_decay=0.0)),
    ("AdamW", dict(lr=0.03, amsgrad=True, maximize=True), dict(lr=0.01)),
    ("RMSprop", dict(lr=0.01, weight_decay=0.1), dict(alpha=0.9)),
    ("RMSprop", dict(lr=0.01, momentum=0.9), dict(eps=1e-4)),
    ("RMSprop", dict(lr=0.01, centered=True, momentum=0.5, maximize=True), dict(momentum=0.0)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.05, weight_decay=0.01), dict(lr=0.2)),
    ("Adagrad", dict(lr=0.1, initial_accumulator_value=0.3, eps=1e-6, maximize=True), dict(lr_decay=0.1)),
]
NAMES = [f"{name}-{'-'.join(options)}" for name, options, _ in CASES]


@pytest.mark.share(3)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("name", "options", "group"), CASES, ids=NAMES)
def test_against_torch(name: str, options: dict[str, Any], group: dict[str, Any], jitted: bool) -> None:
    ours, theirs = pair(name, options, group)
    step = pf.jit(ours.step) if jitted else ours.step
    for number, x in enumerate(data()):
        got, want = step(x), theirs.step(x)
        np.testing.assert_allclose(got.item(), want.item(), rtol=2e-5)
        if number in (0, 1, 9, STEPS - 1):
            assert_same(ours, theirs, f"after step {number}")
    if jitted:
        assert step.traces == 1  # type: ignore[attr-defined]


class LionByHand:
    """The rule of the paper, in NumPy."""

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], weight_decay: float
    ) -> None:
        self.groups = [{"lr": lr, "betas": betas, "weight_decay": weight_decay, **g} for g in groups]
        self.state = {id(p): np.zeros(tuple(p.shape)) for g in groups for p in g["params"]}

    def step(self) -> None:
        for group in self.groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                g, m, w = p.grad.numpy().astype(np.float64), self.state[id(p)], p.detach().numpy()
                u = np.sign(beta1 * m + (1 - beta1) * g)
                w[...] = w * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * u
                self.state[id(p)] = beta2 * m + (1 - beta2) * g

    def zero_grad(self) -> None:
        for group in self.groups:
            for p in group["params"]:
                p.grad = None


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_lion(jitted: bool) -> None:
    options: dict[str, Any] = dict(lr=0.01, betas=(0.9, 0.98), weight_decay=0.3)
    ours = Problem(pf, lambda groups: optim.Lion(groups, **options), dict(weight_decay=0.0))
    theirs = Problem(torch, lambda groups: LionByHand(groups, **options), dict(weight_decay=0.0))
    step = pf.jit(ours.step) if jitted else ours.step
    for number, x in enumerate(data()):
        step(x), theirs.step(x)
        assert_same(ours, theirs, f"after step {number}")


def test_lion_can_maximise() -> None:
    p = pf.tensor([1.0, -1.0], requires_grad=True)
    p.grad = pf.tensor([1.0, -1.0])
    optim.Lion([p], lr=0.1, maximize=True).step()
    np.testing.assert_allclose(p.detach().numpy(), [1.1, -1.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", dict(lr=0.03)),
        ("SGD", dict(lr=0.05, momentum=0.8, dampening=0.5)),
        ("Adagrad", dict(lr=0.1, lr_decay=0.2)),
    ],
)
def test_parameters_without_gradient_are_skipped_and_do_not_age(name: str, options: dict[str, Any]) -> None:
    """Each parameter counts its own steps: those that missed some have another bias correction."""
    ours, theirs = pair(name, options)
    kinds = [None, [0, 1, 3], [2, 4], [3]]

    @pf.jit
    def jitted(x: float, kind: int) -> None:
        ours.backward(x, kinds[kind])
        ours.optimizer.step()
        ours.optimizer.zero_grad()

    for number, x in enumerate(data(24)):
        kind = (number * 7 + 1) % 4
        if number < 12:
            ours.backward(x, kinds[kind])
            ours.optimizer.step()
            ours.optimizer.zero_grad()
        else:
            jitted(x, kind)
        theirs.backward(x, kinds[kind])
        theirs.optimizer.step()
        theirs.optimizer.zero_grad()
        assert_same(ours, theirs, f"after step {number}")
    assert jitted.traces == 4


def test_a_whole_step_with_clipping_and_schedule_is_one_plan() -> None:
    ours, theirs = pair("AdamW", dict(lr=0.05, weight_decay=0.1))
    schedule = optim.lr_scheduler.CosineAnnealingLR(ours.optimizer, T_max=20, eta_min=1e-3)
    other = torch.optim.lr_scheduler.CosineAnnealingLR(theirs.optimizer, T_max=20, eta_min=1e-3)

    @pf.jit
    def step(x: float) -> tuple[Any, Any]:
        loss = ours.backward(x)
        norm = optim.clip_grad_norm_(ours.params, 2.0)
        ours.optimizer.step()
        ours.optimizer.zero_grad()
        return loss, norm

    for number, x in enumerate(data()):
        loss, norm = step(x)
        schedule.step()
        want = theirs.backward(x)
        want_norm = torch.nn.utils.clip_grad_norm_(theirs.params, 2.0)
        theirs.optimizer.step()
        theirs.optimizer.zero_grad()
        other.step()
        np.testing.assert_allclose([loss.item(), norm.item()], [want.item(), want_norm.item()], rtol=2e-5)
        assert_same(ours, theirs, f"after step {number}")
    assert step.traces == 1
    assert all(p.grad is None for p in ours.params)


def test_changed_options_take_effect_in_a_jitted_step() -> None:
    """Numbers are data of the plan; an option that the graph depends on traces again, and says why."""
    ours, theirs = pair("SGD", dict(lr=0.05))
    step = pf.jit(ours.step)
    changes: dict[int, dict[str, Any]] = {
        3: {"lr": 0.01},
        5: {"weight_decay": 0.2},
        7: {"maximize": True},
        9: {"maximize": False},
        11: {"momentum": 0.5},  # makes state
        14: {"momentum": 0.9},
        16: {"nesterov": True},
    }
    for number, x in enumerate(data(20)):
        for optimizer in (ours.optimizer, theirs.optimizer):
            for key, value in changes.get(number, {}).items():
                optimizer.param_groups[1][key] = value
        step(x), theirs.step(x)
        assert_same(ours, theirs, f"after step {number}")
    assert step.traces == 3
    assert "SGD.structure changed" in step.reasons[1]


def test_a_group_added_later() -> None:
    ours, theirs = pair("Adam", dict(lr=0.03))
    for problem in (ours, theirs):
        problem.params.append(problem.library.tensor([1.0, 2.0], requires_grad=True))
        problem.targets.append(problem.library.tensor([0.0, 0.5]))
    step = pf.jit(ours.step)
    for number, x in enumerate(data(10)):
        if number == 4:
            for problem in (ours, theirs):
                problem.optimizer.add_param_group({"params": [problem.params[-1]], "lr": 0.1})
        elif number < 4:
            ours.params[-1].grad = theirs.params[-1].grad = None
        step(x), theirs.step(x)
        assert_same(ours, theirs, f"after step {number}")


def test_skip_leaves_everything_as_it_was() -> None:
    ours, _ = pair("AdamW", dict(lr=0.05, amsgrad=True))

    @pf.jit
    def step(x: float, skip: pf.Tensor) -> None:
        ours.backward(x)
        ours.optimizer.step(skip=skip)
        ours.optimizer.zero_grad()

    step(0.7, pf.tensor(False))
    state = ours.optimizer.state_dict()["state"]
    before = [*ours.numbers(), *[np.array(v.numpy()) for entry in state.values() for v in entry.values()]]
    step(float("inf"), pf.tensor([True]))
    state = ours.optimizer.state_dict()["state"]
    after = [*ours.numbers(), *[np.array(v.numpy()) for entry in state.values() for v in entry.values()]]
    for a, b in zip(after, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_closure() -> None:
    ours, theirs = pair("SGD", dict(lr=0.05))

    def closure(problem: Problem) -> Any:
        problem.optimizer.zero_grad()
        return problem.backward(0.8)

    for _ in range(3):
        got = ours.optimizer.step(lambda: closure(ours))
        want = theirs.optimizer.step(lambda: closure(theirs))
        np.testing.assert_allclose(got.item(), want.item(), rtol=1e-5)
    assert_same(ours, theirs, "after closures")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_dtypes(dtype: str) -> None:
    """16-bit parameters and state are rounded once per step, as by torch's fused kernels; float64 stays exact."""
    rng = np.random.default_rng(3)
    start, gradient = rng.standard_normal(33).astype(np.float32), rng.standard_normal(33).astype(np.float32)
    p = pf.tensor(start, dtype=dtype, requires_grad=True)
    q = torch.tensor(start, dtype=getattr(torch, dtype), requires_grad=True)
    ours = optim.AdamW([p], lr=0.1, weight_decay=0.1, eps=1e-4)
    theirs = torch.optim.AdamW([q], lr=0.1, weight_decay=0.1, eps=1e-4, fused=True)
    for k in range(10):
        p.grad = pf.tensor(gradient * (k + 1), dtype=dtype)
        q.grad = torch.tensor(gradient * (k + 1), dtype=q.dtype)
        ours.step(), theirs.step()
    assert p.dtype.name == dtype and ours.state[p]["exp_avg"].dtype.name == dtype
    tolerance = {"bfloat16": 2e-2, "float16": 3e-3, "float64": 1e-12}[dtype]
    got, want = p.detach().to(pf.float64).numpy(), q.detach().double().numpy()
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_zero_grad_with_zeros() -> None:
    ours, _ = pair("SGD", dict(lr=0.1))
    ours.backward(1.0)
    ours.optimizer.zero_grad(set_to_none=False)
    for p in ours.params:
        np.testing.assert_array_equal(p.grad.numpy(), np.zeros(p.shape))


def test_op_by_op() -> None:
    ours, theirs = pair("AdamW", dict(lr=0.05))
    with pf.eager():
        for x in data(3):
            ours.step(x), theirs.step(x)
    assert_same(ours, theirs, "after steps under pf.eager()")


class Heavy(optim.Optimizer):
    """A rule of a user: one state, one number, one line."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def slots(self, group: dict[str, Any]) -> dict[str, float]:
        return {"speed": 0.0}

    def scalars(self, group: dict[str, Any]) -> dict[str, float]:
        return {"lr": group["lr"]}

    def update(self, group: Any, w: Any, g: Any, s: Any, h: Any) -> Any:
        speed = s["speed"] * 0.9 + g
        return w - speed * h["lr"], {"speed": speed}


def test_a_rule_of_a_user() -> None:
    ours = Problem(pf, lambda groups: Heavy(groups, lr=0.02))
    _, theirs = pair("SGD", dict(lr=0.02, momentum=0.9))
    step = pf.jit(ours.step)
    for x in data(5):
        step(x), theirs.step(x)
    assert_same(ours, theirs, "after five steps")
    with pytest.raises(NotImplementedError, match=r"\[Optimizer\] expected update\(\)"):
        Problem(pf, lambda groups: optim.Optimizer(groups, {})).step(1.0)
