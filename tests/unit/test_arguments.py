"""Calls that Python itself refuses: each public function names itself and the nearest keyword in a typed error."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

import pyflame as pf
from pyflame import nn
from pyflame.core.parameters import parameters, positional, starred
from pyflame.ir import OPS

X = pf.ones(2)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{where}.{name}": fn
    for where, members in (
        ("pf", {n: getattr(pf, n) for n in pf.__all__}),
        ("nn.functional", {n: getattr(nn.functional, n) for n in nn.functional.__all__}),
        ("Tensor", {n: getattr(X, n) for n in dir(X) if not n.startswith("_") and n not in ("H", "mH", "mT", "imag")}),
    )
    for name, fn in members.items()
    if isinstance(fn, (types.FunctionType, types.MethodType))
}


def with_kind(*kinds: Any) -> list[str]:
    """Functions that have a parameter of one of these kinds, which nothing fills."""
    return [
        name
        for name, fn in FUNCTIONS.items()
        if any(p.kind in kinds and p.default is p.empty for p in inspect.signature(fn).parameters.values())
    ]


def refusal(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """The message of the typed error that a call raises; None where it raises none."""
    try:
        fn(*args, **kwargs)
    except TypeError as error:
        return str(error) if isinstance(error, pf.PyFlameError) else None
    return None


def test_unknown_keyword() -> None:
    some = with_kind(inspect.Parameter.VAR_KEYWORD)
    assert [n for n, fn in FUNCTIONS.items() if n not in some and not refusal(fn, X, qwertz=1)] == []


def test_too_many() -> None:
    some = with_kind(inspect.Parameter.VAR_POSITIONAL)
    assert [n for n, fn in FUNCTIONS.items() if n not in some and not refusal(fn, *[X] * 40)] == []


def test_missing() -> None:
    needy = with_kind(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert [n for n in needy if not refusal(FUNCTIONS[n])] == []


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda x: nn.functional.normalize(x, epss=1), "[normalize] expected normalize(input, p=2.0, dim=1, eps="),
        (lambda x: nn.functional.normalize(x, epss=1), "did you mean 'eps'?"),
        (lambda x: nn.functional.leaky_relu(x, negative_slop=0.1), "did you mean 'negative_slope'?"),
        (lambda x: pf.zeros(2, dtyp=3), "did you mean 'dtype'?"),
        (lambda x: x.to(devise="cpu"), "did you mean 'device'?"),
        (lambda x: x.sum(keepdims_=True), "did you mean 'keepdims'?"),
        (lambda x: x.sum(dimm=0), "did you mean 'dim'?"),
        (lambda x: nn.functional.relu(x, True, 5), "[relu]"),
        (lambda x: nn.functional.pixel_shuffle([1.0], 2), "expected a tensor as input but got list"),
    ],
)
def test_message(call: Callable[[Any], Any], hint: str) -> None:
    assert hint in (refusal(call, X) or "")


def test_parameters_are_those_of_the_signature() -> None:
    def all_kinds(a: int, b: int = 0, *more: int, c: int, d: int = 0, **rest: int) -> int:
        local = a + b
        return local

    for fn in (all_kinds, lambda: 0, lambda *xs: xs, lambda *, k: k, *(op.fn for op in OPS.values())):
        want = inspect.signature(fn).parameters
        assert parameters(fn) == tuple(want)
        assert positional(fn) == tuple(n for n, p in want.items() if p.kind is p.POSITIONAL_OR_KEYWORD)
        assert starred(fn) == next((n for n, p in want.items() if p.kind is p.VAR_POSITIONAL), None)
