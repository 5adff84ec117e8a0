"""Graphs of torch.fx: lists of nodes that can be changed, and that are written as Python."""

from __future__ import annotations

import builtins
import copy
import keyword
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.fx.node import Node, map_arg, qualified

_FORMATS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "truediv": "{} / {}", "floordiv": "{} // {}",
    "mod": "{} % {}", "pow": "{} ** {}", "matmul": "{} @ {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "eq": "{} == {}", "ne": "{} != {}",
    "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "getitem": "{}[{}]", "pos": "+{}", "neg": "-{}", "invert": "~{}",
}  # fmt: skip
_RESERVED = frozenset((*keyword.kwlist, *dir(builtins)))


@dataclass(frozen=True)
class PythonCode:
    """What a graph is in Python, and what names in it stand for."""

    src: str
    globals: dict[str, Any]


def snake_case(name: str) -> str:
    """`LayerNorm.0` -> `layer_norm_0`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"\W+", "_", spaced).lower().lstrip("_") or "node"


class Graph:
    """Nodes in the order in which they run.

    >>> graph = pf.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(pf.relu, (x,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=pyflame.relu](args = (%x,), kwargs = {})
        return relu
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._names: set[str] = set()
        self._numbers: dict[str, int] = {}  # by stem, the last one given

    @property
    def nodes(self) -> Nodes:
        """All of them, in order; `reversed` works, too."""
        return Nodes(self)

    def output_node(self) -> Node:
        """The node of the result."""
        last = self._root.prev
        if last.op != "output":
            raise ArgumentError("[output_node] expected a graph with an output but this one has none")
        return last

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """Those of a kind, which call `target` where it is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _name(self, candidate: str) -> str:
        base = re.sub(r"\W", "_", candidate)
        base = f"_{base}" if base[:1].isdigit() else base
        match = re.fullmatch(r"(.+)_(\d+)", base)
        stem, number = (match[1], int(match[2])) if match else (base, self._numbers.get(base, 0))
        while base in self._names or base in _RESERVED:
            number += 1
            base = f"{stem}_{number}"
        self._names.add(base)
        self._numbers[stem] = number
        return base

    def _target_name(self, target: Any) -> str:
        words = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        if words.startswith("_") and not words.startswith("__"):
            return f"_{snake_case(words)}"
        return snake_case(words.removesuffix("__") if words.startswith("__") else words)

    def create_node(
        self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """A node where the graph is written at: at its end, or where `inserting_before` says."""
        plain = str(target) if op == "placeholder" and name is None else None
        wanted = name or (plain.lstrip("*") if plain else self._target_name(target))
        node = Node(self, self._name(wanted), op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An input."""
        return self.create_node(
            "placeholder", name, () if default_value is ... else (default_value,), type_expr=type_expr
        )

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A parameter, a buffer or another attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Any, args: Any = None, kwargs: Any = None, type_expr: Any = None, name: str | None = None
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    @contextmanager
    def _inserting(self, put: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, put
        try:
            yield
        finally:
            self._insert = before

    def inserting_before(self, n: Node | None = None) -> Any:
        """Within a `with` block, new nodes come before this one."""
        return self._inserting((n or self._root.next).prepend)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Within a `with` block, new nodes come behind this one, in their order."""
        last = [n or self._root]

        def put(node: Node) -> None:
            last[0].append(node)
            last[0] = node

        return self._inserting(put)

    def erase_node(self, to_erase: Node) -> None:
        """Take out a node that nobody takes."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph"
            )
        to_erase.args, to_erase.kwargs = (), {}
        to_erase._unlink()
        to_erase._erased = True

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out all nodes whose results nobody takes; says whether there were any."""
        dead = 0
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node or self._is_impure)(node):
                self.erase_node(node)
                dead += 1
        return dead > 0

    def _is_impure(self, node: Node) -> bool:
        return node.is_impure() or (node.op == "call_module" and self.owning_module is None)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of another graph's node here."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies of all nodes of a graph but its output; gives what that returns."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], val_map.__getitem__)
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        result = made.graph_copy(self, {}, return_output_node=True)
        if result is not None:
            made.output(result[0], result[1].type).meta = copy.copy(result[1].meta)
        return made

    def lint(self) -> None:
        """Raise where a node takes one that comes later or is gone, or calls a module that is not there."""
        seen: set[Node] = set()
        for node in self.nodes:
            for source in node.all_input_nodes:
                if source not in seen:
                    raise RuntimeError(
                        f"Argument '{source}' of Node '{node}' was used before it has been defined! {self}"
                    )
            seen.add(node)
            if node.op in ("call_module", "get_attr") and self.owning_module is not None:
                _attribute(self.owning_module, node)

    # --- Python -----------------------------------------------------------------------------------------------------

    def python_code(self, root_module: str = "self", *, verbose: bool = False) -> PythonCode:
        """The graph as `def forward(self, ...)`, and the globals that it needs."""
        return _Writer(self, root_module).code()

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        rows.insert(1, tuple("-" * w for w in widths))  # type: ignore[arg-type]
        print("\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows))

    def __str__(self) -> str:
        return "graph():" + "".join(f"\n    {node.format_node()}" for node in self.nodes)


class Nodes:
    """The nodes of a graph, which may change while one goes through them."""

    def __init__(self, graph: Graph, step: str = "_next") -> None:
        self.graph = graph
        self._step = step

    def __iter__(self) -> Iterator[Node]:
        node = getattr(self.graph._root, self._step)
        while node.op != "root":
            if not node._erased:
                yield node
            node = getattr(node, self._step)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __reversed__(self) -> Iterator[Node]:
        return iter(Nodes(self.graph, "_prev"))


def _attribute(module: Any, node: Node) -> Any:
    for part in node.target.split("."):
        if not hasattr(module, part):
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part}")
        module = getattr(module, part)
    return module


class _Writer:
    """Writes one graph."""

    def __init__(self, graph: Graph, root: str) -> None:
        self.graph = graph
        self.root = root
        self.globals: dict[str, Any] = {}
        self.last: dict[Node, list[Node]] = {}
        used: set[Node] = set()
        for node in reversed(graph.nodes):
            for source in node.all_input_nodes:
                if source not in used:
                    used.add(source)
                    self.last.setdefault(node, []).append(source)

    def code(self) -> PythonCode:
        inputs, lines = [self.root], []
        for node in self.graph.nodes:
            if node.op == "placeholder":
                default = f" = {self.text(node.args[0])}" if node.args else ""
                stars = "*" * (len(str(node.target)) - len(str(node.target).lstrip("*")))
                inputs.append(f"{stars}{node.name}{default}")
                if not node.users:
                    continue
            else:
                lines.append(self.line(node) + self.freed(node))
        body = "\n".join(f"    {line}" for line in lines or ["pass"])
        return PythonCode(f"\n\n\ndef forward({', '.join(inputs)}):\n{body}\n    ", self.globals)

    def freed(self, node: Node) -> str:
        if node.op == "output":
            return ""
        names = [n.name for n in self.last.get(node, ())] + ([] if node.users else [node.name])
        return f";  {' = '.join([*names, 'None'])}" if names else ""

    def line(self, node: Node) -> str:
        if node.op == "output":
            return f"return {self.text(node.args[0])}"
        return f"{node.name} = {self.call(node)}"

    def call(self, node: Node) -> str:
        if node.op == "get_attr":
            return self.path(node.target)
        if node.op == "call_module":
            return f"{self.path(node.target)}({self.arguments(node.args, node.kwargs)})"
        if node.op == "call_method":
            return f"{self.text(node.args[0])}.{node.target}({self.arguments(node.args[1:], node.kwargs)})"
        name = getattr(node.target, "__name__", "")
        if getattr(node.target, "__module__", "") == "_operator" and name in _FORMATS and not node.kwargs:
            return _FORMATS[name].format(*(self.text(a) for a in node.args))
        if node.target is getattr and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return f"{self.text(node.args[0])}.{node.args[1]}"
        return f"{self.name_of(node.target)}({self.arguments(node.args, node.kwargs)})"

    def path(self, target: str) -> str:
        out = self.root
        for part in target.split("."):
            out = f"{out}.{part}" if part.isidentifier() else f'getattr({out}, "{part}")'
        return out

    def arguments(self, args: Any, kwargs: Any) -> str:
        return ", ".join([*(self.text(a) for a in args), *(f"{k} = {self.text(v)}" for k, v in kwargs.items())])

    def name_of(self, function: Any) -> str:
        """How code names it; what has no such name becomes a global."""
        if hasattr(function, "__name__"):
            full = qualified(function)
            if getattr(builtins, full, None) is function:
                return full
            if full.startswith(("pyflame.", "_operator.", "math.")) and _found(full) is function:
                first = full.partition(".")[0]
                self.globals[first] = __import__(first)
                return full
        name = re.sub(r"\W", "_", getattr(function, "__qualname__", type(function).__name__)).strip("_")
        while self.globals.setdefault(name, function) is not function:
            name += "_"
        return name

    def text(self, value: Any) -> str:
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self.name_of(type(value))}{self.text(tuple(value))}"
        if isinstance(value, tuple):
            return f"({', '.join(self.text(v) for v in value)}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(self.text(v) for v in value)}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{k!r}: {self.text(v)}' for k, v in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if isinstance(value, (float, complex)):
            self.globals.update(inf=math.inf, nan=math.nan)  # how Python writes them
        if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
            return repr(value)
        return self.name_of(value)


def _found(path: str) -> Any:
    """What code gets by this name; None where there is nothing."""
    first, *rest = path.split(".")
    found: Any = __import__(first)
    for part in rest:
        found = getattr(found, part, None)
    return found
