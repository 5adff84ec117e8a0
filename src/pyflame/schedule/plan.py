"""Graph -> draft of a plan: fuse, order, and give every stored value a place in memory."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from pyflame.core.cached import cached_property
from pyflame.core.device import Target
from pyflame.core.shape import is_contiguous
from pyflame.core.traced import whole
from pyflame.ir import Node
from pyflame.ir.graph import Graph
from pyflame.ir.implementation import Table
from pyflame.ir.kernel import BufferDecl, Draft, Kernel, Launch, OperandView, OutputView
from pyflame.schedule.beside import beside
from pyflame.schedule.fuse import Fuser
from pyflame.schedule.group import Group
from pyflame.schedule.lower import Lowering
from pyflame.schedule.order import Order
from pyflame.schedule.verify import verify

ALIGNMENT = 64


def make_plan(
    graph: Graph,
    inputs: dict[Node, int],
    constants: dict[Node, int],
    target: Target,
    table: Table,
    max_ops: int,
    donations: Mapping[Node, Node] | None = None,
) -> Draft:
    """`inputs` and `constants` number the graph's leaves and constants as the caller will supply them.

    `donations`: inputs whose buffer an output may take over, if the caller lets it when the plan runs.
    """
    fuser = Fuser(graph, target, table, max_ops)
    fuser.run()
    return _Planner(fuser, inputs, constants, graph.outputs, donations or {}).run()


class _Planner:
    def __init__(
        self,
        fuser: Fuser,
        inputs: dict[Node, int],
        constants: dict[Node, int],
        outputs: Sequence[Node],
        donations: Mapping[Node, Node],
    ) -> None:
        self.fuser = fuser
        self.inputs = inputs
        self.constants = constants
        self.outputs = outputs
        self.stops = not fuser.target.is_gpu  # whether a bad index ends a run of the plan
        source_of = {operand.node: operand.source for operand in fuser.outputs}
        self.kept = {source for source in source_of.values() if source is not None}
        # input -> the stored node that takes its buffer over
        self.donations = {
            leaf: receiver
            for leaf, node in donations.items()
            if (receiver := source_of[node]) is not None and receiver in fuser.stored and _same_layout(leaf, receiver)
        }
        self.plan = Draft([], [], [], [])
        self.buffer_of: dict[Node, int] = {}
        self.uniforms: dict[Node, int] = {}
        self.checks: dict[Node, int] = {}
        self.last_use: dict[int, int] = {}
        self.first_use: dict[int, int] = {}

    def run(self) -> Draft:
        plan = self.plan
        groups = Order(self.fuser.groups, self.fuser.stored, self.donations, self.kept, self.stops).run()
        for node, position in self.inputs.items():
            if node.data is None:  # memory for an output, which nobody reads
                continue
            self.buffer_of[node] = len(plan.buffers)
            plan.buffers.append(BufferDecl(node.meta.nbytes, "input", position, dtype=node.dtype, shape=node.shape))
        for group in groups:
            for site in group.stores:
                self.allocate(site.node, group)
        for group in groups:
            launch = self.launch(group)
            group.clear()
            if launch is not None:
                self.add(launch)
        views = {operand.node: operand for operand in self.fuser.outputs}
        for node in self.outputs:
            operand = views[node]
            assert operand.source is not None
            buffer = self.buffer_of[operand.source]
            strides = operand.strides()
            contiguous = is_contiguous(node.shape, strides)
            plan.outputs.append(OutputView(buffer, operand.form.offset, None if contiguous else strides))
        self.hand_down()
        self.place_scratch()
        return plan

    def add(self, launch: Launch) -> None:
        """Put a launch behind the others; on a GPU one of those may do it, too."""
        # Who may take over a buffer comes behind all that read it.
        waits = any(buffer in self.receivers for buffer, _ in launch.buffers) or not self.fuser.target.is_gpu
        number = -1 if waits else beside(self.plan.launches, launch)
        if number < 0:
            number = len(self.plan.launches)
            self.plan.launches.append(launch)
        for buffer, _ in launch.buffers:
            self.first_use[buffer] = min(number, self.first_use.get(buffer, number))
            self.last_use[buffer] = max(number, self.last_use.get(buffer, number))

    @cached_property
    def receivers(self) -> set[int]:
        """Buffers that may lie where a donated one lies."""
        found = {self.buffer_of[node] for node in self.donations.values()}
        return {buffer for buffer in found if self.plan.buffers[buffer].role == "output"}

    def allocate(self, node: Node, group: Group) -> None:
        """A buffer for a stored node; an assignment takes over its base's."""
        for operand in group.operands:
            if operand.base and (group.assign is node or group.anchor is node):
                assert operand.source is not None
                self.buffer_of[node] = buffer = self.buffer_of[operand.source]
                decl = self.plan.buffers[buffer]
                if decl.role == "input" and decl.position not in self.plan.overwritten_inputs:
                    self.plan.overwritten_inputs.append(decl.position)
                if decl.role == "scratch" and node in self.kept:
                    self.plan.buffers[buffer] = replace(decl, role="output")
                return
        role = "output" if node in self.kept else "scratch"
        self.buffer_of[node] = len(self.plan.buffers)
        self.plan.buffers.append(BufferDecl(node.meta.nbytes, role, dtype=node.dtype, shape=node.shape))

    def uniform(self, node: Node) -> int:
        number = self.uniforms.get(node)
        if number is None:
            number = self.uniforms[node] = len(self.plan.uniforms)
            source, value = ("slot", self.constants[node]) if node in self.constants else ("value", node.data)
            self.plan.uniforms.append((source, value, node.dtype.is_float))
        return number

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
        buffers = tuple([(self.buffer_of[n], offset * n.dtype.itemsize) for n, offset in lowering.buffers])
        operands: tuple[OperandView, ...] = ()
        if anchor is not None:
            views = enumerate(group.operands)
            operands = tuple([OperandView(i, o.node.shape, o.strides(), o.node.dtype) for i, o in views])
        verify(kernel, operands, lowering.buffers)
        implementation = group.implementation
        root = group.stores[0].node
        nbytes, flops = cost(kernel, operands)
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
            overwrites_input=self.plan.buffers[self.buffer_of[root]].role == "input",
            starts=lowering.starts,
            unwritten=self.unwritten(buffers) if anchor is not None else frozenset(),
        )

    @cached_property
    def written_inputs(self) -> set[int]:
        """Positions of inputs that a launch may write, once all buffers are allocated."""
        return {*self.plan.overwritten_inputs, *[self.inputs[leaf] for leaf in self.donations]}

    def unwritten(self, buffers: Sequence[tuple[int, int]]) -> frozenset[int]:
        """Which of a launch's buffers are inputs that no launch writes."""
        decls = enumerate([self.plan.buffers[b] for b, _ in buffers])
        return frozenset([n for n, decl in decls if decl.role == "input" and decl.position not in self.written_inputs])

    def hand_down(self) -> None:
        """Let outputs take over a donated buffer, where all others have read it before, or read what they overwrite."""
        plan = self.plan
        kept = {view.buffer for view in plan.outputs}
        checking = [i for i, launch in enumerate(plan.launches) if launch.kernel.checked and self.stops]
        for leaf, node in self.donations.items():
            given, taken = self.buffer_of.get(leaf, -1), self.buffer_of[node]
            first, last = self.first_use.get(taken), self.last_use.get(given, -1)
            if first is None or given in kept or plan.buffers[taken].role != "output" or last > first:
                continue
            if any(i >= first for i in checking):
                continue
            if last < first or plan.launches[first].reads_where_it_writes(given, taken):
                plan.donations[self.inputs[leaf]] = taken

    def place_scratch(self) -> None:
        """Give scratch buffers their offsets in the arena."""
        plan = self.plan
        scratch = [i for i, b in enumerate(plan.buffers) if b.role == "scratch"]
        sizes = [plan.buffers[i].nbytes for i in scratch]
        plan.intermediate_bytes = sum(sizes)
        uses = tuple([(self.first_use.get(i, 0), self.last_use.get(i, 0)) for i in scratch])
        plan.arena_bytes, *offsets = _placed(uses, *sizes)
        for i, offset in zip(scratch, offsets, strict=True):
            plan.buffers[i] = replace(plan.buffers[i], offset=offset)


@whole
def _placed(uses: Sequence[tuple[int, int]], *sizes: int) -> tuple[int, ...]:
    """The bytes of an arena and offsets in it: a buffer, with its first and last use, may lie where another lay that is
    no longer needed. Big ones choose first.

    >>> _placed([(0, 1), (1, 2), (2, 3)], 100, 64, 100)
    (192, 0, 128, 0)
    """
    placed: list[tuple[int, int, int, int]] = []  # begin, end, first and last use: in the order of memory
    offsets, arena = [0] * len(sizes), 0
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = -(-max(sizes[i], 1) // ALIGNMENT) * ALIGNMENT
        first, last = uses[i]
        offset = 0
        for begin, end, used, unused in placed:
            if used <= last and unused >= first:
                if begin - offset >= size:  # the first gap that is wide enough
                    break
                offset = max(offset, end)
        offsets[i] = offset
        insort(placed, (offset, offset + size, first, last))
        arena = max(arena, offset + size)
    return arena, *offsets


def _same_layout(leaf: Node, node: Node) -> bool:
    """Whether a value fits the bytes of a leaf's buffer exactly."""
    return leaf.meta.nbytes == node.meta.nbytes and (leaf.data is None or leaf.data.strides is None)


@whole
def keys_seen(queries: int, keys: int, low: int | None, high: int | None) -> int:
    """By the query in the middle: low <= key - query <= high."""
    begin = 0 if low is None else max(0, queries // 2 + low)
    return max(0, (keys if high is None else min(keys, queries // 2 + high + 1)) - begin)


_PRODUCTS = ("matmul", "encoded_linear", "interleaved_linear", "expert_linear_at", "norm_linear")


def cost(kernel: Kernel, operands: Sequence[OperandView]) -> tuple[int, int]:
    """Bytes that must move (each element of each access once) and floating-point operations."""
    extents = [e for scope in kernel.loops for e in scope]
    seen: dict[tuple[int, tuple[int, ...]], int] = {}
    for access in [i.access for i in kernel.instrs if i.access is not None and i.access.buffer >= 0] + [
        a for _, a in (kernel.stores if kernel.line is None else kernel.stores[1:])
    ]:
        count = prod(e for e, s in zip(extents, access.strides, strict=True) if s)
        seen[(access.buffer, access.strides)] = count * access.dtype.itemsize
    nbytes = sum(seen.values())
    if kernel.line is not None:
        nbytes += prod(extents) * kernel.stores[0][1].dtype.itemsize
    for view in operands:
        nbytes += prod(s for s, step in zip(view.shape, view.strides, strict=True) if step) * view.dtype.itemsize
    flops = kernel.flops
    anchor = kernel.anchor
    if anchor is not None and anchor.op.name == "expert_linear_at":  # matrices that no line names are not read
        _, stack, ids = anchor.srcs
        nbytes -= max(0, stack.shape[0] - ids.size) * prod(stack.shape[1:]) * stack.dtype.itemsize
    if anchor is not None and anchor.op.name in _PRODUCTS:
        flops += 2 * anchor.meta.size * anchor.srcs[0].shape[-1]
    elif anchor is not None and anchor.op.name == "conv_general":
        dilation = prod(anchor.attrs[3])  # of x, between whose numbers nothing is multiplied
        flops += 2 * anchor.meta.size * prod(anchor.srcs[1].shape[2:]) // dilation  # channels and taps
    elif anchor is not None and anchor.op.name.startswith("attention"):
        backward = anchor.op.name == "attention_backward"
        query, _, value = anchor.srcs[backward : backward + 3]
        depth, width = query.shape[-1], value.shape[-1]
        scores = prod(query.shape[:-1]) * keys_seen(query.shape[-2], value.shape[-2], *anchor.attrs[:2])
        flops += 2 * scores * (3 * depth + 2 * width if backward else depth + width)
    return nbytes, flops
