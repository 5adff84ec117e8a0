"""Steps that write into a value which others may have read already. What was computed from the old value keeps it."""

from __future__ import annotations

import torch

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.movement import random_slice
from tests.programs.ops.table import kind

# Steps that may give a view of their first operand, or that operand itself.
VIEWS = ("movement", "view", "part", "parts", "triangle")


def _target(d: Draw, least: int = 0) -> int:
    """A float tensor that may be written to: no leaf that wants a gradient, nor a view of one."""
    if any(s.kind == "cast" for s in d.steps):  # x.to(its own dtype) is x itself
        raise Unsuited
    found = d.find(lambda t: t.is_floating_point() and t.ndim >= least and t.numel() > 0)
    return d.pick([v for v in found if not _of_leaf(d, v)])


def _of_leaf(d: Draw, value: int) -> bool:
    while value >= 0 and d.steps[value].kind in VIEWS:
        value = d.steps[value].operands[0]
    return value < 0 and d.inputs[-1 - value].grad


@kind(1.5)
def in_place(d: Draw) -> None:
    x = _target(d)
    y = d.like(tuple(d[x].shape))
    c = d.number()
    text = d.one_of(
        "{0}.add_({1})", "{0}.mul_({1})", "{0}.sub_({1})", f"{{0}}.add_({c})", f"{{0}}.mul_({c})", "{0}.copy_({1})",
        "{0} += {1}", "{0} *= {1}", "{0}.tanh_()", "{0}.zero_()", f"{{0}}.fill_({c})",
        f"{{0}}.clamp_({-abs(c)}, {abs(c)})",
    )  # fmt: skip
    if y == x:
        raise Unsuited
    guard = f"off({{0}}, {-abs(c)}, {abs(c)})" if "clamp" in text else ""
    d.step("in place", text, *((x, y) if "{1}" in text else (x,)), guard=guard, write=True)


@kind(2)
def assign(d: Draw) -> None:
    x = _target(d, 1)
    shape = d[x].shape
    items = []
    for n in shape[: d.integer(1, len(shape))]:
        items.append(str(d.integer(-n, n - 1)) if d.chance(0.35) else random_slice(d, n))
    key = ", ".join(items)
    place = eval(f"x[{key}]", {"x": d[x]})
    if not place.numel():
        raise Unsuited
    if d.chance(0.3):
        d.step("assign", f"{{0}}[{key}] = {d.number()}", x, write=True)
    else:
        y = d.like(tuple(place.shape))
        if y == x:
            raise Unsuited
        d.step("assign", f"{{0}}[{key}] {d.one_of('=', '=', '+=', '*=')} {{1}}", x, y, write=True)


@kind(0.7)
def assign_at(d: Draw) -> None:
    """x[i] = v at computed positions that do not repeat, and under a mask."""
    x = _target(d, 1)
    if d.chance(0.5):
        mask = d.pick(d.find(lambda t: t.dtype == torch.bool and t.shape == d[x].shape))
        d.step("assign", f"{{0}}[{{1}}] = {d.number()}", x, mask, write=True)
    else:
        index = d.index((d.integer(1, 4),), d[x].shape[0])
        d.step("assign", f"{{0}}[{{1}}] = {d.number()}", x, index, write=True)
