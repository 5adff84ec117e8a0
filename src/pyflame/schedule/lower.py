"""Group -> Kernel: resolves index forms into strided accesses, merges loops that run as one, and orders the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from pyflame.core.dtype import DType
from pyflame.ir import Node
from pyflame.ir.kernel import Access, Anchor, Instr, Kernel
from pyflame.ir.opdef import CONST, GATHER, IOTA, REDUCE
from pyflame.schedule.group import Group, Operand, Site
from pyflame.schedule.index import ZERO, Form, Index, Range, broadcast, dense_strides, flatten, normalize, settled

NONE: frozenset[int] = frozenset()


class Lowering:
    """One group on its way to a Kernel. `buffer_of` numbers the kernel's buffers, `uniform_of` its constants."""

    def __init__(self, group: Group, uniform_of: Callable[[Node], int], check_of: Callable[[Node], int]) -> None:
        self.group = group
        self.uniform_of = uniform_of
        self.check_of = check_of
        self.buffers: list[tuple[Node, int]] = []  # (stored node or leaf, element offset) by kernel buffer number
        self.starts: tuple[tuple[int, int], ...] = ()
        self.instrs: list[Instr] = []
        self.made: dict[Site, int] = {}
        anchored = group.anchor is not None
        self.ranges: list[list[Range]] = [
            [leaf for r in scope for leaf in r.leaves() if anchored or leaf.extent != 1] for scope in group.scopes
        ]
        self.position = {r: i for i, r in enumerate(r for scope in self.ranges for r in scope)}
        self.scopes = [d for d, scope in enumerate(self.ranges) for _ in scope]  # of each loop
        self.scope_of = {r: d for d, scope in enumerate(self.ranges) for r in scope}
        self.unite()
        self.gathers: dict[Node, Operand] = {}
        if not anchored:
            self.gathers = {o.node: o for o in group.operands if not o.base}

    def unite(self) -> None:
        """Let all sites that are the same be one. Indices were made before loops were split or taken for others':
        what is at one index now is the same, too."""
        sites = self.group.sites.values()
        indices = {id(site.index): site.index for site in sites}.values()  # a few, each of many sites
        if any(settled(index) is not index for index in indices):
            known: dict[tuple[Node, Index], Site] = {}
            for site in sites:
                if site.same is None:
                    first = known.setdefault((site.node, settled(site.index)), site)
                    site.same = None if first is site else first
        for site in sites:
            if site.args:
                site.args = [arg if arg.same is None else arg.last for arg in site.args]

    def run(self) -> Kernel:
        group = self.group
        if group.anchor is not None:
            for operand in group.operands:
                assert operand.source is not None
                self.buffers.append((operand.source, operand.form.offset))
        stores: list[tuple[int, Access]] = []
        for site in group.stores:
            node, index = site.node, site.index
            form = self.assigned(node, index) if group.assign is node else flatten(index, dense_strides(node.shape))
            stores.append((self.value(site), self.access(node, form, node.dtype)))
            if group.assign is node and node.data is not None:  # where it begins is data
                self.starts += ((stores[-1][1].buffer, node.data),)
        if group.assign is not None and len(group.assign.srcs) > 2:
            self.instrs.append(self.line(group.assign, settled(group.stores[0].index)))
        kernel = Kernel(
            tuple(tuple(r.extent for r in scope) for scope in self.ranges),
            tuple(self.instrs),
            tuple(stores),
            tuple(n.op.name for n in reversed(group.nodes)),
            None if group.anchor is None else self.anchor(group.anchor),
            self.flops(),
        )
        return kernel if group.anchor is not None else merge_loops(kernel)

    def assigned(self, node: Node, index: Index) -> Form:
        """Where an assignment stores: in a region of its base, in the first line of it if an index names lines."""
        region, strides = node.attrs[0], dense_strides(node.shape)
        if len(node.srcs) > 2:
            axes, dims, region, _ = node.attrs
            index = tuple([ZERO if axis in axes or dim < 0 else index[dim] for axis, dim in enumerate(dims)])
        form = flatten(index, [s * step for s, (_, step, _) in zip(strides, region, strict=True)])
        return Form(form.offset + sum(s * start for s, (start, _, _) in zip(strides, region, strict=True)), form.terms)

    def line(self, node: Node, index: Index) -> Instr:
        """Which line an assignment stores to."""
        (axis,), _, region, _ = node.attrs
        _, value, keys = node.srcs
        operand = next(o for o in self.group.operands if o.node is keys and not o.base)
        assert operand.source is not None
        key = flatten(broadcast(index, value.shape, keys.shape), dense_strides(keys.shape))
        access = self.access(operand.source, Form(operand.form.offset + key.offset, key.terms), keys.dtype)
        _, step, lines = region[axis]
        dynamic = ((lines, dense_strides(node.shape)[axis] * step), (keys.size, 1))
        return self.placed("line", access)._replace(dynamic=dynamic, check=self.check_of(node))

    def flops(self) -> int:
        costs = [0] * len(self.ranges)  # of all that is computed in a scope, per turn of its loops
        for instr in self.instrs:
            if instr.op is not None and instr.kind in ("op", "reduce"):
                costs[instr.scope + (instr.kind == "reduce")] += instr.op.cost
        turns = [prod([r.extent for scope in self.ranges[: d + 1] for r in scope]) for d in range(len(costs))]
        return sum([cost * count for cost, count in zip(costs, turns, strict=True) if cost])

    def buffer(self, node: Node, offset: int) -> int:
        if (node, offset) not in self.buffers:
            self.buffers.append((node, offset))
        return self.buffers.index((node, offset))

    def access(self, node: Node, form: Form, dtype: DType) -> Access:
        return Access(self.buffer(node, form.offset), self.strides(form), form.offset, dtype)

    def value(self, site: Site) -> int:
        """The instruction that computes a site, made if need be; iterative, since chains are long."""
        made, instrs = self.made, self.instrs
        stack: list[Site | None] = [wanted := site.last]
        waiting: list[Site] = []  # for all that stands above a None on the stack
        while stack:
            top = stack.pop()
            if top is None:
                top = waiting.pop()
            elif top in made:  # it stood on the stack twice
                continue
            elif missing := [a for a in top.args or () if a not in made]:
                waiting.append(top)
                stack += (None, *missing)
                continue
            instrs.append(self.instr(top, tuple([made[a] for a in top.args or ()])))
            made[top] = len(instrs) - 1
        return made[wanted]

    def instr(self, site: Site, args: tuple[int, ...]) -> Instr:
        """What computes a site from others."""
        node = site.node
        op, dtype, kind = node.op, node.meta.dtype, node.op.kind
        if site.form is not None:
            return self.placed("load", self.access(node, normalize(site.form), dtype))
        if kind == CONST:
            return Instr("uniform", dtype, 0, NONE, uniform=self.uniform_of(node))
        if kind == IOTA:
            form = flatten(site.index, dense_strides(node.shape))
            return self.placed("index", Access(-1, self.strides(form), form.offset, dtype))
        if node is self.group.anchor:
            return Instr("acc", dtype, 0, frozenset(range(len(self.position))))
        loops, scope = NONE, 0
        for arg in args:
            instr = self.instrs[arg]
            if not instr.loops <= loops:
                loops = loops | instr.loops if loops else instr.loops
            if instr.scope > scope:
                scope = instr.scope
        if kind == REDUCE:
            scope = self.reduce_scope(settled(site.index))
            inner = {self.position[r] for d in range(scope + 1, len(self.ranges)) for r in self.ranges[d]}
            return Instr("reduce", dtype, scope, loops - inner, op, node.attrs, args)
        if kind == GATHER:
            return self.gather(node, settled(site.index), args, loops, scope)
        return Instr("op", dtype, scope, loops, op, node.attrs, args)

    def strides(self, form: Form) -> tuple[int, ...]:
        strides = [0] * len(self.position)
        for r, c in form.terms:
            strides[self.position[r]] = c
        return tuple(strides)

    def placed(self, kind: str, access: Access) -> Instr:
        """What reads an access, in the scope of the loops that it changes with."""
        loops = frozenset([i for i, s in enumerate(access.strides) if s])
        scope = max([self.scopes[i] for i in loops], default=0)
        return Instr(kind, access.dtype, scope, loops, access=access)

    def reduce_scope(self, index: Index) -> int:
        return max((self.scope_of[r] for f in index for r, _ in f.terms), default=0)

    def gather(self, node: Node, index: Index, args: tuple[int, ...], loops: frozenset[int], scope: int) -> Instr:
        """x[..., i(o), ..., j(o), ...]: axes in `axes` come from index values, others from the output's position."""
        axes, dims, _ = node.attrs
        operand = self.gathers[node.srcs[0]]
        assert operand.source is not None
        steps = operand.strides()
        fixed = [(index[dim], steps[axis]) for axis, dim in enumerate(dims) if axis not in axes]
        form = flatten(tuple(f for f, _ in fixed), [s for _, s in fixed])
        form = Form(form.offset + operand.form.offset, form.terms)
        access = self.access(operand.source, form, node.dtype)
        placed = self.placed("gather", access)
        sizes = node.srcs[0].shape
        return placed._replace(
            scope=max(scope, placed.scope),
            loops=loops | placed.loops,
            op=node.op,
            args=args,
            access=access,
            dynamic=tuple((sizes[a], steps[a]) for a in axes),
            check=self.check_of(node),
        )

    def anchor(self, node: Node) -> Anchor:
        check = self.check_of(node) if node.op.checked else -1
        return Anchor(node.op, node.attrs, tuple(s.meta for s in node.srcs), node.meta, check)


def merge_loops(kernel: Kernel) -> Kernel:
    """Run adjacent loops of a scope as one where every access allows it, so that kernels serve many shapes."""
    if all(len(scope) < 2 for scope in kernel.loops):
        return kernel
    accesses = [i.access for i in kernel.instrs if i.access is not None] + [a for _, a in kernel.stores]
    scopes = kernel.loop_scope()
    extents = [e for scope in kernel.loops for e in scope]
    kept = list(range(len(extents)))
    position = len(kept) - 2
    while position >= 0:
        a, b = kept[position], kept[position + 1]
        if scopes[a] == scopes[b] and all(x.strides[a] == x.strides[b] * extents[b] for x in accesses):
            extents[b] *= extents[a]
            del kept[position]
        position -= 1
    if len(kept) == len(scopes):
        return kernel
    renumber = {loop: i for i, loop in enumerate(kept)}
    for loop in range(len(scopes)):  # a merged loop lives on in the next kept one
        if loop not in renumber:
            renumber[loop] = renumber[next(k for k in kept if k > loop)]

    def access(x: Access) -> Access:
        return x._replace(strides=tuple([x.strides[k] for k in kept]))

    renumbered = {old: frozenset([renumber[n] for n in old]) for old in {i.loops for i in kernel.instrs}}
    instrs = tuple([
        i._replace(loops=renumbered[i.loops], access=None if i.access is None else access(i.access))
        for i in kernel.instrs
    ])  # fmt: skip
    loops = tuple(tuple(extents[k] for k in kept if scopes[k] == d) for d in range(kernel.depth))
    return replace(kernel, loops=loops, instrs=instrs, stores=tuple((v, access(a)) for v, a in kernel.stores))
