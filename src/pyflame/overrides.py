"""torch.overrides by its path: what functions do with subclasses of Tensor and with objects that are like tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from pyflame.core.torch_paths import refused
from pyflame.tensor.overrides import ask, overriding
from pyflame.tensor.tensor import Tensor

__all__ = [
    "TorchFunctionMode",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "wrap_torch_function",
]

TorchFunctionMode = refused("TorchFunctionMode", "__torch_function__ of a class says what functions do with it")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a `__torch_function__` that must be asked.

    >>> from pyflame.overrides import has_torch_function
    >>> has_torch_function((pf.ones(2), nn.Parameter(pf.ones(2)), 1))
    False
    """
    return bool(overriding(tuple(relevant_args)))


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function of one argument."""
    return bool(overriding((arg,)))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function of arguments that are not in a tuple."""
    return bool(overriding(args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """What the `__torch_function__` of the arguments' classes makes of a call: the first answer counts.

    >>> from pyflame.overrides import handle_torch_function, has_torch_function
    >>> def double(x):
    ...     return handle_torch_function(double, (x,), x) if has_torch_function((x,)) else x * 2
    >>> class Word:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return f"{func.__name__} of a word"
    >>> double(Word()), double(pf.ones(1))
    ('double of a word', tensor([2.]))
    """
    return ask(public_api, overriding(tuple(relevant_args)), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Decorate a function of your own, so that it asks `__torch_function__` of what `dispatcher` gives from its
    arguments."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            found = overriding(tuple(dispatcher(*args, **kwargs)))
            return ask(wrapped, found, args, kwargs) if found else func(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether something is a tensor, or has a `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function that `__torch_function__` was given is a method or a property of Tensor."""
    name = getattr(func, "__name__", "")
    return name == "__get__" or getattr(Tensor, name, None) is func
