"""Steps of backward walks whose outcome is known (ir/recipe.py), which C takes (engine/calls.c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyflame.autograd.parts import added
from pyflame.autograd.tape import ENTRIES, Entry
from pyflame.core.maker import InC
from pyflame.core.state import state
from pyflame.ir import OPS, Meta, Node
from pyflame.ir.recipe import MAX_KNOWN, Recipes, Since

RECIPES = Recipes()
_sums: dict[Meta, int] = {}  # signatures of sums that are one Node over two of that meta, which C makes itself
_ADD = OPS["add"]


def summed(before: Node, more: Node) -> Node:
    """The sum of two gradients. Where it is a Node and no more, C makes the next one of that meta."""
    out = added(before, more)
    if out.op is _ADD and out.srcs == (before, more) and out.meta is before.meta is more.meta:
        if len(_sums) >= MAX_KNOWN:
            _sums.clear()
        _sums[out.meta] = out.sig
    return out


STEPS = InC("_steps", ENTRIES, RECIPES.table, _sums, summed, OPS["assign"], _ADD)


def learned(entry: Entry, g: Node, rule: Callable[[], Sequence[Node | None]]) -> Sequence[Node | None]:
    """What a rule gives for an entry's sources. What it made is kept, for the next time."""
    found = STEPS.made[1](entry, g, state.__dict__)
    if found is None:
        return rule()
    key, given = found
    since = Since()
    results = rule()
    RECIPES.learn(key, since.recipe(given, results, {}))
    return results
