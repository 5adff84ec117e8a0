"""Hooks: functions that a module calls before or after forward, or when gradients come back through it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from pyflame.core.state import state
from pyflame.tensor import Tensor
from pyflame.tensor.custom import attach

# Number of a hook -> the function, and whether it takes keyword arguments.
Hooks = dict[int, tuple[Callable[..., Any], bool]]
_numbers = itertools.count()


class RemovableHandle:
    """Returned when a hook is registered; `remove()` takes the hook away again, as the end of a with block does."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.id = next(_numbers)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def add_hook(hooks: Hooks, hook: Callable[..., Any], prepend: bool, with_kwargs: bool) -> RemovableHandle:
    """Register a function behind the others, or before them."""
    handle = RemovableHandle(hooks)
    later = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[handle.id] = (hook, with_kwargs)
    hooks.update(later)
    return handle


def run_before(hooks: Hooks, module: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of forward as the hooks want them."""
    for hook, with_kwargs in tuple(hooks.values()):
        if with_kwargs:
            changed = hook(module, args, kwargs)
            args, kwargs = (args, kwargs) if changed is None else changed
        else:
            changed = hook(module, args)
            args = args if changed is None else changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def run_after(hooks: Hooks, module: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """The output of forward as the hooks want it."""
    for hook, with_kwargs in tuple(hooks.values()):
        changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
        result = result if changed is None else changed
    return result


class BackwardHooks:
    """One call of a module whose gradients somebody wants to see: inputs and outputs pass through the identity, whose
    gradients are the module's."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._inputs: list[bool] = []  # of each positional argument, whether it gets a gradient
        self._outputs: tuple[Tensor | None, ...] = ()  # their gradients

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self._inputs = [_records(a) for a in args]
        watched = iter(_identity([a for a in args if _records(a)], self._ready))
        return tuple(next(watched) if _records(a) else a for a in args)

    def outputs(self, result: Any) -> Any:
        listed = list(result) if isinstance(result, (tuple, list)) else [result]
        wanted = [_records(r) for r in listed]

        def arrived(*gradients: Tensor) -> Any:
            came = iter(gradients)
            self._outputs = tuple(next(came) if want else None for want in wanted)
            for hook, _ in tuple(self._module._backward_pre_hooks.values()):
                changed = hook(self._module, self._outputs)
                if changed is not None:
                    self._outputs = changed if isinstance(changed, tuple) else (changed,)
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
        for hook, _ in tuple(self._module._backward_hooks.values()):
            changed = hook(self._module, found, self._outputs)
            if changed is not None:
                found = changed if isinstance(changed, tuple) else (changed,)
        return tuple(g for g, wanted in zip(found, self._inputs, strict=True) if wanted)


def _records(value: Any) -> bool:
    return isinstance(value, Tensor) and state.grad_enabled and value.requires_grad


def _identity(tensors: list[Tensor], backward: Callable[..., Any]) -> list[Tensor]:
    return attach("full_backward_hook", tensors, tensors, backward) if tensors else []
