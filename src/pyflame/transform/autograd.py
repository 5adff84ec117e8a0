"""pf.autograd: the names of torch.autograd."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from pyflame.tensor.custom import Function
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

grad = grad_of


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
