"""0-d tensors of whole numbers in place of numbers, as in `x.view(lengths.max(), -1)`: wherever PyTorch takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf

CALLS = (
    "F.pad(x, (n, 0))", "x.reshape(n, -1)", "x.reshape((n, -1))", "x.view(-1, n)", "L.reshape(x, (n, 2))",
    "L.zeros(n, 3)", "L.full((n,), 1.0)", "x[:, :1].expand(2, n)", "x.expand(n, -1, -1)", "x.repeat(n, 1)",
    "x.tile((n, 1))", "x.roll(n - 1, 0)", "L.roll(x, (n, n), (0, 1))", "x.narrow(0, 0, n)", "x.split(n)[0]",
    "x.split([n - 1, n - 1], 1)[1]", "x.chunk(n)[1]", "x.unflatten(0, (n, 1))", "x.sum(n - 1)", "x.sum((n - 2, n - 1))",
    "x.permute(n - 1, n - 2)", "x.squeeze(n - 1)", "x.softmax(n - 1)", "x.cumsum(n - 1)", "x.flip(n - 1)",
    "L.movedim(x, n - 2, n - 1)", "L.var(x, n - 1)", "L.argmax(x, n - 1)", "L.broadcast_to(x[:, :1], (2, n))",
    "F.avg_pool1d(x[None], n)", "F.max_pool1d(x[None], n, n)", "F.adaptive_avg_pool1d(x[None], n)",
    "F.conv1d(x[None], L.ones(1, 2, 2), padding=n)", "F.layer_norm(x, (n,))", "L.randint(0, n, (n,)) * 0",
    "L.repeat_interleave(x, n, dim=n - 1)", "x.unfold(1, n, n)", "L.linspace(0, 1, n)", "L.clamp(x, n - 2, n)",
)  # fmt: skip


def value(library: Any, text: str) -> Any:
    x, n = library.tensor([[1.0, -2.0], [3.0, 4.0]]), library.tensor(2)
    return eval(text, {"L": library, "F": library.nn.functional, "x": x, "n": n})


@pytest.mark.parametrize("text", CALLS)
def test_as_in_torch(text: str) -> None:
    want, got = value(torch, text), value(pf, text)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    assert tuple(got.shape) == tuple(want.shape)


def test_gradients_flow() -> None:
    x = pf.ones(2, 3).requires_grad_()
    (x.reshape(pf.tensor(3), -1) * pf.tensor([[1.0, 2.0]])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 2.0, 1.0], [2.0, 1.0, 2.0]]


@pytest.mark.parametrize("size", [2.0, [2], True], ids=str)
def test_others_are_refused(size: Any) -> None:
    with pytest.raises((pf.ArgumentTypeError, pf.DTypeError)):
        pf.ones(2, 2).reshape(pf.tensor(size) if not isinstance(size, list) else (pf.tensor(size), 2), -1)


def test_jit_says_that_a_value_is_needed() -> None:
    with pytest.raises(pf.TraceError):
        pf.jit(lambda x, n: x.reshape(n, -1))(pf.ones(2, 2), pf.tensor(2))
