"""Sequences of tensors, against the reference implementation of the `onnx` package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from pyflame.bridge.onnx import OnnxModule
from pyflame.core.errors import ArgumentError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def _model(nodes: list[tuple[str, list[str], dict[str, Any]]], **constants: Any) -> Any:
    made = [
        helper.make_node(
            "Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, np.shape(v), np.ravel(v))
        )
        for name, v in constants.items()
    ]
    for number, (op, inputs, attributes) in enumerate(nodes):
        last = number == len(nodes) - 1
        made.append(helper.make_node(op, inputs, ["y" if last else f"v{number}"], **attributes))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    kind = TensorProto.INT64 if nodes[-1][0] == "SequenceLength" else TensorProto.FLOAT
    graph = helper.make_graph(made, "g", [x], [helper.make_tensor_value_info("y", kind, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


SPLIT = ("SplitToSequence", ["x"], dict(axis=0))
JOIN = ("ConcatFromSequence", ["v1"], dict(axis=0))
PROGRAMS: dict[str, Any] = {
    "at": ([SPLIT, ("SequenceAt", ["v0", "p"], {})], dict(p=-2)),
    "rows": ([("SplitToSequence", ["x"], dict(axis=1, keepdims=0)), ("SequenceAt", ["v0", "p"], {})], dict(p=1)),
    "lengths": ([("SplitToSequence", ["x", "s"], dict(axis=0)), ("SequenceAt", ["v0", "p"], {})], dict(s=[1, 3], p=1)),
    "one length": ([("SplitToSequence", ["x", "s"], dict(axis=0)), ("SequenceLength", ["v0"], {})], dict(s=3)),
    "insert": ([SPLIT, ("SequenceInsert", ["v0", "x", "p"], {}), JOIN], dict(p=1)),
    "append": ([SPLIT, ("SequenceInsert", ["v0", "x"], {}), JOIN], {}),
    "erase": ([SPLIT, ("SequenceErase", ["v0", "p"], {}), JOIN], dict(p=-1)),
    "stack": ([("SequenceConstruct", ["x", "x"], {}), ("ConcatFromSequence", ["v0"], dict(axis=1, new_axis=1))], {}),
    "empty": ([("SequenceEmpty", [], {}), ("SequenceInsert", ["v0", "x"], {}), JOIN], {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    nodes, constants = PROGRAMS[name]
    model = _model(nodes, **constants)
    (want,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_array_equal(OnnxModule(model).run({"x": X})["y"], want)


def test_an_optional_value() -> None:
    model = _model([("Optional", ["x"], {}), ("OptionalGetElement", ["v0"], {})])
    np.testing.assert_array_equal(OnnxModule(model).run({"x": X})["y"], X)


def test_a_position_that_is_not_there() -> None:
    with pytest.raises(ArgumentError, match=r"\[-4, 3\] for SequenceAt but got 4"):
        OnnxModule(_model(*PROGRAMS["at"][:1], p=4)).run({"x": X})
