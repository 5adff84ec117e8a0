"""pf.grad and pf.value_and_grad: gradients of functions, in the structure of their arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError, GradientError
from pyflame.core.state import mode
from pyflame.tensor import Tensor
from pyflame.tensor.creation import as_tensor, zeros_like
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.gradients import grad_of
from pyflame.transform.tree import flatten, rebuild


class _Depth(threading.local):
    value = 0


# How many functions made here are running in this thread: an inner one leaves a tape for the outer ones.
_depth = _Depth()


def is_leaf(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, float, int)) and not isinstance(value, bool)


def nested(leaves: Sequence[Any]) -> bool:
    """Whether gradients must stay on the tape: inside of another of these functions, or of a backward pass to come."""
    return _depth.value > 0 or any(isinstance(v, Tensor) and v.requires_grad for v in leaves)


def _differentiable(value: Any) -> Tensor:
    """An argument as a tensor of its own: part of the outer tape where there is one, else a leaf."""
    tensor = as_tensor(float(value) if isinstance(value, int) else value)
    if not tensor.dtype.has_gradient:
        raise GradientError(
            f"[grad] expected floating-point or complex arguments to differentiate but got {tensor.dtype.name}; choose "
            "others with argnums"
        )
    return FUNCTIONS["clone"](tensor) if tensor.requires_grad else tensor._snapshot().requires_grad_()


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives `fn`'s value and its gradient with respect to the arguments in `argnums`.

    Arguments may be lists, tuples and dicts of tensors; gradients have the same structure. With `has_aux` fn returns a
    pair of which only the first is differentiated.

    >>> pf.value_and_grad(lambda x: (x * x).sum())(pf.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """
    if not callable(fn):
        raise ArgumentError(f"[value_and_grad] expected a function but got {type(fn).__name__}")
    single = isinstance(argnums, int)
    wanted: list[int] = [argnums] if isinstance(argnums, int) else list(argnums)
    name = getattr(fn, "__name__", "the function")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        chosen, leaves = chosen_leaves("grad", name, args, wanted)
        outer = nested(leaves)
        with mode(grad_enabled=True):
            tensors, result = called_on(leaves, fn, args, kwargs, wanted)
            value = result[0] if has_aux else result
            found = _gradients(name, value, tensors, outer)
        gradients = rebuild(chosen, is_leaf, iter(found))
        if not outer:
            value = value._snapshot()
        return (value, *result[1:]) if has_aux else value, gradients[0] if single else tuple(gradients)

    return call


def chosen_leaves(op: str, name: str, args: Sequence[Any], wanted: Sequence[int]) -> tuple[list[Any], list[Any]]:
    """The arguments that a function is differentiated by, in their structure, and the leaves of that."""
    for n in [n for n in wanted if not -len(args) <= n < len(args)]:
        raise ArgumentError(f"[{op}] expected argnums among the {len(args)} arguments that {name} got but got {n}")
    leaves: list[Any] = []
    chosen = [args[n] for n in wanted]
    flatten(chosen, leaves, is_leaf)
    return chosen, leaves


def called_on(
    leaves: Sequence[Any], fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], wanted: Sequence[int]
) -> tuple[list[Tensor], Any]:
    """Tensors of their own for the leaves of the wanted arguments, and what fn gives for these."""
    tensors = [_differentiable(v) for v in leaves]
    given, it = list(args), iter(tensors)
    for n in wanted:
        given[n] = rebuild(args[n], is_leaf, it)
    return tensors, _called_inside(fn, given, kwargs)


def _called_inside(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What fn gives, with gradients inside of it kept on the tape."""
    _depth.value += 1
    try:
        return fn(*args, **kwargs)
    finally:
        _depth.value -= 1


def _gradients(name: str, value: Any, tensors: Sequence[Tensor], create_graph: bool) -> list[Tensor]:
    """The gradients of a function's value; zeros for what it does not depend on."""
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.dtype.is_float:
        raise GradientError(
            f"[grad] expected {name} to return one floating-point number but got {described(value)}; reduce it with "
            ".sum()"
        )
    found: Sequence[Tensor | None] = [None] * len(tensors)
    if value.requires_grad and tensors:
        found = grad_of(value, tensors, create_graph=create_graph, allow_unused=True)
    return [zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)]


def described(value: Any) -> str:
    return (
        f"a tensor of shape {value.shape} and {value.dtype.name}" if isinstance(value, Tensor) else type(value).__name__
    )


def grad(target: Any, *args: Any, **options: Any) -> Any:
    """Gradients of a function, or of tensors.

    grad(fn, argnums=0, has_aux=False) is a function that gives the gradient of fn (see value_and_grad).
    grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False) are the
    gradients of tensors with respect to tensors they were computed from.

    >>> pf.grad(lambda x: (x * x).sum())(pf.tensor([1.0, 2.0]))
    tensor([2., 4.])
    >>> pf.grad(pf.grad(lambda x: x * x * x))(pf.tensor(2.0))
    tensor(12.)
    """
    if isinstance(target, (Tensor, list, tuple)):
        return grad_of(target, *args, **options)
    both = value_and_grad(target, *args, **options)
    has_aux = options.get("has_aux", len(args) > 1 and bool(args[1]))

    @functools.wraps(target)
    def call(*inner: Any, **kwargs: Any) -> Any:
        value, gradients = both(*inner, **kwargs)
        return (gradients, *value[1:]) if has_aux else gradients

    return call
