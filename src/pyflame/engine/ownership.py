"""Ownership: who may overwrite a buffer. The one file that decides it, from reference counts.

In go the nodes that a caller is about to compute with, in a list, and how many references to each the caller knows of.
Out comes which of them nobody else holds. References are always counted in one way, by `map` over a list: what
`sys.getrefcount` says of a local variable or an argument differs between interpreters, what a list holds does not.
Even so the count is tried out on the running interpreter first; where it cannot be trusted nothing is overwritten, and
every write makes a copy.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol
from weakref import WeakSet

from pyflame.ir import Node

(LISTED,) = map(sys.getrefcount, [object()])  # what it says of an object that only a list holds


def held(things: Sequence[object], known: Iterable[int]) -> list[bool]:
    """Which of the things in a list have holders beside that list and the known references to each."""
    # without strict=True: each evaluation comes here, and a keyword takes 0.3 us
    return [count > LISTED + n for count, n in zip(map(sys.getrefcount, things), known)]  # noqa: B905


class Lender(Protocol):
    """Remembers leaves, and so holds them: by their ids."""

    ids: frozenset[int]

    def let_go(self) -> None: ...


_lenders: WeakSet[Lender] = WeakSet()


def lend(lender: Lender) -> None:
    """Let somebody hold leaves who gives them back when they are wanted."""
    _lenders.add(lender)


def ask_back(nodes: Sequence[Node]) -> bool:
    """Ask those back who hold one of these leaves to remember it; gives whether there were any."""
    ids = [id(node) for node in nodes]
    found = [lender for lender in list(_lenders) if not lender.ids.isdisjoint(ids)]
    for lender in found:
        lender.let_go()
    return bool(found)


def sole_owner(nodes: Sequence[Node], known: Sequence[int], fed: int = 0) -> list[bool]:
    """Which of the leaves in a list have memory that nobody else can see, so that it may be overwritten.

    `known`: the caller's references to each node. `fed`: the caller's references to each value, beside its node's.
    """
    sole = _sole_owner(nodes, known, fed)
    if not all(sole) and _lenders and ask_back([n for n, alone in zip(nodes, sole, strict=True) if not alone]):
        sole = _sole_owner(nodes, known, fed)
    return sole


def _sole_owner(nodes: Sequence[Node], known: Sequence[int], fed: int) -> list[bool]:
    if not reliable():
        return [False] * len(nodes)
    values = [node.data for node in nodes]
    storages = [value.storage for value in values]
    counts = (map(sys.getrefcount, things) for things in (nodes, values, storages))
    of_value, of_storage = LISTED + 1 + fed, LISTED + 1  # a node holds its value, a value its memory
    return [
        node <= LISTED + n and value <= of_value and memory <= of_storage and storage is not None
        and not storage.read_only
        for node, value, memory, n, storage in zip(*counts, known, storages, strict=True)
    ]  # fmt: skip


class SoleOwners:
    """`sole_owner` for a list of leaves that mostly all have one, as in the rounds of a loop."""

    def __init__(self, known: Sequence[int], fed: Sequence[int]) -> None:
        listed = LISTED + 1  # in the caller's list, and in that of all things
        self._counts = [listed + n for n in known] + [listed + 1 + n for n in fed] + [listed + 1] * len(known)

    def own(self, nodes: list[Node]) -> bool:
        """Whether all of them have one, as far as that can be told at once."""
        values = [node.data for node in nodes]
        storages = [value.storage for value in values]
        counts = list(map(sys.getrefcount, nodes + values + storages))
        return counts == self._counts and not [s for s in storages if s.read_only] and reliable()


@cache
def reliable() -> bool:
    """Whether reference counts tell on this interpreter who holds a thing."""
    if not _has_gil():  # another thread may take a reference right after the count
        return False
    things: list[Any] = [object(), object()]
    container, attribute = {things[0]: None}, Node(things[1], (), (), None, 0)  # type: ignore[arg-type]
    right = held(things, [0, 0]) == [True, True] and held(things, [1, 1]) == [False, False]
    del container, attribute
    if not right or held(things, [0, 0]) != [False, False]:
        warnings.warn(
            "sys.getrefcount does not count references on this interpreter, so that nothing is overwritten in place: "
            "every assignment copies; CPython 3.10 to 3.14 counts them",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def _has_gil() -> bool:
    return sys.version_info < (3, 13) or sys._is_gil_enabled()
