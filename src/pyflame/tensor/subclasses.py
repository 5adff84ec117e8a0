"""Subclasses of Tensor, as PyTorch's programs write them: made by `__new__` or `_make_subclass`, kept by functions.

`Tensor.__new__` is there only when a class has one of its own: Python would call it for every tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from pyflame.ir import Node
from pyflame.tensor.overrides import AS_IT_IS, asking, default_torch_function, is_asked, subclassed
from pyflame.tensor.tensor import Tensor

# What Python asks of an object, where Tensor's own methods do not ask __torch_function__: plain tensors would pay.
_PYTHONS = (
    "array", "bool", "complex", "contains", "deepcopy", "dlpack", "dlpack_device", "float", "format", "index", "int",
    "len", "reduce_ex", "repr", "reversed",
)  # fmt: skip


@cache
def _members() -> dict[str, Any]:
    """What a subclass has of its own: members that do not ask by themselves, as methods and operators do."""
    methods = {f"__{name}__": asking(getattr(Tensor, f"__{name}__")) for name in _PYTHONS}
    attributes = {
        name: property(
            asking(member.__get__),
            asking(member.__set__) if member.fset else None,
            asking(member.__delete__) if member.fdel else None,
            member.__doc__,
        )
        for name, member in vars(Tensor).items()
        if isinstance(member, property) and name != "_tape"
    }
    return {**methods, **attributes, "__iter__": _iterated}


def _iterated(self: Tensor) -> Any:
    return iter(self.unbind(0)) if self.dim() else Tensor.__iter__(self)


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


def _init_after_new(cls: type) -> Callable[..., None]:
    """The `__init__` of a subclass with a `__new__` alone, which has its arguments: a tensor that is made stays."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, "_node"):
            super(cls, self).__init__(*args, **kwargs)  # type: ignore[arg-type]

    return __init__


def _init_subclass(cls: type, **kwargs: Any) -> None:
    super(Tensor, cls).__init_subclass__(**kwargs)  # type: ignore[misc]
    if "__new__" in vars(cls) and "__new__" not in vars(Tensor):
        Tensor.__new__ = _new  # type: ignore[method-assign]
    if "__new__" in vars(cls) and "__init__" not in vars(cls):
        cls.__init__ = _init_after_new(cls)  # type: ignore[misc]
    subclassed(cls, Tensor, _members())


Tensor._make_subclass = staticmethod(_make_subclass)  # type: ignore[method-assign,assignment]
AS_IT_IS += [Tensor.grad.__get__, Tensor._base.__get__]
Tensor.__torch_function__ = classmethod(default_torch_function)  # type: ignore[attr-defined]
Tensor.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[assignment,arg-type]
