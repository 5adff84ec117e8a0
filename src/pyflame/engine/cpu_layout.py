"""Plan -> what one call of the CPU's runner takes: slots of memory, arguments and rows, all of them integers.

Nothing of it is memory or an address yet, so it can be made with traced numbers (`engine/resize.py`) and filled with
others afterwards.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyflame.core.cached import cached_property
from pyflame.core.traced import whole
from pyflame.engine.binding import Binding, twin
from pyflame.engine.texts import kernel_texts
from pyflame.ir.kernel import Launch, Plan, Source

if TYPE_CHECKING:
    from pyflame.runtime.cpu.device import CPUDevice

ROW = 7  # numbers of a row


def int64s(numbers: Sequence[int]) -> Any:
    """Numbers for C. The module `array` is a file of its own, which a process that gave up its rights may not read;
    ctypes alone takes ten times as long."""
    count = len(numbers)
    return (ctypes.c_int64 * count).from_buffer_copy(struct.pack(f"={count}q", *numbers))


def _first_writes(plan: Plan) -> dict[int, int]:
    """By position of an input that outputs may take over: the first launch that may write where it lies."""
    input_of = {b.position: n for n, b in enumerate(plan.buffers) if b.role == "input"}
    written = {**{p: input_of[p] for p in plan.overwritten_inputs}, **plan.donations}
    if not written:
        return {}
    touched: dict[int, int] = {}
    for number, launch in enumerate(plan.launches):
        for buffer, _ in launch.buffers:
            touched.setdefault(buffer, number)
    return {p: touched.get(buffer, len(plan.launches)) for p, buffer in written.items()}


class CpuLayout:
    """The integers of a plan's run.

    Kernels find buffers through slots: the inputs, the outputs, the arena and the launches' own scratch, in that order.
    """

    def __init__(self, plan: Plan, device: CPUDevice) -> None:
        self.plan = plan
        self.device = device
        sources = [source for source in plan.sources if isinstance(source, Source)]
        self.launches = len(sources)
        self.texts = kernel_texts(sources)
        scratch = [s.scratch_bytes + s.worker_bytes * device.workers for s in sources]
        pool, size_of = device.pool, whole(device.pool.size_class)
        binding = self.binding = Binding(plan, pool.take_all, ctypes.memmove, size_of, scratch, pool.exact)
        workspace = binding.arena_bytes + binding.scratch_bytes
        self.workspace = size_of(workspace) if workspace else 0
        # of each buffer whose start the caller brings, a slot behind all others: slot, byte offset, size of an element
        self.starts = {k: place for launch in plan.launches for k, place in self._started(launch)}
        self.start_slots = {k: binding.arena + 2 + n for n, k in enumerate(self.starts)}
        self.slots = binding.arena + 2 + len(self.starts)
        self.cells: list[int] = []  # of each launch the (slot, byte offset) of its buffers, then its arguments
        self.spans: list[int] = []  # of each row iterations and grain
        # of each row: its function, by text and phase; buffers; where its slots and arguments begin; launch
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.epilogues: list[int] = []  # cells that hold the address of an epilogue
        first_row = [
            self._add(number, launch, s) for number, (launch, s) in enumerate(zip(plan.launches, sources, strict=False))
        ]
        self.overwrites = {p: [*first_row, len(self.rows)][n] for p, n in _first_writes(plan).items()}

    @cached_property
    def addresses(self) -> list[list[int]]:
        """Of the functions of each text, which are compiled here if need be."""
        return self.device.functions(self.texts)

    def compile(self) -> None:
        """Have all that `with_numbers` shares with other extents."""
        _ = self.table

    @cached_property
    def table(self) -> list[int]:
        """What rows have in common for all extents, as runner.c reads them: the function, two that differ, how many
        buffers, where slots and arguments lie behind the first cell, and no timer."""
        rows = [
            (self.addresses[n][p], 0, 0, buffers, 8 * slots, 8 * args, 0) for n, p, buffers, slots, args, _ in self.rows
        ]
        return [number for row in rows for number in row]

    def _add(self, number: int, launch: Launch, source: Source) -> int:
        """The rows of a launch, one per function; gives the first."""
        first, slots_at = len(self.rows), len(self.cells)
        self.cells += self._slot_pairs(number, launch, source)
        args_at = len(self.cells)
        self.cells += source.args or (0,)
        if source.epilogue:
            self.epilogues.append(args_at + source.epilogue_arg)
        for at, phase in enumerate(source.phases):
            self.rows.append((number, at, (args_at - slots_at) // 2, slots_at, args_at, number))
            self.spans += (phase.iterations, phase.grain)
        return first

    def _started(self, launch: Launch) -> list[tuple[int, tuple[int, int, int]]]:
        """The starts that a launch's buffers have, and what they are added to."""
        out = []
        for number, start in launch.starts:
            dtype = self.plan.buffers[launch.buffers[number][0]].dtype
            assert dtype is not None
            out.append((start, (*self.binding.place(*launch.buffers[number]), dtype.itemsize)))
        return out

    def _slot_pairs(self, number: int, launch: Launch, source: Source) -> list[int]:
        """(slot, byte offset) of each kernel buffer, and of the launch's scratch."""
        places = [self.binding.place(*place) for place in launch.buffers]
        for buffer, start in launch.starts:
            places[buffer] = (self.start_slots[start], 0)
        pairs = [n for place in places for n in place]
        position = len(pairs) if source.scratch_position < 0 else 2 * source.scratch_position
        pairs[position:position] = self.binding.scratch_place(number)
        return pairs

    def numbers(self) -> tuple[Any, ...]:
        """All that may differ in a plan for other extents."""
        starts = tuple(self.starts.values())
        return tuple(self.cells), tuple(self.spans), self.workspace, starts, self.binding.numbers()

    def with_numbers(self, plan: Plan, numbers: tuple[Any, ...]) -> CpuLayout:
        """The same for a plan of other extents."""
        out = twin(self)
        out.plan = plan
        out.cells, out.spans, out.workspace, starts, bound = numbers
        out.starts = dict(zip(self.starts, starts, strict=True))
        out.binding = self.binding.with_numbers(plan, bound)
        return out
