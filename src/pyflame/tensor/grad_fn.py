"""`tensor.grad_fn`: the tape as programs look at it, to print it or to walk along it."""

from __future__ import annotations

import functools
from typing import Any

from pyflame.autograd import Entry, Leaf


class GradFn:
    """The op that gave a tensor, and through `next_functions` those that gave what it was made of.

    >>> x = pf.ones(2, requires_grad=True)
    >>> y = x.exp()
    >>> y.grad_fn.name(), y.grad_fn.next_functions[0][0].variable
    ('ExpBackward0', tensor([1., 1.], requires_grad=True))
    """

    def __init__(self, place: Entry | Leaf) -> None:
        self._place = place

    def name(self) -> str:
        """What PyTorch calls it, or would: the op's name and `Backward0`."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        parents: tuple[Any, ...] = getattr(self._place, "parents", ())
        return tuple((None if parent is None else grad_fn(parent), 0) for parent in parents)

    @property
    def variable(self) -> Any:
        if not isinstance(self._place, Leaf):
            raise AttributeError(f"{self.name()!r} has no attribute 'variable'; only leaves have")
        return self._place.cell()

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other._place is self._place

    def __hash__(self) -> int:
        return id(self._place)


@functools.cache
def _named(name: str) -> type[GradFn]:
    return type(name, (GradFn,), {})  # programs ask for type(fn).__name__


def grad_fn(place: Entry | Leaf) -> GradFn:
    """What stands for a place on the tape."""
    if isinstance(place, Leaf):
        return _named("AccumulateGrad")(place)
    op = getattr(place, "op", None)  # a function with a gradient of its own has none
    words = "custom" if op is None else op.name
    return _named("".join(word.capitalize() for word in words.split("_")) + "Backward0")(place)
