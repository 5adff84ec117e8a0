"""Functions and modules to ONNX files: traced as jit does, then written op by op (`forms/`).

An op without a form is written as what it is made of; one that is not made of others is named in the error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pyflame.bridge.onnx.forms  # noqa: F401  fills the table
from pyflame.bridge.onnx.table import LAST_OPSET
from pyflame.bridge.onnx.writer import FORMS, Writer
from pyflame.core.errors import ArgumentError, ArgumentTypeError, NotSupportedError, type_name
from pyflame.core.optional import optional
from pyflame.core.state import mode
from pyflame.ir import Node
from pyflame.ir.opdef import CONST, COPY, LEAF
from pyflame.nn.module import Module
from pyflame.tensor import Tensor
from pyflame.tensor.gradients import no_grad
from pyflame.transform.aot_names import captured_names
from pyflame.transform.trace import Trace, trace_function
from pyflame.transform.tree import flatten, is_tensor, is_traced

FIRST_WRITTEN = 13


def export(
    model: Callable[..., Any],
    args: Any,
    path: str | os.PathLike[str],
    *,
    opset: int = 18,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Write a function or a module as an ONNX file. Shapes and dtypes are those of `args`, as they are under pf.jit.

    >>> pf.onnx.export(nn.Linear(4, 2), (pf.randn(3, 4),), "linear.onnx")            # doctest: +SKIP
    """
    onnx = optional("onnx", "onnx", "onnx")
    if not callable(model):
        raise ArgumentTypeError(f"[onnx] expected a function or a module but got {type_name(model)}")
    if not FIRST_WRITTEN <= opset <= LAST_OPSET:
        raise ArgumentError(f"[onnx] expected opset {FIRST_WRITTEN} to {LAST_OPSET} but got {opset}")
    given = args if isinstance(args, tuple) else (args,)
    leaves: list[Any] = []
    flatten(given, leaves, is_traced)
    with no_grad():
        trace = trace_function(model, given, {}, leaves, getattr(model, "__name__", type(model).__name__))
    _check_pure(trace)
    with mode(tracer=None), no_grad():
        proto = _Export(trace, leaves, opset, _weight_names(model, trace)).model(input_names, output_names)
    onnx.checker.check_model(proto, full_check=True)
    Path(path).write_bytes(proto.SerializeToString())


def _check_pure(trace: Trace) -> None:
    if trace.rebound or trace.written or trace.new_grads:
        raise ArgumentError(
            "[onnx] expected a function that changes nothing but it writes to tensors; call .eval() on modules with "
            "running statistics, and return new values"
        )
    if trace.draws:
        raise NotSupportedError("[onnx] expected no random numbers but the function draws some; call .eval() first")


def _weight_names(model: Callable[..., Any], trace: Trace) -> dict[int, str]:
    """Names of captured tensors, by their ids."""
    if isinstance(model, Module):
        return {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    return captured_names(model)


class _Export:
    """Writes one trace."""

    def __init__(self, trace: Trace, leaves: Sequence[Any], opset: int, names: dict[int, str]) -> None:
        self.trace, self.leaves, self.opset = trace, leaves, opset
        self.writer = Writer(opset)
        self.known: dict[Node, str] = {}
        self.parts: dict[Node, Node] = {}  # composites -> what they are made of
        self.lacking: dict[str, None] = {}
        self.weights = {
            made: (cell, names.get(id(cell), "")) for cell, made in zip(trace.cells, trace.made, strict=True)
        }

    def model(self, input_names: Sequence[str] | None, output_names: Sequence[str] | None) -> Any:
        helper = self.writer.helper
        tensors = [(n, v) for n, v in zip(self.trace.arguments, self.leaves, strict=True) if is_tensor(v)]
        names = _named("input", input_names, len(tensors))
        self.known |= {node: name for (node, _), name in zip(tensors, names, strict=True)}
        inputs = [self._info(name, node) for (node, _), name in zip(tensors, names, strict=True)]
        results = self.trace.nodes[: self.trace.returned]
        for node in results:
            self._write(node)
        if self.lacking:
            raise NotSupportedError(f"[onnx] expected ops that ONNX has but got {', '.join(self.lacking)}")
        outputs = _named("output", output_names, len(results))
        for node, name in zip(results, outputs, strict=True):
            self.writer.nodes.append(helper.make_node("Identity", [self.known[node]], [name], name=name))
        nodes = _needed(self.writer.nodes, outputs)
        used = {i for node in nodes for i in node.input}
        graph = helper.make_graph(
            nodes, "pyflame", inputs, [self._info(n, node) for node, n in zip(results, outputs, strict=True)],
            [c for c in self.writer.constants if c.name in used],
        )  # fmt: skip
        ir = helper.find_min_ir_version_for([helper.make_opsetid("", self.opset)])
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir, producer_name="pyflame"
        )

    def _info(self, name: str, node: Node) -> Any:
        return self.writer.helper.make_tensor_value_info(name, self.writer.code(node.dtype), list(node.shape))

    def _write(self, wanted: Node) -> None:
        """Write a node and all that it needs; without recursion, as graphs may be deep."""
        stack = [wanted]
        while stack:
            node = stack[-1]
            whole = node in self.weights or node.op.kind in (LEAF, CONST, COPY) or node.op.name in FORMS
            made_of = None if whole else self._made_of(node)
            needs = node.srcs if made_of is None else (made_of,)
            if node in self.known:
                stack.pop()
            elif missing := [s for s in needs if s not in self.known]:
                stack += missing
            else:
                self.known[node] = self._one(node) if made_of is None else self.known[made_of]

    def _made_of(self, node: Node) -> Node | None:
        """A composite as the ops that it is made of; None where the op has no form at all."""
        if node not in self.parts:
            if node.op.decompose is None:
                self.lacking[node.op.name] = None
                return None
            self.parts[node] = node.op.decompose(*node.srcs, *node.attrs)
        return self.parts[node]

    def _one(self, node: Node) -> str:
        kind = node.op.kind
        if kind == CONST:
            return self.writer.number(node.data, node)
        if kind == LEAF:
            cell, name = self.weights.get(node, (Tensor(node), ""))
            return self.writer.weight(name or self.writer.new_name("weight"), np.asarray(cell.detach().numpy()))
        if kind == COPY:
            return self.known[node.srcs[0]]
        written = FORMS.get(node.op.name)
        return "" if written is None else written(self.writer, node, *[self.known[s] for s in node.srcs])


def _named(kind: str, names: Sequence[str] | None, count: int) -> list[str]:
    if names is None:
        return [kind if count == 1 else f"{kind}_{n}" for n in range(count)]
    if len(names) != count or len(set(names)) != count:
        raise ArgumentError(f"[onnx] expected {count} different {kind} names but got {list(names)}")
    return list(names)


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Nodes that the outputs depend on."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(node.input)
    return kept[::-1]
