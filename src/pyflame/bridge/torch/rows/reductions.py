"""Reductions: aten writes "over all axes" as an empty list, too. Distances, which are sums of their own, and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyflame as pf
from pyflame.bridge.torch.rows.registry import EVALUATING, gradients, row


def _over(name: str) -> Callable[..., Any]:
    reduce = getattr(pf, name)

    def over(x: Any, dim: Any = None, *rest: Any, **named: Any) -> Any:
        return reduce(x, tuple(dim) if dim else None, *rest, **named)

    return over


for _name, _overloads in {
    "sum": ("sum.dim_IntList",), "mean": ("mean.dim",), "amax": ("amax",), "amin": ("amin",), "any": ("any.dims",),
    "all": ("all.dims",), "logsumexp": ("logsumexp",), "var": ("var.correction", "var.dim"),
    "std": ("std.correction", "std.dim"),
    "var_mean": ("var_mean.correction", "var_mean.dim"), "std_mean": ("std_mean.correction", "std_mean.dim"),
}.items():  # fmt: skip
    row(*_overloads)(_over(_name))


@row("_cdist_forward")
def cdist(x1: Any, x2: Any, p: float, mode: int | None) -> Any:
    return pf.cdist(x1, x2, p)


@row("_cdist_backward", unused=(4,))
def cdist_backward(g: Any, x1: Any, x2: Any, p: float, out: Any) -> Any:
    return gradients(lambda t: pf.cdist(t, x2, p), [x1], g)[0]


@row("_pdist_forward")
def pdist(x: Any, p: float = 2.0) -> Any:
    return pf.nn.functional.pdist(x, p)


@row("_pdist_backward", unused=(3,))
def pdist_backward(g: Any, x: Any, p: float, out: Any) -> Any:
    return gradients(lambda t: pf.nn.functional.pdist(t, p), [x], g)[0]


EVALUATING.update(("histogram", "nonzero_static"))


@row("_histogramdd_bin_edges", evaluating=True)
def histogramdd_edges(x: Any, bins: Any, **named: Any) -> list[Any]:
    return list(pf.histogramdd(x, bins, **named).bin_edges)


@row("_histogramdd_from_bin_cts", evaluating=True)
def histogramdd(x: Any, bins: Any, **named: Any) -> Any:
    return pf.histogramdd(x, bins, **named).hist
