"""torch._foreach_*: an op over each tensor of a list, as optimisers written for PyTorch use it.

`_foreach_add(xs, ys)` is `[x + y for x, y in zip(xs, ys)]`; what is no list is taken for all. A trailing underscore
writes into the tensors. Lists bring no speed of their own: all of it is one graph, in which equal updates are merged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyflame.core.errors import ShapeError
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor


@functools.cache
def foreach(name: str) -> Callable[..., Any]:
    """The function of this name, `_foreach_sqrt_`.

    >>> pf._foreach_add([pf.ones(2), pf.zeros(1)], 1.0)
    [tensor([2., 2.]), tensor([1.])]
    """
    op = name.removeprefix("_foreach_")
    writes = op.endswith("_")
    if not hasattr(Tensor, op) and op not in FUNCTIONS:
        raise AttributeError(f"module 'pyflame' has no attribute {name!r}")
    apply = getattr(Tensor, op) if writes or op not in FUNCTIONS else FUNCTIONS[op]

    def function(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> list[Tensor] | None:
        rows = _rows(name, len(self), args)
        results = [apply(x, *row, **kwargs) for x, row in zip(self, rows, strict=True)]
        return None if writes else results

    function.__name__ = function.__qualname__ = name
    function.__module__ = "pyflame"
    return function


def _rows(name: str, count: int, args: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The other arguments for each tensor."""
    columns = []
    for arg in args:
        many = isinstance(arg, (list, tuple))
        if many and len(arg) != count:
            raise ShapeError(f"[{name}] expected {count} values for {count} tensors but got {len(arg)}")
        columns.append(list(arg) if many else [arg] * count)
    return list(zip(*columns, strict=True)) if columns else [()] * count
