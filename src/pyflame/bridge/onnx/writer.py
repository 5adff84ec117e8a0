"""Collects the nodes and constants of an ONNX graph that is being written, and the table of forms.

    @form("relu")
    def relu(w: Writer, node: Node, x: str) -> str:
        return w.add("Relu", x)

A form gets the names of its sources and gives the name of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pyflame.bridge.onnx.table import Array
from pyflame.core.dtype import DType
from pyflame.core.optional import optional
from pyflame.ir import Node

Form = Callable[..., str]
Fn = TypeVar("Fn", bound=Form)
FORMS: dict[str, Form] = {}


def form(*names: str) -> Callable[[Fn], Fn]:
    """Say how ops are written."""

    def put(fn: Fn) -> Fn:
        for name in names:
            FORMS[name] = fn
        return fn

    return put


class Writer:
    """A graph that grows."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.helper = optional("onnx.helper", "onnx", "onnx")
        self._numpy = optional("onnx.numpy_helper", "onnx", "onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[Any, str] = {}
        self._reshaped: dict[str, str] = {}
        self._count = 0

    def new_name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, and that output's name."""
        name = self.new_name(op.lower())
        self.nodes.append(self.helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array: Array = np.asarray(value, dtype)
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.weight(self.new_name("constant"), array)
        return self._known[key]

    def ints(self, values: Any) -> str:
        """A list of integers: axes, shapes."""
        return self.constant(np.array(list(values), np.int64))

    def weight(self, name: str, array: Array) -> str:
        self.constants.append(self._numpy.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def number(self, value: float, like: Node) -> str:
        """A number of a node's dtype."""
        return self.constant(value, like.dtype.numpy)

    def code(self, dtype: DType) -> int:
        """ONNX's number of a dtype."""
        return int(self.helper.np_dtype_to_tensor_dtype(dtype.numpy))

    def cast(self, x: str, dtype: DType) -> str:
        return self.add("Cast", x, to=self.code(dtype))

    def reshape(self, x: str, shape: Any) -> str:
        """Of reshapes one behind the other only the last is needed; those that nobody reads are left out."""
        source = self._reshaped.get(x, x)
        name = self.add("Reshape", source, self.ints(shape))
        self._reshaped[name] = source
        return name
