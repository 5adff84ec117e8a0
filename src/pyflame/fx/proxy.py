"""Proxies stand for values while torch.fx traces: what is done with them becomes nodes of a graph."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

from pyflame.core.errors import PyFlameError
from pyflame.fx.node import Node, map_aggregate
from pyflame.overrides import is_tensor_method_or_property
from pyflame.tensor.overrides import CLASSES


class TraceError(PyFlameError, ValueError):
    """A program asks for a value that is known only when the graph runs."""


class Proxy:
    """A value that is not there yet. Functions, methods and operators of it are recorded by its tracer."""

    def __init__(self, node: Node, tracer: Any = None) -> None:
        self.node = node
        self.tracer: Any = GraphAppendingTracer(node.graph) if tracer is None else tracer

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        if k in ("node", "tracer") or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        """`a, b = x` asks for as many parts as it has names for."""
        frame = inspect.currentframe()
        caller = frame.f_back if frame else None
        if caller is not None:
            for step in dis.get_instructions(caller.f_code):
                if step.offset == caller.f_lasti and step.opname == "UNPACK_SEQUENCE":
                    return (self[i] for i in range(step.argval))  # type: ignore[index]
        return self.tracer.iter(self)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "pf.fx.wrap('len') at module scope"
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError("[fx] expected a program that does not ask what is in a traced value but this one does")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tracer = proxies_in((args, kwargs))[0].tracer
        if is_tensor_method_or_property(func):
            name = func.__name__
            if name == "__get__":
                return tracer.create_proxy("call_function", getattr, (args[0], func.__self__.fget.__name__), {})
            return tracer.create_proxy("call_method", name, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


def proxies_in(values: Any) -> list[Proxy]:
    """Those in nested lists, tuples, dicts and slices."""
    found: list[Proxy] = []
    map_aggregate(values, lambda x: found.append(x) if isinstance(x, Proxy) else None)
    return found


class Attribute(Proxy):
    """An attribute of a value: `x.shape`, or the method of `x.view(...)`, whose call is one node."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operator(name: str, reflected: bool = False) -> Any:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (*args, self) if reflected else (self, *args), {})

    return method


for _name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"
):  # fmt: skip
    _plain = _name.rstrip("_")
    setattr(Proxy, f"__{_plain}__", _operator(_name))
    setattr(Proxy, f"__r{_plain}__", _operator(_name, reflected=True))
for _name in ("eq", "ne", "lt", "gt", "le", "ge", "getitem", "pos", "neg", "invert", "abs"):
    setattr(Proxy, f"__{_name}__", _operator(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


@contextmanager
def asking_first() -> Iterator[None]:
    """Within a `with` block functions ask proxies before they do anything, so that a call is the function's own node,
    not those of the functions that it calls."""
    asked: ref[type] = ref(Proxy)
    before = asked in CLASSES
    CLASSES.add(asked)
    try:
        yield
    finally:
        if not before:
            CLASSES.discard(asked)


class TracerBase:
    """What turns calls into nodes of its graph."""

    graph: Any

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """A node of the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)  # type: ignore[no-any-return]

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Any = None,
    ) -> Any:  # fmt: skip
        """A node of these arguments, and its proxy."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as graphs hold it: nodes for proxies."""
        return map_aggregate(a, self._one)

    def _one(self, value: Any) -> Any:
        return value.node if isinstance(value, Proxy) else value

    def to_bool(self, obj: Proxy) -> bool:
        """Asked by `if`; a subclass may know."""
        raise TraceError(
            "[fx] expected a program that asks for no values but symbolically traced variables cannot be used as "
            "inputs to control flow; choose with pf.where, or make the branch a wrapped function"
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Asked by `for`; a subclass may know."""
        raise TraceError(
            "[fx] expected a program whose loops have known lengths but Proxy object cannot be iterated; index it, or "
            "unpack it into names"
        )


class GraphAppendingTracer(TracerBase):
    """What programs build graphs with by hand: all that is done with its proxies is put behind what a graph has.

    >>> graph = pf.fx.Graph()
    >>> x = pf.fx.Proxy(graph.placeholder("x"), pf.fx.proxy.GraphAppendingTracer(graph))
    >>> _ = graph.output((x.relu() + 1).node)
    >>> pf.fx.GraphModule({}, graph)(pf.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
