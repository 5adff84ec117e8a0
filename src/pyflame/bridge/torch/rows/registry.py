"""How an adapter enters the table, and gradients of our functions for aten's backward ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyflame as pf

ROWS: dict[str, Callable[..., Any]] = {}
RANDOM: set[Callable[..., Any]] = set()  # rows that take a generator of ours
EVALUATING: set[str] = set()  # ops that look at values, as factorisations do: they run by themselves, between plans
UNUSED: dict[str, tuple[int, ...]] = {}  # positions of arguments that a row does not read: they need not be saved

Fn = TypeVar("Fn", bound=Callable[..., Any])


def row(
    *names: str, random: bool = False, evaluating: bool = False, unused: tuple[int, ...] = ()
) -> Callable[[Fn], Fn]:
    """Let a function stand for these aten ops (`name`, or `name.overload` which comes first)."""

    def enter(fn: Fn) -> Fn:
        ROWS.update(dict.fromkeys(names, fn))
        if random:
            RANDOM.add(fn)
        if evaluating:
            EVALUATING.update(names)
        if unused:
            UNUSED.update(dict.fromkeys(names, unused))
        return fn

    return enter


def gradients(fn: Callable[..., Any], inputs: Sequence[Any], g: Any, wanted: Sequence[bool] | None = None) -> list[Any]:
    """What `fn(*inputs)`, pulled back along g, gives for each input; None where it is not wanted, 0 where unused.

    The forward pass is part of the plan only where the gradient needs it.
    """
    chosen = [x is not None and (wanted is None or wanted[n]) for n, x in enumerate(inputs)]
    leaves = [x.detach().requires_grad_() if c else x for x, c in zip(inputs, chosen, strict=True)]
    with pf.enable_grad():
        out = fn(*leaves)
    read = [x for x, c in zip(leaves, chosen, strict=True) if c]
    found = zip(read, pf.autograd.grad(out, read, g, allow_unused=True), strict=True)
    filled = iter([pf.zeros_like(x) if grad is None else grad for x, grad in found])
    return [next(filled) if c else None for c in chosen]
