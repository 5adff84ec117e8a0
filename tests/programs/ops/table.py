"""The table of kinds of steps.

A kind is a function that adds one step, or a few, to a program in the making, or raises Unsuited. Arguments are those
that torch takes; what torch refuses is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.programs.builder import Draw

KINDS: dict[str, tuple[Callable[[Draw], object], float]] = {}


def kind(weight: float = 1.0) -> Callable[[Callable[[Draw], object]], Callable[[Draw], object]]:
    """Puts a function into the table; its name is the kind's."""

    def put(fn: Callable[[Draw], object]) -> Callable[[Draw], object]:
        KINDS[fn.__name__] = fn, weight
        return fn

    return put
