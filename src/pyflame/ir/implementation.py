"""What the schedule must know of the ways to run a kernel op on a target. The engine fills a table of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyflame.ir.node import Node


def always(node: Node) -> float:
    return 1.0


@dataclass(frozen=True)
class Implementation:
    """One candidate: its name, why one would take it, whether it fuses elementwise consumers and reads strided sources.

    `prior` declares which share of the hardware's limit it reaches on a node, 0 where it does not support it.
    """

    name: str
    why: str = "the only implementation"
    epilogue: bool = False
    strided: bool = False
    prior: Callable[[Node], float] = always


Table = dict[str, tuple[Implementation, ...]]


def choose(candidates: Sequence[Implementation], node: Node) -> Implementation:
    """The candidate with the best prior; the first one wins a tie."""
    return max(candidates, key=lambda c: c.prior(node))
