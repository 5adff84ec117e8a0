"""Losses of classes through the bridge: what is kept between the passes, and every form that aten has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

ROWS, CLASSES = 24, 503


def compiled(fn: Any) -> Any:
    return torch.compile(fn, backend="pyflame", fullgraph=True, dynamic=False)


def test_no_probabilities_are_kept() -> None:
    """Those of a vocabulary in float32 are twice the logits, which are there anyway."""
    x = torch.randn(ROWS, CLASSES, dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(CLASSES, (ROWS,))
    loss = compiled(lambda x, t: F.cross_entropy((x * 2).float(), t))(x, target)
    assert not [t.shape for t in loss.grad_fn.saved_tensors if t.numel() * t.itemsize > x.numel() * x.itemsize]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(CLASSES,), (ROWS, CLASSES), (3, 7, 4, 5)])
def test_forms(shape: tuple[int, ...], weighted: bool, reduction: str) -> None:
    classes = shape[0] if len(shape) == 1 else shape[1]
    target = torch.randint(classes, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    if target.ndim:
        target.flatten()[1] = -100
    weight = torch.rand(classes) + 0.5 if weighted else None

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x * 1.5, target, weight, reduction=reduction)

    x = torch.randn(shape, requires_grad=True)
    found, wanted = compiled(loss)(x), loss(x)
    torch.testing.assert_close(found, wanted)
    g = torch.randn_like(wanted)
    torch.testing.assert_close(torch.autograd.grad(found, x, g), torch.autograd.grad(wanted, x, g))
