"""Collectives of jitted functions as the engine plans and runs them: stages around calls that go on beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.engine.capture import CapturedRunner
from pyflame.engine.value import Value
from pyflame.ir import OPS, Meta, Node, signature
from pyflame.ir.opdef import apply
from pyflame.tensor.tensor import read

pytestmark = pytest.mark.usefixtures("two")
DEVICES = ("cpu", "cuda:0")
events: list[str] = []


@dataclass(frozen=True)
class Doubled:
    """A collective of two processes that have the same."""

    name: str

    def start(self, meta: Meta, value: Value) -> Callable[[], Value]:
        events.append(f"start {self.name}")
        mine = pf.Tensor(Node(OPS["leaf"], (), (), meta, signature("leaf", meta, value.strides), value))
        return partial(self._finish, mine.numpy() * 2, meta)

    def _finish(self, array: Any, meta: Meta) -> Value:
        events.append(f"wait {self.name}")
        out = pf.tensor(array, device=str(meta.device))
        pf.eval(out)
        return out._node.data  # type: ignore[no-any-return]

    def agree(self, calls: list[tuple[Doubled, Meta]]) -> Callable[[], None]:
        return partial(events.append, "agree on " + " ".join([call.name for call, _ in calls]))


def doubled(x: pf.Tensor, name: str) -> pf.Tensor:
    return pf.Tensor(apply(OPS["collective"], (read(x),), (Doubled(name),)))


@pytest.fixture(autouse=True)
def _forget() -> None:
    events.clear()


def stages(fn: Any, *args: Any) -> Any:
    found, _ = fn.find(args, {})
    return found.runner.stages


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_each_call_starts_when_its_value_is_there(device: str) -> None:
    @pf.jit
    def chain(x: pf.Tensor) -> pf.Tensor:
        a = (x @ x).exp()
        first = doubled(a.sum(0), "first")
        b = (a @ x).tanh()
        second = doubled(b.sum(1), "second")
        return first + second + (b @ x).sum(0)

    x = pf.tensor(np.arange(9, dtype=np.float32).reshape(3, 3) / 9, device=device)
    a = np.exp(x.numpy() @ x.numpy())
    b = np.tanh(a @ x.numpy())
    for _ in range(4):
        events.clear()
        got = chain(x).numpy()
        assert events[:3] == ["agree on first second", "start first", "start second"]
        assert sorted(events[3:]) == ["wait first", "wait second"]
        np.testing.assert_allclose(got, 2 * a.sum(0) + 2 * b.sum(1) + (b @ x.numpy()).sum(0), rtol=1e-5)
    found = stages(chain, x)
    assert [[n.attrs[0].name for n in stage.started] for stage in found] == [["first"], ["second"], []]
    names = [[launch.name for launch in stage.plan.launches] for stage in found]
    assert all(names) and "tanh" in "".join(names[1])  # computed while the first is on its way
    if device != "cpu":
        traced, _ = chain.find((x,), {})
        assert all(isinstance(runner, CapturedRunner) for runner in traced.runner.runners)


@pytest.mark.parametrize("device", DEVICES)
def test_arguments_results_and_calls_of_calls(device: str) -> None:
    """What was called first starts first, also where a later one needs nothing more."""
    jitted = pf.jit(lambda x: (doubled(doubled(x, "one"), "two"), doubled(x + 1, "three"), x * 3))
    x = pf.tensor([1.0, 2.0], device=device)
    for _ in range(3):
        events.clear()
        four, more, other = jitted(x)
        assert [e for e in events if "start" in e] == ["start one", "start two", "start three"]
        assert (four.tolist(), more.tolist(), other.tolist()) == ([4, 8], [4, 6], [3, 6])
    assert pf.jit(lambda x: doubled(x, "alone"))(x).tolist() == [2, 4]


def test_a_result_may_move_to_another_device() -> None:
    jitted = pf.jit(lambda x: doubled(x + 1, "one").to("cuda:1") * 3)
    x = pf.tensor([1.0, 2.0], device="cuda:0")
    for _ in range(3):
        out = jitted(x)
        assert out.device == "cuda:1" and out.tolist() == [12, 18]
    assert doubled_copy().tolist() == [4, 8]


def doubled_copy() -> pf.Tensor:
    x = pf.tensor([1.0, 2.0], device="cuda:1")
    out: pf.Tensor = pf.jit(lambda x: doubled((x * 2).to("cuda:0"), "copied"))(x)
    assert out.device == "cuda:0"
    return out


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_state_that_an_early_stage_reads_is_updated_in_place_by_the_last(device: str) -> None:
    pf.manual_seed(0)
    layer, twin = (nn.Linear(3, 3).to(device) for _ in range(2))
    twin.load_state_dict(layer.state_dict())

    def trained(layer: nn.Module, optimizer: optim.Optimizer, called: bool, x: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = (layer(layer(x)) ** 2).sum()
        loss.backward()
        with pf.no_grad():
            for n, p in enumerate(layer.parameters()):
                p.grad._rebind(doubled(p.grad, str(n)) if called else p.grad * 2)
        optimizer.step()
        return loss.detach()

    x = pf.tensor(np.ones((2, 3), np.float32), device=device)
    step = pf.jit(partial(trained, layer, optim.AdamW(layer.parameters(), lr=0.1), True))
    plain = partial(trained, twin, optim.AdamW(twin.parameters(), lr=0.1), False)
    places = []
    for _ in range(5):
        np.testing.assert_allclose(step(x).numpy(), plain(x).numpy(), rtol=1e-4)
        places.append([p._node.data.address for p in layer.parameters()])
    assert step.traces == 1 and places[-1] == places[-2]


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_state_keep_the_old_value(device: str) -> None:
    """An early stage makes a view of what the last one updates and reads it by."""
    weight = pf.tensor(np.arange(9, dtype=np.float32).reshape(3, 3), device=device)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        turned = weight.T
        mean = doubled(turned @ x, "one")
        change = turned * mean
        weight.add_(change)
        return change

    want, x = weight.numpy().copy(), pf.tensor(np.full((3, 1), 0.25, np.float32), device=device)
    for _ in range(4):
        change = want.T * (2 * want.T @ x.numpy())
        want = want + change
        np.testing.assert_allclose(step(x).numpy(), change, rtol=1e-5)
        np.testing.assert_allclose(weight.numpy(), want, rtol=1e-5)


def test_a_call_that_fails_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = pf.tensor([1.0, 2.0])

    @pf.jit
    def step(x: pf.Tensor) -> None:
        weight.sub_(doubled(x * weight, "one"))

    def fails(self: Any, array: Any, meta: Meta) -> Value:
        raise pf.CollectiveError("[all_reduce] expected all processes")

    step(pf.tensor([0.5, 0.5]))
    monkeypatch.setattr(Doubled, "_finish", fails)
    before = weight.tolist()
    with pytest.raises(pf.CollectiveError):
        step(pf.tensor([0.5, 0.5]))
    assert weight.tolist() == before
