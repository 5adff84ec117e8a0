"""Captured graphs of two branches: which launches may run beside each other, and that nothing is lost by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn, optim
from pyflame.core.errors import AMDDeviceFaultError
from pyflame.engine import capture
from pyflame.engine.branches import Step, steps
from pyflame.engine.capture import CapturedRunner
from pyflame.engine.merge import Place, places
from pyflame.ir.kernel import Draft, Launch, Plan
from pyflame.schedule.split import Way, divide, takes
from tests.sim.devices import own_gpus


def training(model: nn.Module) -> Any:
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @pf.jit
    def step(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        out = model(x)
        loss = pf.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def perceptron(width: int) -> nn.Module:
    layers = [nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)]
    return nn.Sequential(*layers)


def plan_of(model: nn.Module, x: pf.Tensor, y: pf.Tensor) -> Plan:
    return training(model).find((x, y), {})[0].plan


def perceptron_plan() -> Plan:
    return plan_of(perceptron(1024), pf.zeros(256, 6), pf.zeros(256, dtype=pf.int64))


def gpt() -> tuple[nn.Module, pf.Tensor, pf.Tensor]:
    config = nn.GPTConfig(vocab_size=32, context=8, layers=2, heads=2, width=16)
    return nn.GPT(config), pf.zeros(2, 8, dtype=pf.int64), pf.zeros(2, 8, dtype=pf.int64)


def gpt_plan() -> Plan:
    return plan_of(*gpt())


def divided(plan: Plan, apart: int) -> Plan:
    """With products as a library would do them, and the rest behind them."""
    products = [n for n, x in enumerate(plan.launches) if x.kernel.anchor and x.kernel.anchor.op.name == "matmul"]
    draft = Draft(list(plan.buffers), list(plan.launches), list(plan.outputs), list(plan.uniforms), plan.arena_bytes)
    draft.donations, draft.overwritten_inputs = dict(plan.donations), list(plan.overwritten_inputs)
    divide(draft, {n: Way(takes(plan.launches[n].kernel)[0], False) for n in products}, apart)
    return draft.finish()


def collide(at: list[Place], first: Launch, second: Launch) -> bool:
    """Whether one stores to memory that the other touches."""
    for mine, theirs in ((first, second), (second, first)):
        stored = [at[mine.buffers[a.buffer][0]] for _, a in mine.kernel.stores]
        for memory, low, high in (at[b] for b, _ in theirs.buffers):
            if any(m == memory and a < high and low < b for m, a, b in stored):
                return True
    return False


def before(order: list[Step]) -> list[set[int]]:
    """For each launch all that are done when it starts."""
    known: list[set[int]] = []
    last: dict[bool, int] = {}
    for step in order:
        direct = [n for n in (last.get(step.side, -1), step.after) if n >= 0]
        known.append({*direct}.union(*(known[n] for n in direct)))
        last[step.side] = step.launch
    return known


@pytest.mark.parametrize("apart", [0, 1 << 20])
@pytest.mark.parametrize("make", [perceptron_plan, gpt_plan])
def test_launches_that_share_memory_wait_for_each_other(make: Any, apart: int) -> None:
    with pf.device("null:gfx942"):
        whole = make()
        for plan in (whole, divided(whole, apart)):
            order = steps(plan)
            assert [step.launch for step in order] == list(range(len(plan.launches)))
            assert 4 <= sum(step.side for step in order) <= len(order) * 3 // 4
            done, at = before(order), places(plan)
            for later, second in enumerate(plan.launches):
                for earlier, first in enumerate(plan.launches[:later]):
                    assert earlier in done[later] or not collide(at, first, second), (earlier, later)


def test_gradients_of_products_lie_apart() -> None:
    """Or the second product would overwrite what the first one's update still reads."""
    with pf.device("null:gfx942"):
        small, large = divided(perceptron_plan(), 0), divided(perceptron_plan(), 1 << 30)
    assert sum(x.side for x in steps(large)) > 4 and small.arena_bytes < large.arena_bytes < 2 * small.arena_bytes
    assert len(small.launches) == len(large.launches)


@pytest.mark.slow
def test_a_gpu_updates_weights_while_it_goes_back() -> None:
    """The CPU does so behind the last check of an index, here that of the embedding's gradient."""
    found = {}
    for device in ("cpu", "null:gfx942"):
        with pf.device(device):
            model, x, y = gpt()
            traced, _ = training(model).find((x, y), {})
        plan, states = traced.plan, len(traced.rebound)  # all are updated where they lie
        updates = [n for n, x in enumerate(plan.launches) if "sqrt" in x.ops]
        scatters = [n for n, x in enumerate(plan.launches) if x.kernel.anchor and "scatter" in x.kernel.anchor.op.name]
        found[device] = sum(n < scatters[-1] for n in updates) / len(updates)
        assert len(plan.donations) == states
    assert found["cpu"] == 0 and found["null:gfx942"] >= 0.9


def test_a_chain_has_one_branch() -> None:
    with pf.device("null:gfx942"):
        f = pf.jit(lambda x, w: pf.relu(pf.relu(x @ w).sum(0) @ w))
        plan = f.find((pf.zeros(8, 8), pf.zeros(8, 8)), {})[0].plan
    assert len(plan.launches) > 1 and not any(step.side or step.after >= 0 for step in steps(plan))
    assert steps(Plan((), (), (), ())) == []


def trained(device: str) -> tuple[list[float], list[np.ndarray[Any, Any]], Any]:
    with pf.device(device):
        pf.manual_seed(3)
        model = perceptron(16)
        step = training(model)
        rng = np.random.default_rng(0)
        x, y = pf.tensor(rng.standard_normal((8, 6), dtype=np.float32)), pf.tensor(rng.integers(0, 3, 8))
        found = [step(x, y).item() for _ in range(5)]
        (traced,) = step.cache[next(iter(step.cache))]
        return found, [np.array(p.numpy()) for p in model.parameters()], traced.runner


@pytest.mark.slow(16)
def test_branches_learn_the_same_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches run as the seed has it, and a kernel that reads what is not yet written breaks the device."""
    want, weights, _ = trained("cpu")
    monkeypatch.setenv("PYFLAME_GRAPH_BRANCHES", "2")
    for seed in range(3):
        with own_gpus("gfx942", seed=seed) as (gpu,):
            got, found, runner = trained(str(gpu.id))
            assert isinstance(runner, CapturedRunner) and runner.why == "replayed as a graph"
            (captured,) = [c for c in runner._graphs.values() if c is not None]
            assert sum(step.side for step in captured.order) > 4 and captured.direct
            del runner, captured
        np.testing.assert_allclose(got, want, rtol=1e-4)
        for a, b in zip(found, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_branch_that_does_not_wait_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_GRAPH_BRANCHES", "2")
    monkeypatch.setattr(capture, "steps", lambda plan: [replace(step, after=-1) for step in steps(plan)])
    with own_gpus("gfx942") as (gpu,), pytest.raises(AMDDeviceFaultError, match="written before it is read"):
        trained(str(gpu.id))
