"""Decides which nodes share a kernel.

Nodes are visited from the outputs to the inputs, so when a node's turn comes all who read it have asked for it: its
readers are sites of groups, which know the index at which they read, and operands, which take whole buffers. A node
that only one group reads is computed inside that group; a node that several read is computed in the earliest of them
and stored, or in a group of its own.

No cycles arise because of `level`: a group that stores what another reads has the higher level. A shared node joins a
reader only if that reader's level is above all other readers' levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyflame.core.device import Target
from pyflame.ir import OPS, Node, apply
from pyflame.ir.graph import Graph
from pyflame.ir.implementation import Table, choose
from pyflame.ir.opdef import ASSIGN, COMPOSITE, CONST, GATHER, IOTA, KERNEL, LEAF, MOVEMENT, REDUCE
from pyflame.schedule.group import Group, Operand, Reader, Site
from pyflame.schedule.index import (
    Index,
    Range,
    along_axes,
    broadcast,
    covers,
    dense_strides,
    flatten,
    move,
    normalize,
    of_range,
    settled,
    unify,
    used_ranges,
)
from pyflame.schedule.values import (
    CHEAP,
    SMALL,
    after_reduce,
    behind_kernels,
    cheap,
    compared,
    extents_of,
    few_lines,
    following,
    is_memory_order,
    is_result_copy,
)

Row = tuple[Index, list[list[Range]]]  # forms of a reduction's axes, and the scopes of its group with it
LONG_ROW = 1024  # elements of a row across memory that is worth a launch of its own on a GPU


class Fuser:
    """Builds groups for one graph."""

    def __init__(self, graph: Graph, target: Target, table: Table, max_ops: int) -> None:
        self.order = order = graph.order
        self.target = target
        self.table = table
        self.max_ops = max_ops
        self.readers: dict[Node, list[Reader]] = {}  # of nodes that are yet to be placed
        self.groups: list[Group] = []
        self.stored: dict[Node, Group] = {}
        self.outputs: list[Operand] = []
        self.after_reduce = after_reduce(order)
        self.compared = compared(order)
        # A GPU's products may be a library's, which takes few of the ops behind them
        self.behind_kernels = set() if target.is_gpu else behind_kernels(graph, self.has_epilogue)
        self.few_lines = few_lines(order) if target.is_gpu else set()
        self.apart = following(order, {n for n in order if n.op.kind == REDUCE and self.reduced_apart(n)})
        for node in dict.fromkeys(graph.outputs):
            operand = Operand(node, None, contiguous=False)
            self.outputs.append(operand)
            self.ask(node, operand)

    def run(self) -> None:
        for node in reversed(self.order):
            readers = self.readers.pop(node, None)
            if readers:
                _RULES.get(node.op.kind, Fuser.place_value)(self, node, readers)
        if self.target.is_gpu:
            self.unite_rows()

    def ask(self, node: Node, reader: Reader) -> None:
        self.readers.setdefault(node, []).append(reader)

    def site(self, group: Group, node: Node, index: Index, flat: bool = False) -> Site:
        """A node at an index of a group, for which it asks if it is new there."""
        key = (node, index)
        found = group.sites.get(key)
        if found is None:
            found = group.sites[key] = Site(group, node, index, flat)
            self.readers.setdefault(node, []).append(found)
        elif flat:  # of one axis, where the index is the address
            found.flat = True
        return found

    def opened(self, node: Node, readers: Sequence[Reader], shape: Sequence[int]) -> Site:
        """A group of its own for a node, which runs over a shape and stores it; the readers load it."""
        group = Group(1 + max([reader.level for reader in readers]))
        self.groups.append(group)
        group.scopes = [[Range(size) for size in shape]]
        index = tuple([of_range(r) for r in group.scopes[0]])
        site = group.sites[(node, index)] = Site(group, node, index)
        group.stores.append(site)
        self.stored[node] = group
        for reader in readers:
            self.load(node, reader, dense_strides(node.shape))
        return site

    # --- one node ---------------------------------------------------------------------------------------------------

    def place_leaf(self, node: Node, readers: list[Reader]) -> None:
        strides = node.data.strides
        copied: list[Reader] = []
        for reader in readers:
            if strides is not None and (reader.flat or (isinstance(reader, Operand) and reader.contiguous)):
                copied.append(reader)
            else:
                self.load(node, reader, strides or dense_strides(node.shape))
        if copied:
            self.copy_leaf(node, copied)

    def copy_leaf(self, leaf: Node, readers: list[Reader]) -> None:
        """Make a dense copy of a leaf that lies otherwise in memory. It is a node of its own: both have a buffer."""
        copy = apply(OPS["contiguous"], (leaf,))
        for reader in readers:
            self.show(reader, copy, reader.index, reader.flat)
        self.realize(copy, self.readers.pop(copy))
        self.place_leaf(leaf, self.readers.pop(leaf))

    def place_movement(self, node: Node, readers: list[Reader]) -> None:
        reshape = node.op.name == "reshape"
        copied: list[Reader] = []
        for reader in readers:
            if not reshape and (reader.flat or (isinstance(reader, Operand) and reader.contiguous)):
                copied.append(reader)
            elif reader.flat:
                self.show(reader, node.srcs[0], reader.index, True)
            else:
                self.move(reader, node, isinstance(reader, Site) and not reader.group.rigid)
        if copied and is_memory_order(node):
            for operand in [reader for reader in copied if isinstance(reader, Operand)]:
                copied.remove(operand)
                self.load(node.srcs[0], operand, dense_strides(node.shape))
        if copied:
            self.realize(node, copied)

    def move(self, reader: Reader, node: Node, may_split: bool) -> None:
        """Let a reader of a movement op read its source."""
        moved = move(node, reader.index, may_split)
        if moved is None:
            # A reshape that is no view: its source must lie in memory, where the reshape is the same bytes.
            self.show(reader, node.srcs[0], (flatten(reader.index, dense_strides(node.shape)),), True)
        else:
            self.show(reader, node.srcs[0], moved, False)

    def show(self, reader: Reader, node: Node, index: Index, flat: bool) -> None:
        """Let a reader read another node instead."""
        if isinstance(reader, Site):
            reader.same = self.site(reader.group, node, index, flat)
        else:
            reader.index, reader.flat = index, flat
            self.ask(node, reader)

    def place_value(self, node: Node, readers: list[Reader]) -> None:
        """Elementwise ops, gathers, constants, positions and reductions: computed in registers where possible."""
        sites = [r for r in readers if isinstance(r, Site) and not r.flat]
        memory = [r for r in readers if isinstance(r, Operand) or r.flat] if len(sites) < len(readers) else []
        if is_result_copy(node) and any(len(s.group.scopes) > 1 or s.group.assign is not None for s in sites):
            sites = []  # its kernel stores it, behind which there is no room for rows
        if sites and not memory and self.inline(node, sites):
            return
        waits = node in self.behind_kernels and all(s.group.cannot_follow for s in sites)
        host = None if waits else self.host(node, sites, memory)
        if host is None:
            self.realize(node, readers).group.waits = waits
            return
        self.compute(host)
        host.group.stores.append(host)
        self.stored[node] = host.group
        for reader in readers:
            if reader.group is not host.group:
                self.load(node, reader, dense_strides(node.shape))

    def inline(self, node: Node, sites: list[Site]) -> bool:
        """Compute the node inside its readers, stored nowhere."""
        kind = node.op.kind
        if kind == GATHER and not all(self.takes(site.group, node) for site in sites):
            return False
        if kind == REDUCE:
            return len(sites) == 1 and self.join(sites[0])
        if kind not in (CONST, IOTA):
            if len(sites) > 1 and not self.repeatable(node, sites):
                return False
            for site in sites:
                if self.full(site.group) or self.wasteful(node, site.group, site.index):
                    return False
        for site in sites:
            self.compute(site)
        return True

    def repeatable(self, node: Node, sites: list[Site]) -> bool:
        """Whether to compute a value at each of these places rather than store it.

        A GPU has more flops for a byte: it reads what is narrower, or as wide, as often as the value itself. Of what is
        small beside its readers, as an optimiser's rates, it would read nothing, and compute it in every thread.
        """
        if node in self.compared:
            return False
        if not self.target.is_gpu or all(self.is_small(node, site.group) for site in sites):
            return len(sites) <= 4 and cheap(node)
        widened = node.op.name == "cast" and node.srcs[0].dtype.itemsize < node.dtype.itemsize
        return widened or (len(sites) <= 16 and cheap(node))

    def is_small(self, node: Node, group: Group) -> bool:
        return node.size * SMALL <= prod(r.extent for r in group.ranges())

    def takes(self, group: Group, node: Node) -> bool:
        """Whether a group can compute this kind of node: an anchored group reads whole buffers for its anchor alone,
        and who writes lines must know of bad indices before."""
        named = group.assign is not None and group.assign.op.checked
        return node.op.kind != GATHER or (group.anchor is None and not group.waits and not named)

    def full(self, group: Group) -> bool:
        return len(group.nodes) >= self.max_ops

    def wasteful(self, node: Node, group: Group, index: Index) -> bool:
        """Whether computing here repeats costly work: the node is smaller than the loops it would sit in."""
        if node.meta.size == 1:
            return False
        if node in self.after_reduce:  # repeated only inside of other rows than those it follows from
            if not self.depth(group, index):
                return self.known_before(node, group)
        elif node.op.cost <= CHEAP:
            return False
        used = used_ranges(index)
        return any(r not in used for r in group.ranges())

    def known_before(self, node: Node, group: Group) -> bool:
        """Whether what follows from a reduction in another launch is made there, for one that runs over much more."""
        return node in self.apart and self.is_small(node, group)

    def host(self, node: Node, sites: list[Site], memory: list[Reader]) -> Site | None:
        """Where one of the readers can compute and store the node for all others, if there is one."""
        if not sites:
            return None
        best = max([site.group for site in sites], key=lambda g: g.level)
        for group in dict.fromkeys([site.group for site in sites]):
            if group is not best and group.level == best.level and self.alike(best, group):  # asked each time: it grows
                self.absorb(best, group)
        groups: dict[Group, list[Site]] = {}
        for site in sites:
            if site.same is None:  # else absorbed into one that is asked for too
                groups.setdefault(site.group, []).append(site)
        levels = [reader.level for reader in memory]
        in_memory = {reader.group for reader in memory}
        for group, own in groups.items():
            if group.level != best.level or group in in_memory:
                continue
            others = levels + [g.level for g in groups if g is not group]
            indices = {settled(site.index) for site in own}
            if self.can_store(node, group, indices) and self.lift(group, max(others, default=-1)):
                first, *equal = own
                (first.index,) = indices
                for site in equal:
                    site.same = first
                return first
        return None

    def can_store(self, node: Node, group: Group, indices: set[Index]) -> bool:
        """Whether a group that reads the node has each of its elements once."""
        if self.full(group) or len(indices) != 1 or not self.takes(group, node):
            return False
        (index,) = indices
        if node.op.kind == REDUCE:
            return self.row_of(node, group, index) is not None
        depth = self.depth(group, index)
        ranges = [r for scope in group.scopes[: depth + 1] for r in scope]
        return covers(index, ranges, node.shape)

    def lift(self, group: Group, level: int) -> bool:
        """Let a group run before all of this level, if what it reads is there by then."""
        if group.level > level:
            return True
        read = [site.node for site in group.reads] + [o.source for o in group.operands if o.source is not None]
        if any(self.stored[node].level <= level + 1 for node in read if node in self.stored):
            return False
        group.level = level + 1
        for operand in group.operands:
            operand.level = group.level
        return True

    def alike(self, a: Group, b: Group) -> bool:
        """Whether two groups of one level, which cannot depend on each other, run over the same elements: flat ones,
        and on a GPU rows that are reduced alike, as for the gradients of a norm's weight and bias."""
        deepest = 2 if self.target.is_gpu else 1
        plain = all(len(g.scopes) <= deepest and g.anchor is None and g.assign is None for g in (a, b))
        rows = len(a.scopes) == 2 and bool(a.operands or b.operands)
        fits = len(a.nodes) + len(b.nodes) <= self.max_ops
        return plain and not rows and fits and extents_of(a) == extents_of(b)

    def absorb(self, best: Group, other: Group) -> None:
        """Let one group do the work of two, so that what both need is computed once."""
        for theirs, ours in zip(other.ranges(), best.ranges(), strict=True):
            theirs.parts = ((ours, 1),)
        before, best.sites = best.sites, {}
        for group, sites in ((best, before), (other, other.sites)):
            for site in sites.values():
                site.group, site.index = best, settled(site.index)
                known = best.sites.setdefault((site.node, site.index), site)
                if known is not site:
                    known.flat |= site.flat
                    self.unite(site, known, group)
        best.reads += other.reads
        best.operands += other.operands
        best.stores += other.stores
        best.nodes += other.nodes
        other.merged = best
        for operand in other.operands:
            operand.group = best
        for site in other.stores:
            self.stored[site.node] = best
        self.groups.remove(other)
        other.clear()

    def unite(self, site: Site, known: Site, group: Group) -> None:
        """Let a site of a group be one of another group that is the same node at the same place."""
        if site.args is not None:
            group.nodes.remove(site.node)
        elif site.form is not None:
            group.reads.remove(site)
        elif site in self.readers.get(site.node, ()):
            self.readers[site.node].remove(site)
        site.same = known

    def unite_rows(self) -> None:
        """Let rows that are reduced in several ways be read once, as a gradient is for a weight's and a bias's."""
        found: dict[tuple[object, ...], Group] = {}
        for group in list(self.groups):
            if len(group.scopes) != 2 or group.anchor is not None or group.assign is not None or group.operands:
                continue
            ranges = group.ranges()
            depth = len([leaf for r in group.scopes[0] for leaf in r.leaves() if leaf.extent != 1])
            space = prod(r.extent for r in ranges)
            keys = []
            for site in group.reads:
                if site.node.size >= space and site.form is not None:
                    terms = dict(normalize(site.form).terms)
                    keys.append((group.level, depth, site.node, *((r.extent, terms.get(r, 0)) for r in ranges)))
            other = next((found[key].now for key in keys if key in found), group)
            for key in keys:
                found.setdefault(key, group)
            if other is not group and len(group.nodes) + len(other.nodes) <= self.max_ops:
                self.absorb(other, group)

    def realize(self, node: Node, readers: list[Reader]) -> Site:
        """Give the node a group and a buffer of its own; the readers load it."""
        site = self.opened(node, readers, node.shape)
        if node.op.kind == MOVEMENT:
            site.group.nodes.append(node)
            self.move(site, node, True)
        else:
            self.compute(site)
        return site

    def load(self, node: Node, reader: Reader, strides: Sequence[int]) -> None:
        """Let a reader take the node from memory."""
        form = reader.index[0] if reader.flat else flatten(reader.index, strides)
        if isinstance(reader, Operand):
            reader.source, reader.form = node, normalize(form)
        else:
            reader.form = form
            reader.group.reads.append(reader)

    def compute(self, site: Site) -> None:
        """Compute a node where it is asked for, and ask for its sources there."""
        node, group, index = site.node, site.group, site.index
        kind, srcs = node.op.kind, node.srcs
        if kind == REDUCE:
            joined = self.join(site)
            assert joined
            return
        group.nodes.append(node)
        if kind == GATHER:
            operand = Operand(srcs[0], group, contiguous=False)
            group.operands.append(operand)
            self.ask(srcs[0], operand)
            srcs = srcs[1:]
        meta = node.meta
        site.args = [
            self.site(group, s, index if s.meta is meta else broadcast(index, meta.shape, s.meta.shape)) for s in srcs
        ]

    # --- reductions -------------------------------------------------------------------------------------------------

    def depth(self, group: Group, index: Index) -> int:
        """The outermost scope in which a value at this index is known."""
        used = used_ranges(index)
        for depth in range(len(group.scopes) - 1, 0, -1):
            if any(leaf in used for r in group.scopes[depth] for leaf in r.leaves()):
                return depth
        return 0

    def join(self, site: Site) -> bool:
        """Compute a reduction inside a group, opening or reusing the loops of a row, if it fits there."""
        node, group = site.node, site.group
        found = self.row_of(node, group, site.index)
        if found is None:
            return False
        forms, group.scopes = found
        axes, source = node.attrs[0], node.srcs[0]
        reduced = iter(forms)
        kept = iter(site.index)
        at = tuple([next(reduced) if axis in axes else next(kept) for axis in range(len(source.shape))])
        group.nodes.append(node)
        site.args = [self.site(group, source, at)]
        return True

    def row_of(self, node: Node, group: Group, index: Index) -> Row | None:
        """The loops in which a group can compute a reduction."""
        if group.anchor is not None or group.waits or group.assign is not None or self.full(group):
            return None
        return self.first_row(node, group, index) if len(group.scopes) == 1 else self.inner_row(node, group, index)

    def first_row(self, node: Node, group: Group, index: Index) -> Row | None:
        """The first reduction of a group: loops that its results do not change with become those inside of a row."""
        used = used_ranges(index)
        ranges = group.ranges()
        outer = [r for r in ranges if r in used]
        inner = [r for r in ranges if r not in used]
        if not covers(index, outer, node.shape) or (inner and not self.worth_a_row(node, outer, inner)):
            return None
        found = self.row(node, inner)
        if found is None:
            return None
        forms, new = found
        return forms, [outer, inner] if inner else [group.scopes[0], new]

    def inner_row(self, node: Node, group: Group, index: Index) -> Row | None:
        """A reduction in a group that has rows: over the loops that are there, or over new ones inside of them."""
        scopes = group.scopes
        depth = self.depth(group, index)
        above = [leaf for scope in scopes[: depth + 1] for r in scope for leaf in r.leaves()]
        if not covers(index, above, node.shape):
            return None
        last = depth == len(scopes) - 1
        if last and (self.target.is_gpu or len(scopes) > 2):
            return None
        if last and any(self.depth(group, site.index) > 0 for site in group.stores):
            return None  # what a row stores when it is known needs loops of its own, not those of this reduction
        if not last and not self.worth_a_row(node, above, scopes[depth + 1]) and self.feeds_row(node, group):
            return None
        if len(scopes) > 2 and self.feeds_row(node, group, depth + 1):
            return None  # rows inside of rows are known before what is reduced over all of them
        found = self.row(node, [] if last else scopes[depth + 1])
        if found is None:
            return None
        forms, new = found
        return forms, [*scopes, new] if last else scopes

    def feeds_row(self, node: Node, group: Group, below: int = 0) -> bool:
        """Whether something deeper in a group's rows waits for this reduction: then a row cannot be cut in chunks."""
        waiting = {node}
        changed = True
        while changed:
            changed = False
            for site in group.sites.values():
                if site.args is None and site.same is None:  # loaded, or not placed yet
                    continue
                if site.node not in waiting and any(s in waiting for s in site.node.srcs):
                    if self.depth(group, site.index) > below:
                        return True
                    waiting.add(site.node)
                    changed = True
        return False

    def row(self, node: Node, ranges: Sequence[Range]) -> tuple[Index, list[Range]] | None:
        """Forms for the axes that a node reduces, over the row's loops where they exist already, else over new ones."""
        extents = [node.srcs[0].shape[a] for a in node.attrs[0]]
        if ranges:
            index = unify(extents, ranges, True)
            return None if index is None else (index, [])
        new = [Range(e) for e in extents]
        return tuple([of_range(r) for r in new]), new

    def worth_a_row(self, node: Node, outer: Sequence[Range], inner: Sequence[Range]) -> bool:
        """Rows must be enough to keep the workers busy, unless there is little to do at all. A GPU cuts long rows."""
        if self.target.is_gpu:
            return node not in self.apart
        rows, width = prod(r.extent for r in outer), prod(r.extent for r in inner)
        return rows >= self.target.workers or rows * width <= 65536

    def reduced_apart(self, node: Node) -> bool:
        """Whether a GPU reduces in a launch of its own: few long rows that lie across memory, as a batch norm's do when
        channels are last. They are read as vectors of rows then, and what follows runs flat."""
        shape, axes = node.srcs[0].shape, node.attrs[0]
        last = max((a for a, size in enumerate(shape) if size != 1), default=-1)
        few = node.size < 2 * self.target.workers * self.target.wave_size
        long = prod(shape[a] for a in axes) >= LONG_ROW
        return self.target.is_gpu and last not in axes and few and long

    # --- kernels and assignments ------------------------------------------------------------------------------------

    def place_kernel(self, node: Node, readers: list[Reader]) -> None:
        if node in self.few_lines:
            self.place_assign(node, readers)
            return
        implementation = choose(self.table[node.op.name], node)
        site = self.epilogue_of(node, readers) if implementation.epilogue else None
        if site is None:
            site = self.opened(node, readers, node.shape)
        else:
            others = [reader for reader in readers if reader is not site]
            if others:
                site.group.stores.append(site)
                self.stored[node] = site.group
            for reader in others:
                self.load(node, reader, dense_strides(node.shape))
        group = site.group
        group.anchor = node
        group.implementation = implementation
        group.nodes.append(node)
        site.args = []
        for position, source in enumerate(node.srcs):
            overwritten = position == node.op.alias
            operand = Operand(source, group, contiguous=overwritten or not implementation.strided)
            operand.base = overwritten
            group.operands.append(operand)
            self.ask(source, operand)

    def has_epilogue(self, node: Node) -> bool:
        return node.op.kind in (KERNEL, COMPOSITE) and choose(self.table[node.op.name], node).epilogue

    def epilogue_of(self, node: Node, readers: list[Reader]) -> Site | None:
        """Where the elementwise group reads a kernel's results that can run on them before they are stored."""
        groups = {reader.group for reader in readers if isinstance(reader, Site) and not reader.flat}
        if not groups:
            return None
        best = max(groups, key=lambda g: g.level)
        if any(reader.level >= best.level for reader in readers if reader.group is not best):
            return None
        if best.cannot_follow:
            return None
        own = [reader for reader in readers if reader.group is best]
        site = own[0]
        if len(own) != 1 or site.flat or not isinstance(site, Site):
            return None
        index = settled(site.index)
        # The epilogue's loops must be exactly the axes of the result, in order; only those of size 1 may be missing. A
        # convolution's on a GPU may come in any order: that is how its result is stored channels-last. On a CPU an axis
        # may be several loops, where what reads the result sees it reshaped.
        loops = [leaf for r in best.scopes[0] for leaf in r.leaves() if leaf.extent != 1]
        if node.op.name == "conv_general" and self.target.is_gpu:
            place = {r: n for n, form in enumerate(index) for r, _ in form.terms}
            loops.sort(key=lambda r: place.get(r, -1))
        axes = along_axes(index, node.shape, loops)
        if axes is None or (self.target.is_gpu and any(axis.parts for axis in axes)):
            return None
        best.scopes = [axes]
        return site

    def place_assign(self, node: Node, readers: list[Reader]) -> None:
        """Store the second source into the first one's buffer, which becomes this node's: into a region of it, or into
        the lines that a third source names."""
        base, value, *index = node.srcs
        shape = value.shape if index else tuple([count for _, _, count in node.attrs[0]])
        site = self.opened(node, readers, shape)
        group = site.group
        group.assign = node
        group.nodes.append(node)
        for source in (base, *index):
            operand = Operand(source, group, contiguous=True)
            operand.base = source is base
            group.operands.append(operand)
            self.ask(source, operand)
        site.same = self.site(group, value, broadcast(site.index, shape, value.shape))


_RULES = {
    LEAF: Fuser.place_leaf,
    MOVEMENT: Fuser.place_movement,
    KERNEL: Fuser.place_kernel,
    COMPOSITE: Fuser.place_kernel,  # those that are left have an implementation
    ASSIGN: Fuser.place_assign,
}
