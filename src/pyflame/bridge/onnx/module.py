"""OnnxModule: a model from an ONNX file as an nn.Module."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

import pyflame.bridge.onnx.operators  # noqa: F401  fills the table
from pyflame.bridge.onnx.file import graphs, opset_of, read_model
from pyflame.bridge.onnx.graph import Graph
from pyflame.bridge.onnx.spelling import spelled_out
from pyflame.bridge.onnx.table import OPERATORS, Array, Value, full_name
from pyflame.bridge.onnx.values import cast_array, held_as, numpy_dtype, our_dtype, to_host, to_tensor
from pyflame.core.errors import ArgumentError, ArgumentTypeError, NotSupportedError, suggest
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.devices import device as device_context

SMALL = 64  # elements: integers below are taken for shapes, axes and the like, and stay on the host


class OnnxModule(Module):
    """A model from an ONNX file: call it with inputs in their order or by their names.

    It gives a tensor, or a tuple where the model has several outputs. Weights are parameters, frozen unless
    `trainable`.

    >>> model = pf.onnx.load("model.onnx")                                           # doctest: +SKIP
    >>> model.input_names, model.output_names                                        # doctest: +SKIP
    (['x'], ['y'])
    >>> y = model(pf.randn(1, 3, 32, 32))                                            # doctest: +SKIP
    """

    def __init__(self, model: Any, device: object = None, trainable: bool = False, source: str = "the model") -> None:
        super().__init__()
        model = spelled_out(model)
        check_operators(model, source)
        self.opset = opset_of(model)
        self.device = device
        self._graph = Graph(model.graph, self.opset, list(model.opset_import))
        self._types = {v.name: v.type for v in (*model.graph.input, *model.graph.output)}
        optional_inputs = {t.name for t in model.graph.initializer}
        self.input_names = [n for n in self._graph.inputs if n not in optional_inputs]
        self.output_names = list(self._graph.outputs)
        self.weight_names: dict[str, str] = {}  # of parameters and buffers: ours -> ONNX's
        for graph in self._graph.every():
            self._take_weights(graph, trainable)
        self.eval()

    def _take_weights(self, graph: Graph, trainable: bool) -> None:
        """Make parameters of floats and buffers of large integers; what shapes depend on stays on the host."""
        on_host = _read_on_host(graph)
        for name, array in graph.constants.items():
            assert isinstance(array, np.ndarray)
            ours = our_dtype(array.dtype)
            if ours is None or name in on_host:
                continue  # values of a dtype that the engine has not got stay on the host
            if array.size <= 1 and not trainable if ours.is_float else array.size <= SMALL:
                continue
            value = to_tensor(array, self.device)
            given = self._new_name(name)
            if ours.is_float:
                self.register_parameter(given, Parameter(value, requires_grad=trainable))
            else:
                self.register_buffer(given, value)
            graph.constants[name] = getattr(self, given)
            self.weight_names[given] = name

    def _new_name(self, name: str) -> str:
        plain = re.sub(r"\W", "_", name).strip("_") or "weight"
        plain = f"w_{plain}" if plain[0].isdigit() or plain in _TAKEN or plain in self.__dict__ else plain
        found, number = plain, 1
        while found in self.weight_names:
            found, number = f"{plain}_{number}", number + 1
        return found

    def forward(self, *args: Any, **named: Any) -> Any:
        found = [v if isinstance(v, (Tensor, list)) or v is None else to_tensor(v) for v in self._run(args, named)]
        return found[0] if len(found) == 1 else tuple(found)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Outputs by name, as NumPy arrays of the dtypes that the model declares.

        >>> model.run({"x": np.ones((1, 3), np.float32)})["y"].shape                 # doctest: +SKIP
        (1, 10)
        """
        found = self._run((), inputs)
        return {name: self._declared(name, value) for name, value in zip(self.output_names, found, strict=True)}

    def _declared(self, name: str, value: Value) -> Any:
        if isinstance(value, list):
            return [None if v is None else to_host(v) for v in value]
        if value is None:
            return None
        array = to_host(value)
        code = _held_type(self._types[name]).tensor_type.elem_type
        return cast_array(array, numpy_dtype(code)) if code and array.dtype.kind not in "OSU" else array

    def _run(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Value]:
        given = self._by_name(args, named)
        if self.device is None:
            return self._graph.run({**self._graph.constants, **given})
        with device_context(self.device):
            return self._graph.run({**self._graph.constants, **given})

    def _by_name(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Value]:
        """The inputs by name, as tensors on the model's device."""
        if len(args) > len(self.input_names):
            raise ArgumentTypeError(f"[onnx] expected at most {len(self.input_names)} inputs but got {len(args)}")
        given = {**dict(zip(self.input_names, args, strict=False)), **named}
        for name in named:
            if name not in self._graph.inputs:
                raise ArgumentError(
                    f"[onnx] expected inputs among {self.input_names} but got {name!r}{suggest(name, self.input_names)}"
                )
        if missing := [n for n in self.input_names if n not in given]:
            raise ArgumentTypeError(f"[onnx] expected all of the inputs {self.input_names} but got none for {missing}")
        return {name: self._input(name, value) for name, value in given.items()}

    def _input(self, name: str, value: Any) -> Value:
        if isinstance(value, list) and _held_type(self._types[name]).HasField("sequence_type"):
            return [self._input_tensor(v) for v in value]
        return value if value is None else self._checked(name, self._input_tensor(value))

    def _input_tensor(self, value: Any) -> Tensor | Array:
        if isinstance(value, Tensor):
            return value if self.device is None else value.to(self.device)
        array = np.asarray(value)
        return array if our_dtype(array.dtype) is None else to_tensor(array, self.device)

    def _checked(self, name: str, value: Tensor | Array) -> Tensor | Array:
        """Refuse what the model does not declare; symbolic sizes may be any."""
        declared = _held_type(self._types[name]).tensor_type
        if declared.HasField("shape"):
            sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in declared.shape.dim]
            fits = len(sizes) == value.ndim and all(s in (None, n) for s, n in zip(sizes, value.shape, strict=True))
            if not fits and any(sizes):
                shown = tuple(s or d.dim_param or "?" for s, d in zip(sizes, declared.shape.dim, strict=True))
                raise ArgumentError(f"[onnx] expected input {name!r} of shape {shown} but got {value.shape}")
        if declared.elem_type:
            exact = numpy_dtype(declared.elem_type)
            held = exact if isinstance(value, np.ndarray) else held_as(exact)
            found = value.dtype if isinstance(value, np.ndarray) else value.dtype.numpy
            if found != held:
                raise ArgumentTypeError(f"[onnx] expected input {name!r} as {exact.name} but got {found.name}")
        return value

    def extra_repr(self) -> str:
        return f"opset={self.opset}, inputs={self.input_names}, outputs={self.output_names}"


def _held_type(declared: Any) -> Any:
    """The type of a value, of an optional one that of what it may hold."""
    while declared.HasField("optional_type"):
        declared = declared.optional_type.elem_type
    return declared


_TAKEN = frozenset(dir(OnnxModule))


def _read_on_host(graph: Graph) -> set[str]:
    """Names that operators read on the host and nothing reads elsewhere."""
    host: set[str] = set(graph.constants)
    for step in graph.steps:
        host -= {name for at, name in enumerate(step.inputs) if at not in step.operator.host}
        host -= {name for inner in step.graphs.values() for name in inner.outer}
    return host - set(graph.outputs)


def operator_counts(model: Any) -> Counter[str]:
    """How many nodes of each operator a model has, in all its graphs."""
    return Counter(full_name(n.domain, n.op_type) for g in graphs(model.graph) for n in g.node)


def check_operators(model: Any, source: str) -> None:
    """Refuse a model with operators that are not in the table: all of them at once, with their nodes."""
    lacking: dict[str, list[str]] = {}
    for graph in graphs(model.graph):
        for number, node in enumerate(graph.node):
            name = full_name(node.domain, node.op_type)
            if name not in OPERATORS and name != "Constant":
                lacking.setdefault(name, []).append(node.name or f"{graph.name}[{number}]")
    if lacking:
        shown = "; ".join(
            f"{op} (node {', '.join(map(repr, nodes[:3]))}{f' and {len(nodes) - 3} more' if len(nodes) > 3 else ''})"
            for op, nodes in sorted(lacking.items())
        )
        raise NotSupportedError(
            f"[onnx] expected operators that PyFlame has but {source} also has {shown}; docs/onnx.md lists the others"
        )


def load(path: str | os.PathLike[str], device: object = None, trainable: bool = False) -> OnnxModule:
    """The model of an ONNX file (opset 7 to 28), on a device.

    >>> model = pf.onnx.load("model.onnx")                                           # doctest: +SKIP
    >>> model(pf.randn(1, 3, 32, 32)).shape                                          # doctest: +SKIP
    (1, 10)
    """
    return OnnxModule(read_model(path), device, trainable, os.fspath(path))


def run(path: str | os.PathLike[str], inputs: Mapping[str, Any], device: object = None) -> dict[str, Array]:
    """Load a model and run it once: arrays in, arrays out, by name.

    >>> pf.onnx.run("model.onnx", {"x": np.ones((1, 3), np.float32)})["y"].shape     # doctest: +SKIP
    (1, 10)
    """
    return load(path, device).run(inputs)
