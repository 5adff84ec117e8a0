"""What a jitted function needs of a collective: an op's attribute brings it, so that the engine knows no processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from pyflame.engine.value import Value
from pyflame.ir import Meta, Node

Flight = Callable[[], Value]  # waits for a collective that has started


class Call(Protocol):
    """A collective. It is hashed and compared: part of the key of what was planned."""

    def start(self, meta: Meta, value: Value) -> Flight:
        """Start with this process's value, which may be overwritten once this returns."""
        ...

    def agree(self, calls: Sequence[tuple[Call, Meta]]) -> Callable[[], None]:
        """Begin to compare all collectives of a function with those of the other processes; what it gives waits, and
        raises where they differ."""
        ...


def agreement(collectives: Sequence[Node]) -> Callable[[], None]:
    """What to call before a collective starts: processes that would do different things learn it before they do."""
    if not collectives:
        return lambda: None
    calls = [(n.attrs[0], n.meta) for n in collectives]
    return cache(calls[0][0].agree(calls))
