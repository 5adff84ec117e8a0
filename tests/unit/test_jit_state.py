"""jit and the world outside of it: captured cells and their buffers, guards, retraces, escaped tensors."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import TraceError
from pyflame.core.state import state
from tests.training import usual_step


def address(tensor: pf.Tensor) -> int:
    return tensor._node.data.storage.address


def counter(size: int = 5000) -> tuple[pf.Tensor, object]:
    cell = pf.tensor(np.arange(size, dtype=np.float32))

    @pf.jit
    def step(by: pf.Tensor) -> pf.Tensor:
        cell.add_(by)
        return cell * 2.0

    step(pf.ones(()))
    return cell, step


# --- buffers of state -------------------------------------------------------------------------------------------------


def test_new_state_takes_the_old_one_s_buffer() -> None:
    cell, step = counter()
    where = address(cell)
    step(pf.ones(()))
    assert address(cell) == where
    np.testing.assert_array_equal(cell.numpy(), np.arange(5000) + 2)


@pytest.mark.parametrize("hold", [lambda t: t.clone(), lambda t: t.numpy(), lambda t: t + 0])
def test_others_who_hold_the_old_value_keep_it(hold: object) -> None:
    cell, step = counter()
    held = hold(cell)  # type: ignore[operator]
    before = np.arange(5000) + 1
    step(pf.ones(()))
    np.testing.assert_array_equal(np.asarray(held).reshape(-1), before)
    np.testing.assert_array_equal(cell.numpy(), before + 1)


@pytest.mark.parametrize("view", [lambda t: t.detach(), lambda t: t.reshape(50, 100), lambda t: t[:]])
def test_views_of_state_follow_and_cost_no_copy(view: object) -> None:
    cell, step = counter()
    where = address(cell)
    held = view(cell)  # type: ignore[operator]
    for _ in range(3):
        step(pf.ones(()))
        assert held.tolist() == held.reshape(-1).reshape(held.shape).tolist()
        np.testing.assert_array_equal(np.asarray(held.tolist()).reshape(-1), cell.tolist())
    assert address(cell) == where
    np.testing.assert_array_equal(cell.numpy(), np.arange(5000) + 4)


def test_a_buffer_that_is_read_elsewhere_later_is_not_overwritten_early() -> None:
    a, b = pf.tensor(np.ones((64, 64), np.float32)), pf.tensor(np.full((64, 64), 2, np.float32))

    @pf.jit
    def swap() -> pf.Tensor:
        with pf.no_grad():
            new_a, new_b = a @ b, b @ a + a
            a._rebind(new_a * 0.01)
            b._rebind(new_b * 0.01)
        return (a - b).sum()

    x, y = np.ones((64, 64)), np.full((64, 64), 2.0)
    for _ in range(3):
        swap()
        x, y = x @ y * 0.01, (y @ x + x) * 0.01
        np.testing.assert_allclose(a.numpy(), x, rtol=1e-5)
        np.testing.assert_allclose(b.numpy(), y, rtol=1e-5)


def test_a_bad_index_leaves_state_as_it_was() -> None:
    table, total = pf.tensor(np.arange(12, dtype=np.float32).reshape(4, 3)), pf.tensor(np.zeros(2, np.float32))

    @pf.jit
    def step(at: pf.Tensor) -> pf.Tensor:
        rows = pf.embedding(table, at)
        total.add_(rows.sum(1))
        table.mul_(2.0)
        return rows

    step(pf.tensor([0, 1]))
    before = table.numpy().copy(), total.numpy().copy()
    with pytest.raises(pf.IndexError, match=r"expected an index in \[-4, 3\] but got 9"):
        step(pf.tensor([0, 9]))
    np.testing.assert_array_equal(table.numpy(), before[0])
    np.testing.assert_array_equal(total.numpy(), before[1])


def test_layout_of_state_is_no_reason_to_trace_again() -> None:
    cell = pf.zeros(3, 4)  # a broadcast zero at first, a buffer later

    @pf.jit
    def step() -> None:
        cell.add_(1)

    for _ in range(3):
        step()
    with pf.no_grad():
        cell._rebind(pf.ones(4, 3).T)
    step()
    assert step.traces == 1
    np.testing.assert_array_equal(cell.numpy(), np.full((3, 4), 2))


@pytest.mark.parametrize("first", [True, False])
def test_gradients_may_be_cleared_first_or_last(first: bool) -> None:
    w = pf.ones(3, requires_grad=True)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        if first:
            w.grad = None
        loss = (w * x).sum()
        loss.backward()
        with pf.no_grad():
            w._rebind(w - w.grad)
        if not first:
            w.grad = None
        return loss

    for n in range(3):
        assert step(pf.ones(3)).item() == 3 - 3 * n
    assert step.traces == 1
    assert (w.grad is not None) == first


# --- memory of gradients ----------------------------------------------------------------------------------------------


def trained(size: int = 300) -> tuple[pf.nn.Linear, object]:
    """A layer and a step that leaves gradients behind."""
    model = pf.nn.Linear(size, 7)
    step = usual_step(model, pf.optim.SGD(model.parameters(), lr=0.0))
    step(pf.ones(2, size))
    return model, step


def test_new_gradients_take_the_old_ones_memory() -> None:
    model, step = trained()
    grad, where = model.weight.grad, address(model.weight.grad)
    assert grad.tolist() == [[2.0] * 300] * 7
    del grad
    for n in range(3):
        step(pf.full((2, 300), float(n)))
        assert address(model.weight.grad) == where
        assert model.weight.grad.tolist() == [[2.0 * n] * 300] * 7


@pytest.mark.parametrize(
    "hold", [lambda g: g, lambda g: g.numpy(), lambda g: g.detach(), lambda g: g[1:3], lambda g: g + 0]
)
def test_who_holds_an_old_gradient_keeps_it(hold: object) -> None:
    model, step = trained()
    held = hold(model.weight.grad)  # type: ignore[operator]
    for n in range(2, 5):
        step(pf.full((2, 300), float(n)))
        assert set(np.asarray(held.tolist()).ravel()) == {2.0}
        assert set(model.weight.grad.numpy().ravel()) == {2.0 * n}


def test_a_gradient_of_another_kind_lends_no_memory() -> None:
    model, step = trained()
    model.weight.grad = pf.zeros(7, 300, dtype=pf.float64).float()
    model.bias.grad = None
    step(pf.full((2, 300), 3.0))
    assert model.weight.grad.tolist() == [[6.0] * 300] * 7
    assert model.bias.grad.tolist() == [2.0] * 7


def test_a_bad_index_leaves_old_gradients_as_they_were() -> None:
    table = pf.nn.Embedding(4, 300)

    @pf.jit
    def step(at: pf.Tensor) -> pf.Tensor:
        table.weight.grad = None
        loss = table(at).sum()
        loss.backward()
        return loss

    for _ in range(2):
        step(pf.tensor([1, 1]))
    before = table.weight.grad.tolist()
    with pytest.raises(IndexError):
        step(pf.tensor([2, 9])).item()
    assert table.weight.grad.tolist() == before


# --- state that a loop leaves where it is -----------------------------------------------------------------------------


def loop(step: object, times: int) -> None:
    for _ in range(times):
        step(pf.ones(()))  # type: ignore[operator]


def test_functions_that_share_state_see_what_the_other_wrote() -> None:
    cell, step = counter()
    read = pf.jit(lambda: cell.sum())
    where, total = None, 1
    for n in range(12):
        loop(step, 1 + n % 3)
        total += 1 + n % 3
        where = where or address(cell)
        assert read().item() == np.arange(5000).sum() + 5000.0 * total
    assert address(cell) == where


def test_an_argument_that_is_state_too() -> None:
    cell = pf.ones(3)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        cell.mul_(2.0)
        return x + cell

    for n in range(6):
        other = pf.zeros(3) + 1
        assert step(other).tolist() == [1.0 + 2.0 ** (n + 1)] * 3
    before = cell.tolist()[0]
    assert step(cell).tolist() == [3.0 * before] * 3
    assert cell.tolist() == [2.0 * before] * 3


@pytest.mark.parametrize("change", ["add", "assign", "copy", "no grad", "new grad"])
def test_what_others_do_to_remembered_state_counts(change: str) -> None:
    cell = pf.zeros(4, requires_grad=True)
    want = np.zeros(4)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        loss = (cell * x).sum()
        loss.backward()
        with pf.no_grad():
            cell.add_(x)
        return loss

    for n in range(12):
        step(pf.full((4,), 1.0))
        want += 1
        if n % 4 == 3:
            with pf.no_grad():
                if change == "add":
                    cell.add_(10.0)
                    want += 10
                elif change == "assign":
                    cell[1] = 5.0
                    want[1] = 5
                elif change == "copy":
                    cell.copy_(pf.tensor([1.0, 2.0, 3.0, 4.0]))
                    want = np.array([1.0, 2.0, 3.0, 4.0])
                elif change == "no grad":
                    cell.grad = None
                else:
                    cell.grad = cell.grad * 2
            gradient = 0.0 if cell.grad is None else cell.grad.tolist()[0]
            step(pf.full((4,), 1.0))
            want += 1
            assert cell.grad.tolist() == [gradient + 1.0] * 4
        np.testing.assert_array_equal(cell.detach().numpy().copy(), want)


def test_writes_into_remembered_state_copy_nothing() -> None:
    cell, step = counter()
    loop(step, 5)
    where = address(cell)
    cell[3] = 7.0
    pf.eval(cell)
    assert address(cell) == where
    loop(step, 1)
    assert cell[3].item() == 8.0


def test_remembered_arguments_are_not_held() -> None:
    _, step = counter()
    loop(step, 5)
    x = pf.ones(()) + 0
    pf.eval(x)
    gone = weakref.ref(x._node)
    step(x)
    del x
    assert gone() is None


# --- guards and reasons -----------------------------------------------------------------------------------------------


class Switch:
    def __init__(self) -> None:
        self._on = True

    @property
    def on(self) -> bool:
        if state.tracer is not None:
            state.tracer.guard(self, "on")
        return self._on


def test_guards_choose_among_traces() -> None:
    switch = Switch()
    f = pf.jit(lambda x: x * 2.0 if switch.on else x)
    x = pf.ones(2)
    for on in (True, False, True, False):
        switch._on = on
        np.testing.assert_array_equal(f(x).numpy(), [1 + on] * 2)
    assert f.traces == 2  # both are kept
    assert f.reasons[1] == "Switch.on changed from True to False"


def test_reasons_say_what_changed() -> None:
    scale = pf.ones(2)
    f = pf.jit(lambda x, n: x * scale.sum() * n)
    f(pf.ones(3), 2)
    f(pf.ones(4), 2)
    f(pf.ones(4), 3)
    with pf.no_grad():
        f(pf.ones(4), 3)
    scale = pf.ones(5)
    assert f.reasons[0] == "first call"
    assert "number 0 is float32[4]" in f.reasons[1]
    assert "structure or static arguments" in f.reasons[2]
    assert "gradient mode" in f.reasons[3]


def test_many_traces_warn_once() -> None:
    f = pf.jit(lambda x: x + 1.0)
    for n in range(1, 16):
        f(pf.ones(n))
    with pytest.warns(UserWarning, match=r"was traced 16 times, the last time because new tensor arguments"):
        f(pf.ones(16))


def test_static_names_and_numbers() -> None:
    @pf.jit(static_argnums=0, static_argnames="power")
    def f(kind: str, x: pf.Tensor, power: float = 1.0) -> pf.Tensor:
        return getattr(x, kind)() if power > 1 else x * power

    x = pf.ones(4)
    assert f("sum", x, power=2.0).shape == ()
    assert f("mean", x, power=0.5).shape == (4,)
    f("mean", x, power=0.5)
    assert f.traces == 2


def test_methods_are_traced_per_object() -> None:
    class Scaled:
        def __init__(self, by: float) -> None:
            self.by = pf.tensor(by)

        @pf.jit
        def __call__(self, x: pf.Tensor) -> pf.Tensor:
            return x * self.by

    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(2):
        assert (two(pf.ones(())).item(), three(pf.ones(())).item()) == (2.0, 3.0)
    assert Scaled.__call__.traces == 2


# --- escaped tensors --------------------------------------------------------------------------------------------------


def test_escaped_tensors_name_the_function_and_the_line() -> None:
    kept: list[pf.Tensor] = []

    @pf.jit
    def leaky(x: pf.Tensor) -> pf.Tensor:
        kept.append(x * 2.0)
        return x

    leaky(pf.ones(3))
    with pytest.raises(TraceError, match=r"made while leaky was traced.*test_jit_state\.py:\d+"):
        kept[0].numpy()
    with pytest.raises(TraceError, match="made while leaky was traced"):
        pf.eval(kept[0] + 1)


def test_check_sees_a_graph_that_changes() -> None:
    calls: list[int] = []

    def odd(x: pf.Tensor) -> pf.Tensor:
        calls.append(1)
        return x * 2.0 if len(calls) % 2 else x + x + x

    with pytest.raises(TraceError, match="its graph differs"):
        pf.jit(odd, check=True)(pf.ones(2))


def test_check_compares_state_and_leaves_it_alone() -> None:
    w = pf.ones(3, requires_grad=True)

    @pf.jit(check=True)
    def step(x: pf.Tensor) -> pf.Tensor:
        loss = (pf.dropout(w * x, 0.5) ** 2).sum()
        loss.backward()
        with pf.no_grad():
            w._rebind(w - w.grad * 0.1)
        w.grad = None
        return loss

    pf.manual_seed(0)
    first = step(pf.ones(3)).item()
    after = w.numpy().copy()
    assert first > 0 and not np.array_equal(after, np.ones(3))


# --- one launch for many updates --------------------------------------------------------------------------------------


def test_updates_of_all_parameters_are_one_launch() -> None:
    rng = np.random.default_rng(0)
    shapes = [(64, 33), (7,), (5, 4, 3), (1000,)]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    cells, speeds = ([pf.tensor(a * k) for a in arrays] for k in (1, 0.5))

    @pf.jit
    def step(rate: float) -> None:
        for cell, speed in zip(cells, speeds, strict=True):
            speed._rebind(speed * 0.9 + cell)
            cell._rebind(cell - speed * rate)

    step(0.1)
    (traced,) = step.cache[next(iter(step.cache))]
    assert [launch.why for launch in traced.plan.launches] == ["4 x fused loop nest"]
    assert len(traced.plan.donations) == 8
    for cell, a in zip(cells, arrays, strict=True):
        np.testing.assert_allclose(cell.numpy(), a - 0.1 * (0.45 * a + a), rtol=1e-5, atol=1e-6)


# --- assignments to parts of state ------------------------------------------------------------------------------------


def test_writes_into_captured_state_copy_nothing() -> None:
    cache = pf.tensor(np.zeros((3, 1000), np.float32))

    @pf.jit
    def write(at: pf.Tensor, row: pf.Tensor) -> pf.Tensor:
        cache.index_copy_(0, at, row)
        cache[2] = row[0] * 2.0
        return cache.sum()

    write(pf.tensor([0]), pf.ones(1, 1000))
    where = address(cache)
    assert write(pf.tensor([1]), pf.ones(1, 1000) * 3.0).item() == 10000.0
    assert address(cache) == where
    held = cache.detach()
    write(pf.tensor([0]), pf.zeros(1, 1000))
    np.testing.assert_array_equal(held.numpy()[:, 0], [0, 3, 0])
    np.testing.assert_array_equal(cache.numpy()[:, 0], [0, 3, 0])


def test_a_bad_index_writes_nothing() -> None:
    cache = pf.tensor(np.zeros((4, 5), np.float32))

    @pf.jit
    def write(at: pf.Tensor, rows: pf.Tensor) -> None:
        cache.index_copy_(0, at, rows)

    write(pf.tensor([0, 1]), pf.ones(2, 5))
    with pytest.raises(pf.IndexError, match=r"\[index_copy|\[scatter"):
        write(pf.tensor([2, 7]), pf.ones(2, 5))
    np.testing.assert_array_equal(cache.numpy().sum(1), [5, 5, 0, 0])
