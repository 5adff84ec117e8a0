"""Functions that give values and positions together: PyTorch's fields, dtypes, refusals and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame.core.errors import ArgumentError, PyFlameError
from tests.needs import needs_torch, torch

PAIRS = {
    "max": (1,),
    "min": (1,),
    "median": (1,),
    "nanmedian": (1,),
    "mode": (1,),
    "cummax": (1,),
    "cummin": (1,),
    "sort": (1,),
    "topk": (2, 1),
    "kthvalue": (2, 1),
}
DTYPES = ("bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "float64")


def _same(got: Any, want: Any) -> None:
    assert type(got)._fields == tuple(name for name in ("values", "indices", "min", "max") if hasattr(want, name))
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype is pf.as_dtype(theirs.dtype)
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_array_equal(np.asarray(ours.to(pf.float64)), theirs.double().numpy())


@pytest.mark.share(6)
@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PAIRS)
def test_fields_and_dtypes(name: str, dtype: str) -> None:
    x = np.random.default_rng(1).permutation(30).reshape(5, 6)  # no ties: torch does not say which of them it takes
    theirs = torch.tensor(x).to(getattr(torch, dtype))
    if dtype == "bool":
        theirs = torch.tensor([[False, True], [True, False]])
        if name in ("median", "nanmedian", "kthvalue", "topk"):  # torch has none of bools
            return
    ours = pf.tensor(theirs)
    for got in (getattr(pf, name)(ours, *PAIRS[name]), getattr(ours, name)(*PAIRS[name])):
        _same(got, getattr(torch, name)(theirs, *PAIRS[name]))


@needs_torch
@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian", "mode"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 1, 2), (4, 7)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_shapes(name: str, shape: tuple[int, ...], keepdim: bool) -> None:
    theirs = torch.randn(shape, dtype=torch.float64)
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        try:
            want = getattr(torch, name)(theirs, dim, keepdim)
        except (RuntimeError, IndexError):
            with pytest.raises(PyFlameError):
                getattr(pf, name)(pf.tensor(theirs), dim, keepdim)
            continue
        _same(getattr(pf, name)(pf.tensor(theirs), dim=dim, keepdim=keepdim), want)


@pytest.mark.parametrize("name", ["max", "min"])
def test_one_axis_at_a_time(name: str) -> None:
    x = pf.ones(2, 3)
    with pytest.raises(ArgumentError, match=f"use a{name} for values"):
        getattr(pf, name)(x, (0, 1))
    both = getattr(pf, name)(x, pf.zeros(2, 3))
    assert both.tolist() == getattr(pf, f"{name}imum")(x, pf.zeros(2, 3)).tolist()


def test_accuracy_as_programs_write_it() -> None:
    out, target = pf.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), pf.tensor([1, 0, 0])
    assert (out.max(1)[1] == target).sum().item() == 2
    _, predicted = pf.max(out.data, 1)
    assert predicted.tolist() == [1, 0, 1]


@needs_torch
def test_second_derivatives_pass_through_the_chosen_element() -> None:
    rows = [[1.0, 3.0, 3.0], [2.0, 2.0, -1.0]]
    grads = []
    for lib in (pf, torch):
        x = lib.tensor(rows, requires_grad=True)
        (first,) = lib.autograd.grad((x.max(1).values ** 3).sum(), [x], create_graph=True)
        (second,) = lib.autograd.grad((first * first).sum(), [x])
        grads.append(np.asarray(second.tolist()))
    np.testing.assert_array_equal(*grads)
