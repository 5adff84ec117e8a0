"""The Dynamo backend: AOTAutograd makes functional aten graphs of forward and backward, and each becomes a Program.

The joint graph is cut where least must be kept for the backward pass (torch's min-cut partitioner), after arguments
that our backward ops do not read were taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule

from pyflame.bridge.torch import rows
from pyflame.bridge.torch.decompositions import decompositions
from pyflame.bridge.torch.options import Options, parse_options
from pyflame.bridge.torch.program import Program
from pyflame.bridge.torch.split import op_name, reasons

Listener = Callable[[str, Program], None]


def drop_unread(joint: GraphModule) -> None:
    """Take what our backward ops do not read out of their arguments, so that the forward pass need not keep it."""
    why = reasons(joint)
    for node, reason in why.items():
        for at in rows.UNUSED.get(op_name(node.target), ()) if not reason else ():
            if at < len(node.args):
                node.update_arg(at, None)
    joint.graph.eliminate_dead_code()
    joint.recompile()


def _partition(joint: GraphModule, inputs: Any, **kwargs: Any) -> Any:
    drop_unread(joint)
    return min_cut_rematerialization_partition(joint, inputs, **kwargs)


def compile_graph(graph: GraphModule, inputs: Sequence[Any], options: Options, heard: Listener | None = None) -> Any:
    """A Dynamo graph compiled; `heard` gets each Program with what it is: forward, backward or inference."""

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[Any]], Program]:
        def compiled(aten: GraphModule, _: Sequence[Any]) -> Program:
            program = Program(aten, options)
            if heard is not None:
                heard(kind, program)
            return program

        return compiled

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=_partition,
    )(graph, inputs)


def backend(
    graph: GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Any:
    """What `torch.compile(model, backend="pyflame")` calls. `mode` is torch's word for tuning, which is always on here.

    >>> compiled = torch.compile(model, backend="pyflame", options={"deterministic": True})  # doctest: +SKIP
    """
    return compile_graph(graph, inputs, parse_options(options))


def register() -> None:
    """Make the name known to Dynamo where the package's entry point is not: a checkout that is not installed.

    >>> pyflame.bridge.torch.register()  # doctest: +SKIP
    """
    if "pyflame" not in _COMPILER_FNS:
        register_backend(backend, "pyflame")
