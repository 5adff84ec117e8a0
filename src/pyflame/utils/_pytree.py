"""torch.utils._pytree by its path: nested lists, tuples and dicts taken apart and put together again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["PyTree", "TreeSpec", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only", "tree_unflatten"]

PyTree = Any


@dataclass(frozen=True)
class TreeSpec:
    """How leaves were nested: the container's type, its keys if it is a dict, and the same for each child."""

    type: Any = None
    context: Any = None
    children_specs: tuple[TreeSpec, ...] = ()

    @property
    def num_leaves(self) -> int:
        return sum(c.num_leaves for c in self.children_specs) if self.type else 1


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, and how to put them together.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
    >>> leaves, tree_unflatten(leaves, spec)
    ([1, 2, 3], {'a': [1, 2], 'b': (3,)})
    """
    leaves: list[Any] = []

    def spec(value: Any) -> TreeSpec:
        named = isinstance(value, (dict, OrderedDict))
        if (is_leaf is not None and is_leaf(value)) or not (named or isinstance(value, (list, tuple))):
            leaves.append(value)
            return TreeSpec()
        children = value.values() if named else value
        return TreeSpec(type(value), tuple(value) if named else None, tuple([spec(c) for c in children]))

    return leaves, spec(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """Put leaves together."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"[tree_unflatten] expected {treespec.num_leaves} leaves but got {len(given)}")
    rest = iter(given)

    def made(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(rest)
        children = [made(c) for c in spec.children_specs]
        if spec.context is not None:
            return spec.type(zip(spec.context, children, strict=True))
        return spec.type(*children) if hasattr(spec.type, "_fields") else spec.type(children)

    return made(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves alone."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """A function of each leaf; of the leaves at the same place, if there are several trees.

    >>> tree_map(lambda x: x + 1, {"a": [1, 2]})
    {'a': [2, 3]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(r, is_leaf) for r in rests]
    return tree_unflatten([func(*at) for at in zip(leaves, *others, strict=True)], spec)


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: PyTree) -> PyTree:
    """A function of each leaf of this type; others stay."""
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree)
