"""Traced numbers: what was made with some integers is made again for others where all decisions are the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pyflame.core.traced import Extent, Number, Trace, index, whole


@dataclass(frozen=True)
class Pair:
    a: Any
    b: Any


def _again(make: Callable[..., Any], *values: int, kind: type[Number] = Number) -> Callable[..., Any]:
    trace = Trace()
    function = trace.function(make(*trace.numbers(values, kind)))
    assert function(values) == make(*values)
    return lambda *others: function(others)


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: (a + b, b - a, 3 - a, a * b, a * 0, a * 1, a + 0, 0 + a, a // b, a % b, 7 // a, -a, abs(-a)),
        lambda a, b: (divmod(a, b), divmod(100, a), a / b, a << 2, a & 6, a | 1, a ^ 3, a**2, +a),
        lambda a, b: Pair((a, "text", Pair(b, None)), {1: 2}),
        lambda a, b: ("nothing of them", 1.5),
    ],
)
def test_arithmetic(make: Callable[..., Any]) -> None:
    again = _again(make, 7, 3)
    for a, b in ((7, 3), (9, 4), (200, 100), (5, 2)):
        assert again(a, b) == make(a, b)


def test_other_outcomes_give_nothing() -> None:
    again = _again(lambda a, b: a if a > b and a * 2 < 100 else b, 30, 10)
    assert again(49, 48) == 49
    assert again(50, 10) is None and again(10, 30) is None and again(10, 10) is None


def test_what_shows_a_value_is_for_that_value() -> None:
    for shown in (str, int, float, "{:d}".format, lambda n: [0] * n, lambda n: (0,) * n, range, math.sqrt, hash, round):
        again = _again(lambda n, shown=shown: len(repr(shown(n))) + n, 5)
        assert again(5) is not None and again(6) is None
    assert _again(lambda n: n.bit_length() + n, 5)(7) == 10
    assert _again(lambda n: n.bit_length() + n, 5)(8) is None


def test_numbers_that_are_no_literals() -> None:
    again = _again(lambda n: n if n < math.inf and n != math.nan and n < 0.5 + 10 else 0, 5)
    assert again(9) == 9 and again(11) is None


def test_a_division_by_what_may_be_nothing() -> None:
    again = _again(lambda a, b: a // b, 6, 3)
    assert again(8, 2) == 4 and again(8, 0) is None


def test_whole_functions_are_called_again() -> None:
    @whole
    def block(n: int, most: int) -> tuple[int, int]:
        return (n, 1) if n < most else (most, -(-n // most))

    assert block(20, 8) == (8, 3)
    again = _again(lambda n: block(n, 8), 5)
    assert again(5) == (5, 1) and again(20) == (8, 3)


def test_extents_in_keys() -> None:
    """Equal ones are found, also by another way of making them, and have to be equal again."""

    def made(a: Any, b: Any) -> int:
        table: dict[Any, Any] = {}
        return sum([table.setdefault(key, key[0]) for key in ((a + b, 1), (b + a, 1), (a * 2, 1))])

    again = _again(made, 7, 3, kind=Extent)
    assert again(9, 4) == 44 and again(4, 4) == 24  # there all are one, and are made as if they were two
    again = _again(made, 4, 4, kind=Extent)
    assert again(5, 5) == 30 and again(9, 4) is None
    trace = Trace()
    (extent,) = trace.numbers([7], Extent)
    assert (extent, 64) not in {(7, 64): "plain"}  # tables that outlive a trace
    (other,) = Trace().numbers([7], Extent)
    assert extent != other and index(extent) is extent and index(True) == 1
