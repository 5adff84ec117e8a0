"""Steps along axes: reductions, softmax, running sums, sorting."""

from __future__ import annotations

from math import prod

import torch

from tests.programs.builder import Draw, Unsuited
from tests.programs.ops.table import kind


def _dims(d: Draw, x: int) -> tuple[str, tuple[int, ...]]:
    """Arguments that name axes (one, several, all by name, none), and the axes."""
    if not d[x].ndim or d.chance(0.2):
        return "", ()
    keep = d.one_of("", ", keepdim=True")
    if d.chance(0.5):
        axis = d.axis(x, empty=True)
        return f", dim={axis}{keep}", (axis,)
    axes = d.axes(x)
    return f", dim={axes}{keep}", axes


@kind(4)
def reduction(d: Draw) -> None:
    x = d.value()
    name = d.one_of(
        "sum", "sum", "mean", "amax", "amin", "logsumexp", "var", "std", "any", "norm", "nansum", "count_nonzero"
    )
    dims, axes = _dims(d, x)
    guard = ""
    if name == "logsumexp" and not dims:
        raise Unsuited
    if name in ("amax", "amin"):
        guard = f"apart({', '.join(map(str, ['{0}', *axes]))})"
    if name in ("any", "count_nonzero"):
        dims = dims.replace(", keepdim=True", "") if name == "count_nonzero" else dims
        d.step("reduction", f"L.{name}({{0}} > 0.1{dims})", x, guard="off({0}, 0.1)")
        return
    if name in ("var", "std") and prod(d[x].shape[a] for a in axes or range(d[x].ndim)) == 1:
        raise Unsuited  # x - x, of which a fused multiply-add leaves a rounding
    if name in ("var", "std") and d.chance(0.5):
        dims += ", correction=0"
    if name == "std":
        d.step("reduction", f"L.sqrt(L.var({{0}}{dims}) + 0.1)", x)
        return
    if name == "norm":
        d.step("reduction", f"L.norm({{0}}, p={d.one_of(1, 2, 2)}{dims}) + 0.5", x, guard="off({0}, 0.0)")
        return
    d.step("reduction", f"L.{name}({{0}}{dims})", x, guard=guard)


@kind(0.7)
def one_axis(d: Draw) -> None:
    """Reductions over one axis."""
    x = d.value(1, empty=False)
    axis = d.axis(x)
    name = d.one_of("prod", "argmax", "argmin", "all")
    guard = {"argmax": f"apart({{0}}, {axis})", "argmin": f"apart({{0}}, {axis})", "all": "off({0}, -1.0)"}.get(
        name, ""
    )
    source = "{0} > -1.0" if name == "all" else "{0}"
    d.step("reduction", f"L.{name}({source}, dim={axis}, keepdim={d.chance(0.4)})", x, guard=guard)


@kind(0.8)
def of_integers(d: Draw) -> None:
    """Along an axis of integers or bools: sums, extremes, running sums, orders."""
    found = d.find(lambda t: not t.is_floating_point() and t.ndim > 0 and t.numel() > 0)
    x = d.pick(found) if found and d.chance(0.6) else d.discrete(1)
    axis = d.axis(x)
    whole = d[x].dtype != torch.bool
    text = d.one_of(
        f"L.sum({{0}}, dim={axis})", f"L.any({{0}} > 0, dim={axis})", f"L.cumsum({{0}}, dim={axis})",
        f"L.prod({{0}}, dim={axis})", f"L.sort({{0}}, dim={axis}, stable=True)[0]", "L.sum({0})",
        *([f"L.amax({{0}}, dim={axis}, keepdim=True)", f"L.amin({{0}}, dim={axis})"] if whole else []),
        *([f"L.argsort({{0}}, dim={axis}, stable=True)", "L.amax({0})"] if whole else []),
    )  # fmt: skip
    d.step("integer reduction", text, x)


@kind(2)
def softmax(d: Draw) -> None:
    x = d.value(1)
    axis = d.axis(x, empty=True)
    name = d.one_of("softmax", "log_softmax", "softmax")
    if d.chance(0.2) and d[x].ndim >= 2 and d[x].shape[-1] <= d[x].shape[-2]:
        text = "L.softmax(L.masked_fill({0}, L.tril(L.ones_like({0})) == 0, -float('inf')), -1)"
        d.step("masked softmax", text, x)
    else:
        d.step("softmax", f"L.{name}({{0}}, dim={axis})", x)


@kind(1.5)
def cumulative(d: Draw) -> None:
    x = d.value(1, empty=False)
    axis = d.axis(x)
    name = d.one_of("cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
    if name in ("cummax", "cummin"):
        d.parts(d.step("cumulative", f"L.{name}({{0}}, dim={axis})", x, guard=f"apart({{0}}, {axis})"))
    else:
        d.step("cumulative", f"L.{name}({{0}}, dim={axis})", x)


@kind(1.5)
def ordering(d: Draw) -> None:
    x = d.value(1, empty=False)
    axis = d.axis(x)
    n = d[x].shape[axis]
    name = d.one_of("sort", "argsort", "topk", "kthvalue", "median", "max", "min", "median along")
    guard = f"apart({{0}}, {axis})"
    if name == "median":
        d.step("ordering", "L.median({0})", x, guard="apart({0})")
    elif name in ("max", "min", "median along"):
        name = name.split()[0]
        d.parts(d.step("ordering", f"L.{name}({{0}}, dim={axis}, keepdim={d.chance(0.4)})", x, guard=guard))
    elif name == "argsort":
        d.step("ordering", f"L.argsort({{0}}, dim={axis}, descending={d.chance(0.5)})", x, guard=guard)
    elif name == "sort":
        d.parts(d.step("ordering", f"L.sort({{0}}, dim={axis}, descending={d.chance(0.5)})", x, guard=guard))
    elif name == "topk":
        d.parts(
            d.step("ordering", f"L.topk({{0}}, {d.integer(1, n)}, dim={axis}, largest={d.chance(0.5)})", x, guard=guard)
        )
    else:
        text = f"L.kthvalue({{0}}, {d.integer(1, n)}, dim={axis}, keepdim={d.chance(0.5)})"
        d.parts(d.step("ordering", text, x, guard=guard))
