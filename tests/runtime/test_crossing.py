"""Jitted functions and optimisers whose tensors lie on several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.engine import cross_device
from pyflame.engine.capture import CapturedRunner
from pyflame.engine.cross_device import MultiDeviceRunner

pytestmark = pytest.mark.usefixtures("two")
HERE = "cuda:1"  # where the data is; another device is the current one
VALUES = np.arange(32, dtype=np.float32).reshape(4, 8) / 7


def there() -> pf.Tensor:
    return pf.tensor(VALUES, device=HERE)


def traced(fn: Any, *args: Any) -> Any:
    found, _ = fn.find(args, {})
    return found


def same_as_eager(fn: Any, *args: pf.Tensor) -> Any:
    """Calls it often enough to be replayed, and compares; gives what was traced."""
    jitted = pf.jit(fn)
    want = fn(*args)
    for _ in range(4):
        got = jitted(*args)
        assert got.device == want.device
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert jitted.traces == 1
    return traced(jitted, *args)


@pytest.mark.parametrize("current", ["cpu", "cuda:0"])
def test_arguments_and_captured_tensors_follow_the_data(current: str) -> None:
    with pf.device(current):
        v, scale = pf.tensor(VALUES[0]), pf.tensor(0.5)
        found = same_as_eager(lambda a, b: (a * b * scale).sum(-1), there(), v)
        (device, _, runner) = found.parts[0]
        assert len(found.parts) == 1 and str(device) == HERE
        assert isinstance(runner, CapturedRunner) and runner.why == "replayed as a graph"
        scale.fill_(2.0)  # it is copied at each call
        np.testing.assert_allclose(pf.jit(lambda a: a * scale)(there()).numpy(), VALUES * 2)


@pytest.mark.slow
def test_views_are_made_dense_before_they_travel() -> None:
    with pf.device("cpu"):
        table = pf.tensor(VALUES)
        same_as_eager(lambda a, t: a.T @ t[1:3, 2].expand(4, 2), there(), table)
        same_as_eager(lambda a: a.T.to("cpu") + 1, there())
        same_as_eager(lambda a: a[:, 3].to("cpu"), there())


@pytest.mark.slow
def test_what_is_made_inside_is_made_where_it_is_needed() -> None:
    with pf.device("cpu"):
        found = same_as_eager(lambda a: a + pf.arange(8) * 2 + pf.ones(4, 1), there())
        assert not isinstance(found.runner, MultiDeviceRunner) and str(found.device) == HERE
        noise = pf.jit(lambda a: a * 0 + pf.rand(8))
        draws = [noise(there()).numpy()[0] for _ in range(3)]
        assert len({d.tobytes() for d in draws}) == 3 and all((d >= 0).all() and (d < 1).all() for d in draws)


def test_a_tensor_may_move_in_the_middle() -> None:
    with pf.device("cpu"):
        found = same_as_eager(lambda a: ((a * 2).to("cpu") + 1).to(HERE) * a, there())
        assert [str(device) for device, _, _ in found.parts] == [HERE, "cpu", HERE]
        assert found.parts[2][2].arguments == [0, 1]  # what comes from elsewhere may lie anywhere, like an argument
        same_as_eager(lambda a: (a + 1).to("cuda:0"), there())
        loss = pf.jit(lambda a: (a.exp().sum().to("cpu"), a * 2))
        total, doubled = loss(there())
        assert total.device == "cpu" and doubled.device == HERE
        np.testing.assert_allclose(total.item(), np.exp(VALUES).sum(), rtol=1e-5)


def exchange(a: pf.Tensor, b: pf.Tensor) -> tuple[pf.Tensor, pf.Tensor]:
    """Both devices compute, exchange what they have, and go on."""
    for _ in range(2):
        x, y = (a * 2).sum(0, True), (b + 1).sum(0, True)
        a, b = a + (x + y.to(a.device)), b + (x.to(b.device) + y)
    return a, b


@pytest.mark.parametrize("kept", [cross_device.MAX_KEPT, 0])
def test_devices_that_exchange_values_work_at_once(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No device waits for another before it was given its own work, and what was read last is freed."""
    monkeypatch.setattr(cross_device, "MAX_KEPT", kept)
    pair = [pf.tensor(VALUES, device=f"cuda:{n}") for n in range(2)]
    jitted, wanted = pf.jit(exchange), [x.numpy() for x in exchange(*pair)]
    for _ in range(4):
        for found, want in zip(jitted(*pair), wanted, strict=True):
            np.testing.assert_array_equal(found.numpy(), want)
    runner = traced(jitted, *pair).runner
    assert [str(stage.device.id) for stage in runner.stages] == ["cuda:0", "cuda:1"] * 3
    assert [len(stage.copied) for stage in runner.stages] == [0, 2, 0, 2, 0, 0]
    assert {isinstance(one, CapturedRunner) for one in runner.runners} == {kept > 0}
    outputs = {n for stage in runner.stages for n in stage.outputs} - set(runner._plan.graph.outputs)
    assert outputs <= {node for done in runner._done for node in done}


def test_to_where_it_is_already_moves_nothing() -> None:
    with pf.device("cpu"):
        found = same_as_eager(lambda a: a.to("cpu") * 2, pf.tensor(VALUES))
        assert not isinstance(found.runner, MultiDeviceRunner)
        moved = pf.jit(lambda a: (a + 1).to("cpu"))(pf.tensor(VALUES))
        assert moved._node.meta.committed  # it is tied down as it is outside of jit


def test_parts_on_devices_that_never_meet() -> None:
    with pf.device("cpu"):
        both = pf.jit(lambda a, b: (a * 2, b + 1, a))
        for _ in range(3):
            left, right, same = both(there(), pf.tensor(VALUES))
            assert (left.device, right.device, same.device) == (HERE, "cpu", HERE)
            np.testing.assert_array_equal(left.numpy(), VALUES * 2)
            np.testing.assert_array_equal(right.numpy(), VALUES + 1)
        a, b = there() * 2, pf.tensor(VALUES) + 1
        pf.eval(a, b)  # and without jit
        assert type(a._node.data.storage) is not type(b._node.data.storage)
        np.testing.assert_array_equal(a.numpy(), VALUES * 2)
        np.testing.assert_array_equal(b.numpy(), VALUES + 1)


def test_state_on_both_sides_is_updated_where_it_lies() -> None:
    with pf.device("cpu"):
        count, total = pf.tensor(np.zeros(8, np.float32), device="cpu") + 0, there() + 0

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            old = total.sum().to("cpu")  # read before it is overwritten
            count.add_(1.0)
            total.add_(x * count.to(HERE))
            count.add_(old)
            return count.to(HERE) + total

        want_count, want_total = np.zeros(8, np.float32), VALUES.copy()
        for _ in range(5):
            got = step(there())
            old = want_total.sum(dtype=np.float32)
            want_count = want_count + 1
            want_total = want_total + VALUES * want_count
            want_count = want_count + old
            np.testing.assert_allclose(got.numpy(), want_count + want_total, rtol=1e-5)
            np.testing.assert_allclose(total.numpy(), want_total, rtol=1e-5)
            np.testing.assert_allclose(count.numpy(), want_count, rtol=1e-5)
        assert (count.device, total.device) == ("cpu", HERE) and step.traces == 1


def test_state_is_not_overwritten_before_a_later_stage_has_read_it() -> None:
    with pf.device("cpu"):
        total = there() + 0

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            weighted = total * (x * 2).to("cpu").neg().to(HERE)
            total.add_(x)
            return weighted

        for n in range(1, 6):
            np.testing.assert_allclose(step(there()).numpy(), VALUES * n * VALUES * -2, rtol=1e-5)
        np.testing.assert_allclose(total.numpy(), VALUES * 6, rtol=1e-5)


def test_state_that_takes_its_own_value() -> None:
    with pf.device("cpu"):
        total = pf.tensor(VALUES) + 0

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            total.copy_(total.to("cpu"))
            return total + x

        for _ in range(4):
            np.testing.assert_array_equal(step(pf.tensor(VALUES)).numpy(), VALUES * 2)


@pytest.mark.parametrize("current", ["cpu", "cuda:0"])
@pytest.mark.parametrize("make", [optim.SGD, optim.AdamW])
def test_an_optimiser_steps_where_the_model_is(make: Any, current: str) -> None:
    def train(device: str) -> list[np.ndarray[Any, Any]]:
        pf.manual_seed(3)
        with pf.device(current):
            model = nn.Linear(8, 4).to(device)
            optimizer = make(model.parameters(), lr=0.1)
            places = []
            for _ in range(4):
                (model(pf.tensor(VALUES, device=device)) ** 2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                pf.eval(list(model.parameters()))
                places.append([p._node.data.address for p in model.parameters()])
            assert places[-1] == places[-2]  # new values lie where the old ones were
            assert all(p.device == device for p in model.parameters())
            return [p.numpy() for p in model.parameters()]

    for got, want in zip(train(HERE), train("cpu"), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_jitted_step_of_a_model_elsewhere() -> None:
    with pf.device("cpu"):
        model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5), nn.Linear(4, 1)).to(HERE)
        optimizer = optim.SGD(model.parameters(), lr=0.05)

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            loss: pf.Tensor = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.to("cpu")

        losses = [step(there()).item() for _ in range(12)]
        assert step.traces == 1 and losses[-1] < losses[0]


@pytest.mark.slow
def test_a_model_on_two_gpus() -> None:
    def train(first: str, second: str, jitted: bool) -> list[np.ndarray[Any, Any]]:
        pf.manual_seed(5)
        with pf.device("cpu"):
            lower, upper = nn.Linear(8, 4).to(first), nn.Linear(4, 1).to(second)
            parameters = [*lower.parameters(), *upper.parameters()]
            optimizer = optim.AdamW(parameters, lr=0.1)

            def step(x: pf.Tensor) -> pf.Tensor:
                loss: pf.Tensor = (upper(pf.relu(lower(x)).to(second)) ** 2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                return loss

            run = pf.jit(step) if jitted else step
            for _ in range(4):
                run(pf.tensor(VALUES, device=first))
            return [p.numpy() for p in parameters]

    want = train("cpu", "cpu", False)
    for jitted in (True, False):
        for got, expected in zip(train("cuda:0", HERE, jitted), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)


def test_a_bad_index_is_named_by_its_line() -> None:
    with pf.device("cpu"):
        pick = pf.jit(lambda a, i: (a * 2).to("cpu").index_select(0, i).to(HERE) + 1)
        with pytest.raises(IndexError, match=r"called at .*test_crossing\.py"):
            pick(there(), pf.tensor([7])).numpy()


def test_it_is_explained_where_it_runs() -> None:
    with pf.device("cpu"):
        plain = pf.jit(lambda a: a * 2)
        assert pf.explain(plain, there()).device == HERE
        assert pf.explain(lambda a: a * 2, there(), run=False).device == HERE
        mixed = pf.jit(lambda a: (a * 2).to("cpu").exp())
        report = pf.explain(mixed, there())
        assert report.device == f"{HERE}, cpu" and len(report.launches) == 2
        assert all(launch.seconds for launch in report.launches)
        assert HERE in report.replay and "cpu" not in report.replay
        a, b = there() * 2, pf.tensor(VALUES) + 1
        assert len(pf.explain([a, b]).launches) == 2  # type: ignore[arg-type]  # it takes what pf.eval takes
