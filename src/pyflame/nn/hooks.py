"""Hooks: functions that a module calls before or after forward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

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
