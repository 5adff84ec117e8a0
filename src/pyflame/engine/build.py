"""Plan -> CpuRunner: the texts of all launches, compiled together, and the table that one call runs."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core import trace
from pyflame.core.device import CPU
from pyflame.core.trace import TraceEvent
from pyflame.engine.binding import Binding
from pyflame.engine.commit import Commit, write_all
from pyflame.engine.events import launch_event, note_memory
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.texts import kernel_texts
from pyflame.engine.value import Value
from pyflame.ir.kernel import Launch, Plan, Source

if TYPE_CHECKING:
    from pyflame.runtime.cpu.device import CPUDevice


def _first_writes(plan: Plan) -> dict[int, int]:
    """By position of an input that outputs may take over: the first launch that may write where it lies."""
    input_of = {b.position: n for n, b in enumerate(plan.buffers) if b.role == "input"}
    written = {**{p: input_of[p] for p in plan.overwritten_inputs}, **plan.donations}
    touched: dict[int, int] = {}
    for number, launch in enumerate(plan.launches):
        for buffer, _ in launch.buffers:
            touched.setdefault(buffer, number)
    return {p: touched.get(buffer, len(plan.launches)) for p, buffer in written.items()}


class CpuRunner:
    """A compiled plan for the CPU. Safe to run from several threads.

    Kernels find buffers through slots: the inputs, the outputs, the arena and the launches' own scratch, in that order.
    """

    def __init__(self, plan: Plan, device: CPUDevice) -> None:
        self.plan = plan
        self.device = device
        sources = [source for source in plan.sources if isinstance(source, Source)]
        addresses = device.functions(kernel_texts(sources))
        scratch = [s.scratch_bytes + s.worker_bytes * device.workers for s in sources]
        pool = device.pool
        binding = self._binding = Binding(plan, pool.take, ctypes.memmove, pool.size_class, scratch, pool.exact)
        workspace = binding.arena_bytes + binding.scratch_bytes
        self._workspace = pool.size_class(workspace) if workspace else 0
        # of each buffer whose start the caller brings, a slot behind all others: slot, byte offset, size of an element
        self._starts = {k: place for launch in plan.launches for k, place in self._started(launch)}
        self._start_slots = {k: binding.arena + 2 + n for n, k in enumerate(self._starts)}
        self._pack_slots = struct.Struct(f"={binding.arena + 2 + len(self._starts)}q").pack
        # of each launch: seconds, and when it first began
        self._times = np.zeros((len(plan.launches), 2))
        self.seconds = self._times[:, 0]
        self._keep: list[Any] = []
        first_row = self._make_table(sources, addresses)
        self._overwrites = {p: first_row[n] for p, n in _first_writes(plan).items()}

    def _make_table(self, sources: Sequence[Source], addresses: Sequence[Sequence[int]]) -> list[int]:
        """The rows that the device runs, one per function; gives the first row of each launch."""
        epilogues = iter(address for (address,) in addresses[len(sources) :])
        rows: list[list[int]] = []
        first_row = [0]
        for number, (launch, source, functions) in enumerate(zip(self.plan.launches, sources, addresses, strict=False)):
            slots = self._slots(number, launch, source)
            args = np.array(source.args or (0,), np.int64)
            if source.epilogue:
                args[source.epilogue_arg] = next(epilogues)
            self._keep += [slots, args]
            timer = self._times.ctypes.data + self._times.strides[0] * number
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
            first_row.append(len(rows))
        self._timed = np.array(rows, np.int64).reshape(-1, 7)
        untimed = self._timed.copy()
        untimed[:, 6] = 0
        self._keep += [untimed]
        self._tables = (untimed.ctypes.data, self._timed.ctypes.data)
        self._count = len(rows)
        return first_row

    def _started(self, launch: Launch) -> list[tuple[int, tuple[int, int, int]]]:
        """The starts that a launch's buffers have, and what they are added to."""
        out = []
        for number, start in launch.starts:
            dtype = self.plan.buffers[launch.buffers[number][0]].dtype
            assert dtype is not None
            out.append((start, (*self._binding.place(*launch.buffers[number]), dtype.itemsize)))
        return out

    def _slots(self, number: int, launch: Launch, source: Source) -> np.ndarray[Any, Any]:
        """(slot, byte offset) of each kernel buffer, and of the launch's scratch."""
        places = [self._binding.place(*place) for place in launch.buffers]
        for buffer, start in launch.starts:
            places[buffer] = (self._start_slots[start], 0)
        pairs = [n for place in places for n in place]
        position = len(pairs) if source.scratch_position < 0 else 2 * source.scratch_position
        pairs[position:position] = self._binding.scratch_place(number)
        return np.array(pairs, np.int64)

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
        commit: Commit | None = None,
    ) -> list[Value]:
        """Run on these inputs and constants; gives the plan's outputs. `lines`: where this graph's ops were called.

        `commit` takes the results. Ctrl-C stops the run at any launch before the first that overwrites an input; from
        there on the rest of the plan and the commit are one step.
        """
        binding = self._binding
        held = binding.hold(inputs, donated)
        out = binding.outputs(held)
        writes = commit(out) if commit is not None else ((), (), ())
        if not self._count:
            write_all(writes)
            return out
        addresses = [storage.address + offset for storage, offset in held]
        workspace = self.device.pool.take(self._workspace) if self._workspace else None
        arena = workspace.address if workspace is not None else 0
        addresses += (arena, arena + binding.arena_bytes)
        if self._starts:
            first = len(constants) - self.plan.starts
            places = self._starts.items()
            addresses += [addresses[at] + offset + constants[first + k] * size for k, (at, offset, size) in places]
        slots = self._pack_slots(*addresses)
        error = (ctypes.c_int64 * 3)() if self.plan.checks else None
        stop = min([self._overwrites.get(p, self._count) for p in donated]) if donated else self._count
        rest = (slots, binding.pack_uniforms(constants), error, partial(write_all, writes))
        if trace.recording is None:
            self.device.run(self._tables[timed], self._count, stop, *rest)
        else:
            self._record(stop, rest, timed)
        if error is not None:
            raise_bad_index(bytes(error), self.plan.checks, self.plan.check_lines, lines)
        return out

    def _record(self, stop: int, rest: tuple[Any, ...], timed: bool) -> None:
        """Run with timers of this run's own, and record what they say."""
        times = np.zeros_like(self._times)
        rows = self._timed.copy()
        rows[:, 6] += times.ctypes.data - self._times.ctypes.data
        note_memory(self.device)
        began = time.perf_counter()
        self.device.run(rows.ctypes.data, self._count, stop, *rest)
        took = time.perf_counter() - began
        if timed:
            self.seconds += times[:, 0]
        recording = trace.recording
        if recording is None:  # the profile has ended meanwhile, in another thread
            return
        for launch, (seconds, begin) in zip(self.plan.launches, times.tolist(), strict=True):
            if begin:  # not behind a bad index
                event = launch_event(launch)
                event.device, event.begin, event.seconds = str(CPU), begin, seconds
                recording.add(event)
        recording.add(TraceEvent("run", f"{len(self.plan.launches)} launches", begin=began, seconds=took))
