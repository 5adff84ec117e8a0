"""A training step as most programs write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyflame as pf


def usual_step(
    model: pf.nn.Module, optimizer: Any, loss_of: Callable[[pf.Tensor], pf.Tensor] = pf.sum
) -> Callable[[pf.Tensor], pf.Tensor]:
    """One that is jitted, in PyTorch's usual order, which leaves gradients behind."""

    @pf.jit
    def step(x: pf.Tensor) -> pf.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        return loss

    return step
