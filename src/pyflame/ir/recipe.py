"""Recipes: which Nodes a call makes, written down so that C can make them again (engine/calls.c).

What an op's function or a gradient rule makes follows from the metas of the Nodes that it is given, from a few of their
ops, and from plain arguments. So a loop asks it once or twice: from then on the same Nodes, of other sources, are made
without a line of Python. The key of a call is put together in C; a call that is given anything else has none.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from pyflame.core.dtype import default
from pyflame.core.generator import Generator
from pyflame.core.maker import InC
from pyflame.ir.node import NODES, Node, next_serial, user_line
from pyflame.ir.opdef import COLLECTIVE, CONST, COPY, LEAF, OPS

Recipe = tuple[bytes, tuple[Any, ...]]
NO_SOURCES = -2  # how a step begins that is a constant
_TAPED, _KEEPS_OUT, _CHECKED, _FED = 1, 2, 4, 8
_MOST = 24  # steps
MAX_KNOWN = 10_000  # entries of a table
SELDOM = 8  # calls with a key before one is looked at


class Recipes:
    """Those of one kind of calls by their keys, which C looks up: a tuple; False where there is none; None where the
    next call is to be looked at; a number while a key has come that often.

    Looking at a call takes as long as some ten calls, so keys that come seldom are left alone. A second look must find
    the same.
    """

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {}

    def learn(self, key: Any, recipe: Recipe | None) -> None:
        """Take what a call made; None where it cannot be written down."""
        before = self.table.get(key)
        if before is None and recipe is not None:
            self.table[key] = [recipe]
        else:
            self.table[key] = recipe if type(before) is list and before[0] == recipe else False


def _bound(table: dict[Any, Any]) -> None:
    """Keep a table from growing for ever: C asks each 64 keys."""
    if len(table) >= MAX_KNOWN:
        table.clear()


InC(
    "_recipes", NODES, default, user_line, _bound, OPS["permute"], int, float, bool, str, tuple, list,
    *("float", "recorder", "tracer", "autocast", "line", "eager", "in_backward", "pending", "device"), SELDOM,
)  # fmt: skip


class Since:
    """The moment before a call."""

    __slots__ = ("_draw", "_serial")

    def __init__(self) -> None:
        self._serial = next_serial()
        self._draw = Generator.last_draw

    def recipe(
        self,
        given: Sequence[Node],
        results: Sequence[Node | None],
        taped: Mapping[Node, Any],
        shape: Any = None,
        number: float | None = None,
        needed: int = 0,
    ) -> Recipe | None:
        """How the results come from what was given; None where they come from anything else besides.

        `taped`: entries of what the tape knows of it. `shape`: what makes one of several results. `number`: one that
        the key does not hold. `needed`: how many of the given Nodes must be sources of something: of one that is not,
        the value may have been read.
        """
        steps = self._made(given, results)
        if steps is None or Generator.last_draw != self._draw:
            return None
        constants = [node for node in steps if node.op.kind == CONST]
        if number is not None and (len(constants) != 1 or not _holds(constants[0], number)):
            return None  # another number with the same key would give something else
        places = {node: at for at, node in enumerate((*given, *steps))}
        if not all(any(node in step.srcs for step in steps) for node in given[:needed]):
            return None
        numbers: list[int] = [len(steps), len(results)]
        numbers += [-1 if node is None else places[node] for node in results]
        things: list[Any] = [shape]
        for node in steps:
            numbers += _numbers(node, places, taped, number is not None)
            metas = node.data if node.op.kind == CONST else tuple([s.meta for s in node.srcs])
            things += [node.op, node.attrs, node.meta, node.sig, metas]
        return struct.pack(f"={len(numbers)}q", *numbers), tuple(things)

    def _made(self, given: Sequence[Node], results: Sequence[Node | None]) -> list[Node] | None:
        """All Nodes between them, as they were made."""
        found: dict[int, Node] = {}
        left = [node for node in results if node is not None]
        while left:
            node = left.pop()
            if node in given or node.serial in found:
                continue
            if len(found) == _MOST or node.serial < self._serial or not _repeatable(node):
                return None
            found[node.serial] = node
            left += node.srcs
        return [found[serial] for serial in sorted(found)]


def _repeatable(node: Node) -> bool:
    kind = node.op.kind
    if kind == CONST:
        return not node.attrs
    return kind not in (LEAF, COPY, COLLECTIVE) and node.data is None


def _holds(constant: Node, number: float) -> bool:
    return constant.meta.dtype.is_float and constant.data == float(number)


def _numbers(node: Node, places: Mapping[Node, int], taped: Mapping[Node, Any], fed: bool) -> list[int]:
    """A step as C reads it: flags, how many sources, and for each its place and whether the tape keeps it."""
    if node.op.kind == CONST:
        return [_FED if fed else 0, NO_SOURCES]
    entry = taped.get(node)
    flags = _CHECKED if node.op.checked else 0
    kept: Sequence[Any] = [None] * len(node.srcs)
    if entry is not None:
        flags |= _TAPED | (_KEEPS_OUT if entry.out is not None else 0)
        kept = entry.srcs
    return [
        flags,
        len(node.srcs),
        *[n for s, k in zip(node.srcs, kept, strict=True) for n in (places[s], k is not None)],
    ]
