"""Calls of jitted functions on a GPU in one step (engine/jitted_call.c): by graphs, and by one launch anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.engine import capture, devices, one_launch
from pyflame.engine.ownership import reliable
from tests.emulated import EmulatedDriver, emulated_device
from tests.rows import by_row, in_python, left_to_python
from tests.training import usual_step

NAME = DeviceId("rocm", 45)
WATCHED = ("copy_d2d", "copy_h2d", "memset", "launch", "graph_launch", "graph_instantiate")


@pytest.fixture(params=["graph", "launch"])
def given(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts what the driver is asked for, with graphs and without."""
    if not reliable():
        pytest.skip("without the GIL it stays in Python")
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted" if request.param == "graph" else "off")
    if NAME not in devices._open:
        devices._open[NAME] = emulated_device(NAME.index)
    calls: Counter[str] = Counter()
    for name in WATCHED:
        real = getattr(EmulatedDriver, name)

        def call(self: EmulatedDriver, *args: Any, real: Any = real, name: str = name) -> Any:
            calls[name] += 1
            return real(self, *args)

        monkeypatch.setattr(EmulatedDriver, name, call)
    with pf.device(str(NAME)):
        yield calls


def array(value: float, size: int = 8) -> pf.Tensor:
    made = pf.tensor(np.full(size, value, np.float32)) + 0.0
    pf.eval(made)
    return made


def stepped(calls: int = 8) -> tuple[Any, pf.Tensor, pf.Tensor]:
    """A function that counts its calls in a tensor, that tensor, and what it counts by."""
    total, one = array(0.0), array(1.0)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        total.add_(x)
        return total * 2.0

    for _ in range(calls):
        y = step(one)  # while the one before is held
    del y
    return step, total, one


def test_a_call_gives_one_graph_or_one_launch_and_nothing_else(given: Counter[str]) -> None:
    step, total, one = stepped()
    given.clear()
    results = [by_row(step, one) for _ in range(2)]  # both sets of results
    assert sum(given.values()) == 2 == given["graph_launch"] + given["launch"]
    assert left_to_python(step, one)  # both are held
    results.append(step(one))
    for n, y in enumerate(results, 9):
        np.testing.assert_array_equal(y.numpy(), np.full(8, 2.0 * n))
    shown = results[0][2:4]
    pf.eval(shown)
    del results, y
    for _ in range(3):
        step(one)
    np.testing.assert_array_equal(shown.numpy(), np.full(2, 18.0))  # a view holds memory, too
    np.testing.assert_array_equal(total.numpy(), np.full(8, 14.0))


def test_a_training_step_is_one_graph(given: Counter[str]) -> None:
    def trained(rows: bool) -> list[Any]:
        pf.manual_seed(1)
        model = pf.nn.Linear(8, 3)
        optimizer = pf.optim.AdamW(model.parameters(), lr=0.5)
        step = usual_step(model, optimizer)
        x = array(1.0)
        for _ in range(8):
            step(x)
        for n in range(4):
            if n == 2:
                optimizer.param_groups[0]["lr"] = 0.25  # seen by the next call, whoever makes it
                step(x)
            elif rows and step._rows._rows:
                by_row(step, x)
            else:
                step(x)
        return [p.numpy() for p in model.parameters()]

    for got, want in zip(trained(True), trained(False), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_left_to_python(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    step, _, one = stepped()
    device = devices.get_device(NAME)
    with pf.profile():
        assert left_to_python(step, one)
        step(one)
    for _ in range(3):
        step(one)
    by_row(step, one)
    monkeypatch.setattr(device, "forked", True)
    assert left_to_python(step, one)  # another stream may still use what looks free
    np.testing.assert_array_equal(step(one).numpy(), np.full(8, 28.0))
    monkeypatch.undo()


def test_state_elsewhere_or_held_is_left_to_python(given: Counter[str]) -> None:
    step, total, one = stepped()
    held = total.detach()
    assert left_to_python(step, one)
    np.testing.assert_array_equal(step(one).numpy(), np.full(8, 18.0))
    np.testing.assert_array_equal(held.numpy(), np.full(8, 9.0))  # it shares the cell's memory
    del held
    total.data = array(0.0)
    assert left_to_python(step, one)
    for n in range(1, 9):
        np.testing.assert_array_equal(step(one).numpy(), np.full(8, 2.0 * n))
    np.testing.assert_array_equal(by_row(step, one).numpy(), np.full(8, 18.0))


def test_numbers_and_arguments_that_differ(given: Counter[str]) -> None:
    scaled = pf.jit(lambda x, scale: x * scale)
    x, y, two, three = array(2.0), array(4.0), 2.0, float("3")
    for _ in range(6):
        scaled(x, two)
    np.testing.assert_array_equal(by_row(scaled, x, two).numpy(), np.full(8, 4.0))
    assert left_to_python(scaled, x, three)  # the device has other numbers
    np.testing.assert_array_equal(scaled(x, three).numpy(), np.full(8, 6.0))
    assert left_to_python(scaled, x, two)
    np.testing.assert_array_equal(scaled(x, two).numpy(), np.full(8, 4.0))
    for _ in range(6):
        np.testing.assert_array_equal(scaled(y, two).numpy(), np.full(8, 8.0))
    np.testing.assert_array_equal(by_row(scaled, x, two).numpy(), np.full(8, 4.0))
    np.testing.assert_array_equal(by_row(scaled, y, two).numpy(), np.full(8, 8.0))


def test_a_number_that_an_interrupt_has_cut_off_is_sent_again(
    given: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled = pf.jit(lambda x, scale: x * scale)
    x, device = array(2.0), devices.get_device(NAME)
    for _ in range(4):
        scaled(x, 2.0)
    upload = device.upload

    def cut_off(*args: Any) -> None:
        upload(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(device, "upload", cut_off)
    with pytest.raises(KeyboardInterrupt):
        scaled(x, 3.0)
    monkeypatch.setattr(device, "upload", upload)
    for _ in range(3):
        np.testing.assert_array_equal(scaled(x, 2.0).numpy(), np.full(8, 4.0))


def test_one_launch_reads_arguments_wherever_they_lie(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_PLACES", 0)
    added = pf.jit(lambda x, y: x + y)
    big = array(0.0, 64)
    for n in range(14):
        added(array(1.0), array(float(n)))
    for n in range(6):
        x, y = array(float(n)), array(7.0)
        np.testing.assert_array_equal(by_row(added, x, y).numpy(), np.full(8, n + 7.0))
    part = big[8:16]
    pf.eval(part)
    np.testing.assert_array_equal(by_row(added, part, y).numpy(), np.full(8, 7.0))
    odd = big[1:9]  # misses the alignment that the launch relies on
    pf.eval(odd)
    np.testing.assert_array_equal(added(odd, y).numpy(), np.full(8, 7.0))
    np.testing.assert_array_equal(by_row(added, x, y).numpy(), np.full(8, 12.0))


def test_a_finaliser_that_calls_the_function_meanwhile(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    doubled = pf.jit(lambda x: x * 2.0)
    x, y, inner = array(1.0), array(5.0), []
    for arg in [x] * 8 + [y] * 8:
        out = doubled(arg)  # while the one before is held
    del out
    for name in ("launch", "graph_launch"):
        real = getattr(EmulatedDriver, name)

        def again(self: EmulatedDriver, *args: Any, real: Any = real) -> Any:
            if not inner:  # as where the collector runs here
                inner.append(None)
                inner[0] = doubled(y)
            return real(self, *args)

        monkeypatch.setattr(EmulatedDriver, name, again)
    for arg in (x, y):
        inner.clear()
        outer = by_row(doubled, arg)
        np.testing.assert_array_equal(outer.numpy(), arg.numpy() * 2.0)
        np.testing.assert_array_equal(inner[0].numpy(), np.full(8, 10.0))


def test_a_bad_index_is_found(given: Counter[str]) -> None:
    table, good, bad = array(1.0), pf.tensor([0, 7]), pf.tensor([0, 8])
    pf.eval(good, bad)
    pick = pf.jit(lambda index: table[index] * 2.0)
    for _ in range(6):
        pick(good)
    assert left_to_python(pick, good) == (given["graph_launch"] == 0)  # one launch has no record of its own
    pf.synchronize()
    assert left_to_python(pick, good)  # somebody must watch its record again
    with pytest.raises(IndexError, match="8"):
        pick(bad).numpy()
    np.testing.assert_array_equal(pick(good).numpy(), [2.0, 2.0])


def test_large_results_are_not_kept_by_launches(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (capture, one_launch):
        monkeypatch.setattr(module, "MAX_KEPT", 8)
    step, _, one = stepped()
    assert left_to_python(step, one)
    np.testing.assert_array_equal(step(one).numpy(), np.full(8, 18.0))


def test_the_same_in_python(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    in_python(monkeypatch)
    step, total, one = stepped()
    given.clear()
    for _ in range(3):
        y = step(one)
        assert left_to_python(step, one)
    assert sum(given.values()) == 3 == given["graph_launch"] + given["launch"]
    np.testing.assert_array_equal(y.numpy(), np.full(8, 22.0))
    np.testing.assert_array_equal(total.numpy(), np.full(8, 11.0))
