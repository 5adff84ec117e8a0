"""Symbolic tracing: a module or a function runs once with proxies, and what it does becomes a graph."""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.locks import lock
from pyflame.fx.graph import Graph
from pyflame.fx.graph_module import GraphModule
from pyflame.fx.proxy import TracerBase, asking_first, proxies_in
from pyflame.nn.containers import Sequential
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor.tensor import Tensor

# (globals, name) of functions that are not looked into.
_wrapped: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
_tracing = lock()


def wrap(fn_or_name: Any) -> Any:
    """Let tracing record calls of a function of this module, or of Python's own (by its name), as one node.

    Write it at the top of a file, as a decorator or as a call.

    >>> pf.fx.wrap("len")
    'len'
    """
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    if frame is None or frame.f_back is None:
        raise ArgumentError("[wrap] expected a caller with a module but there is none")
    place = frame.f_back.f_globals if isinstance(fn_or_name, str) else fn_or_name.__globals__
    _wrapped[id(place), name] = (place, name)
    return fn_or_name


def _recording(function: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if proxies := proxies_in((args, kwargs)):
            return proxies[0].tracer.create_proxy("call_function", function, args, kwargs)
        return function(*args, **kwargs)

    call.__name__ = getattr(function, "__name__", "call")
    return call


class Tracer(TracerBase):
    """Traces modules and functions. A subclass says which modules are not looked into."""

    def __init__(
        self, autowrap_modules: Any = (math,), autowrap_functions: Any = (), param_shapes_constant: bool = False
    ) -> None:
        self.autowrap_modules = autowrap_modules
        self.autowrap_functions = autowrap_functions
        self.root: Any = None
        self.graph: Graph = Graph()
        self._paths: dict[int, str] = {}
        self._constants: dict[int, str] = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module's call is one node: layers of `nn`, but for containers."""
        return type(m).__module__.startswith("pyflame.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """Where a module lies in the one that is traced."""
        for name, found in self.root.named_modules(remove_duplicate=False):
            if found is mod:
                return name  # type: ignore[no-any-return]
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of a module while tracing: one node for a leaf, else what it does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """An attribute of a module: a proxy for a parameter or a buffer of the module that is traced."""
        path = self._paths.get(id(attr_val)) if isinstance(attr_val, Tensor) else None
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            parameter_proxy_cache[path] = self.create_proxy("get_attr", path, (), {})
        return parameter_proxy_cache[path]

    def _one(self, value: Any) -> Any:
        if isinstance(value, (Parameter, Tensor)):
            path = self._paths.get(id(value)) or self._constant(value)
            return self.create_node("get_attr", path, (), {})
        return super()._one(value)

    def _constant(self, value: Tensor) -> str:
        """A tensor that belongs to nothing becomes an attribute of the module."""
        name = f"_tensor_constant{len(self._constants)}"
        while hasattr(self.root, name):
            name += "_"
        setattr(self.root, name, value)
        self._paths[id(value)] = self._constants[id(value)] = name
        return name

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> list[Any]:
        """The proxies that the function is called with."""
        given = dict(concrete_args or {})
        out: list[Any] = [self.root] if is_module else []
        for name, parameter in list(inspect.signature(root_fn).parameters.items())[is_module:]:
            kind = parameter.kind
            stars = "*" if kind is parameter.VAR_POSITIONAL else "**" if kind is parameter.VAR_KEYWORD else ""
            if name in given:
                out.append(given[name])
                continue
            default = () if parameter.default is parameter.empty else (parameter.default,)
            out.append(self.create_proxy("placeholder", stars + name, default, {}))
        return out

    def trace(self, root: Any, concrete_args: Any = None) -> Graph:
        """The graph of a module's forward, or of a function."""
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        fn = type(root).forward if is_module else root
        self.graph = Graph(tracer_cls=type(self))
        cells = [*self.root.named_parameters(remove_duplicate=False), *self.root.named_buffers(remove_duplicate=False)]
        self._paths = {id(value): name for name, value in reversed(cells)}
        with _tracing, self._patched():
            args = self.create_args_for_root(fn, is_module, concrete_args)
            named = zip(args, inspect.signature(fn).parameters.values(), strict=True)
            by_name = {p.name: a for a, p in named if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)}
            result = fn(*args[: len(args) - len(by_name)], **by_name)
            self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Modules and wrapped functions record what is done with them."""
        cache: dict[str, Any] = {}
        call, get, thread = Module.__call__, Module.__getattr__, get_ident()

        def module_call(module: Module, *args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread:
                return call(module, *args, **kwargs)
            return self.call_module(module, lambda *a, **k: call(module, *a, **k), args, kwargs)

        def module_get(module: Module, name: str) -> Any:
            value = get(module, name)
            return self.getattr(name, value, cache) if get_ident() == thread else value

        places = [(place, name) for place, name in _wrapped.values()]
        named = {f.__name__: f for f in self.autowrap_functions}
        for room in self.autowrap_modules:
            named.update({n: f for n, f in vars(room).items() if not n.startswith("_") and callable(f)})
        with ExitStack() as stack:
            stack.enter_context(asking_first())
            for place, name in places:
                _set(stack, place, name, _recording(place[name] if name in place else getattr(builtins, name)))
            for room in self.autowrap_modules:
                for name, function in named.items():
                    if vars(room).get(name) is function:
                        _set(stack, vars(room), name, _recording(function))
            for owner, name, value in ((Module, "__call__", module_call), (Module, "__getattr__", module_get)):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
            yield


def _set(stack: ExitStack, place: dict[str, Any], name: str, value: Any) -> None:
    if name in place:
        stack.callback(place.__setitem__, name, place[name])
    else:
        stack.callback(place.pop, name, None)
    place[name] = value


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module or a function as a GraphModule. It runs once, with proxies for its arguments.

    >>> gm = pf.fx.symbolic_trace(lambda x, y: pf.relu(x) + y)
    >>> print(gm.code.strip())
    def forward(self, x, y):
        relu = pyflame.relu(x);  x = None
        add = relu + y;  relu = y = None
        return add
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
