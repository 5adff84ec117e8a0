"""What is data and what is structure: new offsets, lengths and repetitions of what was planned before plan nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import plan_stats
from pyflame.engine.views import reshaped_strides
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

    step(0)
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
