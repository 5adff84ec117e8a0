"""torch.overrides by its path: what functions do with subclasses of Tensor and with objects that are like tensors."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

from pyflame.tensor.overrides import NEVER_ASK, BaseTorchFunctionMode, TorchFunctionMode, ask, overriding
from pyflame.tensor.tensor import Tensor

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]


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
    """Whether a function that `__torch_function__` was given is a method or a property of Tensor.

    >>> from pyflame.overrides import is_tensor_method_or_property as is_one
    >>> is_one(pf.Tensor.add), is_one(pf.Tensor.shape.__get__), is_one(pf.add)
    (True, True, False)
    """
    is_method = isinstance(func, FunctionType) and (resolve_name(func) or "").startswith("pyflame.Tensor.")
    return is_method or getattr(func, "__name__", "") == "__get__"


# Where functions that ask are.
_NOT_ASKING = ("__copy__", "__init__", "__iter__", "__reduce__")
_ROOMS = ("", "Tensor", "nn.functional", "linalg", "fft", "special")


def _functions_of(room: str) -> Iterator[tuple[str, Any]]:
    """The functions of a room by name, and how the properties of Tensor are read and written."""
    if room != "Tensor":
        module = importlib.import_module(f"pyflame.{room}".rstrip("."))
        for name in sorted(n for n in {*module.__all__, *vars(module)} if not n.startswith("_")):
            value = getattr(module, name)
            if isinstance(value, (FunctionType, MethodType)) and hasattr(value, "__wrapped__"):
                yield name, value
        return
    for name in sorted(dir(Tensor), key=lambda name: (name.startswith("_"), name)):
        value = inspect.getattr_static(Tensor, name)
        if isinstance(value, property) and name != "_tape":
            ways = (("get", value.fget), ("set", value.fset), ("delete", value.fdel))
            yield from ((f"{name}.__{way}__", getattr(value, f"__{way}__")) for way, given in ways if given)
        elif isinstance(value, FunctionType) and name not in _NOT_ASKING and (name[0] != "_" or name.endswith("__")):
            yield name, value


def _asks(name: str, function: Any) -> bool:
    """Whether a function may be given a tensor, and then asks."""
    if name in NEVER_ASK or not isinstance(function, (FunctionType, MethodType)) or name in vars(Tensor):
        return name not in NEVER_ASK
    kinds = [str(p.annotation) for p in inspect.signature(function).parameters.values()]
    return any(word in kind for kind in kinds for word in ("Tensor", "Node", "Any", "Sequence[object]"))


@functools.cache
def _names() -> dict[Any, str]:
    """Functions of all rooms, and what they are called; of several names the shortest."""
    found: dict[Any, str] = {}
    for room in _ROOMS:
        for name, function in _functions_of(room):
            found.setdefault(function, ".".join(filter(None, ("pyflame", room, name))))
    return found


def resolve_name(f: Any) -> str | None:
    """The name of a function that `__torch_function__` was given; None where it is none of PyFlame's.

    >>> from pyflame.overrides import resolve_name
    >>> resolve_name(pf.Tensor.shape.__get__), resolve_name(pf.nn.functional.relu)
    ('pyflame.Tensor.shape.__get__', 'pyflame.nn.functional.relu')
    """
    return _names().get(f)


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that ask `__torch_function__`, by the module or class that they belong to."""
    rooms = {
        room: Tensor if room == "Tensor" else importlib.import_module(f"pyflame.{room}".rstrip(".")) for room in _ROOMS
    }
    return {value: [f for n, f in _functions_of(room) if _asks(n, f)] for room, value in rooms.items()}


def get_ignored_functions() -> set[Callable[..., Any]]:
    """The functions that take no tensors, or answer for themselves."""
    return {function for room in _ROOMS for name, function in _functions_of(room) if not _asks(name, function)}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """A function for each of those that ask, with its parameters, that gives -1."""
    return {f: _stand_in(f) for functions in get_overridable_functions().values() for f in functions}


def _stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    def given(*args: Any, **kwargs: Any) -> int:
        signature.bind(*args, **kwargs)
        return -1

    signature = inspect.signature(function)
    given.__signature__ = signature  # type: ignore[attr-defined]
    return given
