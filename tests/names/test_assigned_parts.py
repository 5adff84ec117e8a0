"""What programs put in the place of a tensor's values, of its gradient and of a module's functions, against torch."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import pyflame as pf

LIBRARIES = pytest.mark.parametrize("library", [pf, torch], ids=["pyflame", "torch"])


class Sine(pf.nn.Module):
    act = pf.sin
    pool = pf.nn.functional.avg_pool2d
    total = pf.sum

    def forward(self, x: Any) -> Any:
        return self.act(self.total(x, -1))


class WithOwnForward(Sine):
    forward = Sine.forward
    extra_repr = pf.nn.Linear.extra_repr
    in_features, out_features, bias = 1, 2, None


def test_functions_in_the_class_of_a_module_are_no_methods() -> None:
    for kind in (Sine, WithOwnForward):
        model = kind()
        assert model(pf.zeros(2, 3)).tolist() == [0, 0]
        assert model.act is kind.act is pf.sin
        assert copy.deepcopy(model).act is pickle.loads(pickle.dumps(model)).act is pf.sin
        assert model.pool(pf.ones(1, 1, 2, 2), 2).item() == 1
    assert "in_features=1" in repr(model)


@LIBRARIES
def test_data_of_a_computed_tensor(library: Any) -> None:
    a = library.ones(3, requires_grad=True)
    b, value = a * 2, library.tensor([5.0, 6.0, 7.0])
    b.retain_grad()
    b.data = value
    (b * b).sum().backward()
    assert a.grad.tolist() == [20, 24, 28] and b.grad.tolist() == [10, 12, 14]
    value.add_(1)
    assert b.tolist() == [6, 7, 8] and b.requires_grad and not b.is_leaf and not value.requires_grad
    b.data.zero_()
    assert value.tolist() == [0, 0, 0]


@LIBRARIES
def test_data_of_another_shape_and_of_a_view(library: Any) -> None:
    b = library.ones(3, requires_grad=True) * 2
    b.data = library.zeros(2, 2)
    assert tuple(b.shape) == (2, 2) and b.requires_grad and not b.is_leaf
    part = (whole := library.ones(3, requires_grad=True) * 2)[:2]
    part.data = library.zeros(2)
    assert whole.tolist() == [2, 2, 2] and part.tolist() == [0, 0]


@LIBRARIES
def test_what_is_refused(library: Any) -> None:
    a = library.ones(3, requires_grad=True)
    for wrong in (library.zeros(2), library.zeros(3, dtype=library.float64), 3.0):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            a.grad = wrong
    with pytest.raises(RuntimeError):
        a.data = library.zeros(3, dtype=library.int64)
    (a * a).sum().backward()
    del a.grad
    assert a.grad is None and a.dtype == library.float32
