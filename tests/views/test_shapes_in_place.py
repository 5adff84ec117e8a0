"""Ops that give a tensor another shape in place: it stays where it was in memory, and all that share it see writes."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch

import pyflame as pf

VIEWS = ("x[0:1]", "x.view(1, 4, 3)", "x[1]", "x", "x.T", "x[:, None]", "x.detach()", "x[1:3, :2]")
SHAPES = (
    "y.squeeze_()", "y.squeeze_(0)", "y.unsqueeze_(0)", "y.unsqueeze_(-1)", "y.t_()", "y.transpose_(0, -1)",
    "y.swapaxes_(0, -1)", "y.swapdims_(0, -1)", "y.unsqueeze_(0).transpose_(0, 1)",
)  # fmt: skip
WRITES = ("{}.fill_(7.0)", "{}.__setitem__(0, 9.0)", "{}.add_(1.0)", "{}.squeeze_().mul_(2.0)")


def run(library: Any, view: str, shape: str, write: str) -> Any:
    x = library.arange(12.0).reshape(4, 3).clone()
    y = eval(view, {"x": x})
    z = y[...]
    names = {"x": x, "y": y, "z": z}
    try:
        eval(shape, names)
        eval(write, names)
    except (RuntimeError, IndexError, ValueError):
        return "refused"
    return [(t.tolist(), tuple(t.shape)) for t in (x, y, z)]


@pytest.mark.parametrize(("view", "shape"), list(product(VIEWS, SHAPES)))
def test_as_in_torch(view: str, shape: str) -> None:
    for write, name in product(WRITES, "xyz"):
        calls = view, shape, write.format(name)
        assert run(pf, *calls) == run(torch, *calls), calls


def gradients(library: Any) -> Any:
    x = library.arange(6.0).reshape(2, 3).clone().requires_grad_()
    h = x * 2
    y = h[0:1]
    z = h[0]
    y.squeeze_()
    y.mul_(3.0)
    h.t_()
    h[0].mul_(5.0)
    (y.square().sum() + (h * library.arange(6.0).reshape(3, 2)).sum() + z.sum()).backward()
    return x.grad.tolist(), h.tolist(), y.tolist()


def test_gradients() -> None:
    assert gradients(pf) == gradients(torch)


def test_a_leaf() -> None:
    x = pf.ones(2, 3, requires_grad=True)
    with pytest.raises(pf.GradientError, match="leaf"):
        x.t_()
    with pf.no_grad():
        x.t_()
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (3, 2)


def test_in_a_jitted_function() -> None:
    @pf.jit
    def add(x: pf.Tensor) -> pf.Tensor:
        y = x[0:1]
        y.unsqueeze_(0)
        y.add_(1.0)
        return y.sum() + x.sum()

    for _ in range(3):
        x = pf.arange(6.0).reshape(2, 3).clone()
        assert add(x).item() == 6.0 + 18.0
        assert x.tolist() == [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("argument", [False, True])
def test_from_outside_in_a_jitted_function(shared: bool, argument: bool) -> None:
    """Alone it gets another shape; one that shares memory is refused, and stays as it was."""
    x = pf.arange(6.0).reshape(2, 3).clone()
    y = x[0] if shared else None
    call = partial(pf.jit(lambda t: t.t_().sum()), x) if argument else pf.jit(lambda: x.t_().sum())
    if y is None:
        assert call().item() == 15.0
        assert x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
        return
    with pytest.raises(pf.NotSupportedError, match="without the underscore"):
        call()
    x[0] = 7.0
    assert y.tolist() == [7.0, 7.0, 7.0]


def test_strides_of_what_one_number_stands_for() -> None:
    for lib in (torch, pf):
        x = lib.zeros(2, 3)
        assert tuple(x.stride()) == (3, 1) and x.is_contiguous()
        assert tuple(lib.zeros(2, 1).expand(2, 3).stride()) == (1, 0)
        assert tuple(lib.ones(4, 4)[::2, ::3].stride()) == (8, 3)
