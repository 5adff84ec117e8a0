"""pf.autograd: the names of torch.autograd."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.torch_paths import below
from pyflame.tensor.creation import zeros_like
from pyflame.tensor.custom import Function
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import (
    backward_into_leaves,
    enable_grad,
    grad_of,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from pyflame.tensor.tensor import Tensor
from pyflame.transform import autograd_graph as graph
from pyflame.transform import forward_ad, functional
from pyflame.transform.gradcheck import gradcheck, gradgradcheck

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__getattr__ = below("autograd")


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of outputs with respect to inputs, which need not be leaves; `.grad` stays as it is.

    `only_inputs` is PyTorch's, where it has long been without effect. With `is_grads_batched` the first axis of
    grad_outputs counts gradients to start from, each takes a pass, and results are stacked. `materialize_grads` gives
    zeros for inputs that the outputs do not depend on, `allow_unused` None.

    >>> x = pf.tensor([1.0, 2.0], requires_grad=True)
    >>> pf.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    >>> pf.autograd.grad(x * x, x, pf.eye(2), is_grads_batched=True)
    (tensor([[2., 0.],
            [0., 4.]]),)
    """
    if materialize_grads and allow_unused is False:
        raise ArgumentError("[grad] expected allow_unused to be left out with materialize_grads but got False")
    unused = bool(allow_unused) or materialize_grads
    starts = _starts(grad_outputs) if is_grads_batched else [grad_outputs]
    rows = [grad_of(outputs, inputs, start, True, create_graph, unused) for start in starts[:-1]]
    rows.append(grad_of(outputs, inputs, starts[-1], retain_graph, create_graph, unused))
    found = [None if of[0] is None else FUNCTIONS["stack"](of) if is_grads_batched else of[0] for of in zip(*rows)]  # noqa: B905
    if materialize_grads:
        ins = [inputs] if isinstance(inputs, Tensor) else inputs
        found = [zeros_like(x) if of is None else of for x, of in zip(ins, found, strict=True)]
    return tuple(found)


def _starts(grad_outputs: Tensor | Sequence[Tensor | None] | None) -> list[list[Tensor | None]]:
    """What each pass starts from."""
    given = [grad_outputs] if grad_outputs is None or isinstance(grad_outputs, Tensor) else list(grad_outputs)
    counts = {g.shape[0] if g.ndim else 0 for g in given if g is not None}
    if len(counts) != 1 or 0 in counts:
        shapes = [None if g is None else tuple(g.shape) for g in given]
        raise ShapeError(f"[grad] expected grad_outputs whose first axes have one size, at least 1, but got {shapes}")
    return [[None if g is None else g[i] for g in given] for i in range(counts.pop())]


class _VariableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """The tensor itself: PyTorch has made both one. Every tensor is an instance.

    >>> pf.autograd.Variable(pf.ones(2), requires_grad=True).requires_grad
    True
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.requires_grad_() if requires_grad else data


class set_detect_anomaly(nullcontext[None]):
    """Taken and warned about: backward passes are not searched for NaN. Errors name the line of their op anyway.

    >>> pf.autograd.set_detect_anomaly(False)    # doctest: +ELLIPSIS
    <...>
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__()
        if mode:
            warnings.warn(
                "[set_detect_anomaly] backward passes are not searched for NaN; look at gradients with "
                "tensor.register_hook",
                stacklevel=2,
            )


class detect_anomaly(set_detect_anomaly):
    """As set_detect_anomaly(True)."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of the sum of tensors to `.grad` of every leaf, or of the `inputs` alone.

    `grad_variables` is PyTorch's old name of `grad_tensors`.
    """
    seeds = grad_variables if grad_tensors is None else grad_tensors
    backward_into_leaves(tensors, seeds, retain_graph, create_graph, inputs)
