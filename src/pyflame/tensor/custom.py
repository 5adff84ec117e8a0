"""Functions with a gradient of their own: `pf.custom_gradient`, and `pf.autograd.Function` as in PyTorch."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyflame.autograd import Entry, Joint, Leaf, Part
from pyflame.core.errors import GradientError, ShapeError, type_name
from pyflame.core.shape import expands_to
from pyflame.core.state import mode, state
from pyflame.ir import Node
from pyflame.tensor.tensor import Tensor, alias, read

Tape = dict[Node, "Entry | Leaf"]


def attach(
    name: str, result: Any, inputs: Sequence[Any], backward: Callable[..., Any], context: Context | None = None
) -> Any:
    """Give the results of a function one entry of the tape: `backward(*gradients)` answers for all inputs at once.

    It gets a gradient for each result that has one; with a context for each result, as in PyTorch.
    """
    single = isinstance(result, Tensor)
    results = [result] if single else list(result)
    tensors = [t if isinstance(t, Tensor) else None for t in inputs]
    parents = tuple(None if t is None else t._tape for t in tensors)
    constant = () if context is None else context.constant
    differentiable = [
        isinstance(r, Tensor) and r.dtype.has_gradient and not any(r is c for c in constant) for r in results
    ]
    saved = () if context is None else context.saved_tensors
    places = [next((i for i, r in enumerate(results) if r is t and differentiable[i]), None) for t in saved]
    shapes = [(r.shape, r.dtype) if isinstance(r, Tensor) else None for r in results]

    def rule(given: list[Node | None], known: Tape, create_graph: bool) -> list[Node | None]:
        gradients: list[Tensor | None] = []
        for g, shape, wanted in zip(given, shapes, differentiable, strict=True):
            if g is not None:
                gradients.append(Tensor(g, known.get(g) if create_graph else None))
            elif context is not None and (shape is None or not context.materialize_grads):
                gradients.append(None)
            elif shape is not None and (wanted or context is not None):
                gradients.append(_zeros(*shape))
        owner = own() if create_graph else None
        with mode(grad_enabled=create_graph, autocast=None), _restored(context, places, owner):
            back = _one_each(name, backward(*gradients), len(tensors))
        return [_checked(name, n, g, t, known) for n, (g, t) in enumerate(zip(back, tensors, strict=True))]

    joint = Joint(name, rule, parents, tuple(_NOTHING if t is None else read(t).meta for t in tensors))
    own = weakref.ref(joint)  # the rule is part of it
    out: list[Any] = []
    for r, wanted in zip(results, differentiable, strict=True):
        part = joint.part(read(r).meta if isinstance(r, Tensor) else _NOTHING)
        made = Tensor(alias(read(r)), part) if wanted else r
        dirty = wanted and context is not None and any(r is d for d in context.dirty)
        out.append(r._rebind(made) if dirty else made)
    return out[0] if single else type(result)(out)


def _one_each(name: str, back: Any, count: int) -> list[Any]:
    """What a backward gave, as one gradient per argument."""
    given: list[Any] = list(back) if isinstance(back, (tuple, list)) else [back]
    while len(given) > count and given[-1] is None:  # PyTorch takes more, if they are None
        given.pop()
    if len(given) != count:
        raise GradientError(
            f"[{name}] expected one gradient per argument ({count}) from its backward but got {len(given)}; "
            "give None for arguments that need none"
        )
    return given


@contextmanager
def _restored(context: Context | None, places: list[int | None], joint: Joint | None) -> Iterator[None]:
    """Within it, results that were saved for the backward pass have their place on the tape, for a second derivative.

    `places`: which result each saved tensor is. They have none outside: the tape holds them, and would hold itself.
    """
    if context is None or joint is None or all(place is None for place in places):
        yield
        return
    saved = context.saved_tensors
    context.saved_tensors = tuple(
        t if i is None else Tensor(alias(read(t)), Part(joint, i, read(t).meta))
        for t, i in zip(saved, places, strict=True)
    )
    try:
        yield
    finally:
        context.saved_tensors = saved


_NOTHING: Any = None  # the meta of an argument that is no tensor, which nobody asks for


def _zeros(shape: tuple[int, ...], dtype: Any) -> Tensor:
    from pyflame.tensor.creation import zeros

    return zeros(shape, dtype=dtype)


def _checked(name: str, number: int, g: Any, tensor: Tensor | None, known: Tape) -> Node | None:
    if g is None or tensor is None:
        return None
    if not isinstance(g, Tensor):
        raise GradientError(f"[{name}] expected a tensor or None as gradient {number} but got {type_name(g)}")
    if g.shape != tensor.shape and expands_to(tensor.shape, g.shape):
        g = g.sum_to_size(*tensor.shape)  # as PyTorch: what was broadcast gets the sum
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
        self.constant: tuple[Any, ...] = ()  # results that no gradient flows to
        self.dirty: tuple[Any, ...] = ()  # arguments that were changed in place, and are results
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """No gradient flows to these results: their gradients in backward are zeros."""
        self.constant = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        """These arguments were changed in place and are results: they stay the tensors that they are."""
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (as it does unless told) or None for results whose gradient nobody asked for."""
        self.materialize_grads = value


FunctionCtx = Context  # torch's name


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
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The result, from (ctx, ...). Keep what the gradient needs with `ctx.save_for_backward`."""
        raise NotImplementedError("[Function] expected a subclass with a static method forward(ctx, ...)")

    @staticmethod
    def backward(ctx: Context, *gradients: Any) -> Any:
        """One gradient per argument of `forward`, given one per result."""
        raise NotImplementedError("[Function] expected a subclass with a static method backward(ctx, ...)")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> Any:
        """What a subclass defines whose `forward` takes no ctx: keeps what the gradient needs."""
        raise NotImplementedError("[Function] expected a subclass with a static method setup_context")

    @staticmethod
    def jvp(ctx: Context, *tangents: Any) -> Any:
        """What a subclass may define for PyTorch's forward mode; `func.jvp` here goes through `backward`."""
        raise NotImplementedError("[Function] expected backward to be used; jvp(ctx, ...) is not called here")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function."""
        needs = tuple(state.grad_enabled and isinstance(a, Tensor) and a._tape is not None for a in args)
        context = Context(needs)
        with mode(grad_enabled=False):
            if cls.setup_context is Function.setup_context:
                result = cls.forward(context, *args)
            else:
                result = cls.forward(*args)
                cls.setup_context(context, args, result)
        if not any(needs):
            return result
        return attach(cls.__name__, result, args, functools.partial(cls.backward, context), context)


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a `Function.backward` whose own gradient would be wrong: asking for it raises.

    >>> class Double(pf.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @pf.autograd.function.once_differentiable
    ...     def backward(ctx, g):
    ...         return g * 2
    >>> x = pf.tensor([1.0], requires_grad=True)
    >>> Double.apply(x).sum().backward(); x.grad
    tensor([2.])
    """

    def refuse(*gradients: Any) -> Any:
        raise GradientError(
            f"[{fn.__qualname__}] expected to be differentiated once, since it is marked once_differentiable, but a "
            "gradient of its gradient was asked for"
        )

    @functools.wraps(fn)
    def backward(ctx: Context, *gradients: Any) -> Any:
        with mode(grad_enabled=False):
            found = fn(ctx, *gradients)
        if not (state.grad_enabled and any(isinstance(g, Tensor) and g._tape is not None for g in gradients)):
            return found
        return attach(fn.__name__, found, gradients, refuse)

    return backward
