"""Saving and loading: identical continuation, torch's layout in both directions, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import optim
from pyflame.core.errors import ArgumentError, ArgumentTypeError, StateDictError, TraceError
from tests.optim.problem import Problem, assert_same, data, pair

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.3)),
    ("Adam", dict(lr=0.03, amsgrad=True)),
    ("AdamW", dict(lr=0.03)),
    ("RMSprop", dict(lr=0.01, momentum=0.9, centered=True)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.05)),
]


def converted(value: Any, to_tensor: Any) -> Any:
    """A state dict with the tensors of another library."""
    if isinstance(value, dict):
        return {k: converted(v, to_tensor) for k, v in value.items()}
    if isinstance(value, list):
        return [converted(v, to_tensor) for v in value]
    return to_tensor(np.array(value.numpy())) if hasattr(value, "numpy") else value


@pytest.mark.parametrize(("name", "options"), [*CASES, ("Lion", dict(lr=0.01))])
def test_goes_on_identically(name: str, options: dict[str, Any]) -> None:
    def make() -> Problem:
        return Problem(pf, lambda groups: getattr(optim, name)(groups, **options), dict(weight_decay=0.1))

    first, second = make(), make()
    xs = data(20)
    for x in xs[:10]:
        first.step(x)
    saved = first.optimizer.state_dict()
    with pf.no_grad():
        for p, q in zip(first.params, second.params, strict=True):
            q.copy_(p)
    second.optimizer.load_state_dict(saved)
    step = pf.jit(second.step)
    for x in xs[10:]:
        first.step(x), step(x)
    for a, b in zip(first.numbers(), second.numbers(), strict=True):
        np.testing.assert_array_equal(a, b)
    again = second.optimizer.state_dict()
    assert again["param_groups"] == saved["param_groups"]
    assert {k: list(v) for k, v in again["state"].items()} == {k: list(v) for k, v in saved["state"].items()}


@pytest.mark.parametrize(("name", "options"), CASES)
def test_exchange_with_torch(name: str, options: dict[str, Any]) -> None:
    """Training moves from torch to PyFlame and back."""
    ours, theirs = pair(name, options, dict(weight_decay=0.1))
    alone = pair(name, options, dict(weight_decay=0.1))[1]
    xs = data(30)
    for x in xs[:10]:
        theirs.step(x)
    ours.optimizer.load_state_dict(converted(theirs.optimizer.state_dict(), pf.tensor))
    with pf.no_grad():
        for p, q in zip(ours.params, theirs.params, strict=True):
            p.copy_(q.detach().numpy())
    for x in xs[10:20]:
        ours.step(x)
    layout = {k: {n: tuple(v.shape) for n, v in s.items()} for k, s in theirs.optimizer.state_dict()["state"].items()}
    state = ours.optimizer.state_dict()
    assert {k: {n: v.shape for n, v in s.items()} for k, s in state["state"].items()} == layout
    theirs.optimizer.load_state_dict(converted(state, torch.from_numpy))
    with torch.no_grad():
        for p, q in zip(ours.params, theirs.params, strict=True):
            q.copy_(torch.from_numpy(np.array(p.detach().numpy())))
    for x in xs[20:]:
        theirs.step(x)
    for x in xs:
        alone.step(x)
    assert_same(theirs, alone, "after moving twice", rtol=1e-5, atol=2e-6)


def test_groups_have_torchs_layout() -> None:
    ours, theirs = pair("AdamW", dict(lr=0.03), dict(weight_decay=0.5))
    for mine, other in zip(
        ours.optimizer.state_dict()["param_groups"], theirs.optimizer.state_dict()["param_groups"], strict=True
    ):
        assert mine == {**other, "foreach": None}  # which `pair` chooses for PyTorch alone
    assert ours.optimizer.state_dict()["state"] == theirs.optimizer.state_dict()["state"] == {}


def test_a_state_dict_is_a_snapshot() -> None:
    ours, _ = pair("Adam", dict(lr=0.03))
    step = pf.jit(ours.step)
    step(0.5)
    saved = ours.optimizer.state_dict()
    before = np.array(saved["state"][0]["exp_avg"].numpy())
    for x in data(3):
        step(x)
    np.testing.assert_array_equal(saved["state"][0]["exp_avg"].numpy(), before)
    assert not np.array_equal(ours.optimizer.state_dict()["state"][0]["exp_avg"].numpy(), before)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_loading_a_fresh_state_starts_again(name: str, options: dict[str, Any]) -> None:
    """Parameters without an entry were never updated: torch's state dict has none for them."""
    ours, theirs = pair(name, options)
    fresh = theirs.optimizer.state_dict()
    for x in data(3):
        ours.step(x)
    ours.optimizer.load_state_dict(converted(fresh, pf.tensor))
    with pf.no_grad():
        for p, q in zip(ours.params, theirs.params, strict=True):
            p.copy_(q.detach().numpy())
    for x in data(3):
        ours.step(x), theirs.step(x)
    assert_same(ours, theirs, "after starting again")


def test_options_survive_json() -> None:
    """Tuples become lists there, and whole numbers as keys become text."""
    first, _ = pair("Adam", dict(lr=0.03, betas=(0.7, 0.8)))
    second, _ = pair("Adam", dict(lr=0.5, amsgrad=True))
    first.step(0.5)
    state = first.optimizer.state_dict()
    packed = {
        "param_groups": json.loads(json.dumps(state["param_groups"])),
        "state": {str(k): v for k, v in state["state"].items()},
    }
    second.optimizer.load_state_dict(packed)
    group = second.optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["amsgrad"]) == (0.03, (0.7, 0.8), False)


def test_names_are_kept() -> None:
    weight, bias = pf.ones(2, requires_grad=True), pf.ones(3, requires_grad=True)
    optimizer = optim.SGD([("weight", weight), ("bias", bias)])
    assert optimizer.param_groups[0]["params"] == [weight, bias]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ArgumentError, match="all groups or of none"):
        optimizer.add_param_group({"params": [pf.ones(2, requires_grad=True)]})
    with pytest.raises(ArgumentError, match="all parameters of a group or for none"):
        optim.SGD([("weight", weight), bias])


def test_loading_what_does_not_fit() -> None:
    ours, _ = pair("Adam", dict(lr=0.03))
    ours.step(0.5)
    before = ours.optimizer.state_dict()
    with pytest.raises(StateDictError, match=r"groups of \[3, 2\] parameters but got \[1\]"):
        ours.optimizer.load_state_dict(optim.Adam([pf.ones(2, requires_grad=True)]).state_dict())
    other = pair("SGD", dict(lr=0.1, momentum=0.9))[0]
    other.step(0.5)
    with pytest.raises(StateDictError, match="'momentum_buffer'; was it saved by another optimiser"):
        ours.optimizer.load_state_dict(other.optimizer.state_dict())
    turned = {**before, "state": {**before["state"], 4: before["state"][0]}}
    with pytest.raises(StateDictError, match=r"exp_avg of shape \(2, 3, 2\) but got \(5, 3\)"):
        ours.optimizer.load_state_dict(turned)
    assert ours.optimizer.param_groups[0]["lr"] == 0.03
    np.testing.assert_array_equal(
        ours.optimizer.state_dict()["state"][0]["exp_avg"].numpy(), before["state"][0]["exp_avg"].numpy()
    )


def leaf(*shape: int) -> pf.Tensor:
    return pf.ones(*shape, requires_grad=True)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: optim.SGD([]), ArgumentError, "empty list; pass model.parameters"),
        (lambda: optim.SGD([{"params": []}]), ArgumentError, "empty list"),
        (lambda: optim.SGD(leaf(2)), ArgumentTypeError, r"got a Tensor; wrap it in \[...\]"),
        (lambda: optim.SGD([3]), ArgumentTypeError, "expected tensors as parameters but got int"),
        (lambda: optim.SGD([leaf(2) * 2]), ArgumentError, "expected leaf tensors"),
        (lambda: optim.SGD([pf.arange(3)]), ArgumentError, "floating-point parameters but got int64"),
        (lambda: optim.SGD([{"params": {leaf(2)}}]), ArgumentTypeError, "got a set"),
        (lambda: optim.SGD([p := leaf(2), p]), ArgumentError, r"each parameter once but one of shape \(2,\)"),
        (lambda: optim.SGD([{"params": [p := leaf(2)]}, {"params": [p]}]), ArgumentError, "each parameter once"),
        (lambda: optim.SGD([leaf(2)]).add_param_group([leaf(2)]), ArgumentTypeError, "a dict with the key 'params'"),
        (lambda: optim.SGD([leaf(2)], lr=-1), ArgumentError, "lr of at least 0 but got -1"),
        (lambda: optim.SGD([leaf(2)], lr=float("nan")), ArgumentError, "lr of at least 0 but got nan"),
        (lambda: optim.SGD([{"params": leaf(2), "lr": -2}]), ArgumentError, "lr of at least 0 but got -2"),
        (lambda: optim.SGD([leaf(2)], nesterov=True), ArgumentError, "a momentum above 0"),
        (
            lambda: optim.Adam([leaf(2)], betas=(0.9, 1.0)),
            ArgumentError,
            r"betas in \[0, 1\) but got 1.0 at position 1",
        ),
        (lambda: optim.AdamW([leaf(2)], weight_decay=-1), ArgumentError, r"\[AdamW\] expected weight_decay"),
        (lambda: optim.RMSprop([leaf(2)], alpha=-1), ArgumentError, "alpha"),
        (lambda: optim.Adagrad([leaf(2)], lr_decay=-1), ArgumentError, "lr_decay"),
        (lambda: optim.Lion([leaf(2)], betas=(-0.1, 0.9)), ArgumentError, "betas"),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_groups_do_not_change_inside_of_a_jitted_function() -> None:
    optimizer = optim.SGD([leaf(2)])

    def change() -> None:
        optimizer.param_groups[0]["lr"] = 0.5

    with pytest.raises(TraceError, match="outside of a jitted function"):
        pf.jit(change)()
    with pytest.raises(TraceError, match="outside of a jitted function"):
        pf.jit(lambda: optimizer.add_param_group({"params": leaf(2)}))()


def test_numbers_may_be_tensors_and_read_as_plain() -> None:
    optimizer = optim.Adam([leaf(2)], lr=pf.tensor(0.25), betas=(pf.tensor(0.5), pf.tensor(0.75)))
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.75)
    optimizer.param_groups[0]["lr"] = pf.tensor(0.5)
    assert repr(optimizer).splitlines()[:3] == ["Adam (", "Parameter Group 0", "    amsgrad: False"]
    assert "    lr: 0.5" in repr(optimizer).splitlines()


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_a_tensor_as_learning_rate_may_change(library: Any) -> None:
    rate, weight = library.tensor(0.5), library.ones(2, requires_grad=True)
    optimizer = library.optim.SGD([weight], lr=rate)
    weight.sum().backward()
    optimizer.step()
    rate.fill_(0.25)
    optimizer.step()
    assert weight.tolist() == [0.25, 0.25]
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step()
    assert weight.tolist() == [-0.75, -0.75]


@pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])
def test_groups_keep_the_tensors_of_an_optimiser_with_its_own_step(library: Any) -> None:
    class Counting(library.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": library.tensor(0.5)})

        def step(self) -> None:  # type: ignore[override]
            for group in self.param_groups:
                group.setdefault("count", library.zeros(2)).add_(group["lr"].reshape(1))

    optimizer = Counting([library.ones(2, requires_grad=True)])
    optimizer.step()
    optimizer.step()
    assert optimizer.param_groups[0]["count"].tolist() == [1.0, 1.0]
    optimizer = library.optim.Adam([library.ones(2, requires_grad=True)])
    optimizer.param_groups[0]["mine"] = library.ones(3)
    assert optimizer.param_groups[0]["mine"].tolist() == [1.0] * 3
