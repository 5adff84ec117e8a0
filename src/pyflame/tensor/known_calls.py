"""Calls of ops whose outcome is known (ir/recipe.py), which C makes (engine/calls.c).

Learnt is what an op gives as Tensors: the Nodes between those of its arguments and its results, and which of them the
tape knows. Views, which have ways of their own, are no part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyflame.autograd import Entry
from pyflame.core import knobs
from pyflame.core.dtype import DType
from pyflame.core.maker import InC
from pyflame.core.shape import Size
from pyflame.core.state import state
from pyflame.ir import Node, OpDef
from pyflame.ir.recipe import Recipe, Recipes, Since
from pyflame.tensor.overrides import CLASSES
from pyflame.tensor.tensor import TENSORS, Tensor

RECIPES = Recipes()
CALLS = InC(
    "_calls", TENSORS, Tensor, CLASSES, DType, Size, RECIPES.table, "grad_enabled", "out", knobs.MAX_PENDING.integer()
)  # fmt: skip


def learned(op: OpDef, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function gives for an op. What it made is kept, for the next time."""
    here = state.__dict__
    found = None if here["streams"] is not None else CALLS.made[1](op, args, kwargs, here, op.any_number)
    if found is None:
        return fn(*args, **kwargs)
    key, given = found
    tape = {t._node: t._entry for t in _tensors((*args, *kwargs.values())) if t._entry is not None}
    since = Since()
    out = fn(*args, **kwargs)
    number = next((a for a in args if type(a) in (int, float)), None) if op.any_number else None
    RECIPES.learn(key, _recipe(since, given, tape if here["grad_enabled"] else {}, out, number))
    return out


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _recipe(since: Since, given: tuple[Node, ...], tape: Mapping[Node, Any], out: Any, number: Any) -> Recipe | None:
    several = isinstance(out, (list, tuple))
    outs = list(out) if several else [out]
    if not outs or any(type(t) is not Tensor or t._link is not None or t._node in given for t in outs):
        return None
    entries = _entries(outs, given, tape)
    if entries is None:
        return None
    kind = type(out)
    shape = getattr(kind, "_make", kind) if several else None
    return since.recipe(given, [t._node for t in outs], entries, shape, number, len(given))


def _entries(outs: list[Tensor], given: tuple[Node, ...], tape: Mapping[Node, Any]) -> dict[Node, Any] | None:
    """The entries of Nodes that were made; None where the tape holds anything that does not follow from the Nodes."""
    known: dict[Node, Any] = {node: tape.get(node) for node in given}
    left = [(t._node, t._entry) for t in outs if t._entry is not None]
    while left:
        node, entry = left.pop()
        if node in known:
            continue
        if type(entry) is not Entry or entry.op is not node.op or len(entry.parents) != len(node.srcs):
            return None
        known[node] = entry
        left += [(s, p) for s, p in zip(node.srcs, entry.parents, strict=True) if p is not None]
    made = {node: entry for node, entry in known.items() if node not in given}
    for node, entry in made.items():
        if any(known.get(s) is not p for s, p in zip(node.srcs, entry.parents, strict=True)):
            return None
    return None if any(t._entry is not known.get(t._node) for t in outs) else made
