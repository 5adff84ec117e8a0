"""What is data and what is structure: new offsets, lengths and repetitions of what was planned before plan nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.shape import reshaped_strides
from pyflame.engine import evaluate, portions
from pyflame.engine.evaluate import plan_stats
from pyflame.runtime.cache import stats


@contextmanager
def nothing_planned() -> Iterator[None]:
    before = plan_stats.misses, stats.compiles
    yield
    assert (plan_stats.misses, stats.compiles) == before


SLICES: dict[str, Callable[[Any, int], Any]] = {
    "rows": lambda x, i: x[i : i + 3],
    "columns": lambda x, i: x[:, i : i + 3],
    "row": lambda x, i: x[i],
    "element of a row": lambda x, i: x[i][i],
    "steps": lambda x, i: x[i : i + 6 : 2, i],
    "of a transpose": lambda x, i: x.T[i : i + 2, 1:],
    "of a reshape": lambda x, i: x.reshape(5, 2, 12)[:, :, i : i + 2],
    "of a slice": lambda x, i: x[1:][i : i + 3],
}


@pytest.mark.parametrize("name", SLICES)
def test_where_a_slice_begins_is_data(name: str) -> None:
    array = np.random.default_rng(0).standard_normal((10, 12)).astype(np.float32)
    x, part = pf.tensor(array), SLICES[name]
    (part(x, 0) * 2 + 1).sum().item()
    with nothing_planned():
        for i in range(1, 5):
            np.testing.assert_allclose((part(x, i) * 2 + 1).sum().item(), (part(array, i) * 2 + 1).sum(), rtol=1e-5)


def test_a_slice_of_what_is_in_memory_needs_no_plan() -> None:
    array = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    x = pf.tensor(array)
    with nothing_planned():
        for i in range(4):
            assert x[i].tolist() == array[i].tolist()
            assert x[i, i].item() == array[i, i]
            assert x[3 - i :: -1, ::2].tolist() == array[3 - i :: -1, ::2].tolist()
            assert x.T[i].tolist() == array.T[i].tolist()
            assert x[:, i : i + 1].expand(4, 3).tolist() == np.broadcast_to(array[:, i : i + 1], (4, 3)).tolist()
            assert x[4:, i].tolist() == []


def test_slices_that_are_differentiated_are_data_too() -> None:
    weight = pf.ones(3, 2).requires_grad_()
    data = pf.arange(60.0).reshape(20, 3).detach()
    data.numpy()

    def step(i: int) -> list[Any]:
        weight.grad = None
        batch = data[i : i + 4]
        ((batch[:, :2] @ weight[:2]) ** 2).sum().backward()
        assert weight.grad is not None
        return weight.grad.tolist()

    step(0)  # afterwards the weight is in memory
    step(1)
    with nothing_planned():
        for i in range(1, 9):
            batch = np.arange(60.0).reshape(20, 3)[i : i + 4, :2]
            expected = np.concatenate([2 * batch.T @ batch @ np.ones((2, 2)), np.zeros((1, 2))])
            np.testing.assert_allclose(step(i), expected, rtol=1e-5)


def test_views_keep_the_value_that_they_were_taken_of() -> None:
    x = pf.arange(8.0)
    x.numpy()
    view = x[2:5].detach()
    total = view.sum()
    assert view.tolist() == [2, 3, 4]
    node = x[2:5]._node  # as the tape holds one
    x[3] = 100.0
    assert x.tolist() == [0, 1, 2, 100, 4, 5, 6, 7]
    assert total.item() == 9
    assert pf.Tensor(node).tolist() == [2, 3, 4]


def test_a_tensor_is_still_written_to_in_place_where_it_is_read() -> None:
    x = pf.tensor(np.ones((64, 8), np.float32))
    address = x._node.data.address
    for i in range(6):
        x[i] = x[i] * 2 + i
        pf.eval(x)
        assert x._node.data.address == address
    assert x[:7, 0].tolist() == [2, 3, 4, 5, 6, 7, 1]


def test_a_slice_outlives_its_tensor_and_can_be_written_to() -> None:
    x = pf.arange(10.0)
    x.numpy()
    part = x[4:8]
    assert part.tolist() == [4, 5, 6, 7]
    del x
    part[1:3] = -1.0
    part += 1
    assert part.tolist() == [5, 0, 0, 8]


def test_strides_of_a_reshape_are_numpys() -> None:
    rng = np.random.default_rng(0)
    shapes = [(12,), (3, 4), (4, 3), (2, 2, 3), (2, 1, 6), (1, 12, 1), (6, 2), (2, 3, 2)]
    for _ in range(500):
        shape, wanted = (shapes[i] for i in rng.integers(len(shapes), size=2))
        steps = tuple(slice(None, None, int(rng.choice([1, 1, 2]))) for _ in shape)
        base = np.zeros([n * s.step for n, s in zip(shape, steps, strict=True)], np.int8)
        array = base[steps].transpose(rng.permutation(len(shape)))
        view = array.reshape(wanted)
        got = reshaped_strides(array.shape, array.strides, wanted)
        assert (got is not None) == np.shares_memory(view, base)
        if got is not None:
            assert [a for a, n in zip(got, wanted, strict=True) if n != 1] == [
                a for a, n in zip(view.strides, wanted, strict=True) if n != 1
            ]


# --- loops that are one graph -----------------------------------------------------------------------------------------


def recurrence(x: Any, w: Any, turns: int, tanh: Any) -> Any:
    for i in range(turns):
        x = tanh(x @ w) * 0.9 + (x if i % 2 else -x) * 0.1
    return x


def test_a_loop_that_nobody_evaluates_is_planned_once_for_any_number_of_turns() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 8)).astype(np.float32), 0.3 * rng.standard_normal((8, 8)).astype(np.float32)
    x, w = pf.tensor(a), pf.tensor(b)
    for turns in (60, 61, 62, 63, 64, 65, 66, 67):  # one for each number of turns that is left over
        recurrence(x, w, turns, pf.tanh).numpy()
    with nothing_planned():
        for turns in (50, 73, 90, 120):
            got = recurrence(x, w, turns, pf.tanh).numpy()
            np.testing.assert_allclose(got, recurrence(a, b, turns, np.tanh), rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_gradients_of_a_loop_are_planned_once_for_any_number_of_turns() -> None:
    def gradient(turns: int) -> Any:
        w = pf.tensor(np.eye(6, dtype=np.float32) * 0.9).requires_grad_()
        recurrence(pf.arange(12.0).reshape(2, 6) / 12, w, turns, pf.tanh).sum().backward()
        assert w.grad is not None
        return w.grad.numpy()

    def expected(turns: int) -> Any:
        with eagerly():
            return gradient(turns)

    for turns in (40, 41, 42, 43, 44, 45):
        gradient(turns)
    before = plan_stats.misses
    for turns in (50, 63):
        np.testing.assert_allclose(gradient(turns), expected(turns), rtol=1e-4, atol=1e-5)
    assert plan_stats.misses <= before + 4


@contextmanager
def eagerly() -> Iterator[None]:
    """Without what `plan_stats` would count."""
    before = plan_stats.misses
    with pf.eager():
        yield
    plan_stats.misses = before


def test_a_graph_that_comes_again_and_again_is_planned_as_a_whole() -> None:
    x, w = pf.ones(3, 5), pf.full((5, 5), 0.1)
    pf.eval(x, w)
    results = []
    for _ in range(6):
        hits = plan_stats.hits + plan_stats.misses
        results.append(recurrence(x, w, 40, pf.tanh).numpy())
    assert plan_stats.hits + plan_stats.misses == hits + 1
    for result in results:
        np.testing.assert_allclose(result, results[-1], rtol=1e-5)


def test_a_long_loop_needs_no_more_memory_than_a_short_one() -> None:
    def peak(turns: int) -> int:
        x = pf.ones(100_000)
        pf.eval(x)
        pf.reset_peak_memory_stats()
        for _ in range(turns):
            x = (x * 0.5 + 1).cumsum(0) / 100_000
        assert np.isfinite(x.numpy()).all()
        return pf.max_memory_allocated()

    assert peak(200) <= peak(100) * 1.05


def test_writes_of_a_long_loop_stay_in_place() -> None:
    x = pf.tensor(np.zeros(100_000, np.float32))
    pf.reset_peak_memory_stats()
    before = pf.max_memory_allocated()
    for i in range(300):
        x[i] = x[i] + i
    assert x[:300].tolist() == list(range(300))
    assert pf.max_memory_allocated() - before < 3 * x.nbytes


def test_a_loop_is_cut_as_one_with_other_numbers_was(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(*args: Any) -> Any:
        asked.append(args)
        return portions.portions(*args)

    monkeypatch.setattr(evaluate, "portions", noted)
    array = np.random.default_rng(0).standard_normal((40, 7)).astype(np.float32)
    weight = np.full((7, 7), 0.1, np.float32)
    w = pf.tensor(weight)
    for turn in range(6):
        x, rows = pf.tensor(array), np.random.default_rng(turn).integers(0, 40, 80).tolist()
        parts = pf.tensor(array) * 2.0
        state, want = x[:3] * 1.0, array[:3]
        for row in rows:  # another program each time, but for its numbers
            state = pf.tanh(state @ w) + parts[row]
            want = np.tanh(want @ weight) + array[row] * 2
        np.testing.assert_allclose(state.numpy(), want, rtol=1e-4)
        assert len(asked) == 1


def test_portions_may_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFLAME_CUT_GRAPHS", "1000000")
    x, w = pf.ones(3, 7), pf.full((7, 7), 0.1)
    pf.eval(x, w)
    before = plan_stats.misses
    recurrence(x, w, 80, pf.tanh).numpy()
    assert plan_stats.misses == before + 1


# --- where assignments begin ------------------------------------------------------------------------------------------


def test_where_an_assignment_begins_is_data() -> None:
    array = np.zeros((40, 6), np.float32)
    x = pf.tensor(array)
    writes: list[Callable[[Any, int, Any], None]] = [
        lambda a, i, v: a.__setitem__(i, v),
        lambda a, i, v: a.__setitem__(slice(i, i + 3), v + i),
        lambda a, i, v: a.__setitem__((slice(i, i + 8, 2), slice(1, 4)), v[:3] * 2),
        lambda a, i, v: a.__setitem__((slice(None), i % 6), v[0] - 5),
    ]
    row = np.arange(6, dtype=np.float32)
    address = x._node.data.address
    for write in writes:
        write(x, 0, pf.tensor(row))
        pf.eval(x)
        write(array, 0, row)
    with nothing_planned():
        for i in range(1, 30):
            for write in writes:
                write(x, i, pf.tensor(row + i))
                pf.eval(x)
                write(array, i, row + i)
            np.testing.assert_array_equal(x.numpy(), array)
            assert x._node.data.address == address


def test_several_assignments_of_one_graph_begin_where_they_should() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        array = np.zeros((7, 5), np.float32)
        x, held = pf.tensor(array), []
        for _ in range(int(rng.integers(1, 5))):
            top, left = int(rng.integers(5)), int(rng.integers(3))
            value = rng.standard_normal((2, 2)).astype(np.float32)
            x[top : top + 2, left : left + 2] = pf.tensor(value) + 1
            array[top : top + 2, left : left + 2] = value + 1
            if rng.random() < 0.4:
                held.append((x * 1, array.copy()))
            if rng.random() < 0.4:
                held.append((x.detach(), None))
        y = pf.where(x > 0, x, x * 3).sum(axis=0)
        np.testing.assert_allclose(y.numpy(), np.where(array > 0, array, array * 3).sum(0), rtol=1e-5)
        np.testing.assert_array_equal(x.numpy(), array)
        for tensor, expected in held:
            if expected is not None:
                np.testing.assert_array_equal(tensor.numpy(), expected)


def test_what_ops_are_made_of_may_be_slices_of_what_was_assigned() -> None:
    """Composites become slices when they are planned: where the assignment begins is unknown by then."""
    for i in range(1, 5):
        array = np.arange(12, dtype=np.float32).reshape(2, 6)
        x = pf.tensor(array)
        x[:, i : i + 2] = 50.0 + i
        array[:, i : i + 2] = 50.0 + i
        np.testing.assert_array_equal(pf.roll(x, 1, 1).numpy(), np.roll(array, 1, 1))
        x = pf.tensor(np.arange(12, dtype=np.float32).reshape(2, 6))
        x[:, i : i + 2] = 50.0 + i
        np.testing.assert_allclose(pf.diff(x).numpy(), np.diff(array))


def test_assignments_that_read_what_they_overwrite() -> None:
    array = np.arange(6, dtype=np.float32)
    x = pf.tensor(array)
    for i in range(5):
        x[i:] = x[: 6 - i] * 2  # they overlap
        array[i:] = array[: 6 - i] * 2
        x[5 - i] = x.sum()
        array[5 - i] = array.sum()
        x[::-2] = x[::2] + i
        array[::-2] = array[::2].copy() + i
        np.testing.assert_allclose(x.numpy(), array, rtol=1e-6)


def test_items_of_a_batch_that_differ_are_planned_by_kind() -> None:
    """Where each image is flipped or not there are as many graphs of a batch as batches. Images of a kind are computed
    together, 8, 4, 2 or 1 of them."""
    rng = np.random.default_rng(0)
    array = rng.standard_normal((16, 3, 9, 9)).astype(np.float32)
    images = pf.tensor(array)

    def batch(x: Any, turned: Any, offsets: Any) -> list[Any]:
        parts = [x[i, :, k : k + 6, k : k + 5] for i, k in enumerate(offsets)]
        return [((p[:, :, ::-1] if t else p) - 0.5) / 0.25 for p, t in zip(parts, turned, strict=True)]

    misses = []
    for _ in range(20):
        turned, offsets = rng.random(16) < 0.5, rng.integers(4, size=16).tolist()
        before = plan_stats.misses
        got = pf.stack(batch(images, turned, offsets)).numpy()
        misses.append(plan_stats.misses - before)
        np.testing.assert_allclose(got, np.stack(batch(array, turned, offsets)), rtol=1e-6)
    assert sum(misses) <= 2 * 4 and misses[10:] == [0] * 10


def test_memory_without_values_leaves_no_plan() -> None:
    """What one plan leaves unwritten another may copy whole, as the simulated GPU would not let it."""
    junk = np.full(1000, 7.0, np.float32)
    (pf.tensor(junk) + 1.0).numpy()  # memory that is used again
    rows = pf.empty(10, 100)
    rows[3] = pf.ones(100) * 2.0
    assert np.unique(rows.numpy()).tolist() == [0.0, 2.0]
