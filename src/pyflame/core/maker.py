"""Makers: how hot code makes objects of a class from the values of their slots.

Until the engine has its functions in C (engine/native.py) a maker calls the class. Then `new` is one of them, which
sets the slots itself: that takes half the time, for there is no `__init__` to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

MAKERS: list[Maker] = []


class Maker:
    """`new(*values)` makes an object of a class: its slots in the order of `names`, None for those behind the values.

    `counter` gives the value of the slot `counted`. The class itself, or `python`, takes the same values.
    """

    __slots__ = ("counted", "counter", "kind", "names", "new")

    def __init__(
        self,
        kind: type[Any],
        names: tuple[str, ...],
        counted: str | None = None,
        counter: Iterator[Any] | None = None,
        python: Callable[..., Any] | None = None,
    ) -> None:
        self.kind = kind
        self.names = names
        self.counted = counted
        self.counter = counter
        self.new: Callable[..., Any] = python or kind
        MAKERS.append(self)


class InC:
    """A function in C that a room above the engine calls, or several: `made` is None until the engine has them.

    `name`: of the function that makes them from `things`, in which a Maker stands for how C makes its objects.
    """

    __slots__ = ("made", "name", "things")

    def __init__(self, name: str, *things: Any) -> None:
        self.name = name
        self.things = things
        self.made: Any = None
        WANTED.append(self)


WANTED: list[InC] = []
