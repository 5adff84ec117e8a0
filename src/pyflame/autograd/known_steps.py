"""Steps of backward walks whose outcome is known (ir/recipe.py), which C takes (engine/calls.c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyflame.autograd.parts import added
from pyflame.autograd.tape import ENTRIES, Entry
from pyflame.core.maker import InC
from pyflame.core.state import state
from pyflame.ir import OPS, Node
from pyflame.ir.recipe import Recipes, Since

RECIPES = Recipes()
STEPS = InC("_steps", ENTRIES, RECIPES.table, added, OPS["assign"])


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
