"""jit: one plan per signature, state as inputs and outputs, and errors inside a trace."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import TraceError
from pyflame.engine.evaluate import plan_stats
from pyflame.runtime.cache import stats


def test_replay_equals_eager_and_traces_once() -> None:
    @pf.jit
    def f(x: pf.Tensor, y: pf.Tensor) -> pf.Tensor:
        return pf.tanh(x @ y).sum(axis=0)

    rng = np.random.default_rng(0)
    for _ in range(3):
        a, b = rng.standard_normal((4, 5)).astype(np.float32), rng.standard_normal((5, 6)).astype(np.float32)
        np.testing.assert_allclose(f(pf.tensor(a), pf.tensor(b)).numpy(), np.tanh(a @ b).sum(0), rtol=1e-5, atol=1e-5)
    assert f.traces == 1
    f(pf.ones(2, 5), pf.ones(5, 6))
    assert f.traces == 2


def test_floats_are_data() -> None:
    f = pf.jit(lambda x, scale: x * scale)
    x = pf.tensor([1.0, 2.0])
    f(x, 0.5)
    misses, compiled = plan_stats.misses, stats.compiles
    np.testing.assert_allclose(f(x, 3.0).numpy(), [3, 6])
    assert (f.traces, plan_stats.misses, stats.compiles) == (1, misses, compiled)


def test_static_arguments_are_part_of_the_signature() -> None:
    f = pf.jit(lambda x, axis: x.sum(axis=axis))
    x = pf.ones(2, 3)
    assert f(x, 0).shape == (3,)
    assert f(x, 1).shape == (2,)
    assert f.traces == 2


def test_structures_in_and_out() -> None:
    f = pf.jit(lambda d: {"sum": d["a"] + d["b"][0], "both": [d["a"], d["b"][0] * 2.0]})
    out = f({"a": pf.ones(2), "b": [pf.ones(2)]})
    np.testing.assert_array_equal(out["sum"].numpy(), [2, 2])
    np.testing.assert_array_equal(out["both"][1].numpy(), [2, 2])


@pytest.mark.slow
def test_training_step_is_one_plan_and_state_moves_on() -> None:
    rng = np.random.default_rng(1)
    x, y = (
        pf.tensor(rng.standard_normal((16, 8)).astype(np.float32)),
        pf.tensor(rng.standard_normal((16, 4)).astype(np.float32)),
    )
    start = rng.standard_normal((8, 4)).astype(np.float32)

    def train(jitted: bool) -> tuple[list[float], np.ndarray]:
        w = pf.tensor(start, requires_grad=True)
        b = pf.zeros(4, requires_grad=True)

        def step(x: pf.Tensor, y: pf.Tensor, rate: float) -> pf.Tensor:
            loss = pf.square(pf.relu(x @ w + b) - y).mean()
            loss.backward()
            with pf.no_grad():
                for p in (w, b):
                    p -= p.grad * rate
                    p.grad = None
            return loss

        run = pf.jit(step) if jitted else step
        losses = [run(x, y, 0.1).item() for _ in range(5)]
        return losses, w.numpy().copy()

    eager_losses, eager_w = train(False)
    jit_losses, jit_w = train(True)
    np.testing.assert_allclose(jit_losses, eager_losses, rtol=1e-5)
    np.testing.assert_allclose(jit_w, eager_w, rtol=1e-5, atol=1e-6)
    assert jit_losses[-1] < jit_losses[0]


def test_gradients_left_on_parameters_accumulate() -> None:
    w = pf.ones(3, requires_grad=True)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        loss = (w * x).sum()
        loss.backward()
        return loss

    x = pf.tensor([1.0, 2.0, 3.0])
    for n in (1, 2, 3):
        step(x)
        np.testing.assert_allclose(w.grad.numpy(), np.array([1, 2, 3]) * n)


def test_a_gradient_changed_in_place() -> None:
    w = pf.ones(2, requires_grad=True)
    w.grad = pf.tensor([4.0, 8.0])

    @pf.jit
    def halve() -> None:
        with pf.no_grad():
            w.add_(1.0)
            w.grad.mul_(0.5)

    halve()
    halve()
    np.testing.assert_array_equal(w.grad.numpy(), [1, 2])
    np.testing.assert_array_equal(w.detach().numpy(), [3, 3])


def test_each_replay_draws_new_random_numbers() -> None:
    f = pf.jit(lambda x: x + pf.rand(4))
    x = pf.zeros(4)
    assert not np.array_equal(f(x).numpy(), f(x).numpy())
    pf.manual_seed(3)
    first = f(x).numpy().copy()
    pf.manual_seed(3)
    np.testing.assert_array_equal(f(x).numpy(), first)


def test_random_replay_equals_eager() -> None:
    def f(x: pf.Tensor) -> pf.Tensor:
        return pf.dropout(x, 0.5, training=True) + pf.randn(6)

    x = pf.ones(6)
    jitted = pf.jit(f)
    jitted(x)
    pf.manual_seed(11)
    want = f(x).numpy().copy()
    pf.manual_seed(11)
    np.testing.assert_array_equal(jitted(x).numpy(), want)


@pytest.mark.parametrize("ask", [lambda t: t.item(), lambda t: bool(t), lambda t: t.numpy(), lambda t: float(t)])
def test_values_cannot_be_asked_for(ask: object) -> None:
    f = pf.jit(lambda x: x * ask(x.sum()))  # type: ignore[operator]
    with pytest.raises(TraceError, match=r"test_jit\.py:\d+"):
        f(pf.ones(3))


def test_a_failed_trace_leaves_state_alone() -> None:
    w = pf.ones(3)

    @pf.jit
    def f(x: pf.Tensor) -> pf.Tensor:
        nonlocal w
        w += x
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        f(pf.ones(3))
    np.testing.assert_array_equal(w.numpy(), [1, 1, 1])


def test_nested() -> None:
    inner = pf.jit(lambda x: pf.exp(x))
    outer = pf.jit(lambda x: inner(x) + 1.0)
    np.testing.assert_allclose(outer(pf.zeros(2)).numpy(), [2, 2])


def test_check_compares_with_eager() -> None:
    f = pf.jit(lambda x: pf.softmax(x, axis=-1), check=True)
    np.testing.assert_allclose(f(pf.zeros(1, 4)).numpy(), [[0.25] * 4])
    counter = [0.0]

    def impure(x: pf.Tensor) -> pf.Tensor:
        counter[0] += 1.0
        return x + counter[0]

    with pytest.raises(TraceError, match="agree with eager"):
        pf.jit(impure, check=True)(pf.zeros(2))


def test_traces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_PLAN_CACHE", "3")
    f = pf.jit(lambda x: x * 2.0)
    for n in range(1, 7):
        f(pf.ones(n))
    assert len(f.cache) == 3
    np.testing.assert_array_equal(f(pf.ones(1)).numpy(), [2])


def test_floats_are_data_in_every_dtype_and_as_exponents() -> None:
    x = pf.tensor(np.array([1.0, 2.0]), requires_grad=True)

    @pf.jit
    def f(x: pf.Tensor, power: float) -> pf.Tensor:
        (g,) = pf.autograd.grad((x**power).sum(), x)
        return g * power

    for power in (3.0, 0.1, -1.5):
        np.testing.assert_allclose(f(x, power).numpy(), power**2 * np.array([1.0, 2.0]) ** (power - 1), rtol=1e-12)
    assert f.traces == 1


def test_printing_inside_a_trace_shows_shapes() -> None:
    seen: list[str] = []

    @pf.jit
    def f(x: pf.Tensor) -> pf.Tensor:
        seen.extend([repr(x), repr(x * 2.0)])
        return x

    f(pf.ones(3))
    assert seen == ["tensor(traced, shape=(3,), dtype=float32)"] * 2
