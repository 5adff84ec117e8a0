"""What a jitted function gives to a GPU once it is replayed: one graph, and copies only where they are needed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.device import DeviceId
from pyflame.core.errors import DeviceError, DeviceFaultError, OutOfMemoryError
from pyflame.engine import capture, devices
from tests.emulated import EmulatedDriver, emulated_device
from tests.training import usual_step

NAME = DeviceId("rocm", 47)
WATCHED = ("copy_d2d", "copy_h2d", "memset", "launch", "graph_launch", "graph_instantiate")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts what the current device's driver is asked for. Graphs are trusted: see test_graph_checks.py."""
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted")
    if NAME not in devices._open:
        devices._open[NAME] = emulated_device(NAME.index)
    calls: Counter[str] = Counter()

    def counted(name: str) -> Any:
        real = getattr(EmulatedDriver, name)

        def call(self: EmulatedDriver, *args: Any) -> Any:
            calls[name] += 1
            return real(self, *args)

        return call

    for name in WATCHED:
        monkeypatch.setattr(EmulatedDriver, name, counted(name))
    with pf.device(str(NAME)):
        yield calls


def array(value: float, size: int = 8) -> pf.Tensor:
    made = pf.tensor(np.full(size, value, np.float32)) + 0.0
    pf.eval(made)
    return made


def stepped() -> tuple[Any, pf.Tensor]:
    """A function that counts its calls in a tensor, and that tensor."""
    total = array(0.0)

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        total.add_(x)
        return total * 2.0

    return step, total


def test_a_loop_over_the_same_argument_gives_one_graph_and_nothing_else(given: Counter[str]) -> None:
    step, total = stepped()
    x = array(1.0)
    for _ in range(6):
        y = step(x)
    node = id(total._node)
    given.clear()
    for _ in range(4):
        y = step(x)
    assert given == {"graph_launch": 4}
    assert id(total._node) == node  # it has its new value where it had the old one
    np.testing.assert_array_equal(y.numpy(), np.full(8, 20.0))
    np.testing.assert_array_equal(total.numpy(), np.full(8, 10.0))


def test_a_training_step_that_leaves_gradients_gives_one_graph_and_nothing_else(given: Counter[str]) -> None:
    model = pf.nn.Linear(8, 3)
    step = usual_step(model, pf.optim.SGD(model.parameters(), lr=0.5))
    x = array(1.0, 8)
    for _ in range(6):
        step(x)
    given.clear()
    for _ in range(4):
        step(x)
    assert given == {"graph_launch": 4}
    held = model.weight.grad
    for value in (2.0, 3.0):  # what is held stays, the new one lies elsewhere
        step(array(value))
        assert held.tolist() == [[1.0] * 8] * 3
        assert model.weight.grad.tolist() == [[value] * 8] * 3


def test_an_argument_is_read_where_it_lies_with_the_value_it_has_then(given: Counter[str]) -> None:
    step, _ = stepped()
    x = array(1.0)
    raise_ = pf.jit(lambda: x.add_(1.0))
    want = 0.0
    for n in range(8):
        want += 1.0 + n
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2.0 * want))
        raise_()


def test_results_that_are_held_stay_as_they_are(given: Counter[str]) -> None:
    step, _ = stepped()
    x = array(1.0)
    held = [step(x) for _ in range(10)]
    for n, y in enumerate(held, 1):
        np.testing.assert_array_equal(y.numpy(), np.full(8, 2.0 * n))
    view = held[-1][2:5]  # a view holds memory too
    pf.eval(view)
    del held, y
    for _ in range(4):
        step(x)
    np.testing.assert_array_equal(view.numpy(), np.full(3, 20.0))


def test_arguments_elsewhere_at_each_call_are_copied(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "suits", lambda plan: False)  # as if it were several launches
    step, _ = stepped()
    kept, want = [], 0.0
    for n in range(12):
        kept.append(array(float(n)))
        want += n
        np.testing.assert_array_equal(step(kept[-1]).numpy(), np.full(8, 2.0 * want))
    assert given["graph_instantiate"] == 1
    given.clear()
    again = [kept[n % 6] for n in range(40)]  # more places than graphs are made for
    for x in again:
        step(x)
    assert given["graph_instantiate"] <= capture.MAX_PLACES * capture.MAX_TURNS and given["graph_launch"] == 40


def test_one_launch_is_given_as_it_is_where_arguments_lie_elsewhere_at_each_call(given: Counter[str]) -> None:
    doubled = pf.jit(lambda x: x * 2.0)
    kept = [array(float(n)) for n in range(6)]
    for n in range(12):
        doubled(kept[n % 6])
    given.clear()
    for n in range(12):
        np.testing.assert_array_equal(doubled(kept[n % 6]).numpy(), np.full(8, 2.0 * (n % 6)))
    assert given == {"launch": 12}
    assert "lie elsewhere at each call" in pf.explain(doubled, kept[0]).replay


def test_large_results_are_copied_out(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_KEPT", 8)
    step, _ = stepped()
    x = array(1.0)
    for _ in range(6):
        step(x)
    assert given["graph_instantiate"] == 1


def test_streams_that_were_chosen_end_the_reuse_of_results(
    given: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, _ = stepped()
    x = array(1.0)
    for _ in range(6):
        step(x)
    monkeypatch.setattr(devices.get_device(NAME), "forked", True)
    given.clear()
    np.testing.assert_array_equal(step(x).numpy(), np.full(8, 14.0))
    assert given["copy_d2d"] == 2  # another stream may still use what looks free: argument and result are copied


def test_numbers_are_sent_when_they_change(given: Counter[str]) -> None:
    scaled = pf.jit(lambda x, scale: x * scale)
    x = array(2.0)
    for _ in range(6):
        scaled(x, 0.0)
    for scale, sent in ((0.0, 0), (3.0, 1), (3.0, 0), (0.0, 1), (-0.0, 1), (-0.0, 0), (float("nan"), 1)):
        given.clear()
        y = scaled(x, scale)
        assert given["copy_h2d"] == sent
        np.testing.assert_array_equal(y.numpy(), np.full(8, 2.0 * scale, np.float32))
        assert np.signbit(y.numpy()).all() == (str(scale) == "-0.0")


def test_random_numbers_are_new_in_each_replay(given: Counter[str]) -> None:
    draw = pf.jit(lambda x: x + pf.rand(8))
    x = array(0.0)
    seen = [draw(x).numpy().tobytes() for _ in range(8)]
    assert len(set(seen)) == 8


def test_state_that_is_returned_is_no_place_to_write(given: Counter[str]) -> None:
    total, other = array(0.0), array(0.0)

    @pf.jit
    def step(x: pf.Tensor) -> tuple[pf.Tensor, pf.Tensor]:
        total.add_(x)
        other.copy_(total)
        return total, total.reshape(2, 4)

    x = array(1.0)
    for n in range(1, 7):
        y, shaped = step(x)
        total[0] = -n  # an assignment writes in place where nobody else can see the memory
        first = 1.0 if n == 1 else 2.0 - n
        np.testing.assert_array_equal(y.numpy(), [first, *[float(n)] * 7])
        np.testing.assert_array_equal(shaped.numpy().ravel(), y.numpy())
        np.testing.assert_array_equal(other.numpy(), y.numpy())
        assert total.numpy()[0] == -n
        other[1] = 50.0
        assert total.numpy()[1] == y.numpy()[1] == n
        del y, shaped


def test_an_argument_that_is_returned_shares_its_memory(given: Counter[str]) -> None:
    both = pf.jit(lambda x: (x, x * 2.0))
    x = array(1.0)
    for n in range(6):
        same, y = both(x)
        x[0] = 2.0 + n
        assert same.numpy()[0] == 1.0 + n and y.numpy()[0] == 2.0 + 2 * n


def test_threads_do_not_mix_their_arguments(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_PLACES", 0)
    doubled = pf.jit(lambda x: x * 2.0)
    given_to = [array(float(n), 1 << 16) for n in (1, 2)]
    for x in given_to * 3:
        doubled(x)
    wrong: list[float] = []

    def work(n: int) -> None:
        with pf.device(str(NAME)):
            for _ in range(30):
                got = doubled(given_to[n]).numpy()
                wrong.extend(got[got != 2.0 * (n + 1)][:1])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def runner(jitted: Any, *args: Any) -> capture.CapturedRunner:
    found: capture.CapturedRunner = jitted.find(args, {})[0].runner
    assert isinstance(found, capture.CapturedRunner)
    return found


def test_a_function_without_state_is_replayed_from_its_second_call_on(given: Counter[str]) -> None:
    doubled, x = pf.jit(lambda x: x * 2.0), array(1.0)
    doubled(x)
    assert given["graph_launch"] == 0 and runner(doubled, x).why == "it was the first call"
    doubled(x)
    assert given["graph_launch"] == 1 and runner(doubled, x).why == capture.REPLAYED


@pytest.mark.parametrize("call", ["capture_begin", "capture_end", "graph_instantiate"])
def test_a_driver_that_refuses_to_capture(given: Counter[str], monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    asked = Counter[str]()
    real = getattr(EmulatedDriver, call)

    def refuse(self: EmulatedDriver, *args: Any) -> Any:
        asked[call] += 1
        if call == "capture_end":
            real(self, *args)
        raise DeviceError("[rocm:47] expected a stream that can capture but got hipErrorNotSupported")

    monkeypatch.setattr(EmulatedDriver, call, refuse)
    step, total = stepped()
    x = array(1.0)
    for n in range(1, 6):
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2.0 * n))
    np.testing.assert_array_equal(total.numpy(), np.full(8, 5.0))
    assert asked[call] <= 2  # one capture was tried, and ended if it had begun
    report = pf.explain(step, x)
    assert "not replayed" in report.replay and "hipErrorNotSupported" in report.replay


def test_a_driver_that_refuses_another_capture(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    step, _ = stepped()
    x = array(1.0)
    for _ in range(2):
        step(x)
    assert given["graph_instantiate"] == 1

    def refuse(self: EmulatedDriver, graph: int) -> int:
        raise DeviceError("[rocm:47] expected room for a graph but there is none")

    monkeypatch.setattr(EmulatedDriver, "graph_instantiate", refuse)
    for n in range(3, 9):  # the next one would read x where it lies
        np.testing.assert_array_equal(step(x).numpy(), np.full(8, 2.0 * n))
    assert "room for a graph" in runner(step, x).why


def test_no_memory_for_a_graph(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OutOfMemoryError("[rocm:47] out of memory")

    monkeypatch.setattr(capture, "_Captured", refuse)
    doubled, x = pf.jit(lambda x: x * 2.0), array(1.0)
    for _ in range(4):
        np.testing.assert_array_equal(doubled(x).numpy(), np.full(8, 2.0))
    assert "out of memory" in runner(doubled, x).why


def test_a_broken_device_is_no_refusal(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> Any:
        raise DeviceFaultError("[rocm:47] broke")

    monkeypatch.setattr(capture, "_Captured", fault)
    doubled, x = pf.jit(lambda x: x * 2.0), array(1.0)
    doubled(x)
    with pytest.raises(DeviceFaultError):
        doubled(x)


def test_explain_says_whether_it_is_replayed(given: Counter[str]) -> None:
    step, total = stepped()
    x = array(1.0)
    assert "not called yet" in pf.explain(step, x).replay
    for _ in range(4):
        step(x)
    for _ in range(2):  # explaining times each launch, which is no call
        report = pf.explain(step, x)
        assert report.replay == "replayed as a graph at the last call"
    assert report.replay in str(report) and report.replay in report.html()
    held = total._snapshot()
    step(x)
    report = pf.explain(step, x)
    assert report.replay == (
        "not replayed as a graph at the last call: state is held by somebody else and cannot be updated where it lies"
    )
    np.testing.assert_array_equal(held.numpy(), np.full(8, 4.0))
    assert pf.explain(lambda x: x * 2.0, x).replay == ""  # not jitted


def test_rows_of_a_larger_tensor_are_dense(given: Counter[str]) -> None:
    doubled = pf.jit(lambda x: x * 2.0)
    big = pf.tensor(np.arange(64, dtype=np.float32).reshape(8, 8)) + 0.0
    pf.eval(big)
    batches = [big[n : n + 2] for n in (0, 2, 4, 6)]
    for n in range(8):
        got = doubled(batches[n % 4])
        np.testing.assert_array_equal(got.numpy(), big.numpy()[2 * (n % 4) : 2 * (n % 4) + 2] * 2)
    assert doubled.traces == 1 and given["graph_launch"] == 7
    assert batches[1]._node.data.storage is big._node.data.storage  # nothing was copied for that


def test_a_number_under_a_shape_is_written_out(given: Counter[str]) -> None:
    doubled = pf.jit(lambda x: x * 2.0)
    for n in range(4):
        np.testing.assert_array_equal(doubled(pf.full((8,), float(n))).numpy(), np.full(8, 2.0 * n))
    np.testing.assert_array_equal(doubled(array(3.0)).numpy(), np.full(8, 6.0))
    assert doubled.traces == 1 and given["graph_launch"] == 4


def test_what_is_dear_to_copy_is_launched(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "COPIED_PER_SECOND", 63 / capture.LAUNCH_SECONDS)  # argument and result have 64
    monkeypatch.setattr(capture, "MAX_KEPT", 8)
    doubled, x = pf.jit(lambda x: x * 2.0), array(1.0)
    given.clear()
    for _ in range(4):
        np.testing.assert_array_equal(doubled(x).numpy(), np.full(8, 2.0))
    assert given["graph_instantiate"] == given["copy_d2d"] == 0
    assert not runner(doubled, x)._graphs  # nor is there a workspace for one
    assert "would copy 64 bytes" in pf.explain(doubled, x).replay


def test_large_arguments_are_read_where_they_lie(given: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "COPIED_PER_SECOND", 63 / capture.LAUNCH_SECONDS)
    doubled, x = pf.jit(lambda x: x * 2.0), array(1.0)
    given.clear()
    for _ in range(5):
        np.testing.assert_array_equal(doubled(x).numpy(), np.full(8, 2.0))
    assert given["graph_launch"] == 3 and given["copy_d2d"] == 0  # seen twice, then captured there
    others = [array(float(n)) for n in range(6)]
    given.clear()
    for n, other in enumerate(others):
        np.testing.assert_array_equal(doubled(other).numpy(), np.full(8, 2.0 * n))
    assert given["graph_launch"] == given["copy_d2d"] == 0
    assert "would copy 64 bytes" in runner(doubled, x).why
    monkeypatch.setattr(devices.get_device(NAME), "forked", True)
    np.testing.assert_array_equal(doubled(x).numpy(), np.full(8, 2.0))
    assert given["graph_launch"] == given["copy_d2d"] == 0


@pytest.mark.slow(16)
def test_calls_that_nobody_waits_for_share_one_workspace(given: Counter[str]) -> None:
    """What may find a bad index leaves a record until the host looks; the memory it computed in is free before."""
    table, index = array(1.0, 1 << 20), pf.tensor(np.arange(1 << 20)[::-1].copy())

    @pf.jit
    def step(factor: pf.Tensor) -> pf.Tensor:
        picked = table[index] * factor
        return (picked.cumsum(0).flip(0).cumsum(0) * 1e-6).sum()

    factor = array(2.0, 1)
    arena = pf.explain(step, factor, run=False).arena_bytes
    assert arena >= 4 << 20
    pf.synchronize()
    pf.reset_peak_memory_stats()
    before = pf.memory_allocated()
    for _ in range(5):
        step(factor)
    assert pf.max_memory_allocated() - before < 1.5 * arena
    pf.synchronize()
