"""The tape: for every differentiable op that was applied, what its gradient rule needs, and whose gradient comes next.

An Entry keeps only the values that the rule names, so evaluation need not keep the others. It does not belong to the
Node: evaluated nodes forget their sources while the tape lives on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from pyflame.core.maker import Maker
from pyflame.ir import Meta, Node, OpDef

# Sees a finished gradient on its way back (and the entries of the gradients so far), and may replace it.
Hook = Callable[[Node, "dict[Node, Entry | Leaf]"], "Node | None"]


# What a function with a gradient of its own gives back for the gradients of its results: one per parent.
JointRule = Callable[["list[Node | None]", "dict[Node, Entry | Leaf]", bool], "Sequence[Node | None]"]

_ages = itertools.count()
_meta = attrgetter("meta")


def now() -> int:
    """An age that divides the entries made so far from those to come."""
    return next(_ages)


class Leaf:
    """Where a gradient ends: a tensor that requires it."""

    __slots__ = ("cell", "hooks", "later", "meta")

    def __init__(self, meta: Meta, cell: Callable[[], Any]) -> None:
        self.meta = meta
        self.cell = cell  # a weak reference: the tape does not keep its leaves alive
        self.hooks: list[Hook] | None = None
        self.later: list[Callable[[Any], None]] | None = None  # called with the tensor when .grad has its gradient


class Entry:
    """One application of an op. `parents` are the entries of its sources, None where no gradient is wanted.

    `age` counts upwards: an entry made later has a greater one.
    """

    __slots__ = ("age", "attrs", "freed", "hooks", "meta", "metas", "op", "out", "parents", "srcs")

    def __init__(
        self,
        op: OpDef,
        attrs: tuple[Any, ...],
        parents: tuple[Entry | Leaf | None, ...],
        metas: tuple[Meta, ...],
        meta: Meta,
        srcs: tuple[Node | None, ...],
        out: Node | None,
        freed: bool,
    ) -> None:
        self.age = next(_ages)
        self.op = op
        self.attrs = attrs
        self.parents = parents
        self.metas = metas
        self.meta = meta
        self.srcs = srcs
        self.out = out
        self.freed = freed
        self.hooks: list[Hook] | None = None

    def free(self) -> None:
        """Let go of the kept values."""
        self.srcs = ()
        self.out = None
        self.parents = ()
        self.freed = True


ENTRIES = Maker(
    Entry, ("op", "attrs", "parents", "metas", "meta", "srcs", "out", "freed", "hooks"), "age", _ages
)  # fmt: skip


def entry_of(node: Node, parents: tuple[Entry | Leaf | None, ...]) -> Entry:
    """What the tape keeps of a Node."""
    op, srcs = node.op, node.srcs
    rule = op.grad
    kept: tuple[Node | None, ...] = (None,) * len(srcs) if rule is None else rule.keeps(srcs)
    out = node if rule is not None and rule.keeps_out else None
    return ENTRIES.new(op, node.attrs, parents, tuple(map(_meta, srcs)), node.meta, kept, out, False)  # type: ignore[no-any-return]


class Joint(Entry):
    """A function with a gradient of its own: its rule sees the gradients of all results at once."""

    __slots__ = ("__weakref__", "collected", "name", "rule")

    def __init__(
        self, name: str, rule: JointRule, parents: tuple[Entry | Leaf | None, ...], metas: tuple[Meta, ...]
    ) -> None:
        self.name = name
        self.age = next(_ages)
        self.rule = rule
        self.parents = parents
        self.metas = metas
        self.collected: list[Node | None] = []
        self.srcs = ()
        self.out = None
        self.freed = False
        self.hooks = None

    def part(self, meta: Meta) -> Part:
        """The entry of its next result."""
        self.collected.append(None)
        return Part(self, len(self.collected) - 1, meta)


class Part(Entry):
    """One result of a function with a gradient of its own."""

    __slots__ = ("position",)

    def __init__(self, joint: Joint, position: int, meta: Meta) -> None:
        self.age = next(_ages)
        self.parents = (joint,)
        self.position = position
        self.meta = meta
        self.srcs = ()
        self.out = None
        self.freed = False
        self.hooks = None


def record(nodes: Sequence[Node], entries: dict[Node, Entry | Leaf]) -> None:
    """Add an entry for each applied op that has a source with an entry. `entries` maps nodes to theirs."""
    for node in nodes:
        if not node.op.differentiable or node.meta.dtype.category not in "fc" or node in entries:
            continue
        parents = tuple(map(entries.get, node.srcs))
        for parent in parents:
            if parent is not None:
                entries[node] = entry_of(node, parents)
                break
