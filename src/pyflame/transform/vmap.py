"""pf.vmap: a function of single examples, over a batch of them.

The function runs once for each example, on slices of its arguments, and the results are stacked. Under laziness that is
one graph, in which slices are pointers and launches of one text are merged; gradients and pf.jit see plain ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyflame.core.errors import ArgumentError, ShapeError
from pyflame.core.generator import default_generator
from pyflame.core.shape import normalize_axis
from pyflame.core.state import mode, state
from pyflame.tensor import Tensor
from pyflame.tensor.dispatch import FUNCTIONS
from pyflame.transform.tree import flatten, is_tensor, rebuild

_RANDOMNESS = ("error", "different", "same")


def _spread(dims: Any, value: Any) -> list[Any]:
    """The axis of each tensor in a structure, from one number for all of it or from numbers in the same structure."""
    if dims is None or isinstance(dims, int):
        leaves: list[Any] = []
        flatten(value, leaves, is_tensor)
        return [dims] * len(leaves)
    if isinstance(value, dict) and isinstance(dims, dict) and value.keys() == dims.keys():
        return [d for k in value for d in _spread(dims[k], value[k])]
    both = isinstance(value, (list, tuple)) and isinstance(dims, (list, tuple))
    if not both or len(value) != len(dims):
        raise ArgumentError(f"[vmap] expected dims in the structure of the values but got {dims!r}")
    return [d for part, v in zip(dims, value, strict=True) for d in _spread(part, v)]


def _sliced(args: Any, in_dims: Any) -> tuple[int, Callable[[int], Any]]:
    """How many examples there are, and what gives the arguments of each."""
    tensors: list[Tensor] = []
    flatten(args, tensors, is_tensor)
    dims = _spread(in_dims, args)
    axes = [None if d is None else normalize_axis("vmap", d, t.ndim) for d, t in zip(dims, tensors, strict=True)]
    if any(a is not None and not t.ndim for a, t in zip(axes, tensors, strict=True)):
        raise ShapeError("[vmap] expected axes to run over but got a 0-d tensor; give it in_dims None")
    sizes = {t.shape[a] for a, t in zip(axes, tensors, strict=True) if a is not None}
    if len(sizes) != 1 or 0 in sizes:
        raise ShapeError(f"[vmap] expected tensors with one number of examples, at least 1, but got {sorted(sizes)}")

    def example(i: int) -> Any:
        parts = [t if a is None else t.select(a, i) for a, t in zip(axes, tensors, strict=True)]
        return rebuild(args, is_tensor, iter(parts))

    return sizes.pop(), example


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function over batches, from one of single examples: it runs for each of them, and results are stacked.

    in_dims names the axis of examples in each argument, None where it is the same for all, as keyword arguments are.
    out_dims is where results have it. randomness "different" draws for each example, "same" once for all, and
    "error" refuses functions that draw. chunk_size is taken and without effect: nothing is held for the whole batch.

    >>> pf.vmap(pf.dot)(pf.tensor([[1.0, 2.0], [3.0, 4.0]]), pf.ones(2, 2))
    tensor([3., 7.])
    """
    if not callable(func):
        raise ArgumentError(f"[vmap] expected a function but got {type(func).__name__}")
    if randomness not in _RANDOMNESS:
        raise ArgumentError(f"[vmap] expected randomness of {_RANDOMNESS} but got {randomness!r}")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        dims = (in_dims if isinstance(in_dims, (list, tuple)) else (in_dims,) * len(args), None)
        count, example = _sliced((args, kwargs), dims)
        start, results = default_generator.get_state(), []
        for i in range(count):
            if randomness == "same":
                default_generator.set_state(start)
            positional, named = example(i)
            with mode(keeps_tape=state.keeps_tape or i < count - 1):  # all examples go back along one tape
                results.append(func(*positional, **named))
        if randomness == "error" and default_generator.get_state() != start:
            raise ArgumentError('[vmap] expected no random numbers but got some; pass randomness="different" or "same"')
        return _stacked(results, out_dims)

    return batched


def _stacked(results: list[Any], out_dims: Any) -> Any:
    """Results of examples, joined along a new axis of each tensor."""
    columns: list[list[Tensor]] = []
    for result in results:
        leaves: list[Any] = []
        flatten(result, leaves, lambda v: not isinstance(v, (list, tuple, dict)))
        if not all(isinstance(v, Tensor) for v in leaves):
            raise ArgumentError(f"[vmap] expected a function that gives tensors but got {result!r}")
        columns.append(leaves)
    dims = _spread(out_dims, results[0])
    joined = []
    for dim, *parts in zip(dims, *columns, strict=True):
        joined.append(parts[0] if dim is None else FUNCTIONS["stack"](parts, dim))
    return rebuild(results[0], is_tensor, iter(joined))
