"""Taking results: all at once, so that neither an interrupt nor another thread finds a part of them taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from pyflame.engine.value import Value

Writes = tuple[Sequence[Any], Sequence[str], Sequence[Any]]  # objects, attributes, values
Commit = Callable[[list[Value]], Writes]  # what a plan's outputs change


def write_all(writes: Writes, first: Iterable[object] = ()) -> None:
    """Set attributes in one step, without a bytecode. `first`: what happens in the same step, until something is true.

    What was there before is let go of behind it: whatever ends with it may run code.
    """
    objects, names, values = writes
    if not objects and not first:
        return
    before = list(map(getattr, objects, names))
    any(chain(first, map(setattr, objects, names, values)))
    del before
