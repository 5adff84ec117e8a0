"""Plan -> Executable: source text for every launch, compiled together, and the table that one call runs."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.codegen import c as codegen_c
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.merge import merge
from pyflame.engine.value import Value
from pyflame.ir.kernel import BufferDecl, Launch, Plan, Source
from pyflame.kernels import SPECS, Epilogue
from pyflame.runtime.cpu.device import CPUDevice


def launch_source(launch: Launch, device: CPUDevice) -> Source:
    """The text of one launch."""
    if launch.kernel.anchor is None:
        return codegen_c.generate(launch.kernel)
    spec = SPECS[launch.kernel.anchor.op.name, launch.implementation]
    epilogue = None
    if spec.epilogue is not None:
        slot = spec.epilogue
        text, args = codegen_c.epilogue(
            launch.kernel, slot.layout(launch), slot.accumulator(launch), slot.address_arg + 1, len(launch.operands)
        )
        epilogue = Epilogue(text, args)
    source = spec.source(launch, device.target, epilogue)
    assert isinstance(source, Source)
    return source


def kernel_texts(sources: Sequence[Source]) -> list[tuple[str, tuple[str, ...]]]:
    """What to compile: the texts of all launches, then their epilogues."""
    texts = [(s.text, tuple(p.suffix for p in s.phases)) for s in sources]
    return texts + [(s.epilogue, ("_epilogue",)) for s in sources if s.epilogue]


class Executable:
    """A compiled plan for the CPU. Safe to run from several threads.

    Kernels find buffers through slots: the inputs, the outputs, the arena and the launches' own scratch, in that order.
    """

    def __init__(self, plan: Plan, device: CPUDevice) -> None:
        self.plan = plan
        self.device = device
        sources = merge(plan, [launch_source(launch, device) for launch in plan.launches])
        addresses = device.functions(kernel_texts(sources))
        epilogues = iter(address for (address,) in addresses[len(sources) :])
        self._scratch = max((s.scratch_bytes + s.worker_bytes * device.workers for s in sources), default=0)
        self._slot_of: dict[int, int] = {}
        for role in ("input", "output"):
            for number, buffer in enumerate(plan.buffers):
                if buffer.role == role:
                    self._slot_of[number] = len(self._slot_of)
        self._positions = [b.position for b in plan.buffers if b.role == "input"]
        self._input_bytes = {b.position: b.nbytes for b in plan.buffers if b.role == "input"}
        self._sizes = [device.pool.size_class(b.nbytes) for b in plan.buffers if b.role == "output"]
        self._workspace = (
            device.pool.size_class(plan.arena_bytes + self._scratch) if plan.arena_bytes + self._scratch else 0
        )
        self._views = [
            (self._slot_of[v.buffer], v.offset * _itemsize(plan.buffers[v.buffer]), v.strides) for v in plan.outputs
        ]
        self._pack_slots = struct.Struct(f"={len(self._slot_of) + 2}q").pack
        self._pack_uniforms = struct.Struct(
            "=" + "".join("d" if is_float else "q" for _, _, is_float in plan.uniforms)
        ).pack
        self._uniforms = [(source == "slot", v) for source, v, _ in plan.uniforms]
        self.seconds = np.zeros(len(plan.launches))
        self._keep: list[Any] = []
        rows: list[list[int]] = []
        for number, (launch, source, functions) in enumerate(zip(plan.launches, sources, addresses, strict=False)):
            slots = self._slots(launch, source)
            args = np.array(source.args or (0,), np.int64)
            if source.epilogue:
                args[source.epilogue_arg] = next(epilogues)
            self._keep += [slots, args]
            timer = self.seconds.ctypes.data + 8 * number
            for phase, function in zip(source.phases, functions, strict=True):
                rows.append(
                    [
                        function,
                        phase.iterations,
                        phase.grain,
                        len(slots) // 2,
                        slots.ctypes.data,
                        args.ctypes.data,
                        timer,
                    ]
                )
        timed = np.array(rows, np.int64).reshape(-1, 7)
        untimed = timed.copy()
        untimed[:, 6] = 0
        self._keep += [timed, untimed]
        self._tables = (untimed.ctypes.data, timed.ctypes.data)
        self._count = len(rows)

    def _slots(self, launch: Launch, source: Source) -> np.ndarray[Any, Any]:
        """(slot, byte offset) of each kernel buffer; intermediates are offsets in the arena."""
        arena = len(self._slot_of)
        pairs: list[int] = []
        for buffer, offset in launch.buffers:
            decl = self.plan.buffers[buffer]
            pairs += [arena, decl.offset + offset] if decl.role == "scratch" else [self._slot_of[buffer], offset]
        position = len(pairs) if source.scratch_position < 0 else 2 * source.scratch_position
        pairs[position:position] = [arena + 1, 0]
        return np.array(pairs, np.int64)

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        given: Sequence[int] = (),
    ) -> list[Value]:
        """Run on these inputs and constants; gives the plan's outputs. `lines`: where this graph's ops were called.

        Outputs that are heirs of the inputs in `given` are written where those inputs lie. Inputs that the plan
        overwrites are copied first unless they are among them.
        """
        allocate = self.device.pool.take
        for p in self.plan.consumed:
            if p not in given:
                inputs = [*inputs[:p], self._copied(inputs[p], self._input_bytes[p]), *inputs[p + 1 :]]
        held = [(v.storage, v.offset) for v in [inputs[p] for p in self._positions]]
        heirs = self.plan.heirs
        heir_of = {self._slot_of[heirs[p]] - len(held): inputs[p] for p in given if p in heirs}
        for number, size in enumerate(self._sizes):
            own = heir_of.get(number)
            held.append((allocate(size), 0) if own is None else (own.storage, own.offset))
        if self._count:
            addresses = [storage.address + offset for storage, offset in held]  # type: ignore[union-attr]
            workspace = allocate(self._workspace) if self._workspace else None
            arena = workspace.address if workspace is not None else 0
            slots = self._pack_slots(*addresses, arena, arena + self.plan.arena_bytes)
            uniforms = self._pack_uniforms(*[constants[v] if slot else v for slot, v in self._uniforms])
            error = (ctypes.c_int64 * 3)() if self.plan.checks else None
            self.device.run(self._tables[timed], self._count, slots, uniforms, error)
            if error is not None:
                raise_bad_index(self.plan, bytes(error), lines)
        out = []
        for slot, offset, strides in self._views:
            storage, start = held[slot]
            out.append(Value(storage, start + offset, strides))
        return out

    def _copied(self, value: Value, nbytes: int) -> Value:
        """The same bytes in memory that may be overwritten."""
        storage = self.device.pool.take(self.device.pool.size_class(nbytes))
        ctypes.memmove(storage.address, value.address, nbytes)
        return Value(storage, 0, value.strides)


def _itemsize(buffer: BufferDecl) -> int:
    return buffer.dtype.itemsize if buffer.dtype is not None else 1
