"""Plan -> Executable: source text for every launch, compiled together, and the table that one call runs."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.codegen import c as codegen_c
from pyflame.core.errors import IndexError as PyFlameIndexError
from pyflame.engine.value import Value
from pyflame.ir.kernel import Launch, Plan, Source
from pyflame.kernels import SPECS, Epilogue
from pyflame.runtime.cpu.device import CPUDevice


def launch_source(launch: Launch, device: CPUDevice) -> Source:
    """The text of one launch."""
    if launch.kernel.anchor is None:
        return codegen_c.generate(launch.kernel)
    spec = SPECS[launch.kernel.anchor.op.name]
    epilogue = None
    if spec.epilogue is not None:
        text, args = codegen_c.epilogue(launch.kernel, spec.epilogue.layout(launch), spec.epilogue.first_arg, len(launch.operands))
        epilogue = Epilogue(text, args)
    return spec.source(launch, device.target, epilogue)


class Executable:
    """A compiled plan for the CPU. Safe to run from several threads."""

    def __init__(self, plan: Plan, device: CPUDevice) -> None:
        self.plan = plan
        self.device = device
        sources = [launch_source(launch, device) for launch in plan.launches]
        addresses = device.functions([(s.text, tuple(p.suffix for p in s.phases)) for s in sources])
        self.arena_slot = len(plan.buffers)
        self.scratch_bytes = max((s.scratch_bytes + s.worker_bytes * device.workers for s in sources), default=0)
        self.seconds = np.zeros(len(plan.launches))
        self._keep: list[Any] = []
        rows: list[list[int]] = []
        for number, (launch, source, functions) in enumerate(zip(plan.launches, sources, addresses, strict=True)):
            slots = self._slots(launch, source)
            args = np.array(source.args or (0,), np.int64)
            self._keep += [slots, args]
            for phase, function in zip(source.phases, functions, strict=True):
                timer = self.seconds.ctypes.data + 8 * number
                rows.append([function, phase.iterations, phase.grain, len(slots) // 2, slots.ctypes.data, args.ctypes.data, timer])
        self.table = np.array(rows, np.int64).reshape(-1, 7)
        self.untimed = self.table.copy()
        self.untimed[:, 6] = 0
        self.count = len(rows)
        self._addresses = (self.untimed.ctypes.data, self.table.ctypes.data)
        self._inputs = [(i, b.position) for i, b in enumerate(plan.buffers) if b.role == "input"]
        self._outputs = [(i, b.nbytes) for i, b in enumerate(plan.buffers) if b.role == "output"]
        self._slot_type = ctypes.c_int64 * (len(plan.buffers) + 2)
        self._uniforms = struct.Struct("=" + "".join("d" if is_float else "q" for _, _, is_float in plan.uniforms))
        self._error_type = ctypes.c_int64 * 3

    def _slots(self, launch: Launch, source: Source) -> np.ndarray[Any, Any]:
        """(slot, byte offset) of each kernel buffer; intermediates are offsets in the arena."""
        pairs: list[int] = []
        for buffer, offset in launch.buffers:
            decl = self.plan.buffers[buffer]
            pairs += [self.arena_slot, decl.offset + offset] if decl.role == "scratch" else [buffer, offset]
        scratch = [self.arena_slot + 1, 0]
        position = len(pairs) if source.scratch_position < 0 else 2 * source.scratch_position
        pairs[position:position] = scratch
        return np.array(pairs, np.int64)

    def run(self, inputs: Sequence[Value], constants: Sequence[Any], timed: bool = False) -> list[Value]:
        """Run on these inputs and constants; gives the plan's outputs."""
        plan, device = self.plan, self.device
        slots = self._slot_type()
        held: dict[int, tuple[Any, int]] = {}
        for i, position in self._inputs:
            value = inputs[position]
            slots[i] = value.address
            held[i] = (value.storage, value.offset)
        for i, nbytes in self._outputs:
            storage = device.allocate(nbytes)
            slots[i] = storage.address
            held[i] = (storage, 0)
        arena = None
        if self.count:
            if plan.arena_bytes or self.scratch_bytes:
                arena = device.allocate(plan.arena_bytes + self.scratch_bytes)
                slots[self.arena_slot] = arena.address
                slots[self.arena_slot + 1] = arena.address + plan.arena_bytes
            values = [constants[v] if source == "slot" else v for source, v, _ in plan.uniforms]
            uniforms = self._uniforms.pack(*values)
            error = self._error_type()
            device.run(self._addresses[timed], self.count, ctypes.addressof(slots), uniforms, ctypes.addressof(error))  # type: ignore[arg-type]
            if error[0]:
                self._bad_index(error)
        out = []
        for view in plan.outputs:
            storage, start = held[view.buffer]
            out.append(Value(storage, start + view.offset * (plan.buffers[view.buffer].dtype or _BYTE).itemsize, view.strides))
        return out

    def _bad_index(self, error: Any) -> None:
        name, line = self.plan.checks[error[0] - 1]
        raise PyFlameIndexError(f"[{name}] expected an index in [{-error[2]}, {error[2] - 1}] but got {error[1]}; called at {line}")


class _Byte:
    itemsize = 1


_BYTE = _Byte()
