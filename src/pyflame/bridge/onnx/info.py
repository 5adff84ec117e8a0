"""What an ONNX file holds: operators with their counts and whether they are supported, inputs, outputs, sizes."""

from __future__ import annotations

import os
from typing import Any

import pyflame.bridge.onnx.operators  # noqa: F401  fills the table
from pyflame.bridge.onnx.file import graphs, opset_of, read_model
from pyflame.bridge.onnx.module import operator_counts
from pyflame.bridge.onnx.spelling import spelled_out
from pyflame.bridge.onnx.table import OPERATORS
from pyflame.bridge.onnx.values import numpy_dtype


def info(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The file as an object that JSON can hold.

    >>> pf.onnx.info("model.onnx")["opset"]                                          # doctest: +SKIP
    18
    """
    model = spelled_out(read_model(path))
    counts = operator_counts(model)
    weights = [t for g in graphs(model.graph) for t in g.initializer]
    inner = {t.name for t in weights}
    return {
        "opset": opset_of(model),
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "inputs": [_described(v) for v in model.graph.input if v.name not in inner],
        "outputs": [_described(v) for v in model.graph.output],
        "nodes": sum(counts.values()),
        "operators": [
            {"name": name, "count": counts[name], "supported": name in OPERATORS or name == "Constant"}
            for name in sorted(counts)
        ],
        "weights": len(weights),
        "weight_bytes": sum(len(t.raw_data) or t.ByteSize() for t in weights),
    }


def _described(value: Any) -> dict[str, Any]:
    """Name, dtype and shape; a symbolic size is a string."""
    held = value.type.tensor_type
    kind = value.type.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return {"name": value.name, "dtype": kind.removesuffix("_type"), "shape": None}
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in held.shape.dim]
    return {
        "name": value.name,
        "dtype": numpy_dtype(held.elem_type).name if held.elem_type else "unknown",
        "shape": sizes if held.HasField("shape") else None,
    }
