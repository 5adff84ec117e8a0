"""Calls of jitted functions in one step, in C (engine/jitted_call.c), and what is left to Python."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.precision import choice
from pyflame.engine.ownership import reliable
from pyflame.transform.jitted_call import MAX_ROWS
from tests.rows import by_row, in_python, left_to_python


@pytest.fixture(autouse=True)
def _with_rows() -> None:
    if not reliable():
        pytest.skip("without the GIL it stays in Python")


def vector(*values: float) -> pf.Tensor:
    made = pf.tensor(values) + 0.0
    pf.eval(made)
    return made


def warm(call: Callable[[], Any], times: int = 4) -> None:
    for _ in range(times):
        call()


def test_a_call_that_comes_again_is_made_in_c() -> None:
    jitted = pf.jit(lambda x, y: x * y + 1.0)
    x, y = vector(1, 2), vector(3, 4)
    warm(lambda: jitted(x, y))
    assert by_row(jitted, x, y).tolist() == [4, 9]
    assert by_row(jitted, y, y).tolist() == [10, 17]  # other tensors of the same layout
    x[0] = 5.0
    assert left_to_python(jitted, x, y) and jitted(x, y).tolist() == [16, 9]  # it was pending
    assert by_row(jitted, x, y).tolist() == [16, 9]


@pytest.mark.parametrize(
    ("fn", "want"),
    [
        (lambda x: (x + 1.0, [x * 2.0, None], {"a": x, "n": 3}), ([2, 3], [[2, 4], None], {"a": [1, 2], "n": 3})),
        (lambda x: [x + 1.0, x + 1.0], [[2, 3], [2, 3]]),
        (lambda x: None, None),
        (lambda x: (x.reshape(2, 1).expand(2, 2).T,), ([[1, 2], [1, 2]],)),
    ],
)  # fmt: skip
def test_what_it_returns(fn: Callable[[pf.Tensor], Any], want: Any) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        return value.tolist() if isinstance(value, pf.Tensor) else value

    jitted, x = pf.jit(fn), vector(1, 2)
    warm(lambda: jitted(x))
    assert plain(by_row(jitted, x)) == want == plain(jitted(x))


def test_numbers_that_are_data_need_no_row_of_their_own() -> None:
    jitted, x = pf.jit(lambda x, a, b: x * a + b), vector(1, 2)
    warm(lambda: jitted(x, 2.0, 1.0))
    assert by_row(jitted, x, -0.0, 7.5).tolist() == [7.5, 7.5] and by_row(jitted, x, 3.0, 0.0).tolist() == [3, 6]


def test_arguments_by_name_and_static_ones() -> None:
    jitted = pf.jit(lambda x, power=1.0, *, add: x**power + add, static_argnames="power")
    x, y = vector(2, 3), vector(1, 1)
    warm(lambda: jitted(x, power=2.0, add=y))
    assert by_row(jitted, x, power=2.0, add=x).tolist() != jitted(x, add=x, power=3.0).tolist() == [10, 30]
    assert left_to_python(jitted, x, power=3.0, add=y) and jitted(x, power=3.0, add=y).tolist() == [9, 28]
    numbered = pf.jit(lambda x, n: x + n, static_argnums=1)
    two, another = 2.0, float("2")
    warm(lambda: numbered(x, two))
    assert by_row(numbered, x, two).tolist() == [4, 5]
    assert left_to_python(numbered, x, another) and numbered(x, another).tolist() == [4, 5]


def test_a_method_has_a_row_for_each_object() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @pf.jit
        def times(self, x: pf.Tensor) -> pf.Tensor:
            return x * self.factor

    x, objects = vector(1, 2), [Scaled(2.0), Scaled(3.0)]
    warm(lambda: [one.times(x) for one in objects])
    for one in objects:
        assert by_row(Scaled.times, one, x).tolist() == [one.factor, 2 * one.factor]


def _more_grad(x: pf.Tensor) -> Any:
    return x.clone().requires_grad_()


OTHERWISE = {
    "shape": (lambda f, x: f(vector(1, 2, 3)), [2, 4, 6]),
    "dtype": (lambda f, x: f(pf.tensor([1, 2])), [2, 4]),
    "strides": (lambda f, x: f(vector(1, 0, 2, 0)[::2]), [2, 4]),
    "pending": (lambda f, x: f(x + 1.0), [4, 6]),
    "more arguments": (lambda f, x: f(x, None), [2, 4]),
    "by name": (lambda f, x: f(x=x), [2, 4]),
    "a list": (lambda f, x: f([x, x]), [4, 8]),
    "a number": (lambda f, x: f(2.0), 4),
    "on the tape": (lambda f, x: f(_more_grad(x)), [2, 4]),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_arguments_are_left_to_python(name: str) -> None:
    def double(x: Any, more: Any = None) -> pf.Tensor:
        return sum(x) * 2.0 if isinstance(x, list) else x * 2.0

    jitted, x = pf.jit(double), vector(1, 2)
    warm(lambda: jitted(x))
    call, want = OTHERWISE[name]
    calls: list[bool] = []

    def asked(*args: Any, **kwargs: Any) -> Any:
        calls.append(left_to_python(jitted, *args, **kwargs))
        return jitted(*args, **kwargs)

    for _ in range(2):
        assert call(asked, x).tolist() == want
        assert by_row(jitted, x).tolist() == [2, 4]
    assert calls[0]


@pytest.mark.parametrize(
    "mode",
    [pf.no_grad, lambda: pf.autocast(pf.bfloat16), lambda: pf.device("null"), pf.deterministic, pf.profile],
    ids=["no_grad", "autocast", "device", "deterministic", "profile"],
)
def test_other_modes_are_left_to_python(mode: Callable[[], Any]) -> None:
    jitted, x = pf.jit(lambda x: x * 2.0), vector(1, 2)
    warm(lambda: jitted(x))
    with mode():
        assert left_to_python(jitted, x)
    assert by_row(jitted, x).tolist() == [2, 4]
    traced = pf.jit(lambda x: jitted(x) + 1.0)
    assert traced(x).tolist() == [3, 5]  # inside of a trace there is none


def test_another_default_dtype_or_precision_is_left_to_python() -> None:
    jitted, x = pf.jit(lambda x: x + pf.ones(2)), vector(1, 2)
    warm(lambda: jitted(x))
    before = choice.precision
    try:
        pf.set_default_dtype(pf.float64)
        assert left_to_python(jitted, x) and jitted(x).dtype is pf.float64
        pf.set_default_dtype(pf.float32)
        pf.set_float32_matmul_precision("medium")
        assert left_to_python(jitted, x)
        pf.set_float32_matmul_precision("".join(["high", "est"]))  # equal is enough
        assert by_row(jitted, x).tolist() == [2, 3]
    finally:
        pf.set_default_dtype(pf.float32)
        choice.precision = before


def test_a_guard_that_changes_is_left_to_python() -> None:
    model = pf.nn.Sequential(pf.nn.Linear(2, 2), pf.nn.Dropout(0.5))
    jitted, x = pf.jit(model), vector(1, 2)
    model.eval()
    with pf.no_grad():
        warm(lambda: jitted(x))
        want = by_row(jitted, x).tolist()
        model.train()
        assert left_to_python(jitted, x)
        jitted(x)
        model.eval()
        assert by_row(jitted, x).tolist() == want  # both traces are kept
        model[0].bias.fill_(100.0)
        assert left_to_python(jitted, x) and min(jitted(x).tolist()) > 90  # state is another
        warm(lambda: jitted(x))
        assert min(by_row(jitted, x).tolist()) > 90


def test_another_thread_has_modes_of_its_own() -> None:
    jitted, x, seen = pf.jit(lambda x: x * 2.0), vector(1, 2), []
    warm(lambda: jitted(x))

    def work() -> None:
        with pf.no_grad():
            seen.append(left_to_python(jitted, x))
        seen.append(jitted(x).tolist())
        seen.append(by_row(jitted, x).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, [2, 4], [2, 4]]


# --- state ------------------------------------------------------------------------------------------------------------


def counted(rows: bool = True) -> tuple[Any, pf.Tensor]:
    """A function that adds to a tensor where it lies, and that tensor."""
    total = vector(0, 0)

    @pf.jit
    def add(x: pf.Tensor) -> pf.Tensor:
        total.add_(x)
        return total * 2.0

    warm(lambda: add(vector(1, 1)))
    for value in (1, -1):
        add(vector(value, value))  # the first call moves state, two leave it alike, two go by that
    if rows:
        assert by_row(add, vector(0, 0)).tolist() == [8, 8]
    return add, total


def test_state_is_updated_where_it_lies() -> None:
    add, total = counted()
    x, node = vector(1, 2), id(total._node)
    for n in range(1, 4):
        assert by_row(add, x).tolist() == [8 + 2 * n, 8 + 4 * n]
    assert id(total._node) == node and total.tolist() == [7, 10]


STATE = {
    "assigned": lambda total: total.fill_(10.0),
    "an element": lambda total: total.__setitem__(slice(0, 2), 10.0),
    "data": lambda total: setattr(total, "data", vector(10, 10)),
    "a view": lambda total: total[:].copy_(vector(10, 10)),
}


@pytest.mark.parametrize("how", STATE)
def test_state_that_was_written_to_is_left_to_python(how: str) -> None:
    add, total = counted()
    STATE[how](total)
    x = vector(1, 2)
    assert left_to_python(add, x) and add(x).tolist() == [22, 24] and total.tolist() == [11, 12]


@pytest.mark.parametrize("held", [lambda t: t.numpy(), lambda t: t.detach(), lambda t: t[0:1], lambda t: t._node.data])
def test_state_that_somebody_holds_is_left_to_python(held: Callable[[pf.Tensor], Any]) -> None:
    add, total = counted()
    kept = held(total)
    if isinstance(kept, pf.Tensor):
        pf.eval(kept)
    x = vector(1, 2)
    assert left_to_python(add, x)
    assert add(x).tolist() == [10, 12] and total.tolist() == [5, 6]
    if isinstance(kept, np.ndarray):
        assert kept.tolist() == [4, 4]  # what was seen stays
    del kept
    warm(lambda: add(x), 6)
    assert by_row(add, x).tolist() == [24, 40]


def test_an_argument_that_is_state_or_shares_its_memory_is_left_to_python() -> None:
    add, total = counted()
    assert left_to_python(add, total) and add(total).tolist() == [16, 16]
    warm(lambda: add(vector(0, 0)), 6)
    assert by_row(add, vector(0, 0)).tolist() == [16, 16]
    shared = total.detach()
    assert left_to_python(add, shared)
    with pytest.raises(pf.TraceError):
        add(shared)


def test_a_training_step_takes_its_gradients_and_learning_rate_as_they_are() -> None:
    def trained(rows: bool) -> list[float]:
        w = pf.nn.Parameter(vector(1, 2))
        optimizer = pf.optim.SGD([w], lr=0.5, momentum=0.5)

        @pf.jit
        def step(x: pf.Tensor) -> pf.Tensor:
            optimizer.zero_grad()
            loss = (w * x).sum()
            loss.backward()
            optimizer.step()
            return loss

        x, out = vector(1, 3), []
        for n in range(14):
            if n == 6:
                optimizer.param_groups[0]["lr"] = 0.25
            if n == 10:
                w.grad = None
            if rows and n in (5, 9):
                out.append(by_row(step, x).item())
            else:
                out.append(step(x).item())
        assert w.grad is not None
        return [*out, *w.tolist(), *w.grad.tolist()]

    assert trained(True) == trained(False)


def test_a_bad_index_is_raised_and_changes_no_state() -> None:
    table, count = vector(1, 2, 3), vector(0)

    @pf.jit
    def pick(index: pf.Tensor) -> pf.Tensor:
        count.add_(1.0)
        return table[index]

    good, bad = pf.tensor([0, 2]), pf.tensor([0, 3])
    warm(lambda: pick(good), 6)
    assert by_row(pick, good).tolist() == [1, 3] and count.tolist() == [7]
    warm(lambda: pick(good), 4)
    with pytest.raises(IndexError, match="3"):
        by_row(pick, bad)
    assert count.tolist() == [11] and pick(good).tolist() == [1, 3] and count.tolist() == [12]
    looked_up = pf.jit(lambda index: table[index])
    warm(lambda: looked_up(good))
    with pytest.raises(IndexError, match="3"):
        by_row(looked_up, bad)
    assert by_row(looked_up, good).tolist() == [1, 3]


def test_what_has_no_row() -> None:
    x = vector(1, 2)
    drawn = pf.jit(lambda x: x + pf.rand(2))
    written = pf.jit(lambda x: x.add_(1.0))
    nested = pf.jit(lambda pair: pair[0] + pair[1])
    crossing = pf.jit(lambda x: (x * 2.0).to("null"))
    for jitted, arg in ((drawn, x), (written, x), (nested, [x, x]), (crossing, x)):
        warm(lambda jitted=jitted, arg=arg: jitted(arg))
        assert left_to_python(jitted, arg)
    assert x.tolist() == [5, 6]


# --- objects ----------------------------------------------------------------------------------------------------------


def test_rows_are_bounded_and_hold_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = pf.jit(lambda x, n: x + n)
    x = vector(1, 2)
    for n in range(MAX_ROWS + 3):
        warm(lambda n=n: jitted(x, n))
    assert sum(map(len, jitted._rows._rows.values())) == MAX_ROWS
    assert by_row(jitted, x, MAX_ROWS + 2).tolist() == [MAX_ROWS + 3, MAX_ROWS + 4]
    monkeypatch.setenv("PYFLAME_PLAN_CACHE", "1")
    jitted(vector(1, 2, 3), 0)
    assert not jitted._rows._rows and len(jitted._rows._seen) == 1


@pytest.mark.slow(16)
def test_a_call_leaves_no_references_behind() -> None:
    add, total = counted()
    pair = pf.jit(lambda x, f: (x * f, x + 1.0))
    x, name = vector(1, 2), 2.5
    warm(lambda: pair(x, name))
    things = [x, x._node, x._node.data, x._node.data.storage, total, name, x._node.meta]
    gc.collect()
    before, blocks = list(map(sys.getrefcount, things)), sys.getallocatedblocks()
    for _ in range(500):
        by_row(add, x)
        by_row(pair, x, name)
        left_to_python(add, total)
        left_to_python(pair, name, x)
    gc.collect()
    assert list(map(sys.getrefcount, things)) == before
    assert sys.getallocatedblocks() - blocks < 200


def test_threads_that_call_one_function_lose_no_update() -> None:
    add, total = counted()
    x = vector(1, 1)

    def work() -> None:
        for _ in range(200):
            add(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert total.tolist() == [604, 604]


def test_a_child_of_fork_goes_on() -> None:
    add, total = counted()
    x = vector(1, 1)
    child = os.fork()
    if not child:
        out = by_row(add, x).tolist()
        os._exit(0 if out == [10, 10] and total.tolist() == [5, 5] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert by_row(add, x).tolist() == [10, 10] and total.tolist() == [5, 5]


def test_without_c_calls_stay_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    in_python(monkeypatch)
    add, total = counted(rows=False)
    assert left_to_python(add, vector(1, 1))
    for n in range(1, 4):
        assert add(vector(1, 1)).tolist() == [8 + 2 * n] * 2
    assert total.tolist() == [7, 7]
