"""torch.utils._pytree by its path: nested lists, tuples and dicts taken apart and put together again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "LeafSpec", "PyTree", "TreeSpec", "register_pytree_node", "tree_flatten", "tree_leaves", "tree_map",
    "tree_map_only", "tree_unflatten",
]  # fmt: skip

PyTree = Any


@dataclass(frozen=True)
class TreeSpec:
    """How leaves were nested: the container's type, what else it needs (as its keys), and the same for each child."""

    type: Any = None
    context: Any = None
    children_specs: tuple[TreeSpec, ...] = ()

    @property
    def num_leaves(self) -> int:
        return sum(c.num_leaves for c in self.children_specs) if self.type else 1

    def is_leaf(self) -> bool:
        """Whether it stands for a leaf."""
        return self.type is None


class LeafSpec(TreeSpec):
    """Where a leaf was."""


class NodeDef(NamedTuple):
    """How containers of a type are taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Any]]
    unflatten_fn: Callable[[Any, Any], Any]


SUPPORTED_NODES: dict[Any, NodeDef] = {}


def register_pytree_node(
    cls: Any,
    flatten_fn: Callable[[Any], tuple[Any, Any]],
    unflatten_fn: Callable[[Any, Any], Any],
    **options: Any,
) -> None:
    """Let objects of a class be taken apart: `flatten_fn` gives their parts and what else `unflatten_fn` needs.

    >>> class Pair:
    ...     def __init__(self, a, b):
    ...         self.a, self.b = a, b
    >>> register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda parts, context: Pair(*parts))
    >>> tree_map(lambda x: x + 1, [Pair(1, 2)])[0].b
    3
    """
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _get_node_type(tree: Any) -> Any:
    """The type that a container is registered by: a subclass of one is a leaf, but for named tuples."""
    return namedtuple if isinstance(tree, tuple) and hasattr(tree, "_fields") else type(tree)


@dataclass(frozen=True)
class MappingKey:
    """Where a leaf is: behind this key of a dict."""

    key: Any


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Iterable[Any]) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


def _namedtuple_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), type(d)


def _namedtuple_unflatten(values: Iterable[Any], context: Any) -> Any:
    return context(*values)


register_pytree_node(list, lambda d: (d, None), lambda values, _: list(values))
register_pytree_node(tuple, lambda d: (list(d), None), lambda values, _: tuple(values))
register_pytree_node(dict, _dict_flatten, _dict_unflatten)
register_pytree_node(namedtuple, _namedtuple_flatten, _namedtuple_unflatten)
register_pytree_node(OrderedDict, _dict_flatten, lambda values, keys: OrderedDict(_dict_unflatten(values, keys)))
register_pytree_node(
    defaultdict,
    lambda d: (list(d.values()), [d.default_factory, list(d)]),
    lambda values, context: defaultdict(context[0], _dict_unflatten(values, context[1])),
)
register_pytree_node(deque, lambda d: (list(d), d.maxlen), lambda values, maxlen: deque(values, maxlen=maxlen))


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, and how to put them together.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": (3,)})
    >>> leaves, tree_unflatten(leaves, spec)
    ([1, 2, 3], {'a': [1, 2], 'b': (3,)})
    """
    leaves: list[Any] = []

    def spec(value: Any) -> TreeSpec:
        node = None if is_leaf is not None and is_leaf(value) else SUPPORTED_NODES.get(_get_node_type(value))
        if node is None:
            leaves.append(value)
            return LeafSpec()
        parts, context = node.flatten_fn(value)
        return TreeSpec(node.type, context, tuple([spec(part) for part in parts]))

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
        return SUPPORTED_NODES[spec.type].unflatten_fn([made(c) for c in spec.children_specs], spec.context)

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
