"""torch._foreach_*: an op over each tensor of a list, as optimisers written for PyTorch use it.

`_foreach_add(xs, ys)` is `[x + y for x, y in zip(xs, ys)]`; what is no list is taken for all. A trailing underscore
writes into the tensors. Lists bring no speed of their own: all of it is one graph, in which equal updates are merged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.errors import ShapeError
from pyflame.tensor.tensor import Tensor

_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}


@functools.cache
def foreach(name: str) -> Callable[..., Any]:
    """The function of this name, `_foreach_sqrt_`.

    >>> pf._foreach_add([pf.ones(2), pf.zeros(1)], 1.0)
    [tensor([2., 2.]), tensor([1.])]
    """
    op = name.removeprefix("_foreach_")
    if not hasattr(Tensor, op):
        raise AttributeError(f"module 'pyflame' has no attribute {name!r}")

    def function(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> list[Tensor]:
        rows = _rows(name, len(self), args)
        return [getattr(x, _method(op, row))(*row, **kwargs) for x, row in zip(self, rows, strict=True)]

    function.__name__ = function.__qualname__ = name
    function.__module__ = "pyflame"
    return function


def _method(op: str, args: Sequence[Any]) -> str:
    """The method of an op: `maximum` takes tensors only, and with a number is `clamp_min`."""
    plain = op.rstrip("_")
    if plain in _OF_NUMBERS and not isinstance(args[0], Tensor):
        return _OF_NUMBERS[plain] + op[len(plain) :]
    return op


def _rows(name: str, count: int, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The other arguments for each tensor."""
    columns = []
    for arg in args:
        many = isinstance(arg, (list, tuple))
        if many and len(arg) != count:
            raise ShapeError(f"[{name}] expected {count} values for {count} tensors but got {len(arg)}")
        columns.append(list(arg) if many else [arg] * count)
    return list(zip(*columns, strict=True)) if columns else [()] * count
