"""What the tensors that a function captures are called in the program: `model.0.weight`, `optimizer.state....exp_avg`.

The walk begins at the variables that the function sees and goes through attributes, dicts and lists. Of several names
a tensor gets the shortest. Private attributes (`_parameters`) are passed through and not named; a place in a private
list is a name where there is no other.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from pyflame.core.dtype import DType
from pyflame.tensor import Tensor

_MOST = 200_000  # objects that are looked at: a dataset in a list has no tensors worth a name
_LAST = 100  # the cost of names that are taken last
_LISTS = (list, tuple, set, frozenset)
_PLAIN = (str, bytes, int, float, bool, complex, type, ModuleType, type(None))

Path = tuple[Any, ...]  # of names and, for dicts keyed by tensors, tensors


def captured_names(fn: Callable[..., Any]) -> dict[int, str]:
    """id of a tensor that a function may capture -> its name.

    >>> model = pf.nn.Linear(2, 3)
    >>> sorted(captured_names(lambda x: model(x)).values())
    ['model.bias', 'model.weight']
    """
    paths: dict[int, Path] = {}
    seen: set[int] = set()
    number = itertools.count()  # objects of equal cost: first come
    todo: list[tuple[int, int, Path, Any]] = [(0, next(number), (), fn)]
    while todo and len(seen) < _MOST:
        cost, _, path, value = heapq.heappop(todo)
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            paths[id(value)] = path
            continue
        for key, child in _children(value):
            hidden = isinstance(key, str) and (key.startswith("_") or not key)
            step = _LAST if hidden and isinstance(child, _LISTS) else not hidden
            heapq.heappush(todo, (cost + step, next(number), path if hidden else (*path, key), child))
    return {key: _joined(path, paths) for key, path in paths.items()}


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, _LISTS):
        yield from ((str(i), v) for i, v in enumerate(value))
    elif isinstance(value, FunctionType):
        seen = inspect.getclosurevars(value)
        yield from {**seen.globals, **seen.nonlocals}.items()
        yield from enumerate(value.__defaults__ or ())
    elif isinstance(value, MethodType):
        yield from (("", value.__self__), ("", value.__func__))
    elif isinstance(value, partial):
        yield from (("", value.func), ("", value.args), ("", value.keywords))
    if hasattr(value, "__dict__"):
        yield from vars(value).items()


def _joined(path: Path, paths: dict[int, Path]) -> str:
    words = [_joined(paths[id(p)], paths) if id(p) in paths else _word(p) for p in path]
    return ".".join(w for w in words if w)


def _word(key: Any) -> str:
    return ".".join(map(_word, key)) if isinstance(key, tuple) else key.name if isinstance(key, DType) else str(key)


def leaf_names(tree: Any, is_leaf: Callable[[Any], bool], name: str = "") -> list[str]:
    """Names of the leaves of nested lists, tuples and dicts, in the order of `flatten`."""
    if is_leaf(tree):
        return [name]
    if isinstance(tree, dict):
        parts = list(tree.items())
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = list(zip(tree._fields, tree, strict=True))
    elif isinstance(tree, (list, tuple)):
        parts = list(enumerate(tree))
    else:
        return []
    dot = f"{name}." if name else ""
    return [found for key, value in parts for found in leaf_names(value, is_leaf, f"{dot}{key}")]


def argument_names(fn: Callable[..., Any], args: tuple[Any, ...], is_leaf: Callable[[Any], bool]) -> list[str]:
    """Names of the leaves of a function's arguments, by its signature."""
    try:
        bound = inspect.signature(fn).bind(*args).arguments
    except (TypeError, ValueError):  # a builtin has none
        bound = {f"argument{i}": a for i, a in enumerate(args)}
    return [found for name, value in bound.items() for found in leaf_names(value, is_leaf, name)]


__all__ = ["argument_names", "captured_names", "leaf_names"]
