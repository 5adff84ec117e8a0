"""Functions with a gradient of their own: `pf.custom_gradient`, and `pf.autograd.Function` as in PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.autograd import Entry, Joint, Leaf
from pyflame.core.errors import GradientError, ShapeError
from pyflame.core.state import mode, state
from pyflame.ir import Node
from pyflame.tensor.tensor import Tensor, alias, read

Tape = dict[Node, "Entry | Leaf"]


def attach(name: str, result: Any, inputs: Sequence[Any], backward: Callable[..., Any]) -> Any:
    """Give the results of a function one entry of the tape: `backward(*gradients)` answers for all inputs at once."""
    single = isinstance(result, Tensor)
    results = [result] if single else list(result)
    tensors = [t if isinstance(t, Tensor) else None for t in inputs]
    parents = tuple(None if t is None else t._tape for t in tensors)
    differentiable = [isinstance(r, Tensor) and r.dtype.has_gradient for r in results]
    shapes = [(r.shape, r.dtype) if isinstance(r, Tensor) else None for r in results]

    def rule(given: list[Node | None], known: Tape, create_graph: bool) -> list[Node | None]:
        gradients = []
        for g, shape, wanted in zip(given, shapes, differentiable, strict=True):
            if wanted and shape is not None:
                gradients.append(_zeros(*shape) if g is None else Tensor(g, known.get(g) if create_graph else None))
        with mode(grad_enabled=create_graph, autocast=None):
            back = backward(*gradients)
        back = list(back) if isinstance(back, (tuple, list)) else [back]
        if len(back) != len(tensors):
            raise GradientError(
                f"[{name}] expected one gradient per argument ({len(tensors)}) from its backward but got {len(back)}; "
                "give None for arguments that need none"
            )
        return [_checked(name, n, g, t, known) for n, (g, t) in enumerate(zip(back, tensors, strict=True))]

    joint = Joint(rule, parents, tuple(_NOTHING if t is None else read(t).meta for t in tensors))
    out: list[Any] = []
    for r, wanted in zip(results, differentiable, strict=True):
        part = joint.part(read(r).meta if isinstance(r, Tensor) else _NOTHING)
        out.append(Tensor(alias(read(r)), part) if wanted else r)
    return out[0] if single else type(result)(out)


_NOTHING: Any = None  # the meta of an argument that is no tensor, which nobody asks for


def _zeros(shape: tuple[int, ...], dtype: Any) -> Tensor:
    from pyflame.tensor.creation import zeros

    return zeros(shape, dtype=dtype)


def _checked(name: str, number: int, g: Any, tensor: Tensor | None, known: Tape) -> Node | None:
    if g is None or tensor is None:
        return None
    if not isinstance(g, Tensor):
        raise GradientError(f"[{name}] expected a tensor or None as gradient {number} but got {type(g).__name__}")
    if g.shape != tensor.shape:
        raise ShapeError(f"[{name}] expected gradient {number} of shape {tensor.shape} but got {g.shape}")
    node = read(g)
    if (tape := g._tape) is not None:
        known[node] = tape
    return node


def custom_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that returns its result and a function from gradients of the result to gradients of the
    positional arguments.

    >>> @pf.custom_gradient
    ... def clipped(x):
    ...     return x, lambda g: g.clamp(-1, 1)
    >>> x = pf.tensor([2.0], requires_grad=True)
    >>> (clipped(x) * 5).sum().backward(); x.grad
    tensor([1.])
    """

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = state.grad_enabled and any(isinstance(a, Tensor) and a._tape is not None for a in args)
        with mode(grad_enabled=False):
            pair = fn(*args, **kwargs)
        if not isinstance(pair, tuple) or len(pair) != 2 or not callable(pair[1]):
            raise GradientError(
                f"[custom_gradient] expected {fn.__name__} to return (result, backward) but got {pair!r}"
            )
        return attach(fn.__name__, pair[0], args, pair[1]) if wanted else pair[0]

    return call


class Context:
    """What `Function.forward` leaves for `Function.backward`."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors


class Function:
    """A function with a gradient of its own, as in PyTorch: subclass it, and call `apply`.

    >>> class Double(pf.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = pf.tensor([1.0], requires_grad=True)
    >>> Double.apply(x).sum().backward(); x.grad
    tensor([2.])
    """

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """The result. Keep what the gradient needs with `ctx.save_for_backward`."""
        raise NotImplementedError("[Function] expected a subclass with a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *gradients: Any) -> Any:
        """One gradient per argument of `forward`, given one per result."""
        raise NotImplementedError("[Function] expected a subclass with a static method backward(ctx, ...)")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function."""
        needs = tuple(state.grad_enabled and isinstance(a, Tensor) and a._tape is not None for a in args)
        context = Context(needs)
        with mode(grad_enabled=False):
            result = cls.forward(context, *args)
        if not any(needs):
            return result
        return attach(cls.__name__, result, args, functools.partial(cls.backward, context))
