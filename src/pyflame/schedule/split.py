"""Splits off what an implementation cannot fuse: a launch becomes a product, what must be ready before it and what is
left to do behind it.

A kernel of ours takes any elementwise ops behind a product. A library knows the product, and perhaps a bias, a sum or
an activation: `takes` finds how much of a launch it could do, `divide` rewrites the plan. The product's own launch
still is a complete one, so a kernel of ours can always run it instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from pyflame.core.shape import contiguous_strides
from pyflame.ir.kernel import Access, Anchor, BufferDecl, Draft, Instr, Kernel, Launch
from pyflame.schedule.lower import merge_loops
from pyflame.schedule.plan import ALIGNMENT, cost

LONG = 512  # terms of a product from which on a wider result costs little beside it
ACTIVATIONS = {"relu": "relu", "gelu_tanh": "gelu"}  # ops, and what libraries call them


@dataclass(frozen=True)
class Take:
    """How much of a launch somebody else does: up to the value of an instruction.

    That value is activation(product + bias + addend), where the bias changes along the last axis alone. Bias and addend
    are instructions; -1: none.
    """

    value: int
    bias: int = -1
    addend: int = -1
    activation: str = ""


@dataclass(frozen=True)
class Way:
    """How to divide a launch. `direct`: the result goes where the launch stores it, else to memory in between.

    `strides`: of that memory, per axis of the result; empty: row-major.
    """

    take: Take
    direct: bool
    strides: tuple[int, ...] = ()


def takes(kernel: Kernel) -> list[Take]:
    """How much of a kernel could be taken: the product alone first, then more and more of what follows."""
    at = next(v for v, i in enumerate(kernel.instrs) if i.kind == "acc")
    found = [Take(at)]
    stored = {v for v, _ in kernel.stores}
    while found[-1].value not in stored:
        users = [v for v, i in enumerate(kernel.instrs) if found[-1].value in i.args]
        following = _following(kernel, found[-1], users[0]) if len(users) == 1 else None
        if following is None:
            break
        found.append(following)
    return found


def _following(kernel: Kernel, take: Take, user: int) -> Take | None:
    """The take with one more instruction, if that is one of the few that libraries know."""
    instr, value = kernel.instrs[user], kernel.instrs[take.value]
    name = instr.op.name if instr.kind == "op" and instr.op is not None else ""
    if name == "cast":
        wider = value.kind == "acc" and instr.dtype.name == "float32" and value.dtype.itemsize == 2
        assert kernel.anchor is not None
        long = any(v == user for v, _ in kernel.stores) or kernel.anchor.srcs[0].shape[-1] >= LONG
        return Take(user) if wider and long else None
    if instr.dtype != value.dtype or take.activation:
        return None
    if name == "add":
        (other,) = [a for a in instr.args if a != take.value] or [take.value]
        added = kernel.instrs[other]
        last = len(kernel.loop_scope()) - 1
        if added.dtype != value.dtype or other == take.value:
            return None
        if take.bias < 0 and added.loops <= {last}:
            return replace(take, value=user, bias=other)
        if take.addend < 0 and added.kind == "load":
            return replace(take, value=user, addend=other)
    if name in ACTIVATIONS:
        return replace(take, value=user, activation=ACTIVATIONS[name])
    return None


def destination(launch: Launch, take: Take) -> Access | None:
    """Where a launch stores the value that is taken."""
    return next((access for v, access in launch.kernel.stores if v == take.value), None)


def may_be_direct(plan: Draft, launch: Launch, take: Take) -> bool:
    """Whether the value may be stored before the rest of the launch has run.

    Not where it takes over an input's memory which the rest still reads.
    """
    access = destination(launch, take)
    if access is None:
        return False
    target = launch.buffers[access.buffer][0]
    given = [n for n, b in enumerate(plan.buffers) if b.role == "input" and plan.donations.get(b.position) == target]
    for v, instr in enumerate(launch.kernel.instrs):
        if instr.access is None or instr.access.buffer < 0 or launch.buffers[instr.access.buffer][0] not in given:
            continue
        if v != take.addend or instr.access.strides != access.strides:
            return False
    return True


def alone(plan: Draft, number: int) -> Draft:
    """A draft of one launch of another, whose buffers are its inputs and outputs."""
    launch = plan.launches[number]
    written = {launch.buffers[a.buffer][0] for _, a in launch.kernel.stores}
    order = list(dict.fromkeys(n for n, _ in launch.buffers))
    buffers = []
    for position, n in enumerate(order):
        role = "output" if n in written else "input"
        buffers.append(replace(plan.buffers[n], role=role, position=position if role == "input" else -1, offset=0))
    at = {n: i for i, n in enumerate(order)}
    moved = replace(launch, buffers=tuple([(at[n], offset) for n, offset in launch.buffers]))
    return Draft(buffers, [moved], [], list(plan.uniforms))


def divide(plan: Draft, ways: Mapping[int, Way], apart: int = 0) -> dict[int, int]:
    """Rewrite some launches of a plan, by number; gives the new numbers of their products.

    Memory in between lies behind the plan's arena: it is needed from one launch to the next only. That of several
    launches lies `apart` up to so many bytes, so that one need not wait for another.
    """
    launches: list[Launch] = []
    products: dict[int, int] = {}
    base = begin = -(-plan.arena_bytes // ALIGNMENT) * ALIGNMENT
    for number, launch in enumerate(plan.launches):
        if number not in ways:
            launches.append(launch)
            continue
        parts = _Division(plan, launch, ways[number], begin)
        begin = parts.end if parts.end - base < apart else base
        products[number] = len(launches) + len(parts.before)
        launches += [*parts.before, parts.product, *parts.after]
        plan.arena_bytes = max(plan.arena_bytes, parts.end)
    plan.launches = launches
    return products


class _Division:
    """One launch on its way to several."""

    def __init__(self, plan: Draft, launch: Launch, way: Way, base: int) -> None:
        self.plan = plan
        self.launch = launch
        self.end = base
        self.instrs = list(launch.kernel.instrs)
        self.buffers = list(launch.buffers)
        self.before: list[Launch] = []
        self.after: list[Launch] = []
        take, kernel = way.take, launch.kernel
        shape = kernel.loops[0]
        if take.bias >= 0 and not self.is_vector(take.bias):
            self.store_bias(take.bias, shape[-1])
        access = destination(launch, take) if way.direct else None
        if access is None:
            access = self.memory(take.value, shape, way.strides or contiguous_strides(shape))
        left = [(v, a) for v, a in kernel.stores if (v, a) != (take.value, access)]
        kept = len(launch.operands)
        self.product = self.part(self.instrs, [(take.value, access)], shape, kept)
        if left:
            self.instrs[take.value] = self.load(take.value, access)
            self.after.append(self.part(self.instrs, left, shape))

    def is_vector(self, v: int) -> bool:
        """Whether a bias lies in memory one element behind the other."""
        instr, extents = self.instrs[v], self.launch.kernel.loops[0]
        return instr.kind == "load" and instr.access is not None and instr.access.strides[-1] == int(extents[-1] > 1)

    def store_bias(self, v: int, size: int) -> None:
        """Compute a bias in a launch of its own."""
        loops = len(self.launch.kernel.loops[0])
        access = self.memory(v, (size,), (1,))
        line = [self.along_last(i) for i in self.instrs]
        self.before.append(self.part(line, [(v, access)], (size,)))
        self.instrs[v] = self.load(v, access._replace(strides=(*[0] * (loops - 1), int(size > 1))))

    def along_last(self, instr: Instr) -> Instr:
        """An instruction of the last loop alone."""
        loops = frozenset({0} if instr.loops else ())
        if instr.access is None:
            return instr._replace(loops=loops)
        return instr._replace(loops=loops, access=instr.access._replace(strides=instr.access.strides[-1:]))

    def memory(self, v: int, shape: Sequence[int], strides: Sequence[int]) -> Access:
        """Memory in between for a value."""
        dtype = self.instrs[v].dtype
        nbytes = prod(shape) * dtype.itemsize
        offset = -(-self.end // ALIGNMENT) * ALIGNMENT
        self.end = offset + nbytes
        self.buffers.append((len(self.plan.buffers), 0))
        self.plan.buffers.append(BufferDecl(nbytes, "scratch", offset=offset, dtype=dtype, shape=tuple(shape)))
        self.plan.intermediate_bytes += nbytes
        return Access(len(self.buffers) - 1, tuple(strides), 0, dtype)

    def load(self, v: int, access: Access) -> Instr:
        loops = frozenset(n for n, s in enumerate(access.strides) if s)
        return Instr("load", self.instrs[v].dtype, 0, loops, access=access)

    def part(
        self, instrs: Sequence[Instr], stores: Sequence[tuple[int, Access]], shape: Sequence[int], operands: int = 0
    ) -> Launch:
        """A launch that makes these values. With `operands` it is the product's, whose first buffers those are."""
        needed = _needed(instrs, [v for v, _ in stores])
        accesses = [a for v in needed if (a := instrs[v].access) is not None and a.buffer >= 0]
        used = list(dict.fromkeys([*range(operands), *(a.buffer for a in [*accesses, *(a for _, a in stores)])]))
        anchor = self.launch.kernel.anchor if operands else None
        kernel = _kernel(instrs, needed, stores, used, shape, anchor)
        kernel = kernel if anchor else merge_loops(_along_memory(_without_ones(kernel)))
        views = self.launch.operands if operands else ()
        nbytes, flops = cost(kernel, views)
        return replace(
            self.launch,
            name="_".join(dict.fromkeys(kernel.ops))[:60] or "copy",
            kernel=kernel,
            buffers=tuple([self.buffers[b] for b in used]),
            operands=views,
            ops=kernel.ops,
            nbytes=nbytes,
            flops=flops,
            implementation=self.launch.implementation if anchor else "generated",
            why=self.launch.why if anchor else "split off a product",
            output=tuple(shape) if not anchor else anchor.meta.shape,
        )


def _kernel(
    instrs: Sequence[Instr],
    needed: Sequence[int],
    stores: Sequence[tuple[int, Access]],
    used: Sequence[int],
    shape: Sequence[int],
    anchor: Anchor | None,
) -> Kernel:
    """A kernel of the instructions `needed`, its buffers those of `used`, both numbered anew in this order."""
    value, buffer = {v: n for n, v in enumerate(needed)}, {b: n for n, b in enumerate(used)}

    def renamed(a: Access) -> Access:
        return a._replace(buffer=buffer.get(a.buffer, -1))

    made = tuple(
        i._replace(args=tuple(value[a] for a in i.args), access=None if i.access is None else renamed(i.access))
        for i in (instrs[v] for v in needed)
    )
    ops = tuple(i.op.name for i in made if i.op is not None)
    flops = sum(i.op.cost for i in made if i.op is not None) * prod(shape)
    results = tuple((value[v], renamed(a)) for v, a in stores)
    return Kernel((tuple(shape),), made, results, (anchor.op.name, *ops) if anchor else ops, anchor, flops)


def _needed(instrs: Sequence[Instr], targets: Sequence[int]) -> list[int]:
    """What must be computed for some values, in order."""
    seen: set[int] = set()
    stack = list(targets)
    while stack:
        v = stack.pop()
        if v not in seen:
            seen.add(v)
            stack += instrs[v].args
    return sorted(seen)


def _along_memory(kernel: Kernel) -> Kernel:
    """A kernel of one scope whose loops run as its result lies in memory, innermost where neighbours are."""
    steps = kernel.stores[0][1].strides
    return _reordered(kernel, sorted(range(len(steps)), key=lambda n: -abs(steps[n])))


def _without_ones(kernel: Kernel) -> Kernel:
    """A kernel of one scope without loops of one turn."""
    return _reordered(kernel, [n for n, e in enumerate(kernel.loops[0]) if e != 1])


def _reordered(kernel: Kernel, kept: Sequence[int]) -> Kernel:
    """A kernel of one scope with some of its loops, in another order; those left out have one turn."""
    (extents,) = kernel.loops
    number = {n: i for i, n in enumerate(kept)}

    def narrowed(a: Access) -> Access:
        return a._replace(strides=tuple(a.strides[n] for n in kept))

    instrs = tuple(
        i._replace(
            loops=frozenset(number[n] for n in i.loops if n in number),
            access=None if i.access is None else narrowed(i.access),
        )
        for i in kernel.instrs
    )
    stores = tuple((v, narrowed(a)) for v, a in kernel.stores)
    return replace(kernel, loops=(tuple(extents[n] for n in kept),), instrs=instrs, stores=stores)
