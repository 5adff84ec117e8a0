"""Graphs as GPU programs, short of a GPU: planned for a target, their kernels' text, and an image of their memory.

All memory of a program is one piece: buffers, scratch, uniforms and the error record, each between fences that nobody
may write to. It is sent up as one, and what comes back is read and checked as one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.core.device import Target
from pyflame.core.dtype import DType
from pyflame.core.errors import PyFlameError
from pyflame.core.shape import contiguous_strides
from pyflame.engine.devices import cpu
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import draft_plan
from pyflame.engine.texts import c_source, gpu_source, kernel_texts
from pyflame.ir import OPS, Node, OpDef, Sample
from pyflame.ir.kernel import Draft, GpuSource
from pyflame.ir.opdef import LEAF
from pyflame.runtime.cache import digest
from pyflame.tensor.dispatch import call

Build = Callable[[], list[pf.Tensor]]
FENCE = 256  # bytes; what an allocation of the driver is aligned to as well
FILL = 0xFF  # NaN as any float


def symbol(text: str) -> str:
    return "k" + digest(text)[:16]


def named(text: str) -> str:
    """A kernel's text under a name of its own, so that one file may hold many."""
    return text.replace("PF_KEY", symbol(text))


@dataclass(frozen=True)
class Call:
    """One launch: a function, its geometry and arguments, where `addresses` of them count from the image's start."""

    function: str
    grid: int
    block: int
    kernel_args: np.ndarray[Any, Any]
    addresses: int
    dynamic_lds: int = 0

    def placed(self, base: int) -> np.ndarray[Any, Any]:
        """The kernel arguments for an image at this address."""
        out = self.kernel_args.copy()
        out[: self.addresses] += base
        return out


class Program:
    """The outputs of a graph as calls of GPU kernels over one image of memory."""

    def __init__(self, outputs: list[pf.Tensor], target: Target) -> None:
        self.outputs = list({t._node: t for t in outputs}.values())  # a plan stores what is asked for twice once
        graph = PendingGraph([t._node for t in self.outputs], keep_held=False)
        self.plan: Draft = draft_plan(graph, target)
        # Whether there is a kernel for each launch.
        self.complete = not any(launch.implementation == "none" for launch in self.plan.launches)
        self.sources: list[GpuSource] = []
        self.calls: list[Call] = []
        self._size = 0
        self._fences: list[tuple[int, int]] = []
        if self.complete:
            self._lay_out(graph)
            self._collect(target)
            self._fence(0)
            self._fill(graph)

    @property
    def texts(self) -> set[str]:
        return {s.text for s in self.sources}

    @property
    def nbytes(self) -> int:
        """What must move at least: inputs and outputs, once each."""
        return sum(b.nbytes for b in self.plan.buffers if b.role != "scratch")

    # --- memory -----------------------------------------------------------------------------------------------------

    def _fence(self, remainder: int) -> None:
        """Go to the next place behind a fence whose address has this remainder."""
        end = self._size + FENCE
        start = end + (remainder - end) % FENCE
        self._fences.append((self._size, start))
        self._size = start

    def _take(self, nbytes: int, remainder: int = 0) -> int:
        self._fence(remainder)
        start = self._size
        self._size += nbytes
        return start

    def _lay_out(self, graph: PendingGraph) -> None:
        """A place for everything but scratch. Inputs keep the alignment they have here."""
        self._uniforms = self._take(8 * max(1, len(self.plan.uniforms)))
        self._error = self._take(24)
        self._places: list[int] = []
        for buffer in self.plan.buffers:
            if buffer.role == "input":
                node = graph.inputs[buffer.position]
                low, high = extent(node)
                start = self._take(high - low, (node.data.address + low) % FENCE if high > low else 0)
                self._places.append(start - low)
            else:
                self._places.append(self._take(buffer.nbytes))

    def _collect(self, target: Target) -> None:
        """The text and the calls of every launch."""
        for launch in self.plan.launches:
            pointers = [self._places[b] + offset for b, offset in launch.buffers]
            source = gpu_source(launch, target)
            if not _fits(pointers, source):
                source = gpu_source(launch, target, aligned=False)
                assert _fits(pointers, source), "elements lie misaligned"
            scratch = self._take(source.scratch_bytes)
            addresses = [*pointers[: source.buffers], scratch, self._uniforms, self._error]
            self.sources.append(source)
            for phase in source.phases:
                kernel_args = np.array([*addresses, *phase.args], np.int64)
                name = symbol(source.text) + phase.suffix
                self.calls.append(Call(name, phase.grid, phase.block, kernel_args, len(addresses), phase.dynamic_lds))

    def _fill(self, graph: PendingGraph) -> None:
        self.image = np.full(self._size, FILL, np.uint8)
        start = self.image.ctypes.data
        for buffer, place in zip(self.plan.buffers, self._places, strict=True):
            if buffer.role == "input":
                node = graph.inputs[buffer.position]
                low, high = extent(node)
                if high > low:
                    ctypes.memmove(start + place + low, node.data.address + low, high - low)
        constants = [n.data for n in graph.constants]
        for number, (kind, value, is_float) in enumerate(self.plan.uniforms):
            word = constants[value] if kind == "slot" else value
            at = self._uniforms + 8 * number
            self.image[at : at + 8].view(np.float64 if is_float else np.int64)[0] = word
        self.image[self._error : self._error + 24] = 0

    # --- results ----------------------------------------------------------------------------------------------------

    def results(self, image: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """The outputs in an image that came back."""
        for start, end in self._fences:
            assert (image[start:end] == FILL).all(), f"written between the buffers, bytes {start} to {end}"
        out = []
        for view, tensor in zip(self.plan.outputs, self.outputs, strict=True):
            dtype = tensor.dtype.numpy
            strides = view.strides if view.strides is not None else contiguous_strides(tensor.shape)
            steps = [s * dtype.itemsize for s in strides]
            start = self._places[view.buffer] + view.offset * dtype.itemsize
            if 0 in tensor.shape:
                out.append(np.empty(tensor.shape, dtype))
            else:
                out.append(np.ndarray(tensor.shape, dtype, image.data, start, steps))
        return out

    def error(self, image: np.ndarray[Any, Any]) -> list[int]:
        """The record of the first bad index: zeros where there was none."""
        return image[self._error : self._error + 24].view(np.int64).tolist()


def extent(node: Node) -> tuple[int, int]:
    """Where a leaf's elements begin and end, in bytes from its address. Negative strides reach in front of it."""
    if 0 in node.shape:
        return 0, 0
    strides = node.data.strides if node.data.strides is not None else contiguous_strides(node.shape)
    reach = [s * (e - 1) for s, e in zip(strides, node.shape, strict=True)]
    itemsize = node.dtype.itemsize
    return sum(min(r, 0) for r in reach) * itemsize, (sum(max(r, 0) for r in reach) + 1) * itemsize


def _fits(pointers: list[int], source: GpuSource) -> bool:
    return all(p % a == 0 for p, a in zip(pointers, source.alignment, strict=False))


# --- the catalogue ----------------------------------------------------------------------------------------------------


def samples() -> Iterator[tuple[str, OpDef, Sample]]:
    """Every sample of every op, with a name."""
    for op in OPS.values():
        for number, sample in enumerate(op.samples() if op.samples is not None else ()):
            yield f"{op.name} {number}", op, sample


def forward(op: OpDef, sample: Sample, dtype: DType) -> list[pf.Tensor]:
    """What the op gives for floats of this dtype, as far as it is still to be computed."""
    return _pending(_applied(op, sample, lambda a: pf.tensor(as_float(a, dtype))))


def gradient(op: OpDef, sample: Sample, dtype: DType) -> list[pf.Tensor]:
    """Gradients of the op's arguments, for gradients of its results that are drawn at random."""
    leaves: list[pf.Tensor] = []

    def leaf(array: np.ndarray[Any, Any]) -> pf.Tensor:
        out = pf.tensor(as_float(array, dtype))
        if out.dtype.is_float:
            leaves.append(out.requires_grad_())
        return out

    found = [o for o in _applied(op, sample, leaf) if o.dtype.is_float and o.requires_grad]
    if not found or not leaves:
        return []
    rng = np.random.default_rng(0)
    terms = [(o * pf.tensor(rng.standard_normal(o.shape).astype(o.dtype.numpy))).sum() for o in found]
    total = terms[0]
    for term in terms[1:]:
        total = total + term.cast(total.dtype)
    total.backward()
    return _pending([t.grad for t in leaves if t.grad is not None])


def as_float(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Floats become this dtype; others stay."""
    return array.astype(dtype.numpy) if array.dtype.kind == "f" else array


def _applied(op: OpDef, sample: Sample, make: Callable[[np.ndarray[Any, Any]], pf.Tensor]) -> list[pf.Tensor]:
    args, kwargs = _mapped(sample.args, make), _mapped(sample.kwargs, make)
    return [t for t in _flat(call(op.fn, args, kwargs)) if isinstance(t, pf.Tensor)]


def _pending(tensors: list[pf.Tensor]) -> list[pf.Tensor]:
    return [t for t in tensors if t._node.op.kind != LEAF]


def _mapped(value: Any, make: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(v, make) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(v, make) for k, v in value.items()}
    return value


def _flat(value: Any) -> list[Any]:
    return [o for v in value for o in _flat(v)] if isinstance(value, (list, tuple)) else [value]


def catalogue(
    way: Callable[[OpDef, Sample, DType], list[pf.Tensor]], dtype: DType, target: Target
) -> dict[str, Program]:
    """Samples whose plans hold launches alone that there are kernels for."""
    found: dict[str, Program] = {}
    for name, op, sample in samples():
        if way is gradient and not sample.grad:
            continue
        try:
            outputs = way(op, sample, dtype)
        except PyFlameError:
            continue  # an op that takes no such floats
        if outputs:
            program = Program(outputs, target)
            if program.complete:
                found[name] = program
    return found


def warm_cpu(programs: Iterable[Program]) -> None:
    """Compile what the CPU will need for these results, together: one kernel of many in a file costs little."""
    device = cpu()
    if device.compiler is None:
        return
    texts: dict[str, tuple[str, ...]] = {}
    for program in programs:
        graph = PendingGraph([t._node for t in program.outputs])
        plan = draft_plan(graph, device.target)
        texts.update(kernel_texts([c_source(launch, device.target) for launch in plan.launches]))
    device.functions(list(texts.items()))
