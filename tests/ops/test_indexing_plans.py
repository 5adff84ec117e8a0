"""Indexing beyond its values: masks, errors that name the line, what plans make of it, and the scatter kernel."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.targets import TARGETS
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from tests.needs import needs_torch, torch

X = np.arange(60.0).reshape(3, 4, 5)

# --- masks, nonzero -------------------------------------------------------------------------------------------------


@needs_torch
def test_nonzero_and_masked_select() -> None:
    x = pf.tensor(X - 30)
    np.testing.assert_array_equal(x.nonzero().numpy(), np.argwhere(X - 30))
    for got, want in zip(x.nonzero(as_tuple=True), np.nonzero(X - 30), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    mask = pf.tensor(X[0, 0] > 2)
    np.testing.assert_array_equal(
        x.masked_select(mask).numpy(), torch.masked_select(torch.tensor(X - 30), torch.tensor(X[0, 0] > 2))
    )
    assert pf.tensor(3.0).nonzero().shape == (1, 0)
    assert pf.tensor(3.0).masked_select(pf.tensor(False)).shape == (0,)


def test_mask_assignment_needs_no_evaluation() -> None:
    """On the null device nothing has a value, so a mask cannot be read there."""
    x = pf.zeros(4, 3, device="null:gfx942")
    x[x > 0] = 1.0
    x[(x > 0).sum(1) > 0] = pf.zeros(3, device="null:gfx942")
    assert x.shape == (4, 3)


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        3,
        -4,
        (0, 0, 0, 0),
        (..., ...),
        [0, 3],
        [-4],
        np.array([True, False]),
        (slice(None), np.ones(3, bool)),
        "a",
        1.5,
        [0.5],
        slice(None, None, 0),
        slice(0.5, 1),
    ],
    ids=str,
)
def test_bad_index_raises_at_the_call(key: Any) -> None:
    with pytest.raises((pf.IndexError, pf.DTypeError, pf.ArgumentError)) as caught:
        pf.tensor(X)[key]
    assert "[index]" in str(caught.value)
    with pytest.raises((pf.IndexError, pf.DTypeError, pf.ArgumentError)):
        pf.tensor(X)[key] = 0.0


def test_bad_value_shape() -> None:
    with pytest.raises(pf.ShapeError, match=r"broadcasts to \(4, 5\) but got \(3,\)"):
        pf.tensor(X)[0] = pf.zeros(3)


def test_bad_index_tensor_names_the_line() -> None:
    x = pf.tensor(X)
    for index in (3, -4):
        y = x[pf.tensor([0, index])]  # the line to be named
        line = _here() - 1
        with pytest.raises(pf.IndexError, match=rf"\[-3, 2\] but got {index}; called at .*plans.py:{line}"):
            y.numpy()
        z = pf.tensor(X)
        z[pf.tensor([0, index])] = 1.0  # and this one
        line = _here() - 1
        with pytest.raises(pf.IndexError, match=rf"\[-3, 2\] but got {index}; called at .*plans.py:{line}"):
            z.numpy()


def _here() -> int:
    return sys._getframe(1).f_lineno


def test_embedding_names_the_line() -> None:
    weight = pf.zeros(4, 2)
    y = pf.embedding(weight, pf.tensor([0, 9]), padding_idx=1)
    line = _here() - 1
    with pytest.raises(pf.IndexError, match=rf"got 9; called at .*:{line}"):
        (y + 1.0).numpy()


# --- plans ----------------------------------------------------------------------------------------------------------


def launches(*tensors: pf.Tensor) -> list[str]:
    plan = draft_plan(PendingGraph([t._node for t in tensors], keep_held=False), TARGETS["cpu"])
    return [launch.name for launch in plan.launches]


def leaf(*shape: int) -> pf.Tensor:
    return pf.tensor(np.ones(shape, np.float32))


def test_views_cost_nothing() -> None:
    x = leaf(4, 6, 8)
    assert (
        launches(x[1:3, ::2, -1], x[:, None, 0], x[..., ::-1], x.T, x.flip(0), x.split(2)[1], leaf(4, 6).diagonal())
        == []
    )
    assert launches(x.unfold(0, 2, 2), x.unflatten(2, (2, 4)), x.narrow(0, 1, 2), x.movedim(0, -1)) == []


def test_cat_writes_straight_into_the_result() -> None:
    x = leaf(5, 7)
    assert len(launches(pf.cat([x + 1.0, x.exp() * 2.0, x[:, ::-1] - 1.0]))) == 3
    assert len(launches(pf.stack([x + 1.0, x * 2.0], -1))) == 2
    assert len(launches(x.roll((1, 2), (0, 1)))) == 4


def test_gathers_fuse() -> None:
    weight, index = leaf(10, 6), pf.tensor([1, 2, 3])
    assert len(launches(pf.embedding(weight, index))) == 1
    assert len(launches(pf.embedding(weight, index, padding_idx=0) * 2.0 + 1.0)) == 1
    assert len(launches(weight[index, 1:3].exp().sum(0))) == 1
    picked = pf.take_along_axis(weight, pf.tensor([[1], [2], [0], [3], [1], [2], [0], [3], [1], [2]]), 1)
    assert len(launches((picked * 2.0).sum())) == 1
    assert len(launches(pf.pad(weight, (1, 2), mode="reflect") + 1.0)) == 1
    assert len(launches(pf.searchsorted(leaf(100), leaf(7)))) == 1


def test_assignment_is_in_place() -> None:
    x = leaf(10, 6) * 2.0
    x[1:3] = 0.0
    x[pf.tensor([5, 6])] = leaf(2, 6) + 1.0
    # the product, the region, the values, the scatter
    assert len(launches(x)) == 4
    y = leaf(10, 6) * 2.0
    y[2:5] += 1.0
    y[pf.tensor([5, 6])] *= 2.0
    # the product, the region in place, the new values, the scatter
    assert len(launches(y)) == 4


def test_embedding_gradient_is_two_launches() -> None:
    weight = leaf(10, 6).requires_grad_()
    pf.embedding(weight, pf.tensor([1, 2, 2])).backward(leaf(3, 6))
    assert len(launches(weight.grad)) == 2  # zeros, then the sums


# --- the scatter kernel ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool_"]
)
@pytest.mark.parametrize(("rows", "columns"), [(300, 1), (300_000, 1), (5_000, 64), (40, 5_000), (3_000, 3)])
def test_scatter_add_of_every_dtype(dtype: str, rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    index = rng.integers(0, 11, rows)
    kind = getattr(pf, dtype)
    values = rng.integers(0, 2, (rows, columns)).astype(kind.numpy)
    want = np.zeros((11, columns), np.float64 if kind.is_float else kind.numpy)
    np.add.at(want, index, values.astype(want.dtype))
    got = pf.index_add(pf.zeros(11, columns, dtype=kind), 0, pf.tensor(index), pf.tensor(values))
    assert got.dtype is kind
    if kind.is_float:
        np.testing.assert_allclose(np.asarray(got.numpy(), np.float64), want, rtol=1e-2 if kind.itemsize < 4 else 1e-6)
    else:
        np.testing.assert_array_equal(got.numpy(), want)


@needs_torch
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scatter_of_views(dim: int) -> None:
    rng = np.random.default_rng(1)
    base, src = rng.standard_normal((6, 7, 8)), rng.standard_normal((8, 7, 6)).T
    index = rng.integers(0, (6, 7, 8)[dim], (6, 7, 8))
    got = pf.scatter_add(pf.tensor(base), dim, pf.tensor(index), pf.tensor(np.ascontiguousarray(src.T)).T)
    want = torch.scatter_add(torch.tensor(base), dim, torch.tensor(index), torch.tensor(src.copy()))
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-12)


def test_second_derivative_through_indexing() -> None:
    x = pf.tensor([1.0, 2.0, 3.0], requires_grad=True)
    index = pf.tensor([0, 2, 2])
    y = x * x
    y[pf.tensor([1])] = x[pf.tensor([0])] ** 3
    (y[index] * x[index]).sum().backward(create_graph=True)  # x0^3 + 2 x2^3
    first, x.grad = x.grad, None
    np.testing.assert_allclose(first.detach().numpy(), [3.0, 0.0, 54.0])
    first.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [6.0, 0.0, 36.0])
