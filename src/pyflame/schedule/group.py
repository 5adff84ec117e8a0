"""What will be one launch, what it reads and computes, and what reads whole buffers: the material of `fuse.py`."""

from __future__ import annotations

from pyflame.ir import Node
from pyflame.ir.implementation import Implementation
from pyflame.schedule.index import ZERO, Form, Index, Range, of_range


class Group:
    """What will be one launch. `scopes[0]` are loops over independent rows, `scopes[1]` loops inside a row, ..."""

    __slots__ = (
        "anchor",
        "assign",
        "implementation",
        "level",
        "merged",
        "nodes",
        "operands",
        "reads",
        "scopes",
        "sites",
        "stores",
        "waits",
    )

    def __init__(self, level: int) -> None:
        self.level = level
        self.scopes: list[list[Range]] = [[]]
        self.anchor: Node | None = None  # a kernel op whose epilogue this group is, or that it consists of
        self.implementation: Implementation | None = None  # of the anchor
        self.assign: Node | None = None
        self.merged: Group | None = None  # the group that took this one in
        self.sites: dict[tuple[Node, Index], Site] = {}
        self.reads: list[Site] = []  # those that are loaded from memory
        self.stores: list[Site] = []
        self.operands: list[Operand] = []  # whole buffers: sources of the anchor and of gathers
        self.nodes: list[Node] = []  # that are computed here
        self.waits = False  # for a kernel op whose epilogue it is to be: it takes what an epilogue can

    @property
    def rigid(self) -> bool:
        """Ranges of an anchored group are the anchor's own and cannot be split."""
        return self.anchor is not None

    @property
    def cannot_follow(self) -> bool:
        """Whether it cannot be the epilogue of a kernel op."""
        return self.rigid or self.assign is not None or len(self.scopes) != 1 or bool(self.operands)

    @property
    def now(self) -> Group:
        """This group, or the one that has taken it in."""
        group = self
        while group.merged is not None:
            group = group.merged
        return group

    def ranges(self) -> list[Range]:
        return [leaf for scope in self.scopes for r in scope for leaf in r.leaves() if leaf.extent != 1]

    def clear(self) -> None:
        """Let go of what points back to it: the circle would hold nodes until a collection."""
        self.sites.clear()
        self.reads.clear()
        self.stores.clear()
        self.operands.clear()


class Site:
    """A node inside of a group, at an index. It is loaded, computed from other sites, or another site itself.

    `flat`: `index` is not one form per axis but the address in memory, where the node must lie densely.
    """

    __slots__ = ("args", "flat", "form", "group", "index", "node", "same")

    def __init__(self, group: Group, node: Node, index: Index, flat: bool = False) -> None:
        self.group = group
        self.node = node
        self.index = index
        self.flat = flat
        self.form: Form | None = None  # the address that it is loaded from
        self.args: list[Site] | None = None  # what it is computed from
        self.same: Site | None = None  # what it is, if its node is another one seen otherwise

    @property
    def level(self) -> int:
        return self.group.level

    @property
    def last(self) -> Site:
        """What it is in the end."""
        site = self
        while site.same is not None:
            site = site.same
        return site


class Operand:
    """A whole buffer, read through a view: by an anchor, by a gather, or by the caller as an output (group None)."""

    __slots__ = ("base", "contiguous", "flat", "form", "group", "index", "level", "node", "ranges", "source")

    def __init__(self, node: Node, group: Group | None, contiguous: bool) -> None:
        self.node = node
        self.group = group
        self.level = group.level if group else -1
        self.contiguous = contiguous
        self.ranges = [Range(size) for size in node.shape]
        self.index: Index = tuple([of_range(r) for r in self.ranges])  # as a site's, of what the view is found to show
        self.flat = False
        self.source: Node | None = None  # filled in: the stored node or leaf, and its address
        self.form: Form = ZERO
        self.base = False  # an assign's destination

    def strides(self) -> tuple[int, ...]:
        terms = dict(self.form.terms)
        return tuple([terms.get(r, 0) for r in self.ranges])


Reader = Site | Operand
