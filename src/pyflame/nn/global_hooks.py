"""Hooks of every module there is: torch.nn.modules.module's register_module_* functions. They come
before a module's own.
"""

from __future__ import annotations

from pyflame.nn.hooks import CALLS, REGISTRATIONS, GlobalHook, Hook, RemovableHandle, add_hook


def _add(kind: str, hook: Hook, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    return add_hook(CALLS, GlobalHook(kind, hook, with_kwargs, always_call))  # type: ignore[no-any-return]


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, args)` before forward of any module; what it returns replaces the arguments."""
    return _add("pre", hook)


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after forward of any module; what it returns replaces the output.

    >>> from pyflame.nn.modules.module import register_module_forward_hook
    >>> with register_module_forward_hook(lambda module, args, output: print(module, output.shape)):
    ...     _ = nn.Sequential(nn.ReLU())(pf.ones(2))
    ReLU() (2,)
    Sequential(
      (0): ReLU()
    ) (2,)
    """
    return _add("forward", hook, with_kwargs, always_call)


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when gradients have come through any module."""
    return _add("backward", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the gradients of any module are computed."""
    return _add("backward_pre", hook)


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, parameter)` when a parameter is registered; what it returns takes its place."""
    return add_hook(REGISTRATIONS["parameter"], hook)  # type: ignore[no-any-return]


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a buffer is registered; what it returns takes its place."""
    return add_hook(REGISTRATIONS["buffer"], hook)  # type: ignore[no-any-return]


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Call `hook(module, name, submodule)` when a submodule is registered; what it returns takes its place."""
    return add_hook(REGISTRATIONS["module"], hook)  # type: ignore[no-any-return]
