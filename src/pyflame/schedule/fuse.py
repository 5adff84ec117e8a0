"""Decides which nodes share a kernel.

Nodes are visited from the outputs to the inputs, so when a node's turn comes all who read it have asked for it: a
request is a reader's group and the index at which it reads. A node that only one group reads is computed inside that
group; a node that several read is computed in the earliest of them and stored, or in a group of its own.

No cycles arise because of `level`: a group that stores what another reads has the higher level. A shared node joins a
reader only if that reader's level is above all other readers' levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyflame.core.device import Target
from pyflame.ir import OPS, Node, apply
from pyflame.ir.implementation import Table, choose
from pyflame.ir.opdef import ASSIGN, COMPOSITE, CONST, GATHER, IOTA, KERNEL, LEAF, MOVEMENT, REDUCE
from pyflame.schedule.group import Group, Operand, Reader, Request, live
from pyflame.schedule.index import (
    Form,
    Index,
    Range,
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
    cheap,
    compared,
    extents_of,
    following,
    is_result_copy,
)

Row = tuple[Index, list[list[Range]]]  # forms of a reduction's axes, and the scopes of its group with it
LONG_ROW = 1024  # elements of a row across memory that is worth a launch of its own on a GPU


class Fuser:
    """Builds groups for one graph: `order` is topological and ends in `outputs`."""

    def __init__(
        self, order: Sequence[Node], outputs: Sequence[Node], target: Target, table: Table, max_ops: int
    ) -> None:
        self.order = order
        self.target = target
        self.table = table
        self.max_ops = max_ops
        self.requests: dict[Node, list[Request]] = {}
        self.groups: list[Group] = []
        self.stored: dict[Node, Group] = {}
        self.outputs: list[Operand] = []
        self.after_reduce = after_reduce(order)
        self.compared = compared(order)
        self.apart = following(order, {n for n in order if n.op.kind == REDUCE and self.reduced_apart(n)})
        wanted = dict.fromkeys(outputs)
        for node in wanted:
            operand = Operand(node, None, contiguous=False)
            self.outputs.append(operand)
            self.ask(node, operand, operand.index())

    def run(self) -> None:
        for node in reversed(self.order):
            requests = self.requests.pop(node, None)
            if requests:
                self.place(node, requests)
        if self.target.is_gpu:
            self.unite_rows()

    def ask(self, node: Node, reader: Reader, index: Index | None, flat: Form | None = None) -> None:
        self.requests.setdefault(node, []).append((reader, index, flat))

    # --- one node ---------------------------------------------------------------------------------------------------

    def place(self, node: Node, requests: list[Request]) -> None:
        requests = [(live(reader), index, flat) for reader, index, flat in requests]
        kind = node.op.kind
        if kind == LEAF:
            self.place_leaf(node, requests)
        elif kind == MOVEMENT:
            self.place_movement(node, requests)
        elif kind in (KERNEL, COMPOSITE):  # composites that are left have an implementation
            self.place_kernel(node, requests)
        elif kind == ASSIGN:
            self.place_assign(node, requests)
        else:
            self.place_value(node, requests)

    def place_leaf(self, node: Node, requests: list[Request]) -> None:
        strides = node.data.strides
        contiguous = strides is None
        steps = dense_strides(node.shape) if contiguous else strides
        copied: list[Request] = []
        for reader, index, flat in requests:
            if (flat is not None or (isinstance(reader, Operand) and reader.contiguous)) and not contiguous:
                copied.append((reader, index, flat))
                continue
            self.load(node, reader, index, flat, steps)
        if copied:
            self.copy_leaf(node, copied)

    def copy_leaf(self, leaf: Node, requests: list[Request]) -> None:
        """Make a dense copy of a leaf that lies otherwise in memory. It is a node of its own: both have a buffer."""
        copy = apply(OPS["contiguous"], (leaf,))
        for reader, _, flat in requests:
            if isinstance(reader, Group) and flat is not None:
                reader.aliases[(leaf, (flat,))] = (copy, (flat,))
        self.realize(copy, requests)
        self.place_leaf(leaf, self.requests.pop(leaf))

    def place_movement(self, node: Node, requests: list[Request]) -> None:
        source = node.srcs[0]
        copied: list[Request] = []
        for reader, index, flat in requests:
            if flat is not None:
                if node.op.name == "reshape":
                    self.ask(source, reader, None, flat)
                    if isinstance(reader, Group):
                        reader.aliases[(node, (flat,))] = (source, (flat,))
                else:
                    copied.append((reader, index, flat))
                continue
            assert index is not None
            if isinstance(reader, Operand) and reader.contiguous and node.op.name != "reshape":
                copied.append((reader, index, flat))
                continue
            may_split = isinstance(reader, Group) and not reader.rigid
            moved = move(node, index, may_split)
            if moved is None:
                # A reshape that is no view: its source must lie in memory, where the reshape is the same bytes.
                address = flatten(index, dense_strides(node.shape))
                self.ask(source, reader, None, address)
                if isinstance(reader, Group):
                    reader.aliases[(node, index)] = (source, (address,))
            else:
                self.ask(source, reader, moved)
                if isinstance(reader, Group):
                    reader.aliases[(node, index)] = (source, moved)
        if copied:
            self.realize(node, copied)

    def place_value(self, node: Node, requests: list[Request]) -> None:
        """Elementwise ops, gathers, constants, positions and reductions: computed in registers where possible."""
        groups: dict[Group, set[Index]] = {}
        memory: list[Request] = []
        for request in requests:
            reader, index, _ = request
            if isinstance(reader, Group) and index is not None:
                groups.setdefault(reader, set()).add(index)
            else:
                memory.append(request)
        if is_result_copy(node):  # its kernel stores it, behind which there is no room for rows
            groups = {} if any(len(g.scopes) > 1 or g.assign is not None for g in groups) else groups
        if not memory and groups and self.inline(node, groups):
            return
        host = self.host(node, groups, memory)
        if host is None:
            self.realize(node, [(live(reader), index, flat) for reader, index, flat in requests])
            return
        (index,) = groups[host]
        self.compute(node, host, index)
        host.stores.append((node, index))
        self.stored[node] = host
        for reader, at, flat in requests:
            if (reader := live(reader)) is not host:  # looking for one may have merged readers
                self.load(node, reader, at, flat, dense_strides(node.shape))

    def inline(self, node: Node, groups: dict[Group, set[Index]]) -> bool:
        """Compute the node inside its readers, stored nowhere."""
        if not all(self.takes(group, node) for group in groups):
            return False
        free = node.op.kind in (CONST, IOTA)
        if node.op.kind == REDUCE:
            if len(groups) != 1:
                return False
            ((group, indices),) = groups.items()
            return len(indices) == 1 and self.join(node, group, next(iter(indices)))
        if not free:
            repeats = sum(len(indices) for indices in groups.values())
            if repeats > 1 and not self.repeatable(node, repeats):
                return False
            if any(self.full(g) or self.wasteful(node, g, i) for g, indices in groups.items() for i in indices):
                return False
        for group, indices in groups.items():
            for index in indices:
                self.compute(node, group, index)
        return True

    def repeatable(self, node: Node, repeats: int) -> bool:
        """Whether to compute a value so often rather than store it.

        A GPU has more flops for a byte: it reads what is narrower, or as wide, as often as the value itself.
        """
        if node in self.compared:
            return False
        if not self.target.is_gpu:
            return repeats <= 4 and cheap(node)
        widened = node.op.name == "cast" and node.srcs[0].dtype.itemsize < node.dtype.itemsize
        return widened or (repeats <= 16 and cheap(node))

    def takes(self, group: Group, node: Node) -> bool:
        """Whether a group can compute this kind of node: whole buffers are read by an anchored group for its anchor."""
        return group.anchor is None or node.op.kind != GATHER

    def full(self, group: Group) -> bool:
        return len(group.nodes) >= self.max_ops

    def wasteful(self, node: Node, group: Group, index: Index) -> bool:
        """Whether computing here repeats costly work: the node is smaller than the loops it would sit in."""
        if node.size == 1:
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
        return node in self.apart and node.size * SMALL <= prod(r.extent for r in group.ranges())

    def host(self, node: Node, groups: dict[Group, set[Index]], memory: list[Request]) -> Group | None:
        """The reader that can compute and store the node for all others, if there is one."""
        if not groups:
            return None
        best = max(groups, key=lambda g: g.level)
        for group in [g for g in groups if g is not best and g.level == best.level]:
            if self.alike(best, group):  # asked each time: it grows
                self.absorb(best, group)
                groups[best] |= groups.pop(group)
        in_memory = {r.group if isinstance(r, Operand) else r for r, _, _ in memory}
        for group in [g for g in groups if g.level == best.level and g not in in_memory]:
            others = [reader.level for reader, _, _ in memory] + [g.level for g in groups if g is not group]
            groups[group] = {settled(index) for index in groups[group]}
            if self.can_store(node, group, groups[group]) and self.lift(group, max(others, default=-1)):
                return group
        return None

    def can_store(self, node: Node, group: Group, indices: set[Index]) -> bool:
        """Whether a group that reads the node has each of its elements once."""
        if self.full(group) or len(indices) != 1 or not self.takes(group, node):
            return False
        (index,) = indices
        if node.op.kind == REDUCE:
            return self.join(node, group, index, dry=True)
        depth = self.depth(group, index)
        ranges = [r for scope in group.scopes[: depth + 1] for r in scope]
        return covers(index, ranges, node.shape)

    def lift(self, group: Group, level: int) -> bool:
        """Let a group run before all of this level, if what it reads is there by then."""
        if group.level > level:
            return True
        read = [node for node, _ in group.reads] + [o.source for o in group.operands if o.source is not None]
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
        best.values.update(other.values)
        best.reads.update(other.reads)
        best.aliases.update(other.aliases)
        best.operands += other.operands
        best.stores += other.stores
        best.nodes += other.nodes
        other.merged = best
        for operand in other.operands:
            operand.group = best
        for node, _ in other.stores:
            self.stored[node] = best
        self.groups.remove(other)

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
            for (node, _), form in group.reads.items():
                if node.size >= space:
                    terms = dict(normalize(form).terms)
                    keys.append((group.level, depth, node, *((r.extent, terms.get(r, 0)) for r in ranges)))
            other = next((found[key].now for key in keys if key in found), group)
            for key in keys:
                found.setdefault(key, group)
            if other is not group and len(group.nodes) + len(other.nodes) <= self.max_ops:
                self.absorb(other, group)

    def realize(self, node: Node, requests: list[Request]) -> None:
        """Give the node a group and a buffer of its own; the readers load it."""
        level = 1 + max(reader.level for reader, _, _ in requests)
        group = Group(level)
        self.groups.append(group)
        ranges = [Range(size) for size in node.shape]
        index = tuple(of_range(r) for r in ranges)
        group.scopes = [ranges]
        group.stores.append((node, index))
        self.stored[node] = group
        if node.op.kind == MOVEMENT:
            group.nodes.append(node)
            moved = move(node, index, True)
            source = node.srcs[0]
            if moved is None:
                address = flatten(index, dense_strides(node.shape))
                group.aliases[(node, index)] = (source, (address,))
                self.ask(source, group, None, address)
            else:
                group.aliases[(node, index)] = (source, moved)
                self.ask(source, group, moved)
        else:
            self.compute(node, group, index)
        for reader, at, flat in requests:
            self.load(node, reader, at, flat, dense_strides(node.shape))

    def load(self, node: Node, reader: Reader, index: Index | None, flat: Form | None, strides: Sequence[int]) -> None:
        """Let a reader take the node from memory."""
        if flat is None:
            assert index is not None
            form = flatten(index, strides)
            key = index
        else:
            form = flat
            key = (flat,)
        if isinstance(reader, Operand):
            reader.source, reader.form = node, normalize(form)
        else:
            reader.reads[(node, key)] = form

    def compute(self, node: Node, group: Group, index: Index) -> None:
        """Add the node to a group's values and ask for its sources there."""
        if (node, index) in group.values:
            return
        kind = node.op.kind
        if kind == REDUCE:
            joined = self.join(node, group, index)
            assert joined
            return
        group.values[(node, index)] = None
        group.nodes.append(node)
        if kind == GATHER:
            operand = Operand(node.srcs[0], group, contiguous=False)
            group.operands.append(operand)
            self.ask(node.srcs[0], operand, operand.index())
        for source in node.srcs[1 if kind == GATHER else 0 :]:
            self.ask(source, group, broadcast(index, node.shape, source.shape))

    # --- reductions -------------------------------------------------------------------------------------------------

    def depth(self, group: Group, index: Index) -> int:
        """The outermost scope in which a value at this index is known."""
        used = used_ranges(index)
        for depth in range(len(group.scopes) - 1, 0, -1):
            if any(leaf in used for r in group.scopes[depth] for leaf in r.leaves()):
                return depth
        return 0

    def join(self, node: Node, group: Group, index: Index, dry: bool = False) -> bool:
        """Compute a reduction inside a group, opening or reusing the loops of a row. `dry` only asks if it fits."""
        if group.anchor is not None or group.assign is not None or self.full(group):
            return False
        found = self.first_row(node, group, index) if len(group.scopes) == 1 else self.inner_row(node, group, index)
        if found is None:
            return False
        if dry:
            return True
        forms, group.scopes = found
        axes, source = node.attrs[0], node.srcs[0]
        reduced = iter(forms)
        kept = iter(index)
        at = tuple([next(reduced) if axis in axes else next(kept) for axis in range(len(source.shape))])
        group.values[(node, index)] = at
        group.nodes.append(node)
        self.ask(source, group, at)
        return True

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
        if last and any(self.depth(group, at) > 0 for _, at in group.stores):
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
            for reader, index in [*group.values, *group.aliases]:
                if reader not in waiting and any(s in waiting for s in reader.srcs):
                    if self.depth(group, index) > below:
                        return True
                    waiting.add(reader)
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

    def place_kernel(self, node: Node, requests: list[Request]) -> None:
        implementation = choose(self.table[node.op.name], node)
        group = self.epilogue_of(node, requests) if implementation.epilogue else None
        if group is None:
            group = Group(1 + max(reader.level for reader, _, _ in requests))
            self.groups.append(group)
            ranges = [Range(size) for size in node.shape]
            group.scopes = [ranges]
            index = tuple(of_range(r) for r in ranges)
            group.stores.append((node, index))
            self.stored[node] = group
        else:
            index = next(i for reader, i, _ in requests if reader is group and i is not None)
            if any(reader is not group for reader, _, _ in requests):
                group.stores.append((node, index))
                self.stored[node] = group
        group.anchor = node
        group.implementation = implementation
        group.values[(node, index)] = None
        group.nodes.append(node)
        for position, source in enumerate(node.srcs):
            overwritten = position == node.op.alias
            operand = Operand(source, group, contiguous=overwritten or not implementation.strided)
            operand.base = overwritten
            group.operands.append(operand)
            self.ask(source, operand, operand.index())
        for reader, at, flat in requests:
            if reader is not group:
                self.load(node, reader, at, flat, dense_strides(node.shape))

    def epilogue_of(self, node: Node, requests: list[Request]) -> Group | None:
        """The elementwise group that can run on a kernel's results before they are stored."""
        groups = {reader for reader, index, _ in requests if isinstance(reader, Group) and index is not None}
        if not groups:
            return None
        best = max(groups, key=lambda g: g.level)
        if any(reader.level >= best.level for reader, _, _ in requests if reader is not best):
            return None
        if best.rigid or best.assign is not None or len(best.scopes) != 1 or best.operands:
            return None
        indices = {index for reader, index, _ in requests if reader is best}
        if len(indices) != 1 or None in indices:
            return None
        (asked,) = indices
        index = settled(asked or ())
        # The epilogue's loops must be exactly the axes of the result, in order; only those of size 1 may be missing. A
        # convolution's on a GPU may come in any order: that is how its result is stored channels-last.
        expected = [leaf for r in best.scopes[0] for leaf in r.leaves() if leaf.extent != 1]
        axes = [(f.offset, f.terms, size) for f, size in zip(index, node.shape, strict=True) if size != 1]
        if node.op.name == "conv_general" and self.target.is_gpu:
            place = {r: n for n, (_, terms, _) in enumerate(axes) for r, _ in terms}
            expected.sort(key=lambda r: place.get(r, -1))
        if axes != [(0, ((r, 1),), r.extent) for r in expected]:
            return None
        loops = iter(expected)
        best.scopes = [[Range(1) if size == 1 else next(loops) for size in node.shape]]
        return best

    def place_assign(self, node: Node, requests: list[Request]) -> None:
        """Store the second source into a region of the first one's buffer, which becomes this node's."""
        base, value = node.srcs
        region = node.attrs[0]
        group = Group(1 + max(reader.level for reader, _, _ in requests))
        self.groups.append(group)
        group.assign = node
        ranges = [Range(count) for _, _, count in region]
        group.scopes = [ranges]
        index = tuple(of_range(r) for r in ranges)
        shape = tuple(count for _, _, count in region)
        at = broadcast(index, shape, value.shape)
        group.aliases[(node, index)] = (value, at)
        group.nodes.append(node)
        group.stores.append((node, index))
        self.stored[node] = group
        operand = Operand(base, group, contiguous=True)
        operand.base = True
        group.operands.append(operand)
        self.ask(base, operand, operand.index())
        self.ask(value, group, at)
        for reader, where, flat in requests:
            self.load(node, reader, where, flat, dense_strides(node.shape))
