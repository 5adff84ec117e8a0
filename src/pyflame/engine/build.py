"""Plan -> CpuRunner: the texts of all launches, compiled together, and the table that one call runs."""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core import trace
from pyflame.core.cached import cached_property
from pyflame.core.device import CPU
from pyflame.core.trace import TraceEvent
from pyflame.engine.binding import addresses
from pyflame.engine.commit import Commit, write_all
from pyflame.engine.cpu_layout import ROW, CpuLayout, int64s
from pyflame.engine.events import launch_event, note_memory
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.value import Value
from pyflame.ir.kernel import Plan

if TYPE_CHECKING:
    from pyflame.runtime.cpu.device import CPUDevice

Last = Callable[[Iterable[int]], object]


class CpuRunner:
    """A compiled plan for the CPU. Safe to run from several threads."""

    def __init__(self, plan: Plan, device: CPUDevice, layout: CpuLayout | None = None) -> None:
        self.plan = plan
        self.device = device
        self._layout = layout = layout or CpuLayout(plan, device)
        self.binding = layout.binding
        self._pack = struct.Struct(f"={device.CALL}{layout.slots}q").pack
        self._uniforms: tuple[Any, bytes] = None, b""  # the numbers of the last run, and their bytes
        self._make_rows(layout)
        self._first_write = min(layout.overwrites.values(), default=self._count)

    def _make_rows(self, layout: CpuLayout) -> None:
        """The rows that the device runs, one per function. Each length of a text that grows comes here, so it is done
        without NumPy, which takes twice as long for so few numbers."""
        cells, rows = list(layout.cells), layout.table.copy()
        for cell, (address,) in zip(layout.epilogues, layout.addresses[layout.launches :], strict=True):
            cells[cell] = address
        self._cells = int64s(cells)
        at = ctypes.addressof(self._cells)
        rows[1::ROW], rows[2::ROW] = layout.spans[::2], layout.spans[1::2]
        for column in (4, 5):
            rows[column::ROW] = [at + place for place in rows[column::ROW]]
        self._untimed = int64s(rows)
        self._count = len(rows) // ROW
        self._table = ctypes.addressof(self._untimed)

    @cached_property
    def _times(self) -> np.ndarray[Any, Any]:
        """Of each launch: seconds, and when it first began."""
        return np.zeros((self._layout.launches, 2))

    @cached_property
    def seconds(self) -> np.ndarray[Any, Any]:
        times: np.ndarray[Any, Any] = self._times[:, 0]
        return times

    @cached_property
    def _timed(self) -> np.ndarray[Any, Any]:
        """The rows with places for what each launch takes."""
        rows = np.array(self._untimed).reshape(-1, ROW)
        rows[:, 6] = self._times.ctypes.data + self._times.strides[0] * np.array([row[-1] for row in self._layout.rows])
        return rows

    def known(self, donated: bool = False) -> tuple[bytes, tuple[int, ...]]:
        """A run as known.c takes it (`plan`), and the size classes of the memory that it takes: its outputs' and, last,
        its workspace's. `donated`: outputs take over all inputs that they may; else nothing is overwritten."""
        binding, layout = self.binding, self._layout
        slot_of = {position: slot for slot, position in enumerate(binding.positions)}
        takers = [slot_of.get(taken, -1) if donated and taken is not None else -1 for taken in binding.takers]
        counts = len(binding.positions), len(takers), len(binding.views), binding.arena_bytes, len(binding.uniforms)
        stop = self._first_write if donated else self._count
        head = self._table, self._count, stop, self.device.workers, layout.slots, *counts, len(layout.starts)
        starts = [number for k, place in layout.starts.items() for number in (k, *place)]
        fresh = [size for size, taken in zip(binding.output_sizes, takers, strict=True) if taken < 0]
        numbers = binding.as_words(head, takers) + struct.pack(f"={len(starts)}q", *starts)
        return numbers, (*fresh, *filter(None, [layout.workspace]))

    def known_row(self, sigs: tuple[int, ...]) -> tuple[Any, ...] | None:
        """What known.c must know of the plan, whose results have these signatures."""
        if self.device.pool.exact:
            return None
        return *self.known(), sigs, self.binding.strides, self.device.pool.parts, self

    @property
    def starts_given(self) -> bool:
        """Whether the caller brings where assignments begin."""
        return bool(self._layout.starts)

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
        binding = self.binding
        held = binding.hold(inputs, donated)
        out = binding.outputs(held)
        last: Last = any if commit is None else partial(write_all, commit(out))
        if len(donated) == len(self._layout.overwrites):
            stop = self._first_write
        else:
            stop = min([self._layout.overwrites[p] for p in donated], default=self._count)
        self._run_at(addresses(held), constants, timed, lines, stop, last)
        return out

    def run_at(self, places: list[int], constants: Sequence[Any], lines: Sequence[str] = ()) -> None:
        """Run on memory of the caller's: the addresses of all inputs and outputs, in the order of the slots."""
        self._run_at(places, constants, False, lines, self._count, any)

    def _run_at(
        self,
        places: list[int],
        constants: Sequence[Any],
        timed: bool,
        lines: Sequence[str],
        stop: int,
        last: Last,
    ) -> None:
        """`stop`: the first launch that overwrites an input; `last` runs what is left from there, with the commit."""
        binding, layout = self.binding, self._layout
        if not self._count:
            last(())
            return
        arena = 0
        if layout.workspace:
            workspace = self.device.pool.take(layout.workspace)  # held until the end
            arena = workspace.address
        places = [*places, arena, arena + binding.arena_bytes]
        if layout.starts:
            first = len(constants) - self.plan.starts
            started = layout.starts.items()
            places += [places[at] + offset + constants[first + k] * size for k, (at, offset, size) in started]
        known, uniforms = self._uniforms
        if constants is not known or not isinstance(constants, tuple):
            uniforms = binding.pack_uniforms(constants)
            self._uniforms = constants, uniforms
        table = self._timed.ctypes.data if timed else self._table
        call = self._pack(table, self.device.workers, layout.slots, *places) + uniforms
        if trace.recording is None:
            self.device.run(call, self._count, stop, last)
        else:
            call = self._record(call, stop, last, timed)
        if self.plan.checks:
            raise_bad_index(call[self.device.ERROR], self.plan.checks, self.plan.check_lines, lines)

    def _record(self, call: bytes, stop: int, last: Last, timed: bool) -> bytes:
        """Run with timers of this run's own, and record what they say; gives the call that was made."""
        times = np.zeros_like(self._times)
        rows = self._timed.copy()
        rows[:, 6] += times.ctypes.data - self._times.ctypes.data
        note_memory(self.device)
        began = time.perf_counter()
        call = rows.ctypes.data.to_bytes(8, sys.byteorder) + call[8:]
        self.device.run(call, self._count, stop, last)
        took = time.perf_counter() - began
        if timed:
            self.seconds += times[:, 0]
        recording = trace.recording
        if recording is None:  # the profile has ended meanwhile, in another thread
            return call
        for launch, (seconds, begin) in zip(self.plan.launches, times.tolist(), strict=True):
            if begin:  # not behind a bad index
                event = launch_event(launch)
                event.device, event.begin, event.seconds = str(CPU), begin, seconds
                recording.add(event)
        recording.add(TraceEvent("run", f"{len(self.plan.launches)} launches", begin=began, seconds=took))
        return call
