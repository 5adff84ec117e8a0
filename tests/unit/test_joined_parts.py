"""Many parts put together, whose number changes from time to time: no plan for each number, and the same values."""

from __future__ import annotations

import numpy as np
import pytest

import pyflame as pf
from pyflame.engine.evaluate import clear_plans, plan_stats
from pyflame.engine.host import joined


def _rows(count: int, *shape: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_number_of_parts(axis: int) -> None:
    for count in (1, 2, 7, 8, 9, 15, 16, 17, 31, 40):
        rows = _rows(count, 2, 3)
        ours = pf.stack([pf.tensor(r) * 2 + 1 for r in rows], axis) * 0.5
        np.testing.assert_allclose(ours.numpy(), np.stack([r * 2 + 1 for r in rows], axis) * np.float32(0.5), 1e-6)


def test_no_number_of_parts_is_planned_after_a_few() -> None:
    def episode(length: int) -> None:
        logs = [pf.log(pf.tensor(r).exp()[1]) for r in _rows(length, 4)]
        weights = pf.linspace(0.0, 1.0, length)
        found = (pf.stack(logs) * weights).sum().item()
        wanted = sum(r[1] * w for r, w in zip(_rows(length, 4), np.linspace(0, 1, length), strict=True))
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)

    for length in (31, 15, 23):
        episode(length)
    before = plan_stats.misses
    for length in range(10, 47):
        episode(length)
    assert plan_stats.misses == before


def test_parts_of_several_kinds() -> None:
    clear_plans()
    rng = np.random.default_rng(0)
    for _ in range(6):
        rows, flipped = _rows(16, 5), rng.random(16) < 0.5
        items = [pf.tensor(r).flip(0) if f else pf.tensor(r) for r, f in zip(rows, flipped, strict=True)]
        wanted = [(r[::-1] if f else r) - 1 for r, f in zip(rows, flipped, strict=True)]
        np.testing.assert_array_equal(pf.stack([i - 1 for i in items]).numpy(), np.stack(wanted))


def test_a_part_that_comes_twice_and_one_without_elements() -> None:
    rows = _rows(6, 2)
    parts = [pf.tensor(r) + 1 for r in rows]
    parts += [parts[0], parts[3], pf.zeros(0, 2)[0:0].reshape(0), parts[1]]
    wanted = np.concatenate([*[r + 1 for r in rows], rows[0] + 1, rows[3] + 1, rows[1] + 1])
    np.testing.assert_array_equal((pf.cat(parts) * 2).numpy(), wanted * 2)


def test_parts_that_are_views_other_dtypes_or_large() -> None:
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    t = pf.tensor(x)
    np.testing.assert_array_equal(pf.cat([t[:, i] for i in range(10)]).numpy(), x.T.reshape(-1))
    mixed = [pf.tensor([1.5]), pf.tensor([2]), *[pf.tensor([0.5])] * 8]
    np.testing.assert_array_equal(pf.cat(mixed).numpy(), np.array([1.5, 2, *[0.5] * 8], np.float32))
    large = [np.full(70_000, i, np.float32) for i in range(9)]
    np.testing.assert_array_equal(pf.cat([pf.tensor(p) + 1 for p in large]).numpy(), np.concatenate(large) + 1)


def test_what_is_put_together_is_a_copy() -> None:
    x = pf.tensor(np.zeros(4, np.float32))
    both = pf.cat([x] * 9)
    both.numpy()
    x += 1
    assert both.sum().item() == 0 and x.sum().item() == 4


def test_gradients_of_parts() -> None:
    w = pf.tensor([1.0, 2.0, 3.0], requires_grad=True)
    for count in (8, 11, 19):
        w.grad = None
        (pf.stack([(w * k).sum() for k in range(count)]) ** 2).sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), [2 * 6 * sum(k * k for k in range(count))] * 3, 1e-5)


def test_only_what_lies_in_memory_is_copied() -> None:
    ready, pending = pf.tensor([1.0]), pf.tensor([1.0]) + 1
    assert joined(pf.cat([ready, pending])._node) is None
    assert joined(pf.cat([ready, ready])._node) is not None
    assert joined(pf.stack([pf.tensor([1.0, 2.0])] * 2, 1)._node) is None
