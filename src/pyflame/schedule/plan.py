"""Graph -> Plan: fuse, order, and give every stored value a place in memory."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import prod

from pyflame.core.device import Target
from pyflame.core.shape import is_contiguous
from pyflame.ir import Node
from pyflame.ir.graph import topological
from pyflame.ir.implementation import Table
from pyflame.ir.kernel import BufferDecl, Kernel, Launch, OperandView, OutputView, Plan
from pyflame.schedule.fuse import Fuser, Group
from pyflame.schedule.lower import Lowering

ALIGNMENT = 64


def make_plan(
    outputs: Sequence[Node],
    inputs: dict[Node, int],
    constants: dict[Node, int],
    target: Target,
    table: Table,
    max_ops: int,
) -> Plan:
    """`inputs` and `constants` number the graph's leaves and constants as the caller will supply them."""
    fuser = Fuser(topological(outputs), outputs, target, table, max_ops)
    fuser.run()
    plan = _Planner(fuser, inputs, constants, outputs).run()
    for group in fuser.groups:
        group.operands.clear()  # they point back to it: the circle would hold nodes until a collection
    return plan


class _Planner:
    def __init__(
        self, fuser: Fuser, inputs: dict[Node, int], constants: dict[Node, int], outputs: Sequence[Node]
    ) -> None:
        self.fuser = fuser
        self.inputs = inputs
        self.constants = constants
        self.outputs = outputs
        self.plan = Plan([], [], [], [])
        self.buffer_of: dict[Node, int] = {}
        self.uniforms: dict[Node, int] = {}
        self.checks: dict[Node, int] = {}
        self.last_use: dict[int, int] = {}
        self.first_use: dict[int, int] = {}

    def run(self) -> Plan:
        plan = self.plan
        groups = self.ordered()
        for node, position in self.inputs.items():
            self.buffer_of[node] = len(plan.buffers)
            plan.buffers.append(BufferDecl(node.meta.nbytes, "input", position, dtype=node.dtype, shape=node.shape))
        for group in groups:
            for node, _ in group.stores:
                self.allocate(node, group)
        for group in groups:
            launch = self.launch(group)
            if launch is not None:
                for buffer, _ in launch.buffers:
                    self.first_use.setdefault(buffer, len(plan.launches))
                    self.last_use[buffer] = len(plan.launches)
                plan.launches.append(launch)
        views = {operand.node: operand for operand in self.fuser.outputs}
        for node in self.outputs:
            operand = views[node]
            assert operand.source is not None
            buffer = self.buffer_of[operand.source]
            decl = plan.buffers[buffer]
            if decl.role == "scratch":
                decl.role = "output"
            strides = operand.strides()
            contiguous = is_contiguous(node.shape, strides) and operand.form.offset == 0
            plan.outputs.append(OutputView(buffer, operand.form.offset, None if contiguous else strides))
        self.place_scratch()
        return plan

    def ordered(self) -> list[Group]:
        """Groups so that what is read has been stored, the one that came first in the graph first."""
        groups = self.fuser.groups
        number = {g: i for i, g in enumerate(groups)}
        needs: dict[Group, set[Group]] = {}
        users: dict[Group, list[Group]] = {g: [] for g in groups}
        for group in groups:
            nodes = {n for n, _ in group.reads} | {o.source for o in group.operands if o.source is not None}
            deps = {self.fuser.stored[n] for n in nodes if n in self.fuser.stored} - {group}
            needs[group] = deps
            for d in deps:
                users[d].append(group)
        ready = [(-number[g], number[g]) for g in groups if not needs[g]]
        heapq.heapify(ready)
        order = []
        while ready:
            _, i = heapq.heappop(ready)
            group = groups[i]
            order.append(group)
            for user in users[group]:
                needs[user].discard(group)
                if not needs[user]:
                    heapq.heappush(ready, (-number[user], number[user]))
        assert len(order) == len(groups), "the groups of a plan depend on each other in a circle"
        return order

    def allocate(self, node: Node, group: Group) -> None:
        """A buffer for a stored node; an assignment takes over its base's."""
        for operand in group.operands:
            if operand.base and (group.assign is node or group.anchor is node):
                assert operand.source is not None
                self.buffer_of[node] = self.buffer_of[operand.source]
                return
        self.buffer_of[node] = len(self.plan.buffers)
        self.plan.buffers.append(BufferDecl(node.meta.nbytes, "scratch", dtype=node.dtype, shape=node.shape))

    def uniform(self, node: Node) -> int:
        if node not in self.uniforms:
            self.uniforms[node] = len(self.plan.uniforms)
            source, value = ("slot", self.constants[node]) if node in self.constants else ("value", node.data)
            self.plan.uniforms.append((source, value, node.dtype.is_float))
        return self.uniforms[node]

    def check(self, node: Node) -> int:
        if node not in self.checks:
            self.checks[node] = len(self.plan.checks)
            self.plan.checks.append((node.op.name.removesuffix("_at"), node.line or ""))
        return self.checks[node]

    def launch(self, group: Group) -> Launch | None:
        anchor = group.anchor
        if anchor is not None and anchor.op.name == "uninitialized":
            return None
        lowering = Lowering(group, self.uniform, self.check)
        kernel = lowering.run()
        buffers = [(self.buffer_of[n], offset * n.dtype.itemsize) for n, offset in lowering.buffers]
        operands = []
        if anchor is not None:
            operands = [OperandView(i, o.node.shape, o.strides(), o.node.dtype) for i, o in enumerate(group.operands)]
        implementation = group.implementation
        root = group.stores[0][0]
        nbytes, flops = _cost(kernel, operands)
        return Launch(
            name="_".join(dict.fromkeys(kernel.ops))[:60] or "copy",
            kernel=kernel,
            buffers=buffers,
            operands=operands,
            ops=kernel.ops,
            nbytes=nbytes,
            flops=flops,
            implementation=implementation.name if implementation else "generated",
            why=implementation.why if implementation else "fused loop nest",
            output=root.shape,
        )

    def place_scratch(self) -> None:
        """Offsets in the arena: a buffer may lie where another lay that is no longer needed; big ones choose first."""
        plan = self.plan
        scratch = [i for i, b in enumerate(plan.buffers) if b.role == "scratch"]
        plan.intermediate_bytes = sum(plan.buffers[i].nbytes for i in scratch)
        placed: list[tuple[int, int, int, int]] = []  # first use, last use, offset, end
        for i in sorted(scratch, key=lambda i: -plan.buffers[i].nbytes):
            size = -(-max(plan.buffers[i].nbytes, 1) // ALIGNMENT) * ALIGNMENT
            first, last = self.first_use.get(i, 0), self.last_use.get(i, 0)
            busy = sorted((o, e) for f, t, o, e in placed if f <= last and first <= t)
            offset = 0
            for start, end in busy:
                if start - offset >= size:
                    break
                offset = max(offset, end)
            plan.buffers[i].offset = offset
            placed.append((first, last, offset, offset + size))
            plan.arena_bytes = max(plan.arena_bytes, offset + size)


def _cost(kernel: Kernel, operands: Sequence[OperandView]) -> tuple[int, int]:
    """Bytes that must move (each element of each access once) and floating-point operations."""
    extents = [e for scope in kernel.loops for e in scope]
    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    for access in [i.access for i in kernel.instrs if i.access is not None and i.access.buffer >= 0] + [
        a for _, a in kernel.stores
    ]:
        count = prod(e for e, s in zip(extents, access.strides, strict=True) if s)
        seen[(access.buffer, access.strides)] = count * access.dtype.itemsize
    nbytes = sum(seen.values())
    for view in operands:
        nbytes += prod(s for s, step in zip(view.shape, view.strides, strict=True) if step) * view.dtype.itemsize
    flops = kernel.flops
    anchor = kernel.anchor
    if anchor is not None and anchor.op.name == "matmul":
        flops += 2 * anchor.meta.size * anchor.srcs[0].shape[-1]
    elif anchor is not None and anchor.op.name == "conv_general":
        flops += 2 * anchor.meta.size * prod(anchor.srcs[1].shape[2:])  # channels and taps
    return nbytes, flops
