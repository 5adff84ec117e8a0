"""torch.library by its path: functions with a name of their own, `pf.ops.namespace.name`, and their gradients.

The function runs as it is, op by op or with NumPy in between; `pf.jit` takes those that are made of ops. On a device
that computes nothing (`null:...`) the fake function stands for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from pyflame import ops
from pyflame.core.errors import ArgumentError, GradientError, suggest
from pyflame.core.state import mode, state
from pyflame.tensor.custom import Context, attach
from pyflame.tensor.tensor import Tensor

__all__ = ["CustomOpDef", "custom_op", "impl_abstract", "register_autograd", "register_fake", "register_kernel"]

Fn = Callable[..., Any]
_known: dict[str, CustomOpDef] = {}
_waiting: dict[str, Fn] = {}  # fake functions of ops that are not there yet


class CustomOpDef:
    """What `custom_op` gives: call it, and register what belongs to it."""

    def __init__(self, name: str, fn: Fn, mutates_args: str | Iterable[str]) -> None:
        self._qualname = name
        self._fn = fn
        self._kernels: dict[str, Fn] = {}
        self._fake: Fn | None = None
        self._backward: Fn | None = None
        self._setup: Fn | None = None
        self.mutates_args = mutates_args
        self.default = self  # torch.ops.mylib.op.default
        functools.update_wrapper(self, fn)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_fake(self, fn: Fn) -> Fn:
        """The function that gives results of the right shapes, without values."""
        self._fake = fn
        return fn

    def register_kernel(self, device_types: str | Sequence[str] | None, func: Fn | None = None) -> Any:
        """The function for tensors on these devices ("cpu", "cuda", "rocm"); None: on all."""
        if func is None:
            return functools.partial(self.register_kernel, device_types)
        if device_types is None:
            self._fn = func
        for kind in [device_types] if isinstance(device_types, str) else device_types or ():
            self._kernels[kind] = func
        return func

    def register_autograd(self, backward: Fn, /, *, setup_context: Fn | None = None) -> None:
        """The gradient: `backward(ctx, *gradients)` gives one for each argument; `setup_context(ctx, inputs, output)`
        keeps what it needs."""
        self._backward, self._setup = backward, setup_context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self._fn).bind(*args, **kwargs)
        bound.apply_defaults()
        given, named = bound.args, bound.kwargs
        needs = tuple(state.grad_enabled and isinstance(a, Tensor) and a.requires_grad for a in given)
        with mode(grad_enabled=False):
            result = self._chosen(given)(*given, **named)
        if not any(needs):
            return result
        context = Context(needs)
        if self._setup is not None:
            with mode(grad_enabled=False):
                extra = {"keyword_only_inputs": named} if named else {}
                self._setup(ctx=context, inputs=given, output=result, **extra)
        backward = functools.partial(self._backward or self._no_backward, context)
        return attach(self._qualname, result, given, backward, context)

    def _chosen(self, args: tuple[Any, ...]) -> Fn:
        kinds = [a.device.type for a in args if isinstance(a, Tensor)]
        if not {"null", "meta"}.isdisjoint(kinds) and self._fake is not None:
            return self._fake
        return next((self._kernels[kind] for kind in kinds if kind in self._kernels), self._fn)

    def _no_backward(self, *args: Any) -> Any:
        raise GradientError(
            f"[{self._qualname}] expected a gradient rule for the backward pass but it has none; give it one with "
            "register_autograd"
        )


def custom_op(
    name: str,
    fn: Fn | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Sequence[Any] | None = None,
) -> Any:
    """Decorate a function over tensors, which becomes an op: `pf.ops.namespace.name`, with a gradient of its own.

    `mutates_args`, `schema` and `tags` are taken and without effect.

    >>> @pf.library.custom_op("examples::sine", mutates_args=())
    ... def sine(x: pf.Tensor) -> pf.Tensor:
    ...     return pf.tensor(np.sin(x.numpy()))
    >>> sine.register_autograd(
    ...     lambda ctx, g: g * ctx.saved_tensors[0].cos(),
    ...     setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    ... )
    >>> x = pf.zeros(2, requires_grad=True)
    >>> pf.ops.examples.sine(x).sum().backward(); x.grad
    tensor([1., 1.])
    """
    if fn is None:
        return functools.partial(
            custom_op, name, mutates_args=mutates_args, device_types=device_types, schema=schema, tags=tags
        )
    space, colons, short = name.partition("::")
    if not colons or not space.isidentifier() or not short.isidentifier():
        raise ArgumentError(f"[custom_op] expected a name like 'mylib::op' but got {name!r}")
    held = vars(ops).setdefault(space, SimpleNamespace())
    if not isinstance(held, SimpleNamespace):
        raise ArgumentError(f"[custom_op] expected a namespace of your own but pyflame.ops has {space!r} already")
    made = CustomOpDef(name, fn, mutates_args)
    if device_types is not None:
        made.register_kernel(device_types, fn)
    _known[name] = made
    made._fake = _waiting.pop(name, None)
    setattr(held, short, made)
    return made


def _op(caller: str, op: Any) -> CustomOpDef:
    found = op if isinstance(op, CustomOpDef) else _known.get(op)
    if found is None:
        raise ArgumentError(f"[{caller}] expected an op made by custom_op but got {op!r}{suggest(str(op), _known)}")
    return found


def register_fake(op: str | CustomOpDef, func: Fn | None = None, /, **options: Any) -> Any:
    """Register the function that gives results of the right shapes, without values. Also a decorator.

    The op may come later where its namespace has none yet: libraries name ops of compiled files that are not loaded.
    """
    if not isinstance(op, str) or hasattr(ops, op.partition("::")[0]):
        found = _op("register_fake", op)
        return found.register_fake if func is None else found.register_fake(func)
    if func is None:
        return functools.partial(register_fake, op)
    _waiting[op] = func
    return func


impl_abstract = register_fake


def register_kernel(
    op: str | CustomOpDef, device_types: str | Sequence[str] | None, func: Fn | None = None, /, **options: Any
) -> Any:
    """Register the function for tensors on these devices. Also a decorator."""
    return _op("register_kernel", op).register_kernel(device_types, func)


def register_autograd(
    op: str | CustomOpDef, backward: Fn, /, *, setup_context: Fn | None = None, lib: Any = None
) -> None:
    """Register an op's gradient: `backward(ctx, *gradients)`, with what `setup_context(ctx, inputs, output)` kept."""
    _op("register_autograd", op).register_autograd(backward, setup_context=setup_context)
