"""How an adapter enters the table, and gradients of our functions for aten's backward ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyflame as pf
from pyflame.core.shape import inverse
from pyflame.ir import F
from pyflame.ir.graph import Graph
from pyflame.tensor import Tensor

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


def gradients(
    fn: Callable[..., Any], inputs: Sequence[Any], g: Any, wanted: Sequence[bool] | None = None, known: Any = None
) -> list[Any]:
    """What `fn(*inputs)`, pulled back along g, gives for each input; None where it is not wanted, 0 where unused.

    The forward pass is part of the plan only where the gradient needs it and its result is not `known`.
    """
    chosen = [x is not None and (wanted is None or wanted[n]) for n, x in enumerate(inputs)]
    leaves = [x.detach().requires_grad_() if c else x for x, c in zip(inputs, chosen, strict=True)]
    with pf.enable_grad():
        out = fn(*leaves)
    read = [x for x, c in zip(leaves, chosen, strict=True) if c]
    found = pf.autograd.grad(out, read, g, allow_unused=True)
    filled = [pf.zeros_like(x) if grad is None else grad for x, grad in zip(read, found, strict=True)]
    each = iter(filled if known is None else _knowing(filled, out, known))
    return [next(each) if c else None for c in chosen]


def _knowing(found: Sequence[Tensor], out: Tensor, known: Tensor) -> list[Tensor]:
    """Gradients that read a known result instead of computing it again."""
    made, given = out._node, known._node
    if made.op.name == "permute":
        made, given = made.srcs[0], F.permute(given, inverse(made.attrs[0]))
    graph = Graph([t._node for t in found]).rewritten(lambda node: given if node is made else node)
    return [Tensor(node) for node in graph.outputs]
