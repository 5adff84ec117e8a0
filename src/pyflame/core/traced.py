"""Numbers that note what is decided by them: in go the integers of a kernel or a graph, out comes a function that makes
for other integers what was made for these, where all decisions would be the same.

A traced number computes as an integer does, remembers how it was made, and notes every comparison with its outcome; one
that is written into a text, looked up or used as an index is noted with its value. So all is known that a result
depends on. `Trace.function` writes it down as Python: the outcomes one by one, then the result.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from types import NoneType
from typing import Any, TypeVar


class Untraceable(Exception):
    """Of what is to be traced something follows from what no number tells, as from what was measured."""


class Trace:
    """What is computed from some integers `n`, and what was decided by them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # an expression and the variable that holds it
        self._lines: dict[str, tuple[str, ...]] = {}  # of the function, in order, with the variables that each reads
        self._known: dict[str, Any] = {}  # what else the lines name

    def numbers(self, values: Sequence[int], kind: type[Number] | None = None) -> list[Number]:
        """The integers to begin with."""
        return [self.made(kind or Number, value, f"n[{at}]") for at, value in enumerate(values)]

    def made(self, kind: type[Number], value: Any, expression: str, reads: tuple[str, ...] = ()) -> Number:
        """A number of this expression, which is computed once."""
        name = self._names.get(expression)
        if name is None:
            name = self._names[expression] = f"v{len(self._names)}"
            self._lines[f"{name} = {expression}"] = (name, *reads)
        return kind(value, name, self)

    def note(self, condition: str, *reads: str) -> None:
        """What holds, and has to hold again."""
        self._lines[f"if not ({condition}): return None"] = ("", *reads)

    def known(self, value: Any) -> str:
        """The name under which functions find what is no number."""
        name = f"k{id(value)}"  # which it keeps, as the table holds it
        self._known[name] = value
        return name

    def ended(self) -> Trace:
        """All that was noted, and this one without it: its numbers live on in tables of what was looked up lately."""
        out = copy.copy(self)
        self.__init__()  # type: ignore[misc]
        return out

    def function(self, result: Any) -> Callable[[Sequence[int]], Any]:
        """Gives for other integers what `result` is for these, or None where something was decided otherwise."""
        wanted: set[str] = set()
        written = self._written(result, wanted) or self.known(result)
        body: list[str] = []
        for line, (made, *reads) in reversed(self._lines.items()):
            if not made or made in wanted:  # what nothing needs is left out
                wanted.update(reads)
                body.append(f"    {line}\n")
        text = f"def again(n):\n{''.join(reversed(body))}    return {written}\n"
        names = dict(self._known)
        exec(compile(text, "<traced>", "exec"), names)
        again: Callable[[Sequence[int]], Any] = names["again"]
        return again

    def _written(self, value: Any, reads: set[str]) -> str | None:
        """A result as a Python expression of variables, which `reads` gets; None for what does not depend on any."""
        if isinstance(value, Number):
            reads.add(value.name)
            return value.name
        parts = _parts(value)
        written = [self._written(part, reads) for part in parts]
        if not any(written):
            return None
        listed = ", ".join([text or self.known(part) for text, part in zip(written, parts, strict=True)])
        return f"({listed},)" if type(value) is tuple else f"{self.known(type(value))}({listed})"


class Number:
    """A traced integer: its value, and the variable that stands for it."""

    __slots__ = ("name", "trace", "value")

    def __init__(self, value: Any, name: str, trace: Trace) -> None:
        self.value = value
        self.name = name
        self.trace = trace

    def fixed(self) -> Any:
        """The value itself: what is made with it is for cases in which it is the same."""
        self.trace.note(f"{self.name} == {self.value!r}", self.name)
        return self.value

    def __bool__(self) -> bool:
        return self != 0  # type: ignore[comparison-overlap]  # as an integer would

    def __neg__(self) -> Number:
        return self.trace.made(type(self), -self.value, f"-{self.name}", (self.name,))

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return self if self >= 0 else -self  # type: ignore[operator]

    def __hash__(self) -> int:
        return hash(self.fixed())

    def __index__(self) -> int:
        return self.fixed()  # type: ignore[no-any-return]

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __invert__(self) -> Any:
        return ~self.fixed()

    def __float__(self) -> float:
        return float(self.fixed())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.fixed(), digits)

    def __str__(self) -> str:
        return str(self.fixed())

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return format(self.fixed(), form)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __getattr__(self, name: str) -> Any:
        """Whatever else integers have."""
        if not hasattr(int, name):
            raise AttributeError(name)
        return getattr(self.fixed(), name)

    def bit_length(self) -> int:
        """Classes of lengths are powers of two."""
        found: int = self.value.bit_length()
        self.trace.note(f"{self.name}.bit_length() == {found}", self.name)
        return found


class Extent(Number):
    """A traced integer that may be part of a key: it is equal to numbers of its trace alone.

    So tables that outlive a trace never mix these with plain ones. Keys are for finding what is the same, which then
    has to be the same again. What differs here may be the same for other integers: nothing is noted of that, so that it
    may decide no more than that something is made twice. Who counts what differs has to compare it; what is looked up
    in a table by a plain integer has to be `fixed` first.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((id(self.trace), self.value))


def index(value: Any) -> Any:
    """`operator.index`, which leaves traced numbers as they are."""
    return value if isinstance(value, Number) else operator.index(value)


def real(value: Any) -> float:
    """`float`, which leaves traced numbers traced."""
    if not isinstance(value, Number):
        return float(value)
    made: Any = value.trace.made(type(value), float(value.value), f"float({value.name})", (value.name,))
    return made  # type: ignore[no-any-return]


F = TypeVar("F", bound=Callable[..., Any])


def whole(function: F) -> F:
    """For a function of integers, and of what never differs, to integers that decide nothing but sizes: a trace has it
    called again, instead of noting what it compares."""

    @wraps(function)
    def call(*args: Any) -> Any:
        numbers = [a for a in args if isinstance(a, Number)]
        if not numbers:
            return function(*args)
        trace, kind = numbers[0].trace, type(numbers[0])
        found = function(*[a.value if isinstance(a, Number) else a for a in args])
        listed = ", ".join([a.name if isinstance(a, Number) else trace.known(a) for a in args])
        made = trace.made(kind, found, f"{trace.known(function)}({listed})", tuple([n.name for n in numbers]))
        if not isinstance(found, tuple):
            return made
        return tuple([trace.made(kind, v, f"{made.name}[{at}]", (made.name,)) for at, v in enumerate(found)])

    return call  # type: ignore[return-value]


_NOTHING_DONE = {("+", 0), ("-", 0), ("*", 1), ("//", 1)}  # by the right side
_Operand = tuple[Any, str, tuple[str, ...]]


def _operand(of: Any) -> _Operand:
    if isinstance(of, Number):
        return of.value, of.name, (of.name,)
    return of, repr(of) if isinstance(of, int) else f"float({repr(of)!r})", ()  # inf and nan are no literals


def _computed(sign: str, swapped: bool) -> Callable[[Number, Any], Any]:
    function = _SIGNS[sign]

    def method(self: Number, other: Any) -> Any:
        if not isinstance(other, (int, float, Number)):
            return NotImplemented  # a tuple, which asks for an index then
        if type(other) is int and ((sign, other) in _NOTHING_DONE and (not swapped or sign in "+*")):
            return self
        if type(other) is int and other == 0 and sign == "*":
            return 0
        a, b = (other, self) if swapped else (self, other)
        if isinstance(b, Number):
            if sign in ("<<", ">>", "**"):
                return function(a, b.fixed())
            if sign in ("/", "//", "%"):
                bool(b)  # that it is not 0
        left, right = _operand(a), _operand(b)
        value = function(left[0], right[0])
        return self.trace.made(type(self), value, f"{left[1]} {sign} {right[1]}", left[2] + right[2])

    return method


def _compared(sign: str) -> Callable[[Number, Any], Any]:
    function = _SIGNS[sign]

    def method(self: Number, other: Any) -> Any:
        if isinstance(other, Number):
            if other.name == self.name and other.trace is self.trace:
                return function(0, 0)
            if other.trace is not self.trace:
                return NotImplemented
        elif not isinstance(other, (int, float)):
            return NotImplemented
        value, text, reads = _operand(other)
        found = bool(function(self.value, value))
        condition = f"{self.name} {sign} {text}"
        self.trace.note(condition if found else f"not {condition}", self.name, *reads)
        return found

    return method


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "**": operator.pow, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

for _sign, _function in _SIGNS.items():
    _name = _function.__name__.strip("_")
    if _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Number, f"__{_name}__", _compared(_sign))
    else:
        setattr(Number, f"__{_name}__", _computed(_sign, swapped=False))
        setattr(Number, f"__r{_name}__", _computed(_sign, swapped=True))


def _parts(value: Any) -> tuple[Any, ...]:
    """What a value is made of, if its class takes just that."""
    kind = type(value)
    if kind is tuple:
        return value  # type: ignore[no-any-return]
    if kind in (str, int, float, bool, NoneType):
        return ()
    if is_dataclass(kind):
        return tuple([getattr(value, f.name) for f in fields(kind)])
    return value.__getnewargs__() if hasattr(kind, "__getnewargs__") else ()
