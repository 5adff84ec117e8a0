"""The text of a kernel found again for other extents: kernel in, what a generator makes of it out.

A generator is run once with traced numbers in place of a kernel's extents, strides and other numbers. They compute as
integers do, remember how they were made, and note every comparison with its outcome; one that is written into the text
or looked up is noted with its value. So all that the text depends on is known: the kernel's structure and what was
noted. A kernel of this structure for which all of that holds has the same text, and its arguments are computed from its
own numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from pyflame.ir.kernel import Access, GpuPhase, GpuSource, Instr, Kernel, Phase, Source

R = TypeVar("R")
_RESULTS = {kind.__name__: kind for kind in (Source, Phase, GpuSource, GpuPhase)}
MAX_TRACED = 8  # traces of one structure that are kept; the class of an extent makes another
MAX_TRACES = 64  # that are made of one structure: beyond that its text depends on what never comes twice


class Number:
    """An integer of a kernel: its value, and the Python expression that computes it from the kernel's numbers `n`."""

    __slots__ = ("outcomes", "text", "value")

    def __init__(self, value: int, text: str, outcomes: dict[str, None]) -> None:
        self.value = value
        self.text = text
        self.outcomes = outcomes  # all that was noted so far, as expressions that hold

    def fixed(self) -> int:
        """The value itself: what is made with it is for kernels in which it is the same."""
        self.outcomes[f"{self.text} == {self.value!r}"] = None
        return self.value

    def __bool__(self) -> bool:
        return self != 0  # type: ignore[comparison-overlap]  # as an integer would

    def __neg__(self) -> Number:
        return Number(-self.value, f"(-{self.text})", self.outcomes)

    def __abs__(self) -> Number:
        return Number(abs(self.value), f"abs({self.text})", self.outcomes)

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __index__(self) -> int:
        return self.fixed()

    def __str__(self) -> str:
        return str(self.fixed())

    __repr__ = __str__
    __int__ = __index__

    def __format__(self, form: str) -> str:
        return format(self.fixed(), form)

    def __getattr__(self, name: str) -> Any:
        """Whatever else integers have."""
        return getattr(self.fixed(), name)

    def bit_length(self) -> int:
        """Classes of lengths are powers of two."""
        found = self.value.bit_length()
        self.outcomes[f"{self.text}.bit_length() == {found}"] = None
        return found


def _operand(other: Any) -> tuple[Any, str]:
    if isinstance(other, Number):
        return other.value, other.text
    return other, repr(other)


def _computed(sign: str, swapped: bool) -> Callable[[Number, Any], Number]:
    function = _SIGNS[sign]

    def method(self: Number, other: Any) -> Number:
        a, b = (self.value, self.text), _operand(other)
        if swapped:
            a, b = b, a
        return Number(function(a[0], b[0]), f"({a[1]} {sign} {b[1]})", self.outcomes)

    return method


def _compared(sign: str) -> Callable[[Number, Any], bool]:
    function = _SIGNS[sign]

    def method(self: Number, other: Any) -> bool:
        value, text = _operand(other)
        found = bool(function(self.value, value))
        self.outcomes[f"{'' if found else 'not '}{self.text} {sign} {text}"] = None
        return found

    return method


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "**": operator.pow,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

for _sign, _function in _SIGNS.items():
    _name = _function.__name__.strip("_")
    if _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Number, f"__{_name}__", _compared(_sign))
    else:
        setattr(Number, f"__{_name}__", _computed(_sign, swapped=False))
        setattr(Number, f"__r{_name}__", _computed(_sign, swapped=True))


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
    known = _known(generator, options, _structure(kernel), _attributes(kernel))
    numbers = _numbers(kernel)
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
    outcomes: dict[str, None] = {}
    traced = [Number(value, f"n[{at}]", outcomes) for at, value in enumerate(numbers)]
    made = generator(_with_numbers(kernel, iter(traced)), *options)
    text = f"lambda n: {_written(made)} if {' and '.join(outcomes) or True} else None"
    return eval(text, dict(_RESULTS))  # type: ignore[no-any-return]


def _written(value: Any) -> str:
    """A result as a Python expression."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, tuple):
        return "(" + "".join([_written(v) + ", " for v in value]) + ")"
    if isinstance(value, (Source, Phase, GpuSource, GpuPhase)):
        return type(value).__name__ + _written(tuple([getattr(value, f.name) for f in fields(value)]))
    return repr(value)


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
        return replace(a, strides=tuple([next(numbers) for _ in a.strides]), offset=next(numbers))

    def instr(i: Instr) -> Instr:
        where = None if i.access is None else access(i.access)
        dynamic = tuple([(next(numbers), next(numbers)) for _ in i.dynamic])
        return replace(i, access=where, dynamic=dynamic, uniform=next(numbers), check=next(numbers))

    loops = tuple([tuple([next(numbers) for _ in scope]) for scope in kernel.loops])
    instrs = tuple([instr(i) for i in kernel.instrs])
    return Kernel(loops, instrs, tuple([(v, access(a)) for v, a in kernel.stores]), ())
