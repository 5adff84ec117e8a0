"""Pooling to a given size: windows that share each axis evenly, of lengths that differ by at most two."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.core.shape import Shape
from pyflame.core.window import Window, adaptive_window
from pyflame.ir import F, Node, Sample, composite
from pyflame.ops.base import per_axis

MOST_WINDOWS = 1 << 24  # each window is two numbers of the launch


def _windows(op: str, sizes: Shape, output_size: Any) -> tuple[Window, ...]:
    listed = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * len(sizes)
    if len(listed) == len(sizes):
        listed = [size if wanted is None else wanted for size, wanted in zip(sizes, listed, strict=True)]
    outs = per_axis(op, "output_size", listed, len(sizes), 0)
    if max(outs) >= MOST_WINDOWS:
        raise ArgumentError(f"[{op}] expected output sizes below {MOST_WINDOWS} but got {output_size!r}")
    return tuple(adaptive_window(size, out) for size, out in zip(sizes, outs, strict=True))


def _max(rank: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    op = f"adaptive_max_pool{rank}d"
    return F.pool_max(op, rank, x, lambda sizes: _windows(op, sizes, output_size), return_indices)


def _avg(rank: int, x: Any, output_size: Any) -> Any:
    op = f"adaptive_avg_pool{rank}d"
    return F.pool_avg(op, rank, x, lambda sizes: _windows(op, sizes, output_size))


def _twin(rank: int, kind: str) -> Callable[..., Any]:
    def twin(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        """Output p of P covers [floor(p*S/P), ceil((p+1)*S/P)) of an axis of size S."""
        listed = [output_size] * rank if isinstance(output_size, int) else output_size
        sizes = x.shape[-rank:]
        outs = [size if out is None else out for size, out in zip(sizes, listed, strict=True)]
        values: Any = np.zeros((*x.shape[:-rank], *outs))
        indices: Any = np.zeros(values.shape, np.int64)
        plane: Any = np.arange(prod(sizes)).reshape(sizes)
        for p in product(*(range(out) for out in outs)):
            edges = [(i * s // out, -(-(i + 1) * s // out)) for i, s, out in zip(p, sizes, outs, strict=True)]
            box = (..., *(slice(first, end) for first, end in edges))
            inside = x[box].reshape(*x.shape[:-rank], plane[box].size)
            values[(..., *p)] = inside.max(-1) if kind == "max" else inside.mean(-1)
            if return_indices:
                indices[(..., *p)] = plane[box].reshape(-1)[inside.argmax(-1)]
        return (values, indices) if return_indices else values

    return twin


def _samples(rank: int, kind: str) -> Callable[[], list[Sample]]:
    def samples() -> list[Sample]:
        size = ((11,), (7, 10), (4, 5, 6))[rank - 1]
        x = np.random.default_rng(rank).permutation(6 * prod(size)).reshape(2, 3, *size) / 7.0  # no ties
        found = [Sample((x, wanted)) for wanted in (1, 3, 5, size, 13)]
        found += [Sample((x[0], 2)), Sample((x[:0], 2)), Sample((x[..., ::2], 2))]
        if rank > 1:
            found += [Sample((x, (None,) * (rank - 1) + (4,))), Sample((x, (2,) * (rank - 1) + (5,)))]
        if kind == "max":
            found.append(Sample((x, 3), {"return_indices": True}))
        return found

    return samples


def _declared(rank: int, kind: str) -> dict[str, Any]:
    twin, samples = _twin(rank, kind), _samples(rank, kind)
    return dict(reference=twin, torch=f"nn.functional.adaptive_{kind}_pool{rank}d", samples=samples, method=False)


@composite(**_declared(1, "avg"))
def adaptive_avg_pool1d(input: Node, output_size: Any) -> Any:
    """Means over windows that share the axis evenly among `output_size` outputs.

    >>> pf.adaptive_avg_pool1d(pf.ones(1, 2, 7), 3).shape
    (1, 2, 3)
    """
    return _avg(1, input, output_size)


@composite(**_declared(2, "avg"))
def adaptive_avg_pool2d(input: Node, output_size: Any) -> Any:
    """Means over windows that share both axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_avg_pool2d(pf.ones(1, 2, 7, 9), (1, None)).shape
    (1, 2, 1, 9)
    """
    return _avg(2, input, output_size)


@composite(**_declared(3, "avg"))
def adaptive_avg_pool3d(input: Node, output_size: Any) -> Any:
    """Means over windows that share three axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_avg_pool3d(pf.ones(1, 2, 4, 7, 9), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _avg(3, input, output_size)


@composite(**_declared(1, "max"))
def adaptive_max_pool1d(input: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over windows that share the axis evenly among `output_size` outputs.

    >>> pf.adaptive_max_pool1d(pf.ones(1, 2, 7), 3).shape
    (1, 2, 3)
    """
    return _max(1, input, output_size, return_indices)


@composite(**_declared(2, "max"))
def adaptive_max_pool2d(input: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over windows that share both axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_max_pool2d(pf.ones(1, 2, 7, 9), 3).shape
    (1, 2, 3, 3)
    """
    return _max(2, input, output_size, return_indices)


@composite(**_declared(3, "max"))
def adaptive_max_pool3d(input: Node, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over windows that share three axes evenly among `output_size` outputs; None keeps a size.

    >>> pf.adaptive_max_pool3d(pf.ones(1, 2, 4, 7, 9), 2).shape
    (1, 2, 2, 2, 2)
    """
    return _max(3, input, output_size, return_indices)
