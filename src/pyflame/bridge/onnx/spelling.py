"""Operators that are not in the table but that ONNX defines by others: they are replaced by what they are made of.

Each such node becomes a call of a function of the model's own, with ONNX's definition for the types of its inputs, and
the calls are inlined. ONNX's inliner would make the definitions itself, but not where an input is left out.
"""

from __future__ import annotations

from typing import Any

from pyflame.bridge.onnx.file import graphs
from pyflame.bridge.onnx.table import OPERATORS, full_name
from pyflame.core.optional import optional

_DEPTH = 8  # what an operator is made of may itself be made of others
_DOMAIN = "pyflame.spelled_out"


def spelled_out(model: Any) -> Any:
    """The model without operators that ONNX's own definitions can replace; itself if it has none of them."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    for _ in range(_DEPTH):
        if not any(_schema_of(node, opsets) for graph in graphs(model.graph) for node in graph.node):
            break
        made = _with_functions(model, opsets)
        if not made.functions:
            break
        model = optional("onnx.inliner", "onnx", "onnx").inline_local_functions(made)
    return model


def _schema_of(node: Any, opsets: dict[str, int]) -> Any:
    """The definition of a node's operator, if it has one and the table has none."""
    opset = opsets.get(node.domain)
    if opset is None or full_name(node.domain, node.op_type) in OPERATORS:
        return None
    defs = optional("onnx.defs", "onnx", "onnx")
    if not defs.has(node.op_type, opset, node.domain):
        return None
    schema = defs.get_schema(node.op_type, opset, node.domain)
    return schema if schema.has_function or schema.has_context_dependent_function else None


def _with_functions(model: Any, opsets: dict[str, int]) -> Any:
    """A copy whose nodes of such operators call functions of the model's own."""
    onnx = optional("onnx", "onnx", "onnx")
    made = onnx.ModelProto()
    made.CopyFrom(optional("onnx.shape_inference", "onnx", "onnx").infer_shapes(model))
    every = list(graphs(made.graph))
    types = {v.name: v.type for g in every for v in (*g.input, *g.output, *g.value_info)}
    for tensor in (t for g in every for t in g.initializer):
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    for number, node in enumerate(n for g in every for n in g.node):
        schema = _schema_of(node, opsets)
        given = [types[name].SerializeToString() if name in types else b"" for name in node.input]
        body = b"" if schema is None else _definition(schema, opsets[node.domain], node, given)
        if body:
            function = onnx.FunctionProto.FromString(body)
            function.domain, function.name = _DOMAIN, f"{node.op_type}_{number}"
            listed = {entry.domain for entry in function.opset_import}
            function.opset_import.extend(entry for entry in model.opset_import if entry.domain not in listed)
            made.functions.append(function)
            node.domain, node.op_type = function.domain, function.name
    made.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return made


def _definition(schema: Any, opset: int, node: Any, types: list[bytes]) -> bytes:
    """The serialised function for a node with inputs of these types; nothing where this opset has none.

    The node gets the attributes that it leaves out.
    """
    named = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in named and attribute.default_value.name:
            node.attribute.append(attribute.default_value)
    found: bytes = (
        schema.get_context_dependent_function_with_opset_version(opset, node.SerializeToString(), types)
        if schema.has_context_dependent_function
        else schema.get_function_with_opset_version(opset)
    )
    return found
