"""Ahead-of-time compilation: a function and example inputs to a plan that needs nothing but the GPU's driver to run.

`pf.aot.compile` needs no GPU: it traces the function as jit does, plans it for the target, and builds the kernels with
a clang that knows AMD GPUs. docs/aot.md describes the plan and its file.

A plan is pure. What the function changes comes out of it: `results` first, then the new values of captured tensors that
it rebinds and the gradients that it leaves, in `outputs`. `AotPlan.run` feeds such values to the next run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyflame.autograd import Leaf
from pyflame.core.device import Target
from pyflame.core.dtype import DType, float64, int64
from pyflame.core.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TraceError
from pyflame.core.generator import default_generator
from pyflame.core.shape import Shape
from pyflame.engine.aot.build import (
    AotBuffer,
    AotLaunch,
    BufferArg,
    Lowered,
    ScalarArg,
    Uniform,
    find_target,
    packed,
)
from pyflame.engine.aot.build import lower as build_plan
from pyflame.engine.aot.load import Loaded, find_device
from pyflame.engine.aot.resources import KernelResources, Report
from pyflame.engine.devices import GpuDevice
from pyflame.engine.launch import Nothing
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import plan_ahead
from pyflame.engine.stages import without_needless_copies
from pyflame.ir import F, Node
from pyflame.ir.declare import wrap_int
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.transform.aot_file import read_plan, write_plan
from pyflame.transform.aot_names import argument_names, captured_names, leaf_names
from pyflame.transform.aot_tree import pack_tree, unpack_tree
from pyflame.transform.trace import Traced
from pyflame.transform.tracer import evaluated
from pyflame.transform.tree import flatten, is_tensor, is_traced


@dataclass(frozen=True)
class Spec:
    """An input or output of a plan: a tensor's dtype and shape, and what it is."""

    kind: str  # input: "tensor" or "float"; output: "result", "state" or "gradient"
    dtype: DType
    shape: Shape
    name: str = ""  # what the program calls it


@dataclass
class AotPlan:
    """A function, compiled for a target: what to launch, on which buffers, and what that takes of the GPU.

    >>> plan = pf.aot.compile(lambda x: pf.softmax(x * 0.5), pf.ones(64, 256), target="gfx942")
    >>> [b.role for b in plan.buffers], plan.report.clean
    (['input', 'output', 'uniforms'], True)
    """

    target: str
    lowered: Lowered
    inputs: tuple[Spec, ...]  # by position; a float is a word of the uniforms rather than a buffer
    outputs: tuple[Spec, ...]  # by position
    uniforms: tuple[Uniform, ...]  # words of the buffer `uniform_buffer`
    state: tuple[tuple[int, int], ...]  # (buffer of role state, position of the output that is its next value)
    checks: tuple[tuple[str, str], ...]  # op and line of each check of an index
    arguments: Any  # the structure of the inputs, see aot_tree.py
    result: Any  # the structure of what the function returns
    _loaded: Loaded | None = field(default=None, repr=False, compare=False)

    @property
    def launches(self) -> tuple[AotLaunch, ...]:
        """Kernel launches, in order."""
        return self.lowered.launches

    @property
    def buffers(self) -> tuple[AotBuffer, ...]:
        """The memory that the launches' arguments refer to by number."""
        return self.lowered.buffers

    @property
    def uniform_buffer(self) -> int:
        """The buffer that holds the uniforms; -1: there are none."""
        return self.lowered.uniform_buffer

    @property
    def error_buffer(self) -> int:
        """The buffer that holds the record of the first bad index; -1: nothing is checked."""
        return self.lowered.error_buffer

    @property
    def report(self) -> Report:
        """Resources of each kernel."""
        return self.lowered.report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to one file, whole or not at all.

        >>> plan.save("model.pfaot")
        """
        write_plan(path, self)

    def run(self, *inputs: Any) -> Any:
        """Run on the current device if it is of the target, else on the first that is, with inputs like the examples.

        Code and constants stay in the device's memory until `close`, and so does state that the plan changes: the next
        run goes on from there.
        """
        leaves = self.leaves(inputs)
        if self._loaded is None:
            self.place(find_device(find_target(self.target)))
        loaded = self._loaded
        assert loaded is not None
        with loaded.lock:
            return self._run(loaded, leaves)

    def place(self, device: GpuDevice) -> None:
        """Load the plan onto a device. `run` does it where it finds one by itself."""
        self.close()
        self._loaded = Loaded(self.lowered, self.uniforms, self.checks, device)

    def close(self) -> None:
        """Give the device's memory back; the next run begins with the constants of the plan."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def leaves(self, inputs: Sequence[Any]) -> list[Any]:
        """The tensors and floats among the inputs, checked against the examples."""
        leaves: list[Any] = []
        flatten(inputs, leaves, is_traced)
        if pack_tree(tuple(inputs), is_traced) != self.arguments:
            raise ArgumentTypeError("[aot] expected inputs of the structure of the examples but got another one")
        for number, (value, spec) in enumerate(zip(leaves, self.inputs, strict=True)):
            if (type(value) is float) != (spec.kind == "float"):
                raise ArgumentTypeError(
                    f"[aot] expected a {spec.kind} as input {number} but got {type(value).__name__}"
                )
            if spec.kind == "tensor" and value.dtype != spec.dtype:
                raise DTypeError(
                    f"[aot] expected {spec.dtype.name} as input {number} but got {value.dtype.name}; cast it with "
                    f".to(pf.{spec.dtype.name}), or compile a plan for it"
                )
            if spec.kind == "tensor" and value.shape != spec.shape:
                raise ShapeError(
                    f"[aot] expected a tensor of shape {spec.shape} as input {number} but got one of shape "
                    f"{value.shape}; compile a plan for each shape"
                )
        return leaves

    def _run(self, loaded: Loaded, leaves: Sequence[Any]) -> Any:
        given = {n: dense_bytes(leaves[b.position]) for n, b in enumerate(self.buffers) if b.role == "input"}
        values = loaded.run(given, self._uniform_values(leaves) if self.uniforms else ())
        sizes = {b.position: b.nbytes for b in self.buffers if b.role == "output"}
        results = [(n, spec) for n, spec in enumerate(self.outputs) if spec.kind == "result"]
        raw = loaded.read([(values[n], sizes[n]) for n, _ in results])  # raises where an index was bad
        loaded.keep({buffer: values[position] for buffer, position in self.state})
        kinds = [spec for _, spec in results]
        arrays = [np.frombuffer(x, k.dtype.numpy).reshape(k.shape) for x, k in zip(raw, kinds, strict=True)]
        return unpack_tree(self.result, [tensor(array) for array in arrays])

    def _uniform_values(self, leaves: Sequence[Any]) -> list[float]:
        """The uniforms of the next run: inputs as given, random streams that nobody had before."""
        data = self.buffers[self.uniform_buffer].data
        assert data is not None
        streams = 1 + max((u.position for u in self.uniforms if u.role in ("seed", "offset")), default=-1)
        drawn = [default_generator.next_stream() for _ in range(streams)]
        values: list[float] = []
        for number, uniform in enumerate(self.uniforms):
            if uniform.role == "input":
                values.append(leaves[uniform.position])
            elif uniform.role in ("seed", "offset"):
                values.append(wrap_int(drawn[uniform.position][uniform.role == "offset"], int64))
            else:
                kind = np.float64 if uniform.is_float else np.int64
                values.append(np.frombuffer(data, kind, 1, 8 * number)[0])
        return values


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
    traced = _Traced(fn, example_inputs, dense, wanted)
    if traced.written:
        raise ArgumentError(
            f"[aot] expected a function that leaves its arguments as they are but it writes to number "
            f"{traced.written[0]}; return the new value, or write to a .clone()"
        )
    given = argument_names(fn, example_inputs, is_traced)
    names = captured_names(fn)
    uniforms, values = _uniforms(traced, given)
    outputs = _outputs(traced, names)
    by_buffer = {
        traced.plan.outputs[at].buffer: AotBuffer(
            meta.nbytes, "output", n, meta.dtype, meta.shape, name=outputs[n].name
        )
        for n, (at, meta, _) in enumerate(traced.outputs)
    }
    lowered, buffers = build_plan(
        traced.plan, wanted, _inputs(traced, given, names), by_buffer, packed(uniforms, values)
    )
    return AotPlan(
        wanted.name,
        lowered,
        tuple(_input_spec(v, name) for v, name in zip(leaves, given, strict=True)),
        outputs,
        uniforms,
        _state(traced, buffers),
        tuple(traced.plan.checks),
        arguments,
        pack_tree(traced.result, is_tensor),
    )


def load(path: str | os.PathLike[str]) -> AotPlan:
    """Read a plan that `save` wrote. A damaged file is refused.

    >>> pf.aot.load("model.pfaot").target
    'gfx942'
    """
    return AotPlan(**read_plan(path, Spec))


class _Traced(Traced):
    """A trace that is planned for a target elsewhere, with a dense buffer of its own for every output."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], leaves: list[Any], target: Target) -> None:
        self.target = target
        super().__init__(fn, args, {}, leaves, getattr(fn, "__name__", "a function"))

    def _plan(self, nodes: list[Node], successor: Mapping[Node, Node]) -> PendingGraph:
        done = without_needless_copies(nodes)
        nodes[:] = [done[n] for n in nodes]
        while True:
            self.graph = graph = PendingGraph(nodes, keep_held=False)
            if graph.copies:
                raise TraceError(
                    "[aot] expected a function that stays on one device but it moves a tensor to another; call .to() "
                    "outside of it"
                )
            self.plan = plan_ahead(graph, self.target)
            shared = _without_buffer(self.plan, graph, nodes)
            if not shared:
                self.runner = Nothing(self.plan)
                return graph
            for number in shared:
                nodes[number] = F.clone(nodes[number])


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


def _uniforms(traced: _Traced, given: Sequence[str]) -> tuple[tuple[Uniform, ...], list[float]]:
    """The words of the uniforms and their values now; each random stream has numbers of its own."""
    drawn = [wrap_int(n, int64) for generator in traced.generators for n in generator.next_stream()]
    uniforms: list[Uniform] = []
    values: list[float] = []
    for source, value, is_float in traced.plan.uniforms:
        kind, at = traced.constants[value] if source == "slot" else ("value", value)
        if kind == "arg":
            uniforms.append(Uniform("input", at, is_float, given[at]))
            values.append(traced.graph.constants[value].data)
        elif kind == "draw":
            uniforms.append(Uniform("offset" if at % 2 else "seed", at // 2, is_float))
            values.append(drawn[at])
        else:
            uniforms.append(Uniform("constant", -1, is_float))
            values.append(at)
    return tuple(uniforms), values


def _outputs(traced: _Traced, names: Mapping[int, str]) -> tuple[Spec, ...]:
    """What the function returns, then new values of what it captures, then gradients."""
    kinds = [("result", name) for name in leaf_names(traced.result, is_tensor, "result")]
    kinds += [("state", names.get(id(cell), "")) for cell in traced.rebound]
    kinds += [("gradient", f"{names.get(id(cell), '')}.grad") for cell in traced.new_grads]
    return tuple(
        Spec(kind, m.dtype, m.shape, name) for (kind, name), (_, m, _) in zip(kinds, traced.outputs, strict=True)
    )


def _inputs(traced: _Traced, given: Sequence[str], names: Mapping[int, str]) -> list[AotBuffer]:
    """The plan's inputs by position: those of the function, state and constants."""
    changed = _changed(traced)
    found = []
    for position, node in enumerate(traced.graph.inputs):
        meta, (source, at) = node.meta, traced.inputs[position]
        if source == "arg":
            found.append(AotBuffer(meta.nbytes, "input", at, meta.dtype, meta.shape, name=given[at]))
            continue
        owner = _owner(traced, position)
        known = Tensor(node) if owner is None else owner if source == "cell" else owner.grad
        assert known is not None
        role = "constant" if (source, id(owner)) not in changed else "state"
        name = names.get(id(owner), "") + (".grad" if source == "grad" else "")
        found.append(AotBuffer(meta.nbytes, role, -1, meta.dtype, meta.shape, dense_bytes(known), name))
    return found


def dense_bytes(value: Tensor) -> bytes:
    """A tensor's elements in row-major order."""
    return np.ascontiguousarray(value.numpy()).tobytes()


def _owner(traced: _Traced, position: int) -> Tensor | None:
    """The captured tensor whose value or gradient is an input of the plan."""
    source, at = traced.inputs[position]
    return traced.cells[at] if source == "cell" else traced.grad_cells[at][0] if source == "grad" else None


def _changed(traced: _Traced) -> dict[tuple[str, int], int]:
    """Captured tensors ("cell") and gradients ("grad") that get a new value -> the position of that output."""
    new = {("cell", id(cell)): traced.returned + n for n, cell in enumerate(traced.rebound)}
    start = traced.returned + len(traced.rebound)
    return new | {("grad", id(cell)): start + n for n, cell in enumerate(traced.new_grads)}


def _state(traced: _Traced, buffers: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Which buffers get a new value from which outputs. `buffers`: of the plan's inputs, by position."""
    changed = _changed(traced)
    keys = {buffer: (traced.inputs[p][0], id(_owner(traced, p))) for p, buffer in buffers.items()}
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
