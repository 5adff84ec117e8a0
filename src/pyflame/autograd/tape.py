"""The tape: for every differentiable op that was applied, what its gradient rule needs, and whose gradient comes next.

An Entry keeps only the values that the rule names, so evaluation need not keep the others. It does not belong to the
Node: evaluated nodes forget their sources while the tape lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyflame.ir import Meta, Node, OpDef

# Sees a finished gradient on its way back (and the entries of the gradients so far), and may replace it.
Hook = Callable[[Node, "dict[Node, Entry | Leaf]"], "Node | None"]


class Leaf:
    """Where a gradient ends: a tensor that requires it."""

    __slots__ = ("cell", "hooks", "meta")

    def __init__(self, meta: Meta, cell: Callable[[], Any]) -> None:
        self.meta = meta
        self.cell = cell  # a weak reference: the tape does not keep its leaves alive
        self.hooks: list[Hook] | None = None


class Entry:
    """One application of an op. `parents` are the entries of its sources, None where no gradient is wanted."""

    __slots__ = ("attrs", "freed", "hooks", "meta", "metas", "op", "out", "parents", "srcs")

    def __init__(self, node: Node, parents: tuple[Entry | Leaf | None, ...]) -> None:
        rule = node.op.grad
        self.op: OpDef = node.op
        self.attrs = node.attrs
        self.parents = parents
        self.metas = tuple(s.meta for s in node.srcs)
        self.meta = node.meta
        keeps = rule is not None
        self.srcs: tuple[Node | None, ...] = tuple(
            s if keeps and rule is not None and rule.keeps(i) else None for i, s in enumerate(node.srcs)
        )
        self.out: Node | None = node if rule is not None and rule.keeps_out else None
        self.freed = False
        self.hooks: list[Hook] | None = None

    def free(self) -> None:
        """Let go of the kept values."""
        self.srcs = ()
        self.out = None
        self.parents = ()
        self.freed = True


def record(nodes: Sequence[Node], entries: dict[Node, Entry | Leaf]) -> None:
    """Add an entry for each applied op that has a source with an entry. `entries` maps nodes to theirs."""
    for node in nodes:
        if node in entries or not node.op.differentiable or not node.meta.dtype.is_float:
            continue
        parents = tuple([entries.get(s) for s in node.srcs])
        if any(p is not None for p in parents):
            entries[node] = Entry(node, parents)
