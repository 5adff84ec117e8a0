"""`__torch_function__`: subclasses of Tensor, and objects that are like tensors, say what functions do with them.

A function asks only where it may matter: while `CLASSES` is empty no call pays more than a look at it, and an object of
another class is asked when a call would otherwise fail.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

from pyflame.core.errors import ArgumentTypeError

# Subclasses of Tensor whose __torch_function__ is asked; most programs have none. Weak, since programs may make many,
# and a plain set, whose truth costs a call nothing.
CLASSES: set[ref[type]] = set()


# Functions that answer for themselves whatever they are given, as in PyTorch.
NEVER_ASK = frozenset(("as_tensor", "asarray", "from_numpy", "is_storage", "is_tensor", "save", "tensor", "typename"))


class _Here(threading.local):
    off = 0


_here = _Here()


class DisableTorchFunctionSubclass:
    """Within a `with` block no `__torch_function__` is asked."""

    def __enter__(self) -> None:
        _here.off += 1

    def __exit__(self, *exc: object) -> None:
        _here.off -= 1


def disabled_torch_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that have nothing to say, as Parameter: results are plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def is_asked(cls: type) -> bool:
    """Whether functions ask this subclass of Tensor."""
    return ref(cls) in CLASSES


def _asked(value: Any) -> bool:
    kind = type(value)
    if is_asked(kind):
        return True
    # a tensor of ours that is asked is in CLASSES; one of torch's knows torch's functions only
    return hasattr(kind, "__torch_function__") and not any(
        c.__name__ == "Tensor" and c.__module__.partition(".")[0] in ("pyflame", "torch") for c in kind.__mro__
    )


def overriding(values: Iterable[Any]) -> list[Any]:
    """Those of the values, also in lists, whose classes are asked: one of each, subclasses before their bases."""
    found: list[Any] = []
    if _here.off:
        return found
    for value in values:
        inner = value if isinstance(value, (list, tuple)) else (value,)
        for v in inner:
            if _asked(v) and not any(type(v) is type(f) for f in found):
                at = next((i for i, f in enumerate(found) if issubclass(type(v), type(f))), len(found))
                found.insert(at, v)
    return found


def ask(func: Callable[..., Any], found: list[Any], args: Any, kwargs: Any) -> Any:
    """What the first class says that has an answer."""
    types = tuple(type(v) for v in found)
    for value in found:
        result = type(value).__torch_function__(func, types, args, kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(t.__name__ for t in types)
    raise ArgumentTypeError(
        f"[{getattr(func, '__name__', func)}] expected an answer from __torch_function__ of {names} but got "
        "NotImplemented from all"
    )


def converted(result: Any, cls: type) -> Any:
    """A result whose plain tensors, also in lists and tuples, are of a subclass."""
    if isinstance(result, (list, tuple)):
        parts = [converted(r, cls) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    # a tensor that the class is no subclass of stays what it is
    return result.as_subclass(cls) if type(result) in cls.__mro__ and type(result) is not cls else result


def default_torch_function(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What subclasses of Tensor do unless they define it: results are of the subclass, too.

    >>> class Named(pf.Tensor):
    ...     pass
    >>> type(Named([1.0, 2.0]) + 1).__name__
    'Named'
    """
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return converted(result, cls)


def asking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Tensor for subclasses: it asks them first."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = overriding((*args, *kwargs.values()))
        return ask(method, found, args, kwargs) if found else method(*args, **kwargs)

    return call


def subclassed(cls: type, tensor: type, operators: dict[str, Any]) -> None:
    """Let a new subclass of Tensor be asked, unless it has nothing to say: by functions, and by its operators."""
    if getattr(cls, "__torch_function__", None) is disabled_torch_function:
        return
    CLASSES.add(ref(cls, CLASSES.discard))
    for name, method in operators.items():
        if getattr(cls, name) is getattr(tensor, name):
            setattr(cls, name, method)
