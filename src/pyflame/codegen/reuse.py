"""The text of a kernel found again for other extents: kernel in, what a generator makes of it out.

A generator is run once with traced numbers (`core/traced.py`) in place of a kernel's extents, strides and others. So
all that the text depends on is known: the kernel's structure and what was noted. A kernel of this structure for which
all of that holds has the same text, and its arguments are computed from its own numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from pyflame.core.traced import Number, Trace
from pyflame.ir.kernel import Access, Instr, Kernel

R = TypeVar("R")
MAX_TRACED = 8  # traces of one structure that are kept; the class of an extent makes another
MAX_TRACES = 64  # that are made of one structure: beyond that its text depends on what never comes twice


@dataclass
class _Known:
    """What is known of kernels of one structure."""

    first: tuple[tuple[int, ...], Any] | None = None  # the numbers of the first one, and what was made of it
    traced: list[Callable[[tuple[int, ...]], Any]] = field(default_factory=list)  # give None where outcomes differ
    traces: int = 0


# Layers of a network are the same kernels, and so are parts of plans that differ in a length or elsewhere.
@lru_cache(maxsize=1024)
def _known(generator: Any, options: tuple[Any, ...], structure: tuple[Any, ...], attributes: str) -> _Known:
    return _Known()


def reuse(generator: Callable[..., R], kernel: Kernel, *options: Any) -> R:
    """What `generator(kernel, *options)` gives: a Source, a GpuSource, or strings and integers in tuples.

    It sees a kernel without anchor, ops and flops."""
    numbers = _numbers(kernel)
    if any(isinstance(number, Number) for number in numbers):  # a plan is being traced, and this is a part of it
        plain = [Number(n.value, n.name, n.trace) if isinstance(n, Number) else n for n in numbers]
        return generator(_with_numbers(kernel, iter(plain)), *options)
    known = _known(generator, options, _structure(kernel), _attributes(kernel))
    if known.first is not None and known.first[0] == numbers:
        return known.first[1]  # type: ignore[no-any-return]
    for again in known.traced:
        found = again(numbers)
        if found is not None:
            return found  # type: ignore[no-any-return]
    if known.first is None or known.traces == MAX_TRACES:
        made = generator(_with_numbers(kernel, iter(numbers)), *options)
        known.first = (numbers, made)
        return made
    known.traces += 1
    again = _traced(generator, kernel, numbers, options)
    known.traced = [again, *known.traced[: MAX_TRACED - 1]]
    found = again(numbers)
    assert found is not None, "a trace holds for the numbers it was made with"
    return found  # type: ignore[no-any-return]


def _traced(
    generator: Callable[..., R], kernel: Kernel, numbers: tuple[int, ...], options: tuple[Any, ...]
) -> Callable[[tuple[int, ...]], R | None]:
    trace = Trace()
    return trace.function(generator(_with_numbers(kernel, iter(trace.numbers(numbers))), *options))


def _attributes(kernel: Kernel) -> str:
    """What stands in the text as it is written: 1, 1.0 and True are equal, and 0.0 and -0.0, but no equal text."""
    return repr([i.attrs for i in kernel.instrs if i.attrs])


def _place(access: Access | None) -> tuple[Any, ...]:
    return () if access is None else (access.buffer, access.dtype)


def _structure(kernel: Kernel) -> tuple[Any, ...]:
    """All of a kernel but its numbers."""
    return (
        tuple([len(scope) for scope in kernel.loops]),
        tuple([
            (i.kind, i.dtype, i.scope, i.loops, i.op, i.attrs, i.args, len(i.dynamic), *_place(i.access))
            for i in kernel.instrs
        ]),
        tuple([(v, *_place(a)) for v, a in kernel.stores]),
    )  # fmt: skip


def _numbers(kernel: Kernel) -> tuple[int, ...]:
    """In the order in which `_with_numbers` takes them."""
    found = [extent for scope in kernel.loops for extent in scope]
    for i in kernel.instrs:
        if i.access is not None:
            found += i.access.strides
            found.append(i.access.offset)
        for pair in i.dynamic:
            found += pair
        found += (i.uniform, i.check)
    for _, access in kernel.stores:
        found += access.strides
        found.append(access.offset)
    return tuple(found)


def _with_numbers(kernel: Kernel, numbers: Iterator[Any]) -> Kernel:
    """The kernel with other numbers, and nothing that `_structure` leaves out."""

    def access(a: Access) -> Access:
        return a._replace(strides=tuple([next(numbers) for _ in a.strides]), offset=next(numbers))

    def instr(i: Instr) -> Instr:
        where = None if i.access is None else access(i.access)
        dynamic = tuple([(next(numbers), next(numbers)) for _ in i.dynamic])
        return i._replace(access=where, dynamic=dynamic, uniform=next(numbers), check=next(numbers))

    loops = tuple([tuple([next(numbers) for _ in scope]) for scope in kernel.loops])
    instrs = tuple([instr(i) for i in kernel.instrs])
    return Kernel(loops, instrs, tuple([(v, access(a)) for v, a in kernel.stores]), ())
