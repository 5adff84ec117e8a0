"""What will be one launch, and what reads whole buffers: the material of `fuse.py`."""

from __future__ import annotations

from pyflame.ir import Node
from pyflame.ir.implementation import Implementation
from pyflame.schedule.index import ZERO, Form, Index, Range, of_range


class Group:
    """What will be one launch. `scopes[0]` are loops over independent rows, `scopes[1]` loops inside a row, ..."""

    __slots__ = (
        "aliases",
        "anchor",
        "assign",
        "implementation",
        "level",
        "merged",
        "nodes",
        "operands",
        "reads",
        "scopes",
        "stores",
        "values",
    )

    def __init__(self, level: int) -> None:
        self.level = level
        self.scopes: list[list[Range]] = [[]]
        self.anchor: Node | None = None  # a kernel op whose epilogue this group is, or that it consists of
        self.implementation: Implementation | None = None  # of the anchor
        self.assign: Node | None = None
        self.merged: Group | None = None  # the group that took this one in
        self.values: dict[tuple[Node, Index], Index | None] = {}  # computed here; for a reduction: index of its source
        self.reads: dict[tuple[Node, Index], Form] = {}  # loaded from memory at this address
        self.aliases: dict[tuple[Node, Index], tuple[Node, Index]] = {}  # movement op -> what it stands for
        self.operands: list[Operand] = []  # whole buffers: sources of the anchor and of gathers
        self.stores: list[tuple[Node, Index]] = []
        self.nodes: list[Node] = []

    @property
    def rigid(self) -> bool:
        """Ranges of an anchored group are the anchor's own and cannot be split."""
        return self.anchor is not None

    @property
    def now(self) -> Group:
        """This group, or the one that has taken it in."""
        group = self
        while group.merged is not None:
            group = group.merged
        return group

    def ranges(self) -> list[Range]:
        return [leaf for scope in self.scopes for r in scope for leaf in r.leaves() if leaf.extent != 1]


class Operand:
    """A whole buffer, read through a view: by an anchor, by a gather, or by the caller as an output (group None)."""

    __slots__ = ("base", "contiguous", "form", "group", "level", "node", "ranges", "source")

    def __init__(self, node: Node, group: Group | None, contiguous: bool) -> None:
        self.node = node
        self.group = group
        self.level = group.level if group else -1
        self.contiguous = contiguous
        self.ranges = [Range(size) for size in node.shape]
        self.source: Node | None = None  # filled in: the stored node or leaf, and its address
        self.form: Form = ZERO
        self.base = False  # an assign's destination

    def index(self) -> Index:
        return tuple(of_range(r) for r in self.ranges)

    def strides(self) -> tuple[int, ...]:
        terms = dict(self.form.terms)
        return tuple(terms.get(r, 0) for r in self.ranges)


Reader = Group | Operand
Request = tuple[
    Reader, Index | None, Form | None
]  # index, or the address of a source that must be contiguous in memory


def live(reader: Reader) -> Reader:
    """The group that a merged group became part of."""
    return reader.now if isinstance(reader, Group) else reader
