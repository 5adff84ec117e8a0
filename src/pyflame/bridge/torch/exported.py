"""A module that runs an exported aten graph: it holds parameters and buffers under torch's names."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

import pyflame as pf
from pyflame import nn
from pyflame.bridge.torch.crossing import copied, dtype_of
from pyflame.bridge.torch.decompositions import decompositions
from pyflame.bridge.torch.program import run_nodes
from pyflame.bridge.torch.split import expected, fallen, is_check, reasons
from pyflame.core.errors import ArgumentTypeError, DTypeError, NotSupportedError, ShapeError


def exported(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> nn.Module:
    """Export a module and take its graph over; an op that we do not have is named."""
    program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    program = program.run_decompositions(decompositions())
    _drop_checks(program.graph_module)
    why = fallen(reasons(program.graph_module))
    if why:
        told = "; ".join(sorted({f"{n.target}: {w}" for n, w in why.items()}))
        raise NotSupportedError(f"[convert] expected a graph of ops that PyFlame has but got {told}")
    made = ConvertedModule(program)
    made.training = module.training
    return made


def _drop_checks(graph: GraphModule) -> None:
    """Take out what checks the dtypes of tensors, which follow from those of the inputs: we check these."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        graph.graph.erase_node(node)


def _store(root: nn.Module, name: str, value: Any, parameter: bool) -> None:
    """Put a tensor where its dotted name says, through modules that are made on the way."""
    *path, last = name.split(".")
    for part in path:
        if part not in dict(root.named_children()):
            root.register_module(part, nn.Module())
        root = dict(root.named_children())[part]
    root.register_parameter(last, value) if parameter else root.register_buffer(last, value)


def _stored(root: nn.Module, name: str) -> Any:
    *path, last = name.split(".")
    for part in path:
        root = dict(root.named_children())[part]
    return getattr(root, last)


class ConvertedModule(nn.Module):
    """What `convert` makes of a module by torch.export: the graph in the mode (train or eval) it was exported in.

    >>> ours = pyflame.bridge.torch.convert(model, (torch.randn(2, 4),))  # doctest: +SKIP
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        signature = program.graph_signature
        graph = program.graph_module.graph
        self._graph_nodes = [n for n in graph.nodes if n.op == "call_function" and not is_check(n)]
        self._inputs = list(zip([n for n in graph.nodes if n.op == "placeholder"], signature.input_specs, strict=True))
        (output,) = [n for n in graph.nodes if n.op == "output"]
        self._outputs = list(zip(output.args[0], signature.output_specs, strict=True))
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._fixed: dict[Node, Any] = {}
        for name, kind in ((s.target, s.kind) for s in signature.output_specs):
            if kind is OutputKind.USER_INPUT_MUTATION:
                raise NotSupportedError(
                    f"[convert] expected a module that leaves its inputs alone but it writes {name}"
                )
        for node, spec in self._inputs:
            self._take(program, node, spec)

    def _take(self, program: ExportedProgram, node: Node, spec: Any) -> None:
        if spec.kind is InputKind.PARAMETER:
            theirs = program.state_dict[spec.target]
            value = nn.Parameter(copied(theirs), requires_grad=theirs.requires_grad)
            _store(self, spec.target, value, True)
        elif spec.kind is InputKind.BUFFER and spec.persistent:
            _store(self, spec.target, copied(program.state_dict[spec.target]), False)
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            self._fixed[node] = copied(program.constants[spec.target])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph on tensors of ours."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise ArgumentTypeError(f"[convert] expected arguments as exported, {self._in_spec}, but got {spec}")
        env: dict[Node, Any] = dict(self._fixed)
        given = iter(leaves)
        for node, kind in self._inputs:
            if kind.kind is InputKind.USER_INPUT:
                env[node] = self._checked(node, next(given))
            elif node not in env and kind.kind is not InputKind.TOKEN:
                env[node] = _stored(self, str(kind.target))
        run_nodes(self._graph_nodes, env, None)
        results = []
        for node, made in self._outputs:
            if made.kind is OutputKind.TOKEN:  # the order of checks, which our ops make themselves
                continue
            value = env[node] if isinstance(node, Node) else node
            if made.kind is OutputKind.BUFFER_MUTATION:
                with pf.no_grad():
                    _stored(self, str(made.target)).copy_(value.detach())
            elif made.kind is OutputKind.USER_OUTPUT:
                results.append(value)
        return pytree.tree_unflatten(results, self._out_spec)

    def _checked(self, node: Node, value: Any) -> Any:
        """An argument, of the sizes and dtype that the graph was exported for."""
        wanted = expected(node)
        if not isinstance(wanted, torch.Tensor):
            return value
        if not isinstance(value, pf.Tensor):
            raise ArgumentTypeError(f"[convert] expected a PyFlame tensor but got {type(value).__name__}")
        if value.dtype is not dtype_of(wanted.dtype):
            raise DTypeError(f"[convert] expected an input of {dtype_of(wanted.dtype).name} but got {value.dtype.name}")
        fixed = [n if isinstance(n, int) else m for n, m in zip(wanted.shape, value.shape, strict=False)]
        if value.ndim != wanted.ndim or list(value.shape) != fixed:
            raise ShapeError(
                f"[convert] expected an input of shape {tuple(wanted.shape)} but got {tuple(value.shape)}; convert "
                "with dynamic_shapes= for sizes that change"
            )
        return value
