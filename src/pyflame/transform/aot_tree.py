"""The structure of arguments and results as plain data that JSON can hold: tuples, lists, dicts and plain values.

A tensor or float that the plan carries is `["leaf"]`; everything else is a list that begins with its kind. A named
tuple becomes a plain one: its class may not exist where the plan is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyflame.core.errors import ArgumentTypeError, type_name


def pack_tree(value: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """Nested values without their leaves.

    >>> pack_tree((1, {"a": [None]}), lambda v: v is None)
    ['tuple', ['value', 1], ['dict', 'a', ['list', ['leaf']]]]
    """
    if is_leaf(value):
        return ["leaf"]
    if isinstance(value, (list, tuple)):
        return ["list" if isinstance(value, list) else "tuple", *(pack_tree(v, is_leaf) for v in value)]
    if type(value) is dict and all(type(k) is str for k in value):
        return ["dict", *(part for k, v in value.items() for part in (k, pack_tree(v, is_leaf)))]
    if value is None or type(value) in (bool, int, float, str):
        return ["value", value]
    raise ArgumentTypeError(
        f"[aot] expected tensors, numbers, text, and lists, tuples and dicts of them but got {type_name(value)}; "
        "let the function capture it rather than take or return it"
    )


def unpack_tree(packed: Any, leaves: Sequence[Any]) -> Any:
    """The structure over these leaves, which must be as many as it has."""
    left = iter(leaves)
    try:
        whole = _unpack(packed, left)
    except StopIteration:
        raise ValueError(f"a structure of more than {len(leaves)} leaves") from None
    if next(left, left) is not left:
        raise ValueError(f"a structure of fewer than {len(leaves)} leaves")
    return whole


def _unpack(packed: Any, leaves: Iterator[Any]) -> Any:
    kind, *parts = packed
    if kind == "leaf":
        return next(leaves)
    if kind == "value":
        return parts[0]
    if kind == "dict":
        return {k: _unpack(v, leaves) for k, v in zip(parts[::2], parts[1::2], strict=True)}
    items = [_unpack(part, leaves) for part in parts]
    return tuple(items) if kind == "tuple" else items
