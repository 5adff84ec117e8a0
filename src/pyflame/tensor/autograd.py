"""pf.autograd: the names of torch.autograd."""

from __future__ import annotations

from collections.abc import Sequence

from pyflame.tensor.custom import Function
from pyflame.tensor.gradients import (
    backward_into_leaves,
    enable_grad,
    grad_of,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from pyflame.tensor.tensor import Tensor

__all__ = ["Function", "backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]

grad = grad_of


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Add the gradients of the sum of tensors to `.grad` of every leaf."""
    backward_into_leaves(tensors, grad_tensors, retain_graph, create_graph)
