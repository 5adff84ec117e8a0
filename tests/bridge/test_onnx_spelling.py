"""Operators that ONNX defines by others are computed so, where the table has none of their name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper

from pyflame.bridge.onnx import OnnxModule
from pyflame.bridge.onnx.table import OPERATORS

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
SCALE = np.linspace(0.5, 2, 4, dtype=np.float32)


def _model(opset: int, op: str, inputs: list[str], **attributes: Any) -> Any:
    """The operator at the top and in a branch of an If."""

    def called(name: str) -> tuple[list[Any], Any]:
        out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, X.shape)
        return [helper.make_node(op, inputs, [f"{name}_out"], **attributes)], out

    branches = {}
    for key in ("then_branch", "else_branch"):
        nodes, out = called(key)
        branches[key] = helper.make_graph(nodes, key, [], [out])
    top = [
        *called("top")[0],
        helper.make_node("If", ["yes"], ["chosen"], **branches),
        helper.make_node("Add", ["top_out", "chosen"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape),
        helper.make_tensor_value_info("scale", TensorProto.FLOAT, SCALE.shape),
        helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
    ]
    made = helper.make_graph(top, "top", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize(
    ("opset", "op", "inputs", "attributes"),
    [
        (18, "LayerNormalization", ["x", "scale", ""], dict(epsilon=0.1)),  # an input is left out
        (18, "LayerNormalization", ["x", "scale"], {}),  # attributes are left out
        (20, "Gelu", ["x"], dict(approximate="tanh")),
        (12, "Celu", ["x"], {}),
    ],
)
def test_the_definition_gives_what_the_operator_gives(
    opset: int, op: str, inputs: list[str], attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, given = _model(opset, op, inputs, **attributes), {"x": X, "scale": SCALE, "yes": np.array(True)}
    want = OnnxModule(model).run(given)["y"]
    monkeypatch.delitem(OPERATORS, op)
    np.testing.assert_allclose(OnnxModule(model).run(given)["y"], want, rtol=1e-5, atol=1e-6)
