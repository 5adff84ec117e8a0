"""Group -> Kernel: resolves index forms into strided accesses, merges loops that run as one, and orders the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from pyflame.core.dtype import DType
from pyflame.ir import Node
from pyflame.ir.kernel import Access, Anchor, Instr, Kernel
from pyflame.ir.opdef import CONST, GATHER, IOTA, REDUCE
from pyflame.schedule.group import Group, Operand
from pyflame.schedule.index import Form, Index, Range, broadcast, dense_strides, flatten, normalize, settled

Key = tuple[Node, Index]


class Lowering:
    """One group on its way to a Kernel. `buffer_of` numbers the kernel's buffers, `uniform_of` its constants."""

    def __init__(self, group: Group, uniform_of: Callable[[Node], int], check_of: Callable[[Node], int]) -> None:
        self.group = group
        self.uniform_of = uniform_of
        self.check_of = check_of
        self.buffers: list[tuple[Node, int]] = []  # (stored node or leaf, element offset) by kernel buffer number
        self.starts: tuple[tuple[int, int], ...] = ()
        self.instrs: list[Instr] = []
        self.made: dict[Key, int] = {}
        anchored = group.anchor is not None
        self.ranges: list[list[Range]] = [
            [leaf for r in scope for leaf in r.leaves() if anchored or leaf.extent != 1] for scope in group.scopes
        ]
        self.position = {r: i for i, r in enumerate(r for scope in self.ranges for r in scope)}
        self.scopes = [d for d, scope in enumerate(self.ranges) for _ in scope]  # of each loop
        self.scope_of = {r: d for d, scope in enumerate(self.ranges) for r in scope}
        # Keys were made before later splits; look values up in their final form.
        self.values = {self.final(k): None if v is None else settled(v) for k, v in group.values.items()}
        self.reads = {self.final(k): normalize(v) for k, v in group.reads.items()}
        self.aliases = {self.final(k): self.final(v) for k, v in group.aliases.items()}
        self.gathers: dict[Node, Operand] = {}
        if not anchored:
            self.gathers = {o.node: o for o in group.operands if not o.base}

    @staticmethod
    def final(key: Key) -> Key:
        return key[0], settled(key[1])

    def run(self) -> Kernel:
        group = self.group
        if group.anchor is not None:
            for operand in group.operands:
                assert operand.source is not None
                self.buffers.append((operand.source, operand.form.offset))
        stores: list[tuple[int, Access]] = []
        for node, index in group.stores:
            if group.assign is node:
                region = node.attrs[0]
                strides = dense_strides(node.shape)
                form = flatten(index, [s * step for s, (_, step, _) in zip(strides, region, strict=True)])
                form = Form(
                    form.offset + sum(s * start for s, (start, _, _) in zip(strides, region, strict=True)), form.terms
                )
            else:
                form = flatten(index, dense_strides(node.shape))
            key = self.final((node, index))
            stores.append((self.value(key), self.access(node, form, node.dtype)))
            if group.assign is node and node.data is not None:  # where it begins is data
                self.starts += ((stores[-1][1].buffer, node.data),)
        kernel = Kernel(
            tuple(tuple(r.extent for r in scope) for scope in self.ranges),
            tuple(self.instrs),
            tuple(stores),
            tuple(n.op.name for n in reversed(group.nodes)),
            None if group.anchor is None else self.anchor(group.anchor),
            self.flops(),
        )
        return kernel if group.anchor is not None else merge_loops(kernel)

    def flops(self) -> int:
        extents = [[r.extent for r in scope] for scope in self.ranges]
        total = 0
        for instr in self.instrs:
            if instr.kind in ("op", "reduce") and instr.op is not None:
                depth = instr.scope + (instr.kind == "reduce")
                total += instr.op.cost * prod(e for scope in extents[: depth + 1] for e in scope)
        return total

    def buffer(self, node: Node, offset: int) -> int:
        if (node, offset) not in self.buffers:
            self.buffers.append((node, offset))
        return self.buffers.index((node, offset))

    def access(self, node: Node, form: Form, dtype: DType) -> Access:
        return Access(self.buffer(node, form.offset), self.strides(form), form.offset, dtype)

    def value(self, key: Key) -> int:
        """The instruction that computes a value, made if need be; iterative, since chains are long."""
        made = self.made
        key = self.resolve(key)
        stack = [] if key in made else [(key, self.sources(key))]
        while stack:
            top, args = stack[-1]
            missing = [k for k in args if k not in made]
            if missing:
                stack += [(k, self.sources(k)) for k in missing]
                continue
            if top not in made:  # it may stand on the stack twice
                self.instrs.append(self.instr(top, tuple([made[k] for k in args])))
                made[top] = len(self.instrs) - 1
            stack.pop()
        return made[key]

    def resolve(self, key: Key) -> Key:
        aliases = self.aliases
        while key in aliases:
            key = aliases[key]
        return key

    def sources(self, key: Key) -> list[Key]:
        """Values that must exist before this one, in argument order."""
        node, index = key
        kind = node.op.kind
        if key in self.reads or kind in (CONST, IOTA) or node is self.group.anchor:
            return []
        if kind == REDUCE:
            at = self.values[key]
            assert at is not None
            return [self.resolve((node.srcs[0], at))]
        shape = node.meta.shape
        srcs = node.srcs[1:] if kind == GATHER else node.srcs
        return [self.resolve((s, broadcast(index, shape, s.meta.shape))) for s in srcs]

    def instr(self, key: Key, args: tuple[int, ...]) -> Instr:
        """What computes a value from others."""
        node, index = key
        op, dtype = node.op, node.meta.dtype
        if key in self.reads:
            return self.placed("load", self.access(node, self.reads[key], dtype))
        if op.kind == CONST:
            return Instr("uniform", dtype, 0, frozenset(), uniform=self.uniform_of(node))
        if op.kind == IOTA:
            form = flatten(index, dense_strides(node.shape))
            return self.placed("index", Access(-1, self.strides(form), form.offset, dtype))
        if node is self.group.anchor:
            return Instr("acc", dtype, 0, frozenset(range(len(self.position))))
        made = [self.instrs[a] for a in args]
        loops = frozenset().union(*[i.loops for i in made])
        scope = max([i.scope for i in made], default=0)
        if op.kind == REDUCE:
            scope = self.reduce_scope(index)
            inner = {self.position[r] for d in range(scope + 1, len(self.ranges)) for r in self.ranges[d]}
            return Instr("reduce", dtype, scope, loops - inner, op, node.attrs, args)
        if op.kind == GATHER:
            return self.gather(node, index, args, loops, scope)
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
        return replace(
            placed,
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
        return replace(x, strides=tuple(x.strides[k] for k in kept))

    instrs = tuple(
        replace(i, loops=frozenset(renumber[n] for n in i.loops), access=None if i.access is None else access(i.access))
        for i in kernel.instrs
    )
    loops = tuple(tuple(extents[k] for k in kept if scopes[k] == d) for d in range(kernel.depth))
    return replace(kernel, loops=loops, instrs=instrs, stores=tuple((v, access(a)) for v, a in kernel.stores))
