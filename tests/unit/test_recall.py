"""Graphs that come again are run without being walked, and whatever differs in one is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine import evaluate as engine
from pyflame.engine.devices import cpu


@pytest.fixture(autouse=True)
def on_cpu() -> Any:
    engine.clear_plans()
    with pf.device("cpu"):
        yield
    engine.clear_plans()


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the graphs that were walked."""
    found: list[int] = []
    real = engine.PendingGraph

    def walk(*args: Any, **options: Any) -> Any:
        graph = real(*args, **options)
        found.append(len(graph.order))
        return graph

    monkeypatch.setattr(engine, "PendingGraph", walk)
    return found


def repeated(walks: list[int], turn: Callable[[int], Any], wanted: Callable[[int], Any]) -> int:
    """Run turns of a loop, each of which is right; gives how many graphs the last of them had to walk."""
    for number in range(6):
        walks.clear()
        got = turn(number)
        np.testing.assert_allclose(got, wanted(number), rtol=1e-6)
    return len(walks)


def test_a_loop_walks_its_graph_no_more(walks: list[int]) -> None:
    x = pf.arange(4.0)
    assert repeated(walks, lambda n: ((x + n) * x).sum().item(), lambda n: sum((i + n) * i for i in range(4))) == 0


def test_parts_of_what_is_in_memory_may_begin_elsewhere(walks: list[int]) -> None:
    x, a = pf.arange(24.0).reshape(6, 4).clone(), np.arange(24.0).reshape(6, 4)
    assert repeated(walks, lambda n: (x[n] * 2 + 1).numpy(), lambda n: a[n] * 2 + 1) == 0
    assert repeated(walks, lambda n: (x[:, n % 3] * 2 + 1).numpy(), lambda n: a[:, n % 3] * 2 + 1) == 0


def test_one_tensor_twice_is_not_two_tensors() -> None:
    a, b = pf.tensor([1.0, 2.0]), pf.tensor([3.0, 5.0])
    for one, other in [(a, b), (a, b), (a, b), (a, a), (b, a), (a, a), (a, a), (a, b)]:
        want = one.numpy() * other.numpy() + 1
        np.testing.assert_array_equal((one * other + 1).numpy(), want)
    y, z = a + 1, a + 1  # equal, and yet two: each of them is held
    np.testing.assert_array_equal((y * z).numpy(), [4, 9])
    np.testing.assert_array_equal((y * y).numpy(), [4, 9])


def test_what_somebody_holds_is_computed_along() -> None:
    x = pf.tensor([1.0, 2.0])
    for number in range(8):
        kept = x * 3
        out = (kept + number).exp()
        if number % 3 == 0:
            del kept
        np.testing.assert_allclose(out.numpy(), np.exp([3.0 + number, 6.0 + number]), rtol=1e-5)
        if number % 3:
            assert kept._node.op.name == "leaf"


def test_as_many_elements_of_other_parts_are_another_graph() -> None:
    for sizes in [(2, 2), (2, 2), (2, 2), (1, 3), (1, 3), (1, 1, 2), (4,), (2, 2), (1, 1, 2), (3, 1)]:
        parts = [pf.full((n,), float(k)) * 2 for k, n in enumerate(sizes)]
        want = np.concatenate([np.full(n, 2.0 * k) for k, n in enumerate(sizes)])
        np.testing.assert_array_equal((pf.cat(parts) + 0).numpy(), want)


def test_what_is_overwritten_is_asked_for_each_time() -> None:
    x = pf.zeros(5)
    pf.eval(x)
    kept = []
    for number in range(12):
        x[number % 5] = x[(number + 4) % 5] + 1
        if number % 4 == 3:
            kept.append((x.clone() if number % 8 == 3 else x * 1, x.numpy().copy()))
        else:
            pf.eval(x)
    for tensor, want in kept:
        np.testing.assert_array_equal(tensor.numpy(), want)
    a = np.zeros(5)
    for number in range(12):
        a[number % 5] = a[(number + 4) % 5] + 1
    np.testing.assert_array_equal(x.numpy(), a)


def test_assignments_may_begin_elsewhere_and_their_memory_stays(walks: list[int]) -> None:
    x, a = pf.zeros(6, 3), np.zeros((6, 3))
    pf.eval(x)
    places = set()

    def turn(number: int) -> Any:
        x[number] = float(number)
        pf.eval(x)
        places.add(x._node.data.address)
        return x.numpy().copy()

    def wanted(number: int) -> Any:
        a[number] = number
        return a

    assert repeated(walks, turn, wanted) == 0
    assert len(places) <= 2


def test_an_array_of_numpy_keeps_what_it_saw() -> None:
    x = pf.zeros(4)
    seen = []
    for number in range(8):
        x += 1
        pf.eval(x)
        if number in (3, 5):
            seen.append((x.numpy(), number + 1))
    for array, number in seen:
        np.testing.assert_array_equal(array, np.full(4, number))


def test_a_bad_index_names_the_line_of_this_turn() -> None:
    x = pf.arange(4.0)
    for index in ([0, 1], [1, 2], [2, 3]):
        np.testing.assert_array_equal((x[pf.tensor(index)] + 1).numpy(), np.array(index) + 1.0)
    with pytest.raises(IndexError, match=r"test_recall\.py:\d+"):
        (x[pf.tensor([0, 9])] + 1).numpy()


def test_plans_that_are_forgotten_are_not_recalled(walks: list[int]) -> None:
    x = pf.arange(3.0)
    for _ in range(4):
        (x + 1).numpy()
    engine.clear_plans()
    walks.clear()
    np.testing.assert_array_equal((x + 1).numpy(), [1, 2, 3])
    assert walks


def test_an_element_is_read_without_the_lock_unless_something_is_overwritten() -> None:
    x, device = pf.zeros(3), cpu()
    pf.eval(x)
    before = device.overwriting

    def write(value: float) -> None:
        x[1] = value
        pf.eval(x)
        assert device.overwriting % 2 == 0 and x[1].item() == value

    write(1.0)
    write(2.0)
    assert device.overwriting > before
    device.overwriting |= 1  # as an interrupt leaves it
    assert x[1].item() == 2.0
    write(3.0)
