"""GraphModule: a module whose forward is the Python of a graph."""

from __future__ import annotations

import copy
import linecache
from itertools import count
from typing import Any

from pyflame.fx.graph import Graph, PythonCode
from pyflame.nn.module import Module

_numbers = count()


def _made(module: Any, path: list[str]) -> Any:
    """What lies at a path, with modules made where nothing is, or the first on the way that is no module."""
    for name in path:
        if not isinstance(module, Module):
            break
        if getattr(module, name, None) is None:
            setattr(module, name, Module())
        module = getattr(module, name)
    return module


def _copied(source: Any, to: Any, path: str) -> None:
    """Put what lies at a path of one module at the same path of another."""
    *parents, last = path.split(".")
    for name in parents:
        source = getattr(source, name)
    value, to = getattr(source, last), _made(to, parents)
    if last in getattr(source, "_buffers", ()):
        to.register_buffer(last, value, last not in source._non_persistent_buffers_set)
    else:
        setattr(to, last, value)


def _compiled(code: PythonCode) -> Any:
    """The function of the code, whose lines tracebacks show."""
    file = f"<pyflame.fx {next(_numbers)}>"
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    names = dict(code.globals)
    exec(compile(code.src, file, "exec"), names)
    return names["forward"]


def _restored(body: dict[str, Any], graph: Graph, name: str) -> GraphModule:
    root = Module()
    root.__dict__.update(body)
    return GraphModule(root, graph, name)


class GraphModule(Module):
    """Runs a graph: with the submodules, parameters and buffers of `root`, a module or a dict of them by path.

    >>> gm = pf.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    >>> gm(pf.ones(1, 2)).shape, [node.op for node in gm.graph.nodes]
    ((1, 3), ['placeholder', 'call_module', 'call_module', 'output'])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Of a class of its own, since each has another forward."""
        base = next(c for c in cls.__mro__ if not vars(c).get("_own"))
        return super().__new__(type("GraphModule", (base,), {"_own": True}))

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        paths = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for path in dict.fromkeys(paths):
                _copied(root, self, path)
        else:
            holder = Module()
            for path in sorted(root, key=lambda p: p.count(".")):
                *parents, last = path.split(".")
                setattr(_made(holder, parents), last, root[path])
            for path in dict.fromkeys(paths):
                _copied(holder, self, path)
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self._graph  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = copy.deepcopy(graph) if graph.owning_module not in (None, self) else graph
        self._graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python of its forward."""
        return self._code  # type: ignore[no-any-return]

    def recompile(self) -> PythonCode:
        """Let forward do what the graph says now."""
        written: PythonCode = self._graph.python_code()
        self.__dict__["_code"] = written.src
        type(self).forward = _compiled(written)  # type: ignore[method-assign]
        return written

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path; says whether there was room."""
        *parents, last = target.split(".")
        below = _made(self, parents)
        if isinstance(below, Module):
            setattr(below, last, m)
        return isinstance(below, Module)

    def delete_submodule(self, target: str) -> bool:
        """Take a module out; says whether it was there."""
        *parents, last = target.split(".")
        below: Any = self
        for name in parents:
            below = getattr(below, name, None)
        if below is None or last not in getattr(below, "_modules", ()):
            return False
        delattr(below, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out all modules that the graph does not call."""
        used: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                if node.op == "call_module":
                    used.update(f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n)
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The module as the text of a class."""
        body = self._code.strip("\n").replace("\n", "\n    ").rstrip()
        text = f"class {type(self).__name__}(pyflame.nn.Module):\n    {body}\n"
        if print_output:
            print(text)
        return text

    def _body(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}

    def __reduce__(self) -> Any:
        graph = copy.deepcopy(self._graph)
        return _restored, (self._body(), graph, type(self).__name__)

    def __deepcopy__(self, memo: Any) -> GraphModule:
        body, graph = copy.deepcopy(self._body(), memo), copy.deepcopy(self._graph)
        made = memo[id(self)] = _restored(body, graph, type(self).__name__)
        made.__dict__.update({k: v for k, v in body.items() if k not in made.__dict__})
        return made

    def __copy__(self) -> GraphModule:
        return GraphModule(self, self._graph, type(self).__name__)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self._code}"
