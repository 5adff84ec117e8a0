"""`__torch_function__`: subclasses of Tensor, and objects that are like tensors, say what functions do with them.

A function asks only where it may matter: while `CLASSES` is empty no call pays more than a look at it, and an object of
another class is asked when a call would otherwise fail. What is handed over is what a program can compare with:
`pf.Tensor.add` for x + 1, `pf.Tensor.shape.__get__` for x.shape.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any
from weakref import ref

from pyflame.core.errors import ArgumentTypeError
from pyflame.core.locks import lock
from pyflame.core.state import state

# Subclasses of Tensor whose __torch_function__ is asked; most programs have none. Weak, since programs may make many,
# and a plain set, whose truth costs a call nothing.
CLASSES: set[ref[type]] = set()


# Functions that answer for themselves whatever they are given, as in PyTorch; modes see the first three of them.
_SEEN = frozenset(("as_tensor", "asarray", "tensor"))
NEVER_ASK = _SEEN | {"as_subclass", "from_numpy", "is_storage", "is_tensor", "save", "typename"}


class _Here(threading.local):
    def __init__(self) -> None:
        self.off = 0
        self.modes: tuple[TorchFunctionMode, ...] = ()


_here = _Here()
_lock = lock()


class TorchFunctionMode:
    """Within its `with` block every function and method of tensors asks it first, those that make tensors too.

    Attributes of tensors, and what Python itself asks of them (`len(x)`, `bool(x)`), are not seen, unless they are of a
    subclass: there they would cost every program.

    >>> class Log(pf.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Log():
    ...     x = pf.ones(2) + 1
    ones
    add
    """

    _entered = 0  # in any thread

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        vars(self).setdefault("_before", []).append((_here.modes, state.eager))
        _here.modes = (*_here.modes, self)
        state.eager = state.eager or 0  # so that C, which asks nobody, leaves calls to Python
        _count_modes(1)
        return self

    def __exit__(self, *exc: object) -> None:
        _here.modes, state.eager = vars(self)["_before"].pop()
        _count_modes(-1)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _count_modes(change: int) -> None:
    """Let functions look for modes while there is one in any thread."""
    with _lock:
        TorchFunctionMode._entered += change
        (CLASSES.add if TorchFunctionMode._entered else CLASSES.discard)(_A_MODE)


_A_MODE: ref[type] = ref(TorchFunctionMode)


class DisableTorchFunction:
    """Within a `with` block neither modes nor classes are asked."""

    def __enter__(self) -> None:
        vars(self).setdefault("_before", []).append(_here.modes)
        _here.modes = ()
        _here.off += 1

    def __exit__(self, *exc: object) -> None:
        _here.modes = vars(self)["_before"].pop()
        _here.off -= 1


class DisableTorchFunctionSubclass:
    """Within a `with` block no `__torch_function__` is asked."""

    def __enter__(self) -> None:
        _here.off += 1

    def __exit__(self, *exc: object) -> None:
        _here.off -= 1


_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


def _refuse_torchs(func: Any) -> None:
    """Raise for a function of torch's that was given our tensor. It asks again at each call, so it is never called."""
    room = "torch" if isinstance(func, _IN_C) else getattr(func, "__module__", None) or ""
    if room.partition(".")[0] == "torch":
        name = getattr(func, "__name__", str(func))
        raise ArgumentTypeError(
            f"[{name}] expected torch's tensors but got one of PyFlame's; call PyFlame's {name}, or hand over "
            "x.to_torch()"
        )


def disabled_torch_function(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """The `__torch_function__` of classes that have nothing to say, as Parameter: results are plain tensors."""
    _refuse_torchs(func)
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
    """The mode that is asked, if there is one, and those of the values, also in lists, whose classes are: one of each,
    subclasses before their bases."""
    found: list[Any] = []
    for value in () if _here.off else values:
        inner = value if isinstance(value, (list, tuple)) else (value,)
        for v in inner:
            if _asked(v) and not any(type(v) is type(f) for f in found):
                at = next((i for i, f in enumerate(found) if issubclass(type(v), type(f))), len(found))
                found.insert(at, v)
    return [*_here.modes[-1:], *found]


def overriding_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """`overriding` of a call of a function, which may answer for itself."""
    if name in NEVER_ASK:
        return list(_here.modes[-1:]) if name in _SEEN else []
    return overriding((*args, *kwargs.values()))


def ask(func: Callable[..., Any], found: list[Any], args: Any, kwargs: Any) -> Any:
    """What the mode, or the first class, says that has an answer."""
    types = tuple(type(v) for v in found if not isinstance(v, TorchFunctionMode))
    for value in found:
        answer = value if isinstance(value, TorchFunctionMode) else type(value)
        modes = _here.modes
        if answer is value:
            _here.modes = modes[:-1]  # what it calls is for those around it
        try:
            result = answer.__torch_function__(func, types, args, kwargs)
        finally:
            _here.modes = modes
        if result is not NotImplemented:
            return result
    names = ", ".join(type(v).__name__ for v in found)
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
    _refuse_torchs(func)
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in AS_IT_IS else converted(result, cls)


# Functions whose results are not made tensors of the subclass.
AS_IT_IS: list[Any] = []


def asking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of Tensor for subclasses: it asks them first. Functions of tensors do so by themselves."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = overriding((self,))
        return ask(method, found, (self, *args), kwargs) if found else method(self, *args, **kwargs)

    return call


def subclassed(cls: type, tensor: type, members: dict[str, Any]) -> None:
    """Let a new subclass of Tensor be asked, unless it has nothing to say: by functions, and by these members."""
    if getattr(cls, "__torch_function__", None) is disabled_torch_function:
        return
    CLASSES.add(ref(cls, CLASSES.discard))
    for name, member in members.items():
        if getattr(cls, name) is getattr(tensor, name):
            setattr(cls, name, member)
