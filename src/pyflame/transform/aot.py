"""Ahead-of-time compilation: a function and example inputs to a plan that needs nothing but the GPU's driver to run.

`pf.aot.compile` needs no GPU: it traces the function as jit does, plans it for the target, and builds the kernels with
a clang that knows AMD GPUs. docs/aot.md describes the plan and its file.

A plan is pure. What the function changes comes out of it: `results` first, then the new values of captured tensors that
it rebinds and the gradients that it leaves, in `outputs`. `AotPlan.run` feeds such values to the next run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyflame.autograd import Leaf
from pyflame.core.device import Target
from pyflame.core.dtype import float64, int64
from pyflame.core.errors import ArgumentError, ArgumentTypeError, TraceError
from pyflame.core.state import mode
from pyflame.engine.aot.build import (
    AotBuffer,
    AotLaunch,
    BufferArg,
    ScalarArg,
    Uniform,
    find_target,
    packed,
)
from pyflame.engine.aot.build import lower as build_plan
from pyflame.engine.aot.resources import KernelResources, Report
from pyflame.engine.cross_device import without_needless_copies
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import plan_ahead
from pyflame.ir import F, Node
from pyflame.ir.declare import wrap_int
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.transform.aot_file import read_plan
from pyflame.transform.aot_names import argument_names, captured_names, leaf_names
from pyflame.transform.aot_plan import AotPlan, Spec, dense_bytes
from pyflame.transform.aot_tree import pack_tree
from pyflame.transform.trace import Trace, trace_function
from pyflame.transform.traced_plan import Origin, TracedPlan, constants_of, inputs_of, outputs_of
from pyflame.transform.tracer import evaluated
from pyflame.transform.tree import flatten, is_tensor, is_traced


def compile(fn: Callable[..., Any], *example_inputs: Any, target: str, vendor_libraries: bool = False) -> AotPlan:
    """Compile a function for a GPU that need not be here. Shapes and dtypes are those of the example inputs.

    Tensors that the function captures become constants of the plan, with their values as they are now. Every launch is
    a kernel of PyFlame's own: a call into a vendor's library has no code object, so `vendor_libraries` must be False.

    >>> plan = pf.aot.compile(lambda x, y: (x + y).relu(), pf.ones(1024), pf.ones(1024), target="gfx1100")
    >>> len(plan.launches), plan.launches[0].block
    (1, (256, 1, 1))
    """
    if vendor_libraries:
        raise ArgumentError(
            "[aot] expected vendor_libraries=False but got True; a call into a library has no code object that a plan "
            "could hold"
        )
    if not callable(fn):
        raise ArgumentTypeError(f"[aot] expected a function but got {type(fn).__name__}")
    wanted = find_target(target)
    leaves: list[Any] = []
    flatten(example_inputs, leaves, is_traced)
    arguments = pack_tree(example_inputs, is_traced)
    dense = [v if type(v) is float else _dense(v) for v in leaves]
    trace = trace_function(fn, example_inputs, {}, dense, getattr(fn, "__name__", "a function"))
    if trace.written:
        raise ArgumentError(
            f"[aot] expected a function that leaves its arguments as they are but it writes to number "
            f"{trace.written[0]}; return the new value, or write to a .clone()"
        )
    given = argument_names(fn, example_inputs, is_traced)
    inputs = tuple(_input_spec(v, name) for v, name in zip(leaves, given, strict=True))
    return _built(trace, wanted, given, captured_names(fn), inputs, arguments)


def _built(
    trace: Trace,
    target: Target,
    given: Sequence[str],
    names: Mapping[int, str],
    inputs: tuple[Spec, ...],
    arguments: Any,
) -> AotPlan:
    """Plan and build a trace. `given`: names of its arguments; `names`: of tensors that it captures, by their ids."""
    planned = _planned(trace, target)
    graph, plan, sources = planned.graph, planned.plan, inputs_of(trace, planned.graph)
    uniforms, values = _uniforms(trace, graph, plan, given)
    outputs = _outputs(trace, names)
    by_buffer = {
        plan.outputs[at].buffer: AotBuffer(meta.nbytes, "output", n, meta.dtype, meta.shape, name=outputs[n].name)
        for n, (at, meta, _) in enumerate(outputs_of(trace, planned))
    }
    owned = _inputs(trace, graph, sources, given, names)
    lowered, buffers = build_plan(plan, target, owned, by_buffer, packed(uniforms, values))
    return AotPlan(
        target.name,
        lowered,
        inputs,
        outputs,
        uniforms,
        _state(trace, sources, buffers),
        plan.checks,
        arguments,
        pack_tree(trace.result, is_tensor),
    )


def load(path: str | os.PathLike[str]) -> AotPlan:
    """Read a plan that `save` wrote. A damaged file is refused.

    >>> pf.aot.load("model.pfaot").target
    'gfx942'
    """
    return AotPlan(**read_plan(path, Spec))


def _planned(trace: Trace, target: Target) -> TracedPlan:
    """The plan of a trace for a target elsewhere, with a dense buffer of its own for every output."""
    with mode(tracer=None):
        done = without_needless_copies(trace.nodes)
        nodes = [done[n] for n in trace.nodes]
        while True:
            graph = PendingGraph(nodes, keep_held=False)
            if graph.copies:
                raise TraceError(
                    "[aot] expected a function that stays on one device but it moves a tensor to another; call .to() "
                    "outside of it"
                )
            if graph.collectives:
                raise TraceError(
                    "[aot] expected a function of one process but it holds a collective; call that outside of it"
                )
            plan = plan_ahead(graph, target)
            shared = _without_buffer(plan, graph, nodes)
            if not shared:
                return TracedPlan(graph, nodes, plan, [])
            for number in shared:
                nodes[number] = F.contiguous(nodes[number])  # a clone may lie channels-last


def _without_buffer(plan: Plan, graph: PendingGraph, nodes: Sequence[Node]) -> list[int]:
    """Outputs that are views, inputs, or in another output's buffer."""
    position = {n: i for i, n in enumerate(graph.outputs)}
    taken: set[int] = set()
    found = []
    for number, node in enumerate(nodes):
        view = plan.outputs[position[node]]
        decl = plan.buffers[view.buffer]
        whole = view.offset == 0 and view.strides is None and decl.nbytes == node.meta.nbytes
        if decl.role != "output" or not whole or view.buffer in taken:
            found.append(number)
        taken.add(view.buffer)
    return found


def _dense(value: Tensor) -> Tensor:
    """The tensor in row-major memory: what a plan's inputs are."""
    if evaluated(value).data.strides is None:
        return value
    copied = value._snapshot().clone()
    return copied.requires_grad_() if isinstance(value._entry, Leaf) else copied


def _input_spec(value: Any, name: str) -> Spec:
    if type(value) is float:
        return Spec("float", float64, (), name)
    return Spec("tensor", value.dtype, value.shape, name)


def _uniforms(
    trace: Trace, graph: PendingGraph, plan: Plan, given: Sequence[str]
) -> tuple[tuple[Uniform, ...], list[float]]:
    """The words of the uniforms and their values now; each random stream has numbers of its own."""
    constants = constants_of(trace, graph)
    drawn = [wrap_int(n, int64) for generator, _, _ in trace.draws for n in generator.next_stream()]
    uniforms: list[Uniform] = []
    values: list[float] = []
    for source, value, is_float in plan.uniforms:
        kind, at = constants[value] if source == "slot" else ("value", value)
        if kind == "arg":
            uniforms.append(Uniform("input", at, is_float, given[at]))
            values.append(graph.constants[value].data)
        elif kind == "draw":
            uniforms.append(Uniform("offset" if at % 2 else "seed", at // 2, is_float))
            values.append(drawn[at])
        else:
            uniforms.append(Uniform("constant", -1, is_float))
            values.append(at)
    return tuple(uniforms), values


def _outputs(trace: Trace, names: Mapping[int, str]) -> tuple[Spec, ...]:
    """What the function returns, then new values of what it captures, then gradients."""
    kinds = [("result", name) for name in leaf_names(trace.result, is_tensor, "result")]
    kinds += [("state", names.get(id(cell), "")) for cell in trace.rebound]
    kinds += [("gradient", f"{names.get(id(cell), '')}.grad") for cell in trace.new_grads]
    metas = [n.meta for n in trace.nodes]
    return tuple(Spec(kind, m.dtype, m.shape, name) for (kind, name), m in zip(kinds, metas, strict=True))


def _inputs(
    trace: Trace, graph: PendingGraph, sources: Sequence[Origin], given: Sequence[str], names: Mapping[int, str]
) -> list[AotBuffer]:
    """The plan's inputs by position: those of the function, state and constants."""
    changed = _changed(trace)
    found = []
    for node, (source, at) in zip(graph.inputs, sources, strict=True):
        meta = node.meta
        if source == "arg":
            found.append(AotBuffer(meta.nbytes, "input", at, meta.dtype, meta.shape, name=given[at]))
            continue
        owner = _owner(trace, (source, at))
        known = Tensor(node) if owner is None else owner if source == "cell" else owner.grad
        assert known is not None
        role = "constant" if (source, id(owner)) not in changed else "state"
        name = names.get(id(owner), "") + (".grad" if source == "grad" else "")
        found.append(AotBuffer(meta.nbytes, role, -1, meta.dtype, meta.shape, dense_bytes(known), name))
    return found


def _owner(trace: Trace, origin: Origin) -> Tensor | None:
    """The captured tensor whose value or gradient is an input of the plan."""
    source, at = origin
    return trace.cells[at] if source == "cell" else trace.grad_cells[at][0] if source == "grad" else None


def _changed(trace: Trace) -> dict[tuple[str, int], int]:
    """Captured tensors ("cell") and gradients ("grad") that get a new value -> the position of that output."""
    new = {("cell", id(cell)): trace.returned + n for n, cell in enumerate(trace.rebound)}
    start = trace.returned + len(trace.rebound)
    return new | {("grad", id(cell)): start + n for n, cell in enumerate(trace.new_grads)}


def _state(trace: Trace, sources: Sequence[Origin], buffers: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Which buffers get a new value from which outputs. `buffers`: of the plan's inputs, by position."""
    changed = _changed(trace)
    keys = {buffer: (sources[p][0], id(_owner(trace, sources[p]))) for p, buffer in buffers.items()}
    return tuple(sorted((buffer, changed[key]) for buffer, key in keys.items() if key in changed))


__all__ = [
    "AotBuffer",
    "AotLaunch",
    "AotPlan",
    "BufferArg",
    "KernelResources",
    "Report",
    "ScalarArg",
    "Spec",
    "Uniform",
    "compile",
    "load",
]
