"""A graph of ONNX nodes as a list of steps, and its run over values on the host and tensors.

Every step looks whether its inputs are known on the host (see fold.py); if not its operator builds lazy nodes of the
engine. A value is dropped behind its last reader, so that the engine need not keep it when something is read midway.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from pyflame.bridge.onnx.fold import Folder
from pyflame.bridge.onnx.table import OPERATORS, Call, Operator, Value, full_name
from pyflame.bridge.onnx.values import to_host, to_tensor
from pyflame.core.errors import FileFormatError, PyFlameError
from pyflame.core.optional import optional
from pyflame.tensor import Tensor

Values = MutableMapping[str, Value]


class Step:
    """One node."""

    def __init__(self, node: Any, opset: int, opset_imports: Sequence[Any]) -> None:
        helper = optional("onnx.helper", "onnx", "onnx")
        self.operator: Operator = OPERATORS[full_name(node.domain, node.op_type)]
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.name = node.name or (self.outputs[0] if self.outputs else "")
        held = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
        self.attributes = {k: _plain(v) for k, v in held.items()}
        self.graphs = {a.name: Graph(a.g, opset, opset_imports) for a in node.attribute if a.HasField("g")}
        self.opset = opset
        self.folder = Folder(node, opset_imports)
        self.last: list[str] = []  # values that no later step reads

    @property
    def reads(self) -> set[str]:
        """Names that the node and its graphs read."""
        return {n for n in self.inputs if n}.union(*[g.outer for g in self.graphs.values()])

    def run(self, values: Values) -> None:
        inputs = [values[name] if name else None for name in self.inputs]
        try:
            found = self._compute(inputs, values)
        except PyFlameError as error:
            note = f"in node {self.name!r} ({self.operator.name})"
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(note)
            raise
        for name, value in zip(self.outputs, found, strict=False):
            if name:
                values[name] = value

    def _compute(self, inputs: list[Value], values: Values) -> Sequence[Value]:
        op = self.operator
        if op.folds and self.folder.takes(inputs):
            return self.folder(inputs)
        if not op.raw:
            inputs = [_passed(x, at in op.host) for at, x in enumerate(inputs)]
        bodies = {name: _body(graph, values) for name, graph in self.graphs.items()}
        call = Call(op.name, self.name, self.attributes, self.opset, len(self.outputs), bodies)
        found = op.fn(call, *inputs)
        return found if isinstance(found, tuple) else (found,)


class Graph:
    """The steps of a graph. `outer`: names that it reads from the graphs around it."""

    def __init__(self, graph: Any, opset: int, opset_imports: Sequence[Any]) -> None:
        self.name = graph.name
        self.inputs = [i.name for i in graph.input]
        self.outputs = [o.name for o in graph.output]
        self.constants: dict[str, Value] = {t.name: array_of(t) for t in graph.initializer}
        self.constants |= {t.values.name: dense_of(t) for t in graph.sparse_initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                self.constants[node.output[0]] = constant_of(node)
        self.steps = [Step(n, opset, opset_imports) for n in graph.node if n.output[:1] != [] and not _is_constant(n)]
        known = {*self.inputs, *self.constants, *[o for step in self.steps for o in step.outputs]}
        self.outer = {n for step in self.steps for n in step.reads} | set(self.outputs)
        self.outer -= known
        self._find_last()

    def _find_last(self) -> None:
        kept = {*self.outputs, *self.outer, *self.constants}
        seen: set[str] = set()
        for step in reversed(self.steps):
            named = (step.reads | {o for o in step.outputs if o}) - kept
            step.last = sorted(named - seen)
            seen |= named

    def run(self, values: Values) -> list[Value]:
        for step in self.steps:
            step.run(values)
            for name in step.last:
                values.pop(name, None)
        return [values[name] for name in self.outputs]

    def __call__(self, inputs: Sequence[Value], around: Values) -> list[Value]:
        """Run as the body of a node that sees the values around it."""
        own: dict[str, Value] = {**self.constants, **dict(zip(self.inputs, inputs, strict=False))}
        return self.run(ChainMap(own, around))

    def every(self) -> list[Graph]:
        """This graph and those of its nodes."""
        inner = [g for step in self.steps for g in step.graphs.values()]
        return [self, *[found for g in inner for found in g.every()]]


def _body(graph: Graph, values: Values) -> Callable[[list[Value]], list[Value]]:
    return lambda inputs: graph(inputs, values)


def _passed(value: Value, on_host: bool) -> Value:
    if value is None or isinstance(value, list):
        return value
    if on_host:
        return to_host(value)
    return value if isinstance(value, Tensor) else to_tensor(value)


def _plain(value: Any) -> Any:
    """An attribute as Python and NumPy have it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], bytes):
        return [v.decode("utf-8", "replace") for v in value]
    return array_of(value) if hasattr(value, "data_type") else value


def _is_constant(node: Any) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """A TensorProto as an array."""
    try:
        found: np.ndarray[Any, Any] = optional("onnx.numpy_helper", "onnx", "onnx").to_array(tensor)
        return found
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"[onnx] expected the data of tensor {tensor.name!r} but got: {error}") from None


def dense_of(sparse: Any) -> np.ndarray[Any, Any]:
    """A SparseTensorProto as an array."""
    values, indices, shape = array_of(sparse.values), array_of(sparse.indices), tuple(sparse.dims)
    out = np.zeros(shape, values.dtype)
    at = (indices,) if indices.ndim == 1 else None
    out[np.unravel_index(at[0], shape) if at else tuple(indices.T)] = values
    return out


_CONSTANTS: Mapping[str, Any] = {
    "value": array_of,
    "sparse_value": dense_of,
    "value_int": np.int64,
    "value_ints": lambda v: np.array(v, np.int64),
    "value_float": np.float32,
    "value_floats": lambda v: np.array(v, np.float32),
    "value_string": lambda v: np.array(v.decode(), object),
    "value_strings": lambda v: np.array([x.decode() for x in v], object),
}


def constant_of(node: Any) -> np.ndarray[Any, Any]:
    """The value of a Constant."""
    helper = optional("onnx.helper", "onnx", "onnx")
    for attribute in node.attribute:
        if attribute.name in _CONSTANTS:
            return np.asarray(_CONSTANTS[attribute.name](helper.get_attribute_value(attribute)))
    raise FileFormatError(f"[onnx] expected a value in Constant {node.output[0]!r} but it has none")
