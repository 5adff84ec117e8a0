"""Subclasses of Tensor, as PyTorch's programs write them: made by `__new__` or `_make_subclass`, kept by functions.

`Tensor.__new__` is there only when a class has one of its own: Python would call it for every tensor.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyflame.ir import Node
from pyflame.tensor.dispatch import COMPARISONS, OPERATORS
from pyflame.tensor.overrides import asking, default_torch_function, is_asked, subclassed
from pyflame.tensor.tensor import Tensor

# Properties that give tensors.
_PROPERTIES = ("T", "mT", "H", "mH", "real", "imag")


@cache
def _operators() -> dict[str, Any]:
    """Methods that do not ask by themselves, as functions do: (part of) what Python's operators call."""
    names = (
        *(f"__{kind}{symbol}__" for symbol in OPERATORS for kind in ("", "r", "i")),
        *(f"__{name}__" for name in COMPARISONS),
        "__getitem__",
        "__setitem__",
        *(n for n in vars(Tensor) if n.endswith("_") and not n.startswith("_")),
    )
    methods = {name: asking(getattr(Tensor, name)) for name in names if hasattr(Tensor, name)}
    return methods | {name: property(asking(getattr(Tensor, name).__get__)) for name in _PROPERTIES}


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    """What `super().__new__(cls, data)` gives in a subclass: a tensor of it that shares the data's memory."""
    if not is_asked(cls) or (args and type(args[0]) is Node):
        return object.__new__(cls)
    if args and isinstance(args[0], Tensor):
        return Tensor.as_subclass(args[0], cls)
    made: Any = object.__new__(cls)
    Tensor.__init__(made, *args, **kwargs)
    return made


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
    """A tensor of a subclass that shares the memory of another, without its tape."""
    return Tensor.as_subclass(data.detach(), cls).requires_grad_(require_grad)


def _init_subclass(cls: type, **kwargs: Any) -> None:
    super(Tensor, cls).__init_subclass__(**kwargs)  # type: ignore[misc]
    if "__new__" in vars(cls) and "__new__" not in vars(Tensor):
        Tensor.__new__ = _new  # type: ignore[method-assign]
    subclassed(cls, Tensor, _operators())


Tensor._make_subclass = staticmethod(_make_subclass)  # type: ignore[method-assign,assignment]
Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
Tensor.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[assignment,arg-type]
