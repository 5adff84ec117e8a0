"""Messages, long orders, deep models and torch.jit's names."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import nn
from pyflame.utils.data import BatchSampler, DataLoader, RandomSampler


@pytest.mark.parametrize(
    "call",
    [
        lambda t: pf.relu(t),
        lambda t: pf.ones(2) + t,
        lambda t: pf.ones(2) @ t,
        lambda t: nn.Linear(2, 2)(t),
        lambda t: pf.cat([t]),
    ],
)
def test_a_tensor_of_torch_is_called_so(call: Any) -> None:
    with pytest.raises(TypeError, match=r"but got torch\.Tensor"):
        call(torch.ones(2))


def test_long_orders_are_made_as_they_are_read() -> None:
    sampler = RandomSampler(range(7), replacement=True, num_samples=10**10, seed=1)
    assert len(sampler) == 10**10
    first = list(islice(iter(sampler), 200_000))
    sampler.set_epoch(0)
    assert list(islice(iter(sampler), 200_000)) == first and set(first) == set(range(7))
    sampler.set_epoch(1)
    assert list(islice(iter(sampler), 1000)) != first[:1000]
    sampler.set_epoch(0)
    batches = BatchSampler(sampler, 1000)
    assert len(batches) == 10**7
    got = np.concatenate(list(islice(batches.batches(), 200)))
    assert got.tolist() == first
    (far,) = islice(batches.batches(10**7 - 1), 2)
    assert len(far) == 1000
    loader = DataLoader(np.arange(7), batch_size=4, sampler=RandomSampler(range(7), True, 10**10, seed=2))
    assert next(iter(loader)).shape == (4,)


@pytest.mark.slow
def test_long_orders_without_replacement() -> None:
    n = 1 << 20
    sampler = RandomSampler(range(n), num_samples=20 * n, seed=0)
    whole = sampler.order()
    assert sorted(whole[:n].tolist()) == list(range(n)) == sorted(whole[n : 2 * n].tolist())
    assert len(whole) == 20 * n and not np.array_equal(whole[:n], whole[n : 2 * n])


@pytest.mark.slow(16)
def test_deep_and_wide_models_do_not_recurse() -> None:
    class Nested(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.weight = nn.Parameter(pf.ones(1))
            self.inner = inner

    model = None
    for _ in range(sys.getrecursionlimit() + 40):
        model = Nested(model)
    assert model is not None
    model.to(pf.float64).eval()
    assert all(p.dtype is pf.float64 for p in model.parameters())
    found = model.state_dict()
    assert len(found) == len(found._metadata) == sys.getrecursionlimit() + 40  # type: ignore[attr-defined]
    assert model.load_state_dict({name: value + 1 for name, value in found.items()}).missing_keys == []
    assert all(p.item() == 2.0 for p in model.parameters())
    wide = nn.ParameterList([nn.Parameter(pf.ones(1)) for _ in range(1040)])
    total = pf.ones(1)
    for p in wide.to(pf.float64):
        total = total * p
    total.sum().backward()
    assert all(p.grad.item() == 1.0 for p in wide)


def test_modules_come_in_torchs_order() -> None:
    def build(lib: Any) -> Any:
        shared = lib.Linear(2, 2)
        return lib.Sequential(shared, lib.Sequential(lib.ReLU(), shared), lib.ModuleList([lib.Tanh()]))

    for options in ({}, {"prefix": "a"}, {"remove_duplicate": False}):
        got = [(n, type(m).__name__) for n, m in build(nn).named_modules(**options)]
        assert got == [(n, type(m).__name__) for n, m in build(torch.nn).named_modules(**options)]


@pytest.mark.filterwarnings("ignore:The inner type")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2], list[int]), ([1, "a"], list[int]), ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]), ({"a": 1}, dict[str, int]), ({"a": [1]}, dict[str, list[int]]),
        ({1: 1}, dict[str, int]), (None, int | None), ("a", int | None), (3, int | str),
        (3, (list[int], int)), (3, list[int]), ([], list[int]), ([[1], ["a"]], list[list[int]]),
    ],
)  # fmt: skip
def test_jit_isinstance(value: object, kind: object) -> None:
    assert pf.jit.isinstance(value, kind) == torch.jit.isinstance(value, kind)


def test_names_of_torch_jit() -> None:
    model = nn.Linear(2, 2)
    assert pf.jit.script(model) is model and pf.jit.trace(model, pf.ones(1, 2)) is model

    @pf.jit.ignore
    def plain() -> int:
        return 1

    @pf.jit.ignore(drop=True)
    def dropped() -> int:
        return 2

    @pf.jit.unused
    def unused() -> int:
        return 3

    assert (plain(), dropped(), unused(), pf.jit.is_scripting(), pf.jit.is_tracing()) == (1, 2, 3, False, False)
    with pytest.raises(NotImplementedError, match=r"\[jit.load\]"):
        pf.jit.load("x.pt")
    assert pf.jit(lambda x: x + 1)(pf.ones(1)).item() == 2.0


def test_the_device_of_a_tensor_is_a_number() -> None:
    assert pf.get_device(pf.ones(2)) == torch.get_device(torch.ones(2)) == -1
    assert pf.get_device(input=pf.ones(2)) == -1
