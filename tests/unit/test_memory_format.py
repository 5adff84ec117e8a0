"""Memory formats mean here what they mean in PyTorch: where elements lie, never which axis is which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentTypeError, ShapeError
from tests.plans import launches

X = np.arange(2 * 3 * 4 * 5.0, dtype=np.float32).reshape(2, 3, 4, 5)
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "to": lambda lib, x: x.to(memory_format=lib.channels_last),
    "contiguous": lambda lib, x: x.contiguous(memory_format=lib.channels_last),
    "clone": lambda lib, x: x.clone(memory_format=lib.channels_last),
    "function": lambda lib, x: lib.clone(x, memory_format=lib.channels_last),
    "back": lambda lib, x: x.to(memory_format=lib.channels_last).contiguous(),
    "back by name": lambda lib, x: x.to(memory_format=lib.channels_last).to(memory_format=lib.contiguous_format),
    "preserved": lambda lib, x: x.to(memory_format=lib.channels_last).to(memory_format=lib.preserve_format),
    "with a dtype": lambda lib, x: x.to(lib.float64, memory_format=lib.channels_last),
    "made": lambda lib, x: lib.zeros_like(x, memory_format=lib.channels_last),
    "filled": lambda lib, x: lib.full_like(x, 2.0, memory_format=lib.channels_last),
    "three axes": lambda lib, x: x.reshape(2, 3, 2, 2, 5).to(memory_format=lib.channels_last_3d),
    "a view": lambda lib, x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "one channel": lambda lib, x: x[:, :1].contiguous(memory_format=lib.channels_last),
}


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str, evaluated: bool) -> None:
    x = pf.tensor(X)
    if not evaluated:
        x = x + 0.0
    got, want = CASES[name](pf, x), CASES[name](torch, torch.tensor(X))
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    moves = [n for n, size in enumerate(want.shape) if size > 1]
    assert [got.stride(n) for n in moves] == [want.stride(n) for n in moves]
    formats = ["contiguous_format", *(["channels_last"] if got.ndim == 4 else ["channels_last_3d"])]
    for format in formats:
        told = [y.is_contiguous(memory_format=getattr(lib, format)) for lib, y in ((pf, got), (torch, want))]
        assert told[0] == told[1], format


def test_what_lies_so_is_returned() -> None:
    x = pf.tensor(X)
    last = x.to(memory_format=pf.channels_last)
    assert x.contiguous() is x and x.to(memory_format=pf.contiguous_format) is x
    assert last.contiguous(memory_format=pf.channels_last) is last  # pending
    pf.eval(last)
    assert last.to(memory_format=pf.channels_last) is last and last.contiguous() is not last
    assert last.to(memory_format=pf.channels_last, copy=True) is not last


def test_gradients_flow() -> None:
    x = pf.tensor(X, requires_grad=True)
    (x.to(memory_format=pf.channels_last) * pf.tensor(X)).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), X)


def test_modules() -> None:
    """Those of its tensors that have as many axes move, and it computes the same."""
    net = pf.nn.Sequential(pf.nn.Conv2d(3, 4, 3), pf.nn.BatchNorm2d(4), pf.nn.Flatten(), pf.nn.Linear(24, 2)).eval()
    want = net(pf.tensor(X)).numpy()
    assert net.to(memory_format=pf.channels_last) is net
    strides = {name: p.stride() for name, p in net.named_parameters()}
    assert strides["0.weight"] == (27, 1, 9, 3) and strides["3.weight"] == (24, 1)
    np.testing.assert_allclose(net(pf.tensor(X).to(memory_format=pf.channels_last)).numpy(), want, rtol=1e-6)
    loss = net(pf.tensor(X)).sum()
    loss.backward()
    pf.optim.SGD(net.parameters(), lr=0.1).step()
    assert np.isfinite(net(pf.tensor(X)).numpy()).all()


def test_refusals() -> None:
    with pytest.raises(ShapeError, match=r"\[contiguous\] expected a tensor of 4 axes for channels_last but got 2"):
        pf.ones(2, 3).contiguous(memory_format=pf.channels_last)
    with pytest.raises(ShapeError, match=r"\[to\] expected a tensor of 5 axes for channels_last_3d but got 4"):
        pf.tensor(X).to(memory_format=pf.channels_last_3d)
    with pytest.raises(ArgumentTypeError, match=r"\[is_contiguous\] expected a memory format .* but got 'nhwc'"):
        pf.tensor(X).is_contiguous(memory_format="nhwc")


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 2, 1), (2, 3, 0, 1)])
@pytest.mark.parametrize("first", [0, 1])
def test_products_with_images_whose_channels_lie_innermost(order: tuple[int, ...], first: int) -> None:
    """Those in the order of memory are read where they lie, and others are right."""
    stored = np.random.default_rng(0).normal(size=(3, 4, 5, 8)).astype(np.float32)
    x = pf.tensor(stored)[first:].permute(0, 3, 1, 2)
    w = pf.randn(8, 6)
    pf.eval(x, w)
    y = x.permute(*order).reshape(-1, 8) @ w
    assert launches(y) == (1 if order == (0, 2, 3, 1) else 2)
    wanted = stored[first:].transpose(0, 3, 1, 2).transpose(order).reshape(-1, 8) @ w.numpy()
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-5)
