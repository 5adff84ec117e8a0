"""max_unpool: what a max pool found, back where it was found."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pyflame.core.errors import ShapeError
from pyflame.nn.ops import F
from pyflame.ops.base import per_axis
from pyflame.tensor import Tensor

Sizes = int | Sequence[int]


def _unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    wanted: Sequence[int] | None,
) -> Tensor:
    op = f"max_unpool{rank}d"
    if input.ndim not in (rank + 1, rank + 2) or indices.shape != input.shape:
        raise ShapeError(
            f"[{op}] expected ([N,] C, ...) with {rank} spatial axes, and indices of that shape, but got {input.shape} "
            f"and {indices.shape}"
        )
    windows, pads = per_axis(op, "kernel_size", kernel, rank, 1), per_axis(op, "padding", padding, rank, 0)
    steps = windows if stride is None else per_axis(op, "stride", stride, rank, 1)
    usual = [
        (n - 1) * step - 2 * pad + size
        for n, step, pad, size in zip(input.shape[-rank:], steps, pads, windows, strict=True)
    ]
    sizes = usual if wanted is None else list(wanted)[-rank:]
    if len(sizes) != rank or any(abs(n - u) >= step for n, u, step in zip(sizes, usual, steps, strict=True)):
        raise ShapeError(f"[{op}] expected an output_size less than a stride {steps} from {usual} but got {wanted}")
    lead = input.shape[:-rank]
    flat = F["scatter"](input.new_zeros((*lead, prod(sizes))), -1, indices.reshape(*lead, -1), input.reshape(*lead, -1))
    return flat.reshape(*lead, *sizes)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool1d, with 0 where nothing was the largest; `indices` come from `return_indices=True`.

    >>> values, where = nn.functional.max_pool1d(pf.tensor([[1.0, 3.0, 2.0, 0.0]]), 2, return_indices=True)
    >>> nn.functional.max_unpool1d(values, where, 2)
    tensor([[0., 3., 2., 0.]])
    """
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool2d, as max_unpool1d is that of max_pool1d."""
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """The inverse of max_pool3d, as max_unpool1d is that of max_pool1d."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
