"""Nodes of torch.fx's graphs: one call, attribute, input or result each, in a list that can be changed anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyflame.core.errors import ArgumentError
from pyflame.overrides import resolve_name

if TYPE_CHECKING:
    from pyflame.fx.graph import Graph

OPS = ("placeholder", "call_function", "call_method", "call_module", "get_attr", "output", "root")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply a function to everything in nested lists, tuples, dicts and slices.

    >>> pf.fx.node.map_aggregate([1, {"a": (2,)}], lambda x: x + 1)
    [2, {'a': (3,)}]
    """
    if isinstance(a, tuple):
        parts = [map_aggregate(x, fn) for x in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Apply a function to the nodes in arguments."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


class Node:
    """One step of a graph. `op` says of what kind, `target` what is called or read; `users` are those that take it."""

    def __init__(
        self, graph: Graph, name: str, op: str, target: Any, args: Any, kwargs: Any, return_type: Any = None
    ) -> None:
        if op not in OPS:
            raise ArgumentError(f"[Node] expected one of {', '.join(OPS)} as op but got {op!r}")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._inputs: dict[Node, None] = {}
        self._args: Any = ()
        self._kwargs: Any = {}
        self._prev = self._next = self
        self._erased = False
        self._take(args, kwargs)

    def _take(self, args: Any, kwargs: Any) -> None:
        for node in self._inputs:
            node.users.pop(self, None)
        self._inputs = {}

        def note(node: Node) -> Node:
            self._inputs.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args, self._kwargs = map_arg(tuple(args), note), map_arg(dict(kwargs), note)

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args  # type: ignore[no-any-return]

    @args.setter
    def args(self, value: Any) -> None:
        self._take(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs  # type: ignore[no-any-return]

    @kwargs.setter
    def kwargs(self, value: Any) -> None:
        self._take(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        return list(self._inputs)

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    @property
    def stack_trace(self) -> str | None:
        return self.meta.get("stack_trace")

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace one positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = args

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put a positional argument before the one of this number."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set one argument by name."""
        self.kwargs = {**self._kwargs, key: arg}

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Move a node before this one."""
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Move a node behind this one."""
        if x is not self._next:
            self._next.prepend(x)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let those that take this node take another one; gives those that were changed."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Take another node where this one takes `old_input`."""

        def other(node: Node) -> Node:
            return new_input if node is old_input else node

        self._take(map_arg(self._args, other), map_arg(self._kwargs, other))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it must stay though nobody takes its result."""
        return self.op in ("placeholder", "output") or (self.op == "call_method" and str(self.target).endswith("_"))

    def format_node(self, placeholder_names: Any = None, maybe_return_typename: Any = None) -> str:
        """What it is, in a line."""
        if self.op == "placeholder":
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]"
        if self.op == "output":
            return f"return {_shown(self._args[0])}"
        args = ", ".join(_shown(a) for a in self._args)
        kwargs = ", ".join(f"{k}: {_shown(v)}" for k, v in self._kwargs.items())
        given = (
            ""
            if self.op == "get_attr"
            else f"(args = ({args}{',' if len(self._args) == 1 else ''}), kwargs = {{{kwargs}}})"
        )
        target = qualified(self.target) if callable(self.target) else self.target
        return f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]{given}"

    def __repr__(self) -> str:
        return self.name


def _shown(value: Any) -> str:
    return str(map_arg(value, lambda node: _Named(f"%{node.name}")))


class _Named(str):
    __repr__ = str.__str__


def qualified(function: Any) -> str:
    """The name by which code finds a function: `pyflame.relu`, `operator.add`.

    >>> pf.fx.node.qualified(pf.relu)
    'pyflame.relu'
    """
    if public := resolve_name(function):
        return public
    name, room = getattr(function, "__name__", repr(function)), getattr(function, "__module__", None)
    return name if room in (None, "builtins") else f"{room}.{name}"
