"""A plan that was compiled ahead of time: what it needs, what it gives, and its runs on a GPU of its target."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.dtype import DType, int64
from pyflame.core.errors import ArgumentTypeError, DTypeError, ShapeError
from pyflame.core.generator import default_generator
from pyflame.core.shape import Shape
from pyflame.engine.aot.build import (
    AotBuffer,
    AotLaunch,
    Lowered,
    Uniform,
    find_target,
)
from pyflame.engine.aot.load import Loaded, find_device
from pyflame.engine.aot.resources import Report
from pyflame.ir.declare import wrap_int
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor
from pyflame.transform.aot_file import write_plan
from pyflame.transform.aot_tree import pack_tree, unpack_tree
from pyflame.transform.tree import flatten, is_traced

if TYPE_CHECKING:
    from pyflame.engine.devices import GpuDevice


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


def dense_bytes(value: Tensor) -> bytes:
    """A tensor's elements in row-major order."""
    return np.ascontiguousarray(value.numpy()).tobytes()
