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
# PyTorch's keywords of what stands behind the tensors, in their order
_POSITIONAL = (
    "other", "scalar", "exponent", "src", "tensor", "ord", "tensor1", "tensors1", "tensor2", "weight", "weights",
    "value", "scalars",
)  # fmt: skip
_OF_SCALARS = ("addcdiv", "addcmul")  # they take a scalar of each tensor, also in one tensor


def _powsum(x: Tensor, ord: float = 2, dtype: Any = None) -> Tensor:
    """The sum of the powers of all absolute values."""
    return (x if dtype is None else x.to(dtype)).abs().pow(ord).sum()


_OWN: dict[str, Callable[..., Tensor]] = {"powsum": _powsum}


@functools.cache
def foreach(name: str) -> Callable[..., Any]:
    """The function of this name, `_foreach_sqrt_`.

    >>> pf._foreach_add([pf.ones(2), pf.zeros(1)], 1.0)
    [tensor([2., 2.]), tensor([1.])]
    """
    op = name.removeprefix("_foreach_")
    if not hasattr(Tensor, op) and op not in _OWN:
        raise AttributeError(f"module 'pyflame' has no attribute {name!r}")

    def function(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> list[Tensor]:
        args = (*args, *[kwargs.pop(word) for word in _POSITIONAL if word in kwargs])
        if len(args) == 3 and op.rstrip("_") in _OF_SCALARS and isinstance(args[2], Tensor):
            args = (*args[:2], args[2].unbind())
        rows = _rows(name, len(self), args)
        return [
            (_OWN.get(op) or getattr(Tensor, _method(op, row)))(x, *row, **kwargs)
            for x, row in zip(self, rows, strict=True)
        ]

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
