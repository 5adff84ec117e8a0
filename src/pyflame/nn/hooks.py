"""Hooks: functions that a module calls before or after forward, or when gradients come back through it.

`HookMethods` is the part of Module that registers them and runs a call through them. Hooks of all modules are in
`CALLS`, those that see parameters, buffers and submodules being registered in `REGISTRATIONS`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pyflame.core.errors import ArgumentError
from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.custom import attach

Hook = Callable[..., Any]
Hooks = dict[int, Any]  # number of a hook -> the function
_numbers = itertools.count()


class RemovableHandle:
    """Returned when a hook is registered; `remove()` takes the hook away again, as the end of a with block does."""

    def __init__(self, hooks_dict: Hooks, *, extra_dict: Any = None) -> None:
        extra = [] if extra_dict is None else extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self._hooks: list[Hooks] = [hooks_dict, *extra]
        self.id = next(_numbers)

    def remove(self) -> None:
        for hooks in self._hooks:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class GlobalHook(NamedTuple):
    """A hook of all modules: what it watches, and how it is called."""

    kind: str  # "pre", "forward", "backward" or "backward_pre"
    hook: Hook
    with_kwargs: bool = False
    always_call: bool = False


CALLS: dict[int, GlobalHook] = {}
REGISTRATIONS: dict[str, Hooks] = {"parameter": {}, "buffer": {}, "module": {}}


def add_hook(hooks: Hooks, hook: Any, prepend: bool = False, flags: Iterable[tuple[Hooks, bool]] = ()) -> Any:
    """Register a function behind the others, or before them. `flags`: dicts that say something of it, if it is so."""
    flags = list(flags)
    handle = RemovableHandle(hooks, extra_dict=[known for known, _ in flags])
    later = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[handle.id] = hook
    hooks.update(later)
    for known, wanted in flags:
        if wanted:
            known[handle.id] = True
    return handle


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What stands under a name, after the global hooks that see it being registered."""
    for hook in tuple(REGISTRATIONS[kind].values()):
        changed = hook(module, name, value)
        value = value if changed is None else changed
    return value


class HookMethods:
    """The part of Module that has to do with hooks."""

    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: Hooks
    _forward_hooks_always_called: Hooks
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns replaces the arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, which returns both or None.
        """
        flags = ((self._forward_pre_hooks_with_kwargs, with_kwargs),)
        return add_hook(self._forward_pre_hooks, hook, prepend, flags)  # type: ignore[no-any-return]

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns replaces the output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`; with `always_call` it is called also when forward
        raises, with None for the output.

        >>> layer = nn.Linear(2, 3)
        >>> handle = layer.register_forward_hook(lambda module, args, output: print(output.shape))
        >>> _ = layer(pf.ones(1, 2)); handle.remove()
        (1, 3)
        """
        flags = ((self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call))
        return add_hook(self._forward_hooks, hook, prepend, flags)  # type: ignore[no-any-return]

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` in each backward pass, when the gradients of the positional
        arguments are known; what it returns replaces them.

        >>> layer = nn.Linear(2, 1)
        >>> handle = layer.register_full_backward_hook(lambda module, g_in, g_out: print(g_out[0].tolist()))
        >>> layer(pf.ones(1, 2)).sum().backward()
        [[1.0]]
        """
        return add_hook(self._backward_hooks, hook, prepend)  # type: ignore[no-any-return]

    def register_backward_hook(self, hook: Hook) -> RemovableHandle:
        """register_full_backward_hook under its old name."""
        return self.register_full_backward_hook(hook)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` in each backward pass, before the module's gradients are computed; what it
        returns replaces the gradients of the outputs."""
        return add_hook(self._backward_pre_hooks, hook, prepend)  # type: ignore[no-any-return]


def call_with_hooks(module: Any, args: Any, kwargs: Any) -> Any:
    """What a call gives when somebody watches."""
    called: set[int] = set()
    result = None
    try:
        args, kwargs = _run_before(module, args, kwargs)
        watch = BackwardHooks(module, _global("backward"), _global("backward_pre"))
        args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for number, (_, hook, with_kwargs, _) in _after(module):
            called.add(number)
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            result = result if changed is None else changed
        return watch.outputs(result)
    except Exception:
        for number, (_, hook, with_kwargs, always) in _after(module):
            if always and number not in called:
                _tell(hook, (module, args, kwargs, result) if with_kwargs else (module, args, result))
        raise


def _run_before(module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of forward as the hooks want them."""
    own = module._forward_pre_hooks_with_kwargs
    watching = [(hook, False) for hook in _global("pre")]
    for hook, with_kwargs in (*watching, *((h, n in own) for n, h in module._forward_pre_hooks.items())):
        if with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is not None and not (isinstance(changed, tuple) and len(changed) == 2):
                raise ArgumentError(
                    f"[forward_pre_hook] expected None or a tuple (args, kwargs) but got {type(changed).__name__}"
                )
            args, kwargs = (args, kwargs) if changed is None else changed
        else:
            changed = hook(module, args)
            args = args if changed is None else changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def _after(module: Any) -> list[tuple[int, GlobalHook]]:
    """The hooks behind forward: those of all modules, then this module's."""
    takes, always = module._forward_hooks_with_kwargs, module._forward_hooks_always_called
    own = [(n, GlobalHook("forward", hook, n in takes, n in always)) for n, hook in module._forward_hooks.items()]
    return [*((n, entry) for n, entry in CALLS.items() if entry.kind == "forward"), *own]


def _global(kind: str) -> list[Hook]:
    return [entry.hook for entry in CALLS.values() if entry.kind == kind]


def _tell(hook: Hook, args: tuple[Any, ...]) -> None:
    """Call a hook while an exception is on its way, which one of its own must not replace."""
    try:
        hook(*args)
    except Exception as error:
        warnings.warn(f"[forward_hook] a hook with always_call=True raised, which is ignored: {error}", stacklevel=2)


class BackwardHooks:
    """One call of a module whose gradients somebody wants to see: inputs and outputs pass through the identity, whose
    gradients are the module's. The hooks are those that are registered at the call, as in PyTorch."""

    def __init__(self, module: Any, hooks: list[Hook], pre_hooks: list[Hook]) -> None:
        self._module = module
        self._hooks = [*hooks, *module._backward_hooks.values()]
        self._pre_hooks = [*pre_hooks, *module._backward_pre_hooks.values()]
        self._inputs: list[bool] = []  # of each positional argument, whether it gets a gradient
        self._outputs: tuple[Tensor | None, ...] = ()  # their gradients

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self._hooks:
            return args
        self._inputs = [_records(a) for a in args]
        watched = iter(_identity([a for a in args if _records(a)], self._ready))
        return tuple(next(watched) if _records(a) else a for a in args)

    def outputs(self, result: Any) -> Any:
        if not self._hooks and not self._pre_hooks:
            return result
        listed = list(result) if isinstance(result, (tuple, list)) else [result]
        wanted = [_records(r) for r in listed]

        def arrived(*gradients: Tensor) -> Any:
            came = iter(gradients)
            self._outputs = tuple(next(came) if want else None for want in wanted)
            for hook in self._pre_hooks:
                self._outputs = _replaced("grad_output", self._outputs, hook(self._module, self._outputs))
            if not any(self._inputs):
                self._ready()
            return tuple(g for g, want in zip(self._outputs, wanted, strict=True) if want)

        watched = iter(_identity([r for r in listed if _records(r)], arrived))
        shown = [next(watched) if want else r for r, want in zip(listed, wanted, strict=True)]
        if not isinstance(result, (tuple, list)):
            return shown[0]
        return type(result)(*shown) if hasattr(result, "_fields") else type(result)(shown)

    def _ready(self, *gradients: Tensor) -> Any:
        """The inputs' gradients are known."""
        came = iter(gradients)
        found: tuple[Any, ...] = tuple(next(came) if wanted else None for wanted in self._inputs)
        for hook in self._hooks:
            found = _replaced("grad_input", found, hook(self._module, found, self._outputs))
        return tuple(g for g, wanted in zip(found, self._inputs, strict=True) if wanted)


def _replaced(what: str, gradients: tuple[Any, ...], changed: Any) -> tuple[Any, ...]:
    if changed is None:
        return gradients
    found: tuple[Any, ...] = changed if isinstance(changed, tuple) else (changed,)
    if len(found) != len(gradients):
        raise ArgumentError(f"[backward_hook] expected {len(gradients)} gradients as {what} but got {len(found)}")
    return found


def _records(value: Any) -> bool:
    return isinstance(value, Tensor) and state.grad_enabled and value.requires_grad


def _identity(tensors: list[Tensor], backward: Callable[..., Any]) -> list[Tensor]:
    return attach("full_backward_hook", tensors, tensors, backward) if tensors else []
