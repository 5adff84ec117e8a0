"""Hooks of optimisers, by PyTorch's names: called before and after each step, and where state is saved and loaded.

`HookMethods` is the part of Optimizer that registers and runs them. A subclass with a step() of its own has it hooked
when the class is made; where it calls its base's, hooks run once.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.nn.hooks import RemovableHandle, add_hook

Hook = Callable[..., Any]
_KINDS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")
_BEFORE_ANY: OrderedDict[int, Hook] = OrderedDict()
_AFTER_ANY: OrderedDict[int, Hook] = OrderedDict()


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimiser."""
    return add_hook(_BEFORE_ANY, hook)  # type: ignore[no-any-return]


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimiser."""
    return add_hook(_AFTER_ANY, hook)  # type: ignore[no-any-return]


def hooked_step(step: Hook) -> Hook:
    """A step() that calls hooks: those before it may give other (args, kwargs), of which the optimiser is the first."""

    @functools.wraps(step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        if type(self).step is not wrapper:  # called by the step of a subclass
            return step(*args, **kwargs)
        for hook in (*_BEFORE_ANY.values(), *self._pf_hooks_of("step_pre")):
            result = hook(self, args, kwargs)
            if result is None:
                continue
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError(f"[step] expected None or (args, kwargs) from a hook but got {result!r}")
            args, kwargs = result
        out = step(*args, **kwargs)
        for hook in (*self._pf_hooks_of("step_post"), *_AFTER_ANY.values()):
            hook(self, args, kwargs)
        return out

    return wrapper


class HookMethods:
    """What Optimizer has for hooks."""

    profile_hook_step = staticmethod(hooked_step)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = hooked_step(cls.step)  # type: ignore[attr-defined]

    def _pf_make_hooks(self) -> None:
        for kind in _KINDS:
            setattr(self, f"_optimizer_{kind}_hooks", OrderedDict())

    def _pf_hooks_of(self, kind: str) -> list[Hook]:
        """Those that are registered; a subclass may not have called `__init__`."""
        return list(getattr(self, f"_optimizer_{kind}_hooks", {}).values())

    def _pf_register(self, kind: str, hook: Hook, prepend: bool = False) -> RemovableHandle:
        return add_hook(getattr(self, f"_optimizer_{kind}_hooks"), hook, prepend)  # type: ignore[no-any-return]

    def _pf_replaced(self, kind: str, value: Any) -> Any:
        """A state dict, or what hooks give instead of it."""
        for hook in self._pf_hooks_of(kind):
            result = hook(self, value)
            value = value if result is None else result
        return value

    def _patch_step_function(self) -> None:
        """Nothing: PyTorch hooks step() here, which is done when the class is made."""

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return other (args, kwargs)."""
        return self._pf_register("step_pre", hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return self._pf_register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before state_dict()."""
        return self._pf_register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after state_dict(); it may return another."""
        return self._pf_register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before load_state_dict(); it may return another."""
        return self._pf_register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after load_state_dict()."""
        return self._pf_register("load_state_dict_post", hook, prepend)
