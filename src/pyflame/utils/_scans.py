"""torch._higher_order_ops.associative_scan by its path, which state-space models run over time.

Neighbours are combined pairwise, those results are scanned, and what lies between follows with one more combination:
a depth of 2 log n, and gradients flow through all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.transform.vmap import vmap
from pyflame.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["associative_scan"]
Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """All results of combining elements along an axis from the first on. The function is associative and takes two
    trees as xs: many elements at once along `dim`, or with `combine_mode="generic"` one without that axis.

    >>> from pyflame._higher_order_ops.associative_scan import associative_scan
    >>> associative_scan(lambda a, b: a * b, pf.tensor([1.0, 2.0, 3.0, 4.0]), 0)
    tensor([ 1.,  2.,  6., 24.])
    """
    leaves, spec = tree_flatten(xs)
    if not leaves or not all(isinstance(x, Tensor) and x.ndim for x in leaves):
        raise ArgumentError("[associative_scan] expected a tree of tensors of one axis or more")
    if combine_mode not in ("pointwise", "generic"):
        raise ArgumentError(f"[associative_scan] expected a combine_mode pointwise or generic but got {combine_mode!r}")
    axis = dim % leaves[0].ndim
    sizes = {x.shape[axis] if axis < x.ndim else None for x in leaves}
    if len(sizes) != 1 or None in sizes:
        shapes = [tuple(x.shape) for x in leaves]
        raise ShapeError(f"[associative_scan] expected tensors of one size along axis {dim} but got {shapes}")

    def flat(*both: Tensor) -> tuple[Tensor, ...]:
        left, right = (tree_unflatten(half, spec) for half in (both[: len(leaves)], both[len(leaves) :]))
        return tuple(tree_leaves(combine_fn(left, right)))

    many = flat if combine_mode == "pointwise" else vmap(flat, axis, axis)

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        return list(many(*left, *right)) if left[0].shape[axis] else left

    ordered = [x.flip(axis) for x in leaves] if reverse else leaves
    found = _scanned(combine, ordered, axis)
    return tree_unflatten([x.flip(axis) for x in found] if reverse else found, spec)


def _scanned(combine: Combine, xs: list[Tensor], axis: int) -> list[Tensor]:
    n = xs[0].shape[axis]
    if n < 2:
        return xs

    def every_second(values: list[Tensor], first: int, end: int) -> list[Tensor]:
        return [x[(slice(None),) * axis + (slice(first, end, 2),)] for x in values]

    odd = _scanned(combine, combine(every_second(xs, 0, n - 1), every_second(xs, 1, n)), axis)
    later = every_second(xs, 2, n)
    before = [x.narrow(axis, 0, later[0].shape[axis]) for x in odd]
    even = [FUNCTIONS["cat"]([x.narrow(axis, 0, 1), y], axis) for x, y in zip(xs, combine(before, later), strict=True)]
    return [_interleaved(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """a0 b0 a1 b1 ...; even may have one more."""
    n = odd.shape[axis]
    pairs = FUNCTIONS["stack"]([even.narrow(axis, 0, n), odd], axis + 1).flatten(axis, axis + 1)
    rest = even.narrow(axis, n, even.shape[axis] - n)
    out: Tensor = FUNCTIONS["cat"]([pairs, rest], axis) if rest.shape[axis] else pairs
    return out
