"""Small ONNX models, made with the `onnx` package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

Array = np.ndarray[Any, Any]


def value(name: str, shape: Any, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Array] | None = None, opset: int = 18
) -> ModelProto:
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def saved(folder: Path, proto: ModelProto, name: str = "model.onnx") -> Path:
    save(proto, folder / name)
    return folder / name


def linear(weight: Array) -> ModelProto:
    """y = relu(x @ weight), with any number of rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "product"),
        helper.make_node("Relu", ["h"], ["y"], "positive"),
    ]
    rows, columns = weight.shape
    return model(nodes, [value("x", ["n", rows])], [value("y", ["n", columns])], {"w": weight})
