"""The optimisers beside the usual ones step for step against torch, and optimisers of users written for torch."""

from __future__ import annotations

import copy
import types
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn, optim
from tests.optim.problem import Problem, arrays, assert_same, data, pair

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Adadelta", dict(), dict(lr=0.5)),
    ("Adadelta", dict(lr=0.7, rho=0.8, eps=1e-3, weight_decay=0.1, maximize=True), dict(rho=0.95)),
    ("Adamax", dict(), dict(lr=0.05)),
    ("Adamax", dict(lr=0.03, betas=(0.8, 0.9), weight_decay=0.1, maximize=True), dict(eps=1e-3)),
    ("NAdam", dict(), dict(lr=0.05, momentum_decay=0.1)),
    ("NAdam", dict(lr=0.02, weight_decay=0.1, maximize=True), dict(betas=(0.7, 0.95))),
    ("NAdam", dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True), dict(weight_decay=0.3)),
    ("RAdam", dict(lr=0.02), dict(betas=(0.8, 0.9))),
    ("RAdam", dict(lr=0.02, weight_decay=0.1, maximize=True, eps=1e-4), dict(lr=0.1)),
    ("RAdam", dict(lr=0.02, weight_decay=0.1, decoupled_weight_decay=True), dict(betas=(0.5, 0.7))),
    ("ASGD", dict(lr=0.05), dict(t0=3.0)),
    ("ASGD", dict(lr=0.05, lambd=0.1, alpha=0.5, t0=5.0, weight_decay=0.1, maximize=True), dict(lr=0.01)),
    ("Adafactor", dict(lr=0.05), dict(beta2_decay=-0.5)),
    ("Adafactor", dict(lr=0.02, weight_decay=0.1, maximize=True, eps=(1e-4, 0.1)), dict(d=2.0, eps=(None, 0.01))),
    ("Rprop", dict(), dict(lr=0.1)),
    ("Rprop", dict(lr=0.05, etas=(0.3, 1.5), step_sizes=(1e-3, 0.2), maximize=True), dict(etas=(0.5, 1.1))),
]
NAMES = [f"{name}-{'-'.join(options)}" for name, options, _ in CASES]


@pytest.mark.share(3)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(("name", "options", "group"), CASES, ids=NAMES)
def test_against_torch(name: str, options: dict[str, Any], group: dict[str, Any], jitted: bool) -> None:
    ours, theirs = pair(name, options, group)
    step = pf.jit(ours.step) if jitted else ours.step
    for number, x in enumerate(data(20)):
        step(x), theirs.step(x)
        assert_same(ours, theirs, f"after step {number}", rtol=2e-5, atol=2e-6)
    if jitted:
        assert step.traces == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "options", "group"), CASES[::2], ids=NAMES[::2])
def test_state_goes_both_ways(name: str, options: dict[str, Any], group: dict[str, Any]) -> None:
    ours, theirs = pair(name, options, group)
    numbers = data(12)
    for x in numbers[:6]:
        theirs.step(x)
    for p, q in zip(ours.params, theirs.params, strict=True):
        with pf.no_grad():
            p.copy_(pf.tensor(q.detach()))
    ours.optimizer.load_state_dict(theirs.optimizer.state_dict())
    again = pair(name, options, group)[0]
    again.optimizer.load_state_dict(ours.optimizer.state_dict())
    for p, q in zip(again.params, ours.params, strict=True):
        with pf.no_grad():
            p.copy_(q.detach())
    for number, x in enumerate(numbers[6:]):
        ours.step(x), theirs.step(x), again.step(x)
        assert_same(ours, theirs, f"after step {number}", rtol=3e-5, atol=3e-6)
        assert_same(again, theirs, f"loaded twice, after step {number}", rtol=3e-5, atol=3e-6)
    keys = [sorted(entry) for entry in ours.optimizer.state_dict()["state"].values()]
    assert keys == [sorted(entry) for entry in theirs.optimizer.state_dict()["state"].values()]


def test_choices_among_implementations_are_taken() -> None:
    p = pf.ones(2, requires_grad=True)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        getattr(optim, name)([p], lr=0.1, foreach=True, capturable=False, differentiable=False)
    optim.AdamW([p], fused=True)
    with pytest.raises(pf.NotSupportedError, match="expected differentiable=False"):
        optim.SGD([p], differentiable=True)
    with pytest.raises(TypeError, match="did you mean 'momentum'"):
        optim.SGD([p], momentun=0.9)
    with pytest.raises(pf.NotSupportedError, match=r"\[SparseAdam\]"):
        optim.SparseAdam([p])
    with pytest.raises(pf.ArgumentError, match="etas below and above 1"):
        optim.Rprop([p], etas=(1.2, 0.5))


# --- LBFGS ------------------------------------------------------------------------------------------------------------


def rosenbrock(p: Any) -> Any:
    return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()


LBFGS = [
    dict(),
    dict(lr=0.1, max_iter=7, history_size=3),
    dict(line_search_fn="strong_wolfe"),
    dict(line_search_fn="strong_wolfe", max_iter=4, history_size=2, lr=0.5),
    dict(line_search_fn="strong_wolfe", max_iter=6, max_eval=8, tolerance_change=1e-3),
]


@pytest.mark.parametrize("options", LBFGS, ids=[str(i) for i in range(len(LBFGS))])
def test_lbfgs(options: dict[str, Any]) -> None:
    start = np.array([-1.2, 1.0, 0.5, -0.3])
    searched = "line_search_fn" in options
    results = []
    for lib, make in ((pf, optim.LBFGS), (torch, torch.optim.LBFGS)):
        p = lib.tensor(start, requires_grad=True)
        other = lib.tensor([[0.5]], dtype=lib.float64, requires_grad=True)
        optimizer = make([p, other], **options)
        calls, path = [0], []

        def closure(p: Any = p, other: Any = other, optimizer: Any = optimizer, calls: Any = calls) -> Any:
            optimizer.zero_grad()
            loss = (rosenbrock(p) if searched else ((p - 1) ** 2 * 0.3).sum()) + (other**2).sum()
            loss.backward()
            calls[0] += 1
            return loss

        for _ in range(5):
            loss = optimizer.step(closure)
            path.append([float(loss), *p.detach().numpy().tolist(), float(other)])
        results.append((np.array(path), calls[0]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6, atol=1e-8)
    assert results[0][1] == results[1][1]


def test_lbfgs_saves_its_state() -> None:
    p = pf.tensor([2.0, -1.0], requires_grad=True)
    optimizer = optim.LBFGS([p], max_iter=2)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p**4).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    saved, values = copy.deepcopy(optimizer.state_dict()), p.detach().clone()
    optimizer.step(closure)
    want = p.tolist()
    with pf.no_grad():
        p.copy_(values)
    optimizer.load_state_dict(saved)
    optimizer.step(closure)
    assert p.tolist() == want
    with pytest.raises(pf.ArgumentError, match="expected a closure"):
        optimizer.step()
    with pytest.raises(pf.ArgumentError, match="one group"):
        optim.LBFGS([{"params": [p]}, {"params": [pf.ones(1, requires_grad=True)]}])


# --- optimisers written for torch -------------------------------------------------------------------------------------


def adabelief(lib: Any) -> type:
    """As public repositories write one: state made when first needed, plain numbers and tensors in it."""

    class AdaBelief(lib.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8) -> None:
            super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

        @lib.no_grad()
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with lib.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["exp_avg"] = lib.zeros_like(p, memory_format=lib.preserve_format)
                        state["exp_var"] = lib.zeros_like(p)
                    state["step"] += 1
                    state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                    r = p.grad - state["exp_avg"]
                    state["exp_var"].mul_(beta2).addcmul_(r, r, value=1 - beta2)
                    denom = (state["exp_var"] / (1 - beta2 ** state["step"])).sqrt().add_(group["eps"])
                    rate = group["lr"] * group.get("lr_scale", 1.0) / (1 - beta1 ** state["step"])
                    p.addcdiv_(state["exp_avg"], denom, value=-rate)
            return loss

    return AdaBelief


@pytest.mark.slow
def test_a_custom_optimizer_written_for_torch() -> None:
    used = {n: getattr(pf, n) for n in ("no_grad", "enable_grad", "zeros_like", "preserve_format")}
    ours_lib = types.SimpleNamespace(**used, optim=optim)
    group = {"lr_scale": 0.5, "name": "slow"}
    ours = Problem(pf, lambda groups: adabelief(ours_lib)(groups, lr=0.05), group)
    theirs = Problem(torch, lambda groups: adabelief(torch)(groups, lr=0.05), group)
    schedule, other = (m.lr_scheduler.StepLR(p.optimizer, 3, 0.5) for m, p in ((optim, ours), (torch.optim, theirs)))
    for number, x in enumerate(data(8)):
        ours.step(x), theirs.step(x)
        schedule.step(), other.step()
        assert_same(ours, theirs, f"after step {number}", rtol=1e-5, atol=1e-6)
    saved = ours.optimizer.state_dict()
    assert saved["state"][0]["step"] == 8 and set(saved["state"][0]) == {"step", "exp_avg", "exp_var"}
    assert saved["param_groups"][1]["lr_scale"] == 0.5
    again = Problem(pf, lambda groups: adabelief(ours_lib)(groups, lr=0.05), group)
    again.optimizer.load_state_dict(copy.deepcopy(saved))
    for p, q in zip(again.params, ours.params, strict=True):
        with pf.no_grad():
            p.copy_(q.detach())
    for x in data(3):
        ours.step(x), again.step(x), theirs.step(x)
    for a, b in zip(again.numbers(), ours.numbers(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_an_optimizer_around_another() -> None:
    """SAM shares the groups of the optimiser that it wraps."""

    class SAM(optim.Optimizer):
        def __init__(self, params: Any, base: Any, **kwargs: Any) -> None:
            super().__init__(params, dict(rho=0.05, **kwargs))
            self.base = base(self.param_groups, **kwargs)
            self.param_groups = self.base.param_groups
            self.defaults.update(self.base.defaults)

        def step(self, closure: Any = None) -> Any:
            return self.base.step(closure)

    layer = nn.Linear(2, 1)
    optimizer = SAM(layer.parameters(), optim.SGD, lr=0.1, momentum=0.9)
    before = layer.weight.detach().clone()
    layer(pf.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not bool((layer.weight == before).all())
    optimizer.zero_grad()
    assert layer.weight.grad is None


def test_parameters_added_to_a_group_by_hand() -> None:
    rows = arrays()[:2]
    results = []
    for lib, make in ((pf, optim.Adam), (torch, torch.optim.Adam)):
        p, q = (lib.tensor(a, requires_grad=True) for a in rows)
        optimizer = make([p], lr=0.1)
        for number in range(4):
            if number == 2:
                optimizer.param_groups[0]["params"].append(q)
            optimizer.zero_grad()
            (p.square().sum() + q.square().sum()).backward()
            optimizer.step()
        results.append([p.detach().numpy(), q.detach().numpy()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_unknown_keys_of_groups_stay() -> None:
    optimizer = optim.AdamW([{"params": [pf.ones(2, requires_grad=True)], "layer": 3}], lr=0.1)
    assert optimizer.param_groups[0]["layer"] == 3
    optimizer.add_param_group({"params": [pf.ones(1, requires_grad=True)], "layer": 4})
    assert [g["layer"] for g in optimizer.state_dict()["param_groups"]] == [3, 4]
    assert isinstance(optimizer.state[pf.ones(1)], dict)
    with pytest.warns(UserWarning, match="'momentun' that it does not know; did you mean 'momentum'"):
        optim.SGD([{"params": [pf.ones(2, requires_grad=True)], "momentun": 0.9}])
