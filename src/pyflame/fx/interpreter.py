"""Interpreter runs a graph node by node; Transformer runs it with proxies and so makes another one."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from pyflame.fx.graph import Graph
from pyflame.fx.graph_module import GraphModule
from pyflame.fx.node import Node, map_arg
from pyflame.fx.proxy import asking_first
from pyflame.fx.tracer import Tracer


class Interpreter:
    """Runs the graph of a module; a subclass changes what happens at nodes.

    >>> class Double(pf.fx.Interpreter):
    ...     def call_function(self, target, args, kwargs):
    ...         return super().call_function(target, args, kwargs) * 2
    >>> Double(pf.fx.symbolic_trace(lambda x: pf.relu(x))).run(pf.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph = graph or module.graph
        self.garbage_collect_values = garbage_collect_values
        self.env: dict[Node, Any] = {}
        self.args_iter: Iterator[Any] = iter(())

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result for these arguments."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        waiting = {node: len(node.users) for node in self.graph.nodes}
        for node in self.graph.nodes:
            if node not in self.env:
                self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            for source in node.all_input_nodes if self.garbage_collect_values else ():
                waiting[source] -= 1
                if not waiting[source]:
                    self.env.pop(source, None)
        return None

    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[Any, Any]:
        """Values of a node's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Values for nodes in arguments."""
        return map_arg(args, self.env.__getitem__)

    def fetch_attr(self, target: str) -> Any:
        """What lies at a path of the module."""
        return attrgetter(target)(self.module)

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        """The next argument, or its default."""
        if target.startswith("*"):
            return tuple(self.args_iter) if not target.startswith("**") else {}
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!")

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """The result of a method."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        """The result of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: str, args: Any, kwargs: Any) -> Any:
        """The result of the graph."""
        return args[0]


class Transformer(Interpreter):
    """Makes another GraphModule; a subclass changes what becomes of nodes."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = Tracer()
        self.tracer.graph, self.tracer.root = self.new_graph, module
        cells = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        self.tracer._paths = {id(value): name for name, value in reversed(cells)}

    def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("placeholder", target, args, kwargs)

    def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        module = self.fetch_attr(target)
        if self.tracer.is_leaf_module(module, target):
            return self.tracer.create_proxy("call_module", target, args, kwargs)
        return module(*args, **kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        with asking_first():
            result = super().run()
        if result is not None:
            self.new_graph.output(self.tracer.create_arg(result))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
