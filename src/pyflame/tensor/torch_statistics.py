"""Functions of `torch` that measure many points at once: distances between rows, histograms with edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyflame.core.dtype import float32, float64
from pyflame.core.errors import ArgumentError, DTypeError, ShapeError
from pyflame.tensor.creation import linspace, ones_like, place_of, triu_indices, zeros
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.tensor.tensor import Tensor

F: dict[str, Callable[..., Tensor]] = FUNCTIONS


class Histogram(NamedTuple):
    """How much falls into each bin, and where bins begin and end."""

    hist: Tensor
    bin_edges: Tensor


class HistogramDD(NamedTuple):
    """How much falls into each bin of a grid, and where bins begin and end along each axis."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distance of every two different rows, in the order (0, 1), (0, 2), ..., (1, 2), ...

    >>> pf.pdist(pf.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    tensor([5.0000, 1.0000, 4.2426])
    """
    if input.ndim != 2 or not input.dtype.is_float:
        raise ShapeError(f"[pdist] expected rows of floats, (N, M), but got shape {input.shape} of {input.dtype.name}")
    if not p >= 0:
        raise ArgumentError(f"[pdist] expected p of at least 0 but got {p}")
    first, second = triu_indices(len(input), len(input), 1, device=place_of(input, None))
    off = F["index_select"](input, 0, first) - F["index_select"](input, 0, second)
    return F["norm"](off, float(p), -1) if off.numel() else off.sum(-1)


def _edges(input: Tensor, bins: Any, range: Sequence[float] | None) -> Tensor:
    """Where bins begin and end: as given, or as many of equal width within a range, by default that of the values."""
    if isinstance(bins, Tensor):
        if bins.ndim != 1 or len(bins) < 2 or bins.dtype is not input.dtype or range is not None:
            raise ArgumentError(
                f"[histogram] expected 2 edges or more of {input.dtype.name}, with one axis, and no range, but got "
                f"{bins.dtype.name} {bins.shape} and {range}"
            )
        return bins
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ArgumentError(f"[histogram] expected edges, or at least 1 bin, but got {bins!r}")
    if range is None:
        low, high = (input.min().item(), input.max().item()) if input.numel() else (0.0, 0.0)
    else:
        low, high = (float(edge) for edge in range)
    if not -float("inf") < low <= high < float("inf"):
        raise ArgumentError(f"[histogram] expected a finite range but got [{low}, {high}]")
    if low == high:
        low, high = (low, low + 1.0) if range is None and not input.numel() else (low - 0.5, high + 0.5)
    return linspace(low, high, bins + 1, dtype=input.dtype, device=place_of(input, None))


def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many values fall into each bin, or their weight; the last bin includes its end. `bins` are edges or a number.

    A number of bins without a range evaluates the values. No gradient flows.

    >>> pf.histogram(pf.tensor([1.0, 2.0, 1.0]), 2, range=(0.0, 3.0)).hist
    tensor([2., 1.])
    """
    if input.dtype not in (float32, float64):
        raise DTypeError(f"[histogram] expected float32 or float64 but got {input.dtype.name}; cast with .to(...)")
    if weight is not None and (weight.shape != input.shape or weight.dtype is not input.dtype):
        raise ShapeError(
            f"[histogram] expected weights like the values, {input.dtype.name} {input.shape}, but got "
            f"{weight.dtype.name} {weight.shape}"
        )
    flat = input.detach().reshape(-1)
    edges = _edges(flat, bins, range)
    return Histogram(_counted([flat], [edges], weight, density), edges)


def _counted(columns: list[Tensor], edges: list[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    """How much falls into each bin of a grid; `columns` are the coordinates of points."""
    mass = ones_like(columns[0]) if weight is None else weight.detach().reshape(-1)
    shape = [len(e) - 1 for e in edges]
    place: Any = 0
    inside: Any = True
    for values, ends, count in zip(columns, edges, shape, strict=True):
        inside = (values >= ends[0]) & (values <= ends[-1]) & inside
        place = place * count + (F["searchsorted"](ends, values, right=True) - 1).clamp(0, count - 1)
    empty = zeros(math.prod(shape), dtype=mass.dtype, device=place_of(mass, None))
    hist = F["index_add"](empty, 0, place, F["where"](inside, mass, 0.0)).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for axis, ends in enumerate(edges):
            hist = hist / (ends[1:] - ends[:-1]).reshape([-1 if a == axis else 1 for a, _ in enumerate(edges)])
    return hist


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """How many points (..., D) fall into each bin of a grid of D axes, or their weight: see histogram.

    `bins` is a number, a number for each axis, or edges for each; `range` has both ends of each axis, one after the
    other.

    >>> pf.histogramdd(pf.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.9]]), 2).hist
    tensor([[1., 0.],
            [0., 2.]])
    """
    if input.ndim < 2 or input.dtype not in (float32, float64):
        raise ShapeError(f"[histogramdd] expected points (..., D) of floats but got {input.dtype.name} {input.shape}")
    depth = input.shape[-1]
    wanted = list(bins) if isinstance(bins, (list, tuple)) else [bins] * depth
    if len(wanted) != depth or (range is not None and len(range) != 2 * depth):
        raise ArgumentError(f"[histogramdd] expected bins and ends for {depth} axes but got {bins!r} and {range!r}")
    if weight is not None and (weight.shape != input.shape[:-1] or weight.dtype is not input.dtype):
        raise ShapeError(
            f"[histogramdd] expected a weight for each point, {input.dtype.name} {input.shape[:-1]}, but got "
            f"{weight.dtype.name} {weight.shape}"
        )
    columns = [c.detach().reshape(-1) for c in F["unbind"](input, -1)]
    ends = [None] * depth if range is None else [range[2 * d : 2 * d + 2] for d, _ in enumerate(columns)]
    edges = [_edges(c, b, r) for c, b, r in zip(columns, wanted, ends, strict=True)]
    return HistogramDD(_counted(columns, edges, weight, density), tuple(edges))
