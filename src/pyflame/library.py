"""torch.library by its path: functions with a name of their own, `pf.ops.namespace.name`, and their gradients.

The function runs as it is, op by op or with NumPy in between; `pf.jit` takes those that are made of ops. On a device
that computes nothing (`null:...`) the fake function stands for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from pyflame import ops
from pyflame.core.errors import ArgumentError, suggest
from pyflame.tensor.custom_op import CustomOpDef
from pyflame.tensor.declared import DeclaredOp, OpPacket

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "register_autograd", "register_fake",
    "register_kernel",
]  # fmt: skip

Fn = Callable[..., Any]
_known: dict[str, CustomOpDef] = {}
_waiting: dict[str, Fn] = {}  # fake functions of ops that are not there yet


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
    space, short = _parts("custom_op", name)
    made = CustomOpDef(name, fn, mutates_args)
    if device_types is not None:
        made.register_kernel(device_types, fn)
    _known[name] = made
    made._fake = _waiting.pop(name, None)
    setattr(_namespace("custom_op", space), short, made)
    return made


def _namespace(caller: str, space: str) -> SimpleNamespace:
    held = vars(ops).setdefault(space, SimpleNamespace())
    if not isinstance(held, SimpleNamespace):
        raise ArgumentError(f"[{caller}] expected a namespace of your own but pyflame.ops has {space!r} already")
    return held


def _parts(caller: str, name: str) -> tuple[str, str]:
    space, colons, short = name.partition("::")
    if not colons or not space.isidentifier() or not all(part.isidentifier() for part in short.split(".", 1)):
        raise ArgumentError(f"[{caller}] expected a name like 'mylib::op' but got {name!r}")
    return space, short


def define(qualname: str, schema: str, *, lib: Any = None, tags: Sequence[Any] = ()) -> None:
    """Declare an op that has no kernel yet: `impl`, `register_kernel` and `register_fake` say what it does.

    Without a gradient of its own its gradient is that of what its kernel calls.

    >>> pf.library.define("examples::scale", "(Tensor x, float by=2.0) -> Tensor")
    >>> pf.library.impl("examples::scale", "default", lambda x, by: x * by)
    >>> pf.ops.examples.scale(pf.ones(2))
    tensor([2., 2.])
    """
    space, short = _parts("define", qualname)
    if qualname in _known:
        raise ArgumentError(f"[define] expected a name that is not taken but got {qualname!r}")
    made = DeclaredOp(qualname, schema)
    made._fake = _waiting.pop(qualname, None)
    _known[qualname] = made
    base, _, overload = short.partition(".")
    packet = vars(_namespace("define", space)).setdefault(base, OpPacket(f"{space}.{base}"))
    packet.add(overload or "default", made)


def impl(qualname: str, types: str | Sequence[str], func: Fn | None = None, *, lib: Any = None) -> Any:
    """Give an op a kernel for devices or PyTorch's dispatch keys ("CPU", "cuda", "Meta", "Autograd"); "default": for
    all. Also a decorator."""
    if func is None:
        return functools.partial(impl, qualname, types)
    op = _op("impl", qualname)
    for key in [types] if isinstance(types, str) else types:
        op.implement(key, func)
    return func


class Library:
    """Ops of one namespace: `Library("mylib", "DEF")` declares them, `Library("mylib", "IMPL", "CPU")` has kernels.

    >>> mine = pf.library.Library("examples", "FRAGMENT")
    >>> mine.define("twice(Tensor x) -> Tensor")
    'twice'
    >>> mine.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    >>> pf.ops.examples.twice(pf.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ArgumentError(f"[Library] expected the kind DEF, IMPL or FRAGMENT but got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Sequence[Any] = ()) -> str:
        """Declare an op by its name and signature; gives its name."""
        name, bracket, rest = schema.partition("(")
        define(f"{self.ns}::{name.strip()}", bracket + rest)
        return name.strip()

    def impl(self, op_name: Any, fn: Fn, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Give an op its kernel for this key, or for the library's."""
        name = op_name if isinstance(op_name, str) else op_name._qualname
        name = name if "::" in name else f"{self.ns}::{name}"
        impl(name, dispatch_key or self.dispatch_key or "default", fn)

    def fallback(self, fn: Fn, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """Taken and without effect: an op has the kernels that it was given."""


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
