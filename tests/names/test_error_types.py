"""An `except` clause written for PyTorch catches our error, too: it is an instance of the type that PyTorch raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import pyflame as pf

MISTAKES: dict[str, Callable[[Any], object]] = {
    "shapes": lambda m: m.ones(2, 3) + m.ones(4),
    "matmul": lambda m: m.ones(2, 3) @ m.ones(2, 3),
    "reshape": lambda m: m.ones(6).reshape(5),
    "axis": lambda m: m.ones(2).sum(1),
    "axis of none": lambda m: m.tensor(2.0).softmax(2),
    "transpose": lambda m: m.ones(2).transpose(0, 1),
    "nothing to choose from": lambda m: m.ones(0, 3).argmax(0),
    "nothing to choose from, of all": lambda m: m.ones(0).max(),
    "no median": lambda m: m.ones(0, 3).median(0),
    "no mode": lambda m: m.ones(0, 3).mode(0),
    "unique of no axis": lambda m: m.unique(m.tensor(1.0), dim=0),
    "cat of nothing": lambda m: m.cat([]),
    "stack of nothing": lambda m: m.stack([]),
    "length of a number": lambda m: len(m.tensor(1.0)),
    "iteration over a number": lambda m: iter(m.tensor(1.0)),
    "index": lambda m: m.ones(2)[5],
    "too many indices": lambda m: m.ones(2)[0, 0],
    "item": lambda m: m.ones(2).item(),
    "bool": lambda m: bool(m.ones(2)),
    "dtype of an index": lambda m: m.ones(2).gather(0, m.ones(2)),
    "dtype of a result": lambda m: m.ones(2, dtype=m.int32).add_(1.5),
    "in place on a leaf": lambda m: m.ones(2, requires_grad=True).add_(1),
    "no gradient": lambda m: m.ones(2).sum().backward(),
    "gradient of several": lambda m: m.ones(2, requires_grad=True).backward(),
    "layer": lambda m: m.nn.Linear(2, 3)(m.ones(2, 3)),
    "convolution": lambda m: m.nn.functional.conv2d(m.ones(1, 2, 4, 4), m.ones(1, 3, 2, 2)),
    "targets": lambda m: m.nn.functional.cross_entropy(m.ones(4, 5), m.zeros(3, dtype=m.int64)),
    "no axis": lambda m: m.ones(2).cumsum(None),
    "half an axis": lambda m: m.ones(2).sum(1.5),
    "half a size": lambda m: m.ones(2).reshape(1.5),
    "half a size of zeros": lambda m: m.zeros(1.5),
    "half a window": lambda m: m.ones(4).unfold(0, 1.5, 1),
    "half of them": lambda m: m.ones(4).topk(1.5),
    "singular": lambda m: m.linalg.inv(m.zeros(2, 2)),
    "einsum": lambda m: m.einsum("ij,jk->ik", m.ones(2, 3), m.ones(2, 3)),
    "state dict": lambda m: m.nn.Linear(2, 3).load_state_dict({}),
    "a number less a mask": lambda m: 1 - (m.ones(2) > 0),
    "a mask less a number": lambda m: (m.ones(2) > 0) - 1.0,
    "floats less a mask": lambda m: m.ones(2).sub(m.ones(2) > 0, alpha=2),
    "a mask less a mask": lambda m: (m.ones(2) > 0).sub_(m.ones(2) > 0),
    "plus a mask": lambda m: +(m.ones(2) > 0),
    "detach_ of a view": lambda m: (m.ones(2, requires_grad=True) * 2)[:1].detach_(),
    "grouped heads": lambda m: m.nn.functional.scaled_dot_product_attention(
        m.ones(1, 4, 3, 2), m.ones(1, 2, 3, 2), m.ones(1, 2, 3, 2)
    ),
    "padding": lambda m: m.nn.functional.pad(m.ones(1, 1, 3), (5, 5), mode="reflect"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_type_is_that_of_pytorch(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        MISTAKES[name](torch)
    builtin = next(kind for kind in theirs.type.__mro__ if kind.__module__ == "builtins")
    with pytest.raises(builtin) as ours:
        MISTAKES[name](pf)
    assert isinstance(ours.value, pf.PyFlameError)
