"""Tensor.backward, pf.no_grad and friends."""

from __future__ import annotations

from pyflame.autograd import backward
from pyflame.autograd.tape import Entry, Leaf
from pyflame.core.errors import GradientError, ShapeError
from pyflame.ir import F, Node
from pyflame.tensor.tensor import Tensor


def seed_of(tensor: Tensor, gradient: Tensor | None) -> Node:
    """The gradient a backward pass starts with."""
    if gradient is None:
        if tensor.size != 1:
            raise GradientError(
                f"[backward] expected a tensor with one element but got shape {tensor.shape}; reduce it with .sum() or .mean(), or pass a gradient"
            )
        return F.full_const(1, tensor.dtype, tensor.shape)
    if gradient.shape != tensor.shape:
        raise ShapeError(f"[backward] expected a gradient of shape {tensor.shape} but got {gradient.shape}")
    return F.cast(gradient._node, tensor.dtype)


def backward_into_leaves(tensor: Tensor, gradient: Tensor | None, retain_graph: bool, create_graph: bool) -> None:
    """Accumulate into `.grad` of every leaf tensor."""
    if tensor._entry is None:
        raise GradientError("[backward] expected a tensor computed from one that requires grad but this one is not; call requires_grad_() first")
    entries: dict[Node, Entry | Leaf] = {}
    gradients = backward(
        [(tensor._entry, seed_of(tensor, gradient))], retain_graph=retain_graph, create_graph=create_graph, entries=entries
    )
    for leaf, node in gradients.items():
        cell = leaf.cell()
        if cell is None:
            continue
        new = Tensor(node, entries.get(node) if create_graph else None)
        if cell.grad is None:
            cell.grad = new
        else:
            cell.grad = cell.grad + new if create_graph else Tensor(F.add(cell.grad._node, node))
