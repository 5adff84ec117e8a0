"""Ctrl-C at any moment: modes go back, tensors keep an old or a new value, and everything goes on."""

from __future__ import annotations

import contextlib
import gc
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.state import mode, state
from pyflame.engine import known
from pyflame.engine.devices import cpu
from pyflame.runtime.cache import DiskCache
from pyflame.runtime.cpu.compiler import CompilerC
from tests.rows import in_python
from tests.seed import code_seed


@pytest.fixture(autouse=True, scope="module")
def hidden_again() -> Iterator[None]:
    """What the tests' collection made is hidden from the collector in the files behind this one, as before it."""
    yield
    gc.collect()
    gc.freeze()


def modes() -> dict[str, Any]:
    return {name: value for name, value in vars(state).items() if name != "pending"}


class Interrupter:
    """Raises KeyboardInterrupt before the n-th bytecode that a function runs; counts them."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.raised = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self

    def run(self, fn: Callable[[], Any]) -> None:
        """In a generator: where a handler begins or ends, what is raised leaves the exception that it handled, with all
        that its frames hold, to the innermost generator. (No signal arrives there.) And with all that exists hidden
        from the collector, and with a hook: what is raised in a finaliser or a callback of the collector is lost, and
        pytest would keep it."""

        def alone() -> Iterator[None]:
            yield fn()

        def lost(raised: Any) -> None:
            if raised.exc_type is not KeyboardInterrupt:
                hook(raised)

        hook, sys.unraisablehook = sys.unraisablehook, lost
        gc.freeze()
        try:
            sys.settrace(self)
            next(alone())
        except KeyboardInterrupt:
            pass
        except RuntimeError as error:  # Python's own: the start of a thread, interrupted, lets go of a lock twice
            if "unlocked lock" not in str(error) or not isinstance(error.__context__, KeyboardInterrupt):
                raise
        finally:
            sys.settrace(None)
            gc.unfreeze()
            sys.unraisablehook = hook


def sweep(make: Callable[[], tuple[Callable[[], Any], Callable[[bool], None]]], points: int) -> None:
    """Interrupt `act` at so many bytecodes, others for each state of the code, or at all if they are fewer.

    `make` gives act and a check of what it has left, told whether it was interrupted.
    """
    act, check = make()
    act()  # plans and kernels are there when it counts
    check(False)
    act, check = make()
    counter = Interrupter(0)
    counter.run(act)
    check(False)
    stride = max(1, -counter.left // points)
    before = modes()
    for at in range(1 + code_seed() % stride, -counter.left, stride):
        act, check = make()
        interrupter = Interrupter(at)
        interrupter.run(act)
        assert modes() == before and sys.exc_info()[0] is None, at
        check(interrupter.raised)


# --- one case for each thing that may be interrupted ------------------------------------------------------------------


def case_evaluation() -> Any:
    x = pf.tensor([1.0, 2.0, 3.0])
    y = x * 2
    z = y.cumsum(0) + y.sum()

    def check(interrupted: bool) -> None:
        assert z.tolist() == [14, 18, 24] and y.tolist() == [2, 4, 6] and x.tolist() == [1, 2, 3]

    return lambda: pf.eval(z), check


def case_in_place() -> Any:
    """The plan overwrites the memory of its input, so it must not run twice."""
    x = pf.tensor(np.arange(6, dtype=np.float32))
    pf.eval(x)
    x[1] = x[1] * 10 + 1
    x[2:4] = x[2:4] + x[1]

    def check(interrupted: bool) -> None:
        assert x.tolist() == [0, 11, 13, 14, 4, 5]

    return lambda: pf.eval(x), check


def case_modes() -> Any:
    kept = pf.no_grad()

    def act() -> None:
        with kept, pf.autocast(pf.bfloat16), pf.device("cpu"), pf.deterministic():
            with pf.enable_grad(), pf.eager():
                assert pf.is_grad_enabled()
            with kept:
                assert not pf.is_grad_enabled()
        decorated()

    @pf.no_grad()
    def decorated() -> None:
        assert not pf.is_grad_enabled()

    return act, lambda interrupted: None


def case_generator() -> Any:
    """A mode that ends with a generator."""

    def numbers() -> Iterator[int]:
        with pf.no_grad():
            yield 1
            yield 2

    return lambda: list(numbers()), lambda interrupted: None


def case_backward() -> Any:
    w = pf.tensor([2.0, 3.0], requires_grad=True)

    def act() -> None:
        loss = (pf.softmax(w, 0) * w).sum() + pf.checkpoint(lambda v: (v * v).sum(), w)
        loss.backward()
        assert w.grad is not None
        pf.eval(w.grad)

    def check(interrupted: bool) -> None:
        if w.grad is None:
            act()
        s = np.exp([2.0, 3.0]) / np.exp([2.0, 3.0]).sum()
        want = s + s * (np.array([2.0, 3.0]) - (s * [2.0, 3.0]).sum()) + [4, 6]
        np.testing.assert_allclose(w.grad.numpy(), want, 1e-5)

    return act, check


def case_jit() -> Any:
    """A first call (it is traced) and a second one (it is replayed), with state that is updated where it lies."""
    cell, other = pf.tensor([1.0, 2.0]), pf.tensor([5.0, 5.0])

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        cell.add_(x)
        other.mul_(2.0)
        return cell * other

    def act() -> None:
        step(pf.ones(2))
        step(pf.ones(2))

    def check(interrupted: bool) -> None:
        steps = cell.tolist()[0] - 1
        assert steps in ((0, 1, 2) if interrupted else (2,))
        assert cell.tolist() == [1 + steps, 2 + steps] and other.tolist() == [5 * 2**steps] * 2  # both, or neither
        assert step(pf.ones(2)).tolist() == [(2 + steps) * 10 * 2**steps, (3 + steps) * 10 * 2**steps]

    return act, check


def case_jit_again() -> Any:
    """Calls that come again, which are one step each."""
    cell, x = pf.tensor([1.0, 2.0]), pf.ones(2)
    pf.eval(x)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        cell.add_(x)
        return cell * 2.0

    for _ in range(5):  # the last of these lays down how
        step(x)

    def act() -> None:
        for _ in range(3):
            step(x)

    def check(interrupted: bool) -> None:
        steps = cell.tolist()[0] - 1
        assert steps in ((5, 6, 7, 8) if interrupted else (8,)) and cell.tolist() == [1 + steps, 2 + steps]
        assert step(x).tolist() == [2 * (2 + steps), 2 * (3 + steps)]

    return act, check


def case_optimizer() -> Any:
    w = pf.tensor([1.0, 2.0], requires_grad=True)
    optimizer = pf.optim.SGD([w], lr=0.5, momentum=0.5)
    w.grad = pf.tensor([1.0, 1.0])

    def check(interrupted: bool) -> None:
        if w.tolist() == [1, 2]:
            assert interrupted
            optimizer.step()
        assert w.tolist() == [0.5, 1.5]
        optimizer.step()
        assert w.tolist() == [-0.25, 0.75]

    return optimizer.step, check


def case_checkpoint() -> Any:
    """What is computed again rebinds cells again; they go back."""
    w, count = pf.tensor([2.0], requires_grad=True), pf.zeros(1)

    def fn(v: pf.Tensor) -> pf.Tensor:
        with pf.no_grad():
            count.add_(1.0)
        return (v * v).sum()

    loss = pf.checkpoint(fn, w)

    def check(interrupted: bool) -> None:
        assert count.tolist() == [1]
        assert w.grad is None if interrupted and w.grad is None else w.grad.tolist() == [4]

    return loss.backward, check


def case_tape_of_a_cell() -> Any:
    """A cell takes a value and its place on the tape in one step."""
    w = pf.tensor([3.0], requires_grad=True)
    h = w * 2

    def check(interrupted: bool) -> None:
        value = h.item()
        h.sum().backward()
        assert (value, w.grad.tolist()) in (((6, [2]), (12, [4])) if interrupted else ((12, [4]),))

    return lambda: h.mul_(2.0), check


CASES = {
    case_evaluation: 150, case_in_place: 150, case_modes: 300, case_generator: 300, case_backward: 30, case_jit: 40,
    case_jit_again: 40, case_optimizer: 20, case_checkpoint: 100, case_tape_of_a_cell: 150,
}  # fmt: skip


@pytest.mark.parametrize(("case", "points"), CASES.items())
def test_an_interrupt_between_two_bytecodes(case: Any, points: int) -> None:
    sweep(case, points)


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "points"), CASES.items())
def test_an_interrupt_between_many_bytecodes(case: Any, points: int) -> None:
    sweep(case, 30 * points)  # of most cases all


@pytest.mark.parametrize("case", [case_evaluation, case_backward, case_jit_again])
def test_an_interrupt_where_known_plans_are_run_in_python(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "in_c", None)
    in_python(monkeypatch)
    sweep(case, 150)


def test_an_interrupt_while_kernels_are_planned_and_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = cpu()
    assert device.compiler is not None
    monkeypatch.setattr(device, "_compiler", CompilerC(device.compiler.path, DiskCache(tmp_path)))

    def make() -> Any:
        pf.clear_cache()
        return case_in_place()

    sweep(make, 4)


# --- modes ------------------------------------------------------------------------------------------------------------


def test_modes_entered_by_hand_and_by_an_exit_stack() -> None:
    guard = pf.no_grad()
    guard.__enter__()
    assert not pf.is_grad_enabled()
    with guard:  # once more, and back to what it was
        assert not pf.is_grad_enabled()
    assert not pf.is_grad_enabled()
    guard.__exit__(None, None, None)
    assert pf.is_grad_enabled()
    with contextlib.ExitStack() as stack:
        stack.enter_context(guard)
        stack.enter_context(pf.enable_grad())
        assert pf.is_grad_enabled()
    assert pf.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), pf.no_grad():
        1 / 0
    assert pf.is_grad_enabled()


def test_a_mode_that_nobody_left_ends_with_its_owner() -> None:
    def forgets() -> None:
        pf.no_grad().__enter__()
        guard = mode(eager=True)
        guard.__enter__()
        assert state.eager

    forgets()
    assert pf.is_grad_enabled() and not state.eager


# --- memory and long runs ---------------------------------------------------------------------------------------------


@pytest.mark.slow(16)
@pytest.mark.parametrize("in_c", [True, False])
def test_memory_comes_back_after_interrupts(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the collector runs every few bytecodes, and gives memory back in the middle of anything."""

    def make() -> Any:
        x = pf.ones(1000) * 2
        return lambda: pf.eval((x + 1).cumsum(0)), lambda interrupted: None

    if not in_c:
        monkeypatch.setattr(known, "in_c", None)
    make()[0]()
    gc.collect()
    before, often = cpu().pool.stats, gc.get_threshold()
    try:
        gc.set_threshold(30)
        sweep(make, 150)
    finally:
        gc.set_threshold(*often)
    gc.collect()
    after = cpu().pool.stats
    assert (after.allocated, after.live_blocks) == (before.allocated, before.live_blocks)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """(how far, of how many rows) each call of the runner has come."""
    seen: list[tuple[int, int]] = []
    device = cpu()
    runner = device.runner

    def watched(*args: Any) -> int:
        status: int = runner(*args)
        seen.append((int.from_bytes(args[0][16:24], sys.byteorder), args[1]))  # `at` of pf_call in runner.c
        return status

    monkeypatch.setattr(device, "_runner", watched)
    monkeypatch.setattr(known, "in_c", None)  # which calls the runner itself
    return seen


def long_chain(launches: int = 60) -> pf.Tensor:
    y = pf.full((1 << 18,), 0.5).cumsum(0)
    for _ in range(launches):
        y = (y * 1e-6).sin().cumsum(0)
    return y


def test_ctrl_c_stops_a_plan_between_launches(rows: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyflame.runtime.cpu.device.PAUSE", 1e-3)
    y, again = long_chain(), long_chain()
    pf.eval(again)
    rows.clear()

    runner = cpu().runner

    def interrupted(*args: Any) -> int:
        """Ctrl-C arrives while the run is in C, behind its first launch: that alone may take as long as a part."""
        status: int = runner(*args)
        if rows[-1][0] and not [row for row in rows[:-1] if row[0]]:
            signal.raise_signal(signal.SIGINT)
        return status

    monkeypatch.setattr(cpu(), "_runner", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pf.eval(y)
    reached, count = rows[-1]
    assert 0 < reached < count
    np.testing.assert_array_equal(y.numpy(), again.numpy())  # still to be had, and whole


def test_a_run_in_many_parts_gives_the_same(rows: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    x = pf.tensor(np.random.default_rng(0).standard_normal((300, 300), np.float32))
    want = ((x @ x).softmax(1).cumsum(0) @ x).numpy()
    _, launches = rows[-1]  # a busy machine may take several parts
    monkeypatch.setattr("pyflame.runtime.cpu.device.PAUSE", 1e-9)  # after each chunk
    rows.clear()
    np.testing.assert_array_equal(((x @ x).softmax(1).cumsum(0) @ x).numpy(), want)
    assert len(rows) >= launches > 2


def test_a_plan_that_has_begun_to_overwrite_its_input_is_not_stopped(
    rows: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyflame.runtime.cpu.device.PAUSE", 1e-9)
    cell = pf.zeros(100_000)

    @pf.jit
    def step() -> pf.Tensor:
        out = (cell + 1).cumsum(0).sum()
        cell.add_(1.0)
        return out

    step()
    rows.clear()
    step()
    (first, count), *_ = [(reached, count) for reached, count in reversed(rows)]
    assert first == count  # the last call has done all that was left
    assert cell.tolist()[:2] == [2, 2]


def test_cached_properties_hold_no_lock() -> None:
    """functools' own hold one before Python 3.12, which an interrupt leaves taken: other threads then wait for ever."""
    sources = Path(pf.__file__).parent.rglob("*.py")
    assert [path for path in sources if re.search(r"from functools import .*cached_property", path.read_text())] == []
