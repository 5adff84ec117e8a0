"""Nested lists, tuples and dicts of tensors, flattened and rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyflame.tensor import Tensor


def flatten(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Any:
    """Collect the leaves; gives a hashable key of the structure with everything that is no leaf."""
    if is_leaf(value):
        leaves.append(value)
        return None
    if isinstance(value, (list, tuple)):
        return (type(value), *[flatten(v, leaves, is_leaf) for v in value])
    if isinstance(value, dict):
        return (dict, *[(k, flatten(v, leaves, is_leaf)) for k, v in value.items()])
    return value


def rebuild(value: Any, is_leaf: Callable[[Any], bool], leaves: Iterator[Any]) -> Any:
    """The same structure over other leaves."""
    if is_leaf(value):
        return next(leaves)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[rebuild(v, is_leaf, leaves) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)([rebuild(v, is_leaf, leaves) for v in value])
    if isinstance(value, dict):
        return {k: rebuild(v, is_leaf, leaves) for k, v in value.items()}
    return value


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_traced(value: Any) -> bool:
    """What jit feeds at each call: tensors, and floats as data of the plan."""
    return isinstance(value, Tensor) or type(value) is float
