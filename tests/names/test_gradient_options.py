"""backward(inputs=), full backward hooks, numpy(force=), shapes and einsum over numbered axes, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame.core.errors import ArgumentError

BOTH = pytest.mark.parametrize("t", [torch, pf], ids=["torch", "pyflame"])


@BOTH
def test_backward_into_chosen_tensors(t: Any) -> None:
    x, y = t.tensor([1.0, 2.0], requires_grad=True), t.tensor([3.0, 4.0], requires_grad=True)
    product = x * y
    product.sum().backward(inputs=[x], retain_graph=True)
    assert x.grad.tolist() == [3.0, 4.0] and y.grad is None
    product.sum().backward(inputs=x, retain_graph=True)
    assert x.grad.tolist() == [6.0, 8.0]
    t.autograd.backward([product], [t.ones(2)], inputs=[y, y])
    assert y.grad.tolist() == [1.0, 2.0] and x.grad.tolist() == [6.0, 8.0]


def test_backward_wants_some_inputs() -> None:
    with pytest.raises(ArgumentError, match="at least one tensor as inputs"):
        pf.tensor([1.0], requires_grad=True).sum().backward(inputs=[])


def _seen(t: Any, wants_input: bool, replace: bool) -> tuple[list[Any], list[Any]]:
    torch.manual_seed(0)
    theirs = torch.nn.Linear(2, 2)
    layer = t.nn.Linear(2, 2)
    layer.load_state_dict({name: t.tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()})
    seen: list[Any] = []

    def before(module: Any, g_out: Any) -> Any:
        seen.append([g.tolist() for g in g_out])
        return (g_out[0] * 2,) if replace else None

    def after(module: Any, g_in: Any, g_out: Any) -> Any:
        seen.append([[None if g is None else g.tolist() for g in g_in], [g.tolist() for g in g_out]])
        return (g_in[0] * 3,) if replace and g_in[0] is not None else None

    handle = layer.register_full_backward_hook(after)
    layer.register_full_backward_pre_hook(before)
    x = t.tensor([[1.0, -2.0]], requires_grad=wants_input)
    layer(x).square().sum().backward()
    handle.remove()
    count = len(seen)
    grads = [None if g is None else np.asarray(g.tolist()) for g in (x.grad, layer.weight.grad, layer.bias.grad)]
    layer(x).sum().backward(inputs=[layer.bias])
    assert len(seen) == count + 1  # the other one stays
    return seen[:count], grads


@pytest.mark.parametrize("replace", [False, True], ids=["look", "replace"])
@pytest.mark.parametrize("wants_input", [False, True], ids=["data", "between"])
def test_full_backward_hooks(wants_input: bool, replace: bool) -> None:
    (seen, grads), (wanted, want_grads) = _seen(pf, wants_input, replace), _seen(torch, wants_input, replace)
    assert len(seen) == len(wanted) == 2

    def flat(value: Any) -> list[Any]:
        return [f for v in value for f in flat(v)] if isinstance(value, list) else [value]

    for ours, theirs in zip(flat(seen), flat(wanted), strict=True):
        assert ours == theirs if theirs is None else abs(ours - theirs) < 1e-5
    for ours, theirs in zip(grads, want_grads, strict=True):
        assert ours is None if theirs is None else np.allclose(ours, theirs, atol=1e-5)


@BOTH
def test_shapes_are_sizes(t: Any) -> None:
    x = t.ones(2, 3, 4)
    assert isinstance(x.shape, t.Size) and isinstance(x.size(), t.Size) and x.shape == (2, 3, 4)
    assert x.shape.numel() == 24 and x.shape[1:].numel() == 12 and (x.shape[:1] + (5,)).numel() == 10
    assert x.reshape(x.shape[:1] + (-1,)).shape == (2, 12) and t.zeros(x.shape).shape == x.shape


@BOTH
def test_numpy_by_force(t: Any) -> None:
    assert (t.ones(2, requires_grad=True) * 2).numpy(force=True).tolist() == [2.0, 2.0]


def test_einsum_refuses_what_is_no_axis() -> None:
    with pytest.raises(ArgumentError, match="axes from 0 to 51"):
        pf.einsum(pf.ones(2), [52])
