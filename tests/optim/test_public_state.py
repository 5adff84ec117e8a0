"""What programs read from `optimizer.state` and put into it, against torch."""

from __future__ import annotations

import copy
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

LIBRARIES = (pf, torch)
NAMES = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD")


def trained(library: Any, name: str = "Adam", steps: int = 2, **options: Any) -> tuple[Any, Any]:
    params = [library.nn.Parameter(library.tensor([1.0, 2.0, 3.0])), library.nn.Parameter(library.ones(2))]
    optimizer = getattr(library.optim, name)(params, lr=0.1, **options)
    train(optimizer, steps)
    return params[0], optimizer


def train(optimizer: Any, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        sum((p * p * p).sum() for p in optimizer.param_groups[0]["params"]).backward()
        optimizer.step()


def shown(optimizer: Any) -> list[Any]:
    """Parameters and their whole state."""
    params = optimizer.param_groups[0]["params"]
    states = [{k: v.tolist() for k, v in sorted(optimizer.state[p].items())} for p in params]
    return [[p.tolist() for p in params], states, len(optimizer.state)]


def equal(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list) and any(isinstance(t, (list, dict)) for t in theirs):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            equal(a, b)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_torchs_layout(name: str) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {}
    ours, theirs = (shown(trained(library, name, **options)[1]) for library in LIBRARIES)
    equal(ours, theirs)


def set_step(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state[p]["step"] = library.tensor(100.0)


def fill_step(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state[p]["step"].fill_(50)
    assert optimizer.state[p]["step"].item() == 50


def replace_mean(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state[p]["exp_avg"] = library.zeros_like(p)


def zero_mean(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state[p]["exp_avg"].zero_()


def empty(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state = defaultdict(dict)


def clear(library: Any, p: Any, optimizer: Any) -> None:
    optimizer.state.clear()


def forget_one(library: Any, p: Any, optimizer: Any) -> None:
    del optimizer.state[p]


def move(library: Any, p: Any, optimizer: Any) -> None:
    for entry in optimizer.state.values():
        for k, v in entry.items():
            if isinstance(v, library.Tensor):
                entry[k] = v.to("cpu")


def grow(library: Any, p: Any, optimizer: Any) -> None:
    """As programs for Gaussian splats add points."""
    kept = optimizer.state.get(p, None)
    for name in ("exp_avg", "exp_avg_sq"):
        kept[name] = library.cat((kept[name], library.zeros(2)))
    del optimizer.state[p]
    new = library.nn.Parameter(library.cat((p, library.ones(2))).requires_grad_(True))
    optimizer.param_groups[0]["params"][0] = new
    optimizer.state[new] = kept


def put_other_parameter(library: Any, p: Any, optimizer: Any) -> None:
    del optimizer.state[p]
    optimizer.param_groups[0]["params"][0] = library.nn.Parameter(library.ones(3))


@pytest.mark.parametrize(
    "change",
    [set_step, fill_step, replace_mean, zero_mean, empty, clear, forget_one, move, grow, put_other_parameter],
)
def test_what_programs_do_to_it(change: Callable[..., None]) -> None:
    results = []
    for library in LIBRARIES:
        p, optimizer = trained(library)
        change(library, p, optimizer)
        train(optimizer)
        results.append(shown(optimizer))
        train(optimizer)
        results.append(shown(optimizer))
    equal(results[0], results[2])
    equal(results[1], results[3])


def test_a_step_that_is_held_goes_on_counting() -> None:
    for library in LIBRARIES:
        p, optimizer = trained(library)
        step = optimizer.state[p]["step"]
        train(optimizer)
        assert step.item() == 4 and step.dtype == library.float32 and tuple(step.shape) == () and float(step + 1) == 5


@pytest.mark.parametrize("way", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies(way: Callable[[Any], Any]) -> None:
    p, optimizer = trained(pf)
    assert optimizer.state[p]["step"].item() == 2
    train(optimizer)
    other = way(optimizer)
    train(other)
    assert [s["step"].item() for s in other.state.values()] == [6, 6]
    assert [s["step"].item() for s in optimizer.state.values()] == [4, 4]


def test_state_that_does_not_fit() -> None:
    p, optimizer = trained(pf)
    optimizer.state[p]["exp_avg"] = pf.zeros(7)
    with pytest.raises(pf.StateDictError, match=r"shape \(3,\) as exp_avg"):
        train(optimizer)


def test_reading_it_needs_no_other_graph() -> None:
    p, optimizer = trained(pf)
    before = optimizer._pf_jitted.traces
    optimizer.state[p]["step"].item()
    train(optimizer)
    assert optimizer._pf_jitted.traces == before
