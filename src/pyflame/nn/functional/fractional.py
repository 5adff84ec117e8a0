"""Fractional max pooling: windows of one size whose starts are drawn, so that any output size can be had."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.nn.ops import F
from pyflame.ops.base import per_axis
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange
from pyflame.tensor.random import rand

Sizes = int | Sequence[int]
Ratios = float | Sequence[float]


def _output_sizes(op: str, sizes: Sequence[int], output_size: Sizes | None, output_ratio: Ratios | None) -> Any:
    if output_size is not None:
        return per_axis(op, "output_size", output_size, len(sizes), 1)
    if output_ratio is None:
        raise ArgumentError(f"[{op}] expected output_size or output_ratio but got neither")
    ratios = list(output_ratio) if isinstance(output_ratio, Sequence) else [output_ratio] * len(sizes)
    if len(ratios) != len(sizes) or not all(0 < r < 1 for r in ratios):
        raise ArgumentError(f"[{op}] expected {len(sizes)} output ratios between 0 and 1 but got {output_ratio!r}")
    return per_axis(op, "output_size", [int(n * r) for n, r in zip(sizes, ratios, strict=True)], len(sizes), 1)


def _positions(x: Tensor, samples: Tensor, sizes: Sequence[int], windows: Sequence[int], outs: Sequence[int]) -> Tensor:
    """For every output the places of its window's elements in a plane: (N, C, *outs, prod(windows))."""
    rank = len(sizes)
    total: Tensor | None = None
    for axis, (size, window, out) in enumerate(zip(sizes, windows, outs, strict=True)):
        # PyTorch's samples are in the order W, H of two axes, but T, H, W of three
        sample = samples[..., 1 - axis if rank == 2 else axis].unsqueeze(-1)
        step = (size - window) / max(out - 1, 1)
        starts = ((arange(out, device=x.device).to(x.dtype) + sample) * step).to("int64") - (sample * step).to("int64")
        starts = F["where"](arange(out, device=x.device) == out - 1, size - window, starts)
        shape = [*x.shape[:2], *[1] * (2 * rank)]
        shape[2 + axis] = out
        inside = [1] * (2 + 2 * rank)
        inside[2 + rank + axis] = window
        places = starts.reshape(shape) + arange(window, device=x.device).reshape(inside)
        total = places if total is None else total * size + places
    assert total is not None
    return total.reshape(*x.shape[:2], *outs, prod(windows))


def _pool(
    rank: int, input: Tensor, kernel: Sizes, output_size: Sizes | None, output_ratio: Ratios | None, samples: Any
) -> tuple[Tensor, Tensor]:
    op = f"fractional_max_pool{rank}d"
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"[{op}] expected ([N,] C, ...) with {rank} spatial axes but got shape {input.shape}")
    x = input if input.ndim == rank + 2 else input.unsqueeze(0)
    sizes = x.shape[2:]
    windows = per_axis(op, "kernel_size", kernel, rank, 1)
    outs = _output_sizes(op, sizes, output_size, output_ratio)
    if any(out + window - 1 > size for out, window, size in zip(outs, windows, sizes, strict=True)):
        raise ShapeError(
            f"[{op}] expected output and window to fit into {tuple(sizes)} but got output_size {tuple(outs)} and "
            f"kernel_size {windows}; their sum may be no more than the input and 1"
        )
    if samples is None:
        samples = rand(*x.shape[:2], rank, dtype=x.dtype, device=x.device)
    elif samples.ndim != 3 or samples.shape[0] < x.shape[0] or samples.shape[1:] != (x.shape[1], rank):
        raise ShapeError(f"[{op}] expected samples of shape {(*x.shape[:2], rank)} but got {samples.shape}")
    samples = samples[: x.shape[0]]
    places = _positions(x, samples, sizes, windows, outs)
    flat = places.reshape(*x.shape[:2], -1)
    found = F["gather"](x.reshape(*x.shape[:2], -1), 2, flat).reshape(places.shape)
    values, chosen = F["max"](found, -1, keepdim=True)
    where = F["gather"](places, -1, chosen)
    shape = (*input.shape[:-rank], *outs)
    return values.reshape(shape), where.reshape(shape)


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The maxima of windows with drawn starts over ([N,] C, H, W): `output_size` of them, or that part of the size.

    >>> nn.functional.fractional_max_pool2d(pf.randn(1, 3, 9, 9), 2, output_ratio=0.6).shape
    (1, 3, 5, 5)
    """
    both = _pool(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Ratios | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The maxima of windows with drawn starts over ([N,] C, D, H, W), as fractional_max_pool2d."""
    both = _pool(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return both if return_indices else both[0]
