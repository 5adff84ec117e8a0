"""Writes of values without elements change nothing, and have gradients without elements nevertheless, as in torch:
an expert that no token chose has a gradient of zeros, not None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pyflame as pf

Fn = Callable[..., Any]


def _item(t: Any, y: Any, e: Any) -> Any:
    out = t.zeros(4, 3)
    out[e] = y
    return out


def _slice(t: Any, y: Any, e: Any) -> Any:
    out = t.zeros(4, 3)
    out[2:2] = y
    return out


def _mask(t: Any, y: Any, e: Any) -> Any:
    out = t.zeros(4, 3)
    out[t.zeros(4, dtype=t.bool)] = y
    return out


def _through_a_view(t: Any, y: Any, e: Any) -> Any:
    out = t.zeros(4, 3)
    out[1:1].copy_(y)
    return out


WRITES: dict[str, Fn] = {
    "index_copy": lambda t, y, e: t.zeros(4, 3).index_copy(0, e, y),
    "index_copy_": lambda t, y, e: t.zeros(4, 3).index_copy_(0, e, y),
    "index_add": lambda t, y, e: t.zeros(4, 3).index_add(0, e, y),
    "index_add_": lambda t, y, e: t.zeros(4, 3).index_add_(0, e, y),
    "index_put": lambda t, y, e: t.zeros(4, 3).index_put((e,), y, accumulate=True),
    "scatter": lambda t, y, e: t.zeros(4, 3).scatter(0, e[:, None].expand(0, 3), y),
    "scatter_add": lambda t, y, e: t.zeros(4, 3).scatter_add(0, e[:, None].expand(0, 3), y),
    "masked_scatter": lambda t, y, e: t.zeros(4, 3).masked_scatter(t.zeros(4, 3).bool(), y),
    "index_reduce": lambda t, y, e: t.zeros(4, 3).scatter_reduce(0, e[:, None].expand(0, 3), y, "prod"),
    "item": _item, "slice": _slice, "mask": _mask, "through a view": _through_a_view,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("rest", [False, True])
def test_empty_writes_have_gradients(name: str, rest: bool) -> None:
    found = []
    for lib in (torch, pf):
        x, w, other = (lib.ones(*shape, requires_grad=True) for shape in ((4, 2), (3, 2), (4, 3)))
        e = lib.zeros(0, dtype=lib.int64)
        out = WRITES[name](lib, lib.nn.functional.linear(x[e], w), e)
        assert out.requires_grad
        ((out + other * 2) if rest else out).sum().backward()
        found.append([None if p.grad is None else p.grad.tolist() for p in (x, w, other)])
    assert found[0] == found[1]


def test_in_jit() -> None:
    w = pf.nn.Parameter(pf.ones(3, 2))

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        out = pf.zeros(4, 3).index_add(0, pf.zeros(0, dtype=pf.int64), x[:0] @ w.t()) + x.sum()
        return pf.autograd.grad(out.sum(), w)[0]

    assert [step(pf.ones(4, 2)).tolist() for _ in range(3)] == [[[0, 0]] * 3] * 3
