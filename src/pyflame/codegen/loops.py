"""Loops of a Kernel rearranged for code generation: none missing, and the one that runs along memory innermost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyflame.core.shape import contiguous_strides
from pyflame.ir.kernel import Access, Instr, Kernel

SHORT = 8  # a loop of fewer iterations is not worth vectorising when a longer one is there


def join_columns(kernel: Kernel, first: int) -> Kernel:
    """Run the column loops of an anchored kernel, those from `first` on, as few where its accesses allow that."""
    (extents,) = kernel.loops
    return _full_strides(join_parts(kernel, [*[1] * first, len(extents) - first])[0])


def join_parts(kernel: Kernel, parts: Sequence[int]) -> tuple[Kernel, list[list[int]]]:
    """Run loops of an anchored kernel that follow each other as one where its accesses allow that.

    parts: how many loops, in order, stay apart from the others; with the kernel come the loops of each.
    """
    (extents,) = kernel.loops
    owner = [number for number, count in enumerate(parts) for _ in range(count)]
    for n in reversed(range(len(extents) - 1)):
        outer, last = extents[n : n + 2]
        accesses = [i.access for i in kernel.instrs if i.access is not None] + [a for _, a in kernel.stores]
        apart = outer != 1 and last != 1 and any(a.strides[n] != a.strides[n + 1] * last for a in accesses)
        if owner[n] != owner[n + 1] or apart:
            continue
        extents, gone = (*extents[:n], outer * last, *extents[n + 2 :]), n + 1 if last == 1 else n
        renumber = {old: old - (old > n) for old in range(len(owner))}
        kernel = _map_access(kernel, (extents,), _without(gone), renumber)
        del owner[n]
    return kernel, [[n for n, part in enumerate(owner) if part == number] for number in range(len(parts))]


def _without(axis: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    return lambda s: (*s[:axis], *s[axis + 1 :])


def _full_strides(kernel: Kernel) -> Kernel:
    """Let loops of extent 1 step as longer ones would in contiguous accesses, so that the text is the same."""
    (extents,) = kernel.loops
    dense = contiguous_strides(extents)

    def full(access: Access) -> Access:
        fits = all(s == d for s, d, e in zip(access.strides, dense, extents, strict=True) if e != 1)
        return access._replace(strides=dense) if fits else access

    instrs: list[Instr] = []
    for i in kernel.instrs:
        access = None if i.access is None else full(i.access)
        own = frozenset() if access is None else frozenset(n for n, s in enumerate(access.strides) if s)
        instrs.append(i._replace(access=access, loops=i.loops.union(own, *(instrs[a].loops for a in i.args))))
    return replace(kernel, instrs=tuple(instrs), stores=tuple((v, full(a)) for v, a in kernel.stores))


def prepare(kernel: Kernel) -> Kernel:
    """Give every scope a loop, and put the loop that runs along memory last in its scope."""
    if kernel.loops[-1] == ():
        kernel = _insert_loop(kernel, len([e for s in kernel.loops for e in s]), kernel.depth - 1)
    start = 0
    order: list[int] = []
    extents = [e for scope in kernel.loops for e in scope]
    for scope in kernel.loops:
        loops = list(range(start, start + len(scope)))
        start += len(scope)
        if len(loops) > 1:
            # A short loop is not worth vectorising when a long one is there.
            best = max(
                loops, key=lambda n: (extents[n] >= SHORT or extents[n] == max(extents), contiguous(kernel, n), n)
            )
            loops = [n for n in loops if n != best] + [best]
        order += loops
    return kernel if order == sorted(order) else _reorder(kernel, order)


def along_memory(accesses: Sequence[Access], loop: int) -> tuple[int, ...]:
    """How many accesses run along memory with this loop: of those that differ in all loops, in all but one, ... A value
    for each row stays in the cache, in whatever order rows are gone through."""
    found = [sum(s != 0 for s in a.strides) for a in accesses if abs(a.strides[loop]) == 1]
    most = len(accesses[0].strides) if accesses else 0
    return tuple([found.count(n) for n in range(most, 0, -1)])


def contiguous(kernel: Kernel, loop: int) -> tuple[int, ...]:
    """The same of all accesses of a kernel; stores count twice."""
    reads = [i.access for i in kernel.instrs if i.access is not None and i.kind != "index"]
    return along_memory([*reads, *[a for _, a in kernel.stores] * 2], loop)


def _map_access(
    kernel: Kernel,
    loops: tuple[tuple[int, ...], ...],
    strides: Callable[[tuple[int, ...]], tuple[int, ...]],
    renumber: dict[int, int],
) -> Kernel:
    instrs = tuple(
        i._replace(
            loops=frozenset(renumber[n] for n in i.loops),
            access=None if i.access is None else i.access._replace(strides=strides(i.access.strides)),
        )
        for i in kernel.instrs
    )
    stores = tuple((v, a._replace(strides=strides(a.strides))) for v, a in kernel.stores)
    return replace(kernel, loops=loops, instrs=instrs, stores=stores)


def _insert_loop(kernel: Kernel, position: int, scope: int) -> Kernel:
    """A loop of extent 1 at this position."""
    loops = tuple((*s, 1) if d == scope else s for d, s in enumerate(kernel.loops))
    total = sum(len(s) for s in kernel.loops)
    renumber = {n: n + (n >= position) for n in range(total)}
    return _map_access(kernel, loops, lambda s: (*s[:position], 0, *s[position:]), renumber)


def _reorder(kernel: Kernel, order: list[int]) -> Kernel:
    extents = [e for s in kernel.loops for e in s]
    loops = []
    start = 0
    for scope in kernel.loops:
        loops.append(tuple(extents[n] for n in order[start : start + len(scope)]))
        start += len(scope)
    renumber = {old: new for new, old in enumerate(order)}
    return _map_access(kernel, tuple(loops), lambda s: tuple(s[n] for n in order), renumber)
