"""Runs of a plan of one kernel, wherever its arguments lie: what a jitted function does on a GPU where no graph serves.

Giving one kernel to the device takes as long as giving it a graph of one; what takes the host longer is the memory of
results and the kernel's arguments. So results lie in memory that is kept and used again when nobody holds it any more,
and the kernel's arguments are one array, in which addresses are exchanged: here, or in C (engine/jitted_call.c).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyflame.engine.gpu import GpuRunner
from pyflame.engine.ownership import held, reliable
from pyflame.engine.value import Value
from pyflame.ir.kernel import LibraryCall, Plan

Place = tuple[int, int, tuple[int, ...] | None]  # number of a storage, byte offset and strides
MAX_TURNS = 2  # sets of results: a loop holds its last result while it computes the next one
MAX_KEPT = 64 << 20  # bytes of results that a function keeps to give away


def suits(plan: Plan) -> bool:
    """Whether a plan is one kernel that finds no bad index: those are looked for in a record for each run."""
    return len(plan.launches) == 1 and not plan.checks and not isinstance(plan.sources[0], LibraryCall)


class Turn:
    """A set of results and the kernel's arguments, with the attributes by which engine/jitted_call.c knows a graph."""

    left = -1  # nothing is to be compared

    def __init__(self, executable: GpuRunner, sizes: Sequence[int]) -> None:
        self.storages = [executable.device.allocate(size) for size in sizes]
        self.kernel_args = executable.blank()
        self.address = self.kernel_args.array.ctypes.data
        self.replay = partial(executable.launch, self.kernel_args)

    @property
    def free(self) -> bool:
        """Whether nobody else holds its results."""
        return not any(held(self.storages, [0] * len(self.storages)))


class OneLaunch:
    """Runs a plan that `suits`. `sent`: the numbers that the device has, and their bytes."""

    def __init__(self, executable: GpuRunner) -> None:
        self.executable, binding = executable, executable.binding
        self._own = [n for n, taken in enumerate(binding.takers) if taken is None]
        self._sizes = [binding.output_sizes[n] for n in self._own]
        # by slot: an input's position; of a result that is memory of its own ~ its number
        results = [~self._own.index(n) if taken is None else taken for n, taken in enumerate(binding.takers)]
        self._sources = [*binding.positions, *results]
        self._turns: list[Turn] = []
        self._workspace: list[Any] = []
        self._at = [0] * 4
        self.sent: tuple[Any, bytes] = None, b""
        kept = binding.arena_bytes + executable.scratch_bytes + MAX_TURNS * sum(self._sizes)
        self._serves = reliable() and not executable.device.pool.exact and kept <= MAX_KEPT

    def run(self, inputs: Sequence[Value], constants: Sequence[Any]) -> list[Value] | None:
        """The plan's outputs; None where this does not serve. All that the plan may overwrite is donated to it."""
        executable, device = self.executable, self.executable.device
        if not self._serves or device.forked or device.capturing:  # then others may use, or keep, what looks free
            return None
        turn = next((turn for turn in self._turns if turn.free), None)
        if turn is None:
            if len(self._turns) == MAX_TURNS:
                return None
            turn = Turn(executable, self._sizes)
            self._turns.append(turn)
        if constants is not self.sent[0]:
            self._send(constants)
        values = [inputs[source] if source >= 0 else Value(turn.storages[~source]) for source in self._sources]
        if not executable.fill_in(turn.kernel_args, [*[value.address for value in values], *self._at]):
            return None
        turn.replay()
        return executable.binding.outputs(values)

    def _send(self, constants: Sequence[Any]) -> None:
        """Have workspace, and there the uniforms."""
        if not self._workspace:
            self._workspace, self._at = self.executable.workspace()
        packed = self.executable.binding.pack_uniforms(constants)
        if packed != self.sent[1]:
            self.sent = None, b""  # whatever comes between
            self.executable.device.upload(self._at[2], packed)
        self.sent = constants if isinstance(constants, tuple) else None, packed

    def known(self, sent: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """What engine/jitted_call.c must know of it, and guards of that: owners, attributes and values."""
        sources, at = struct.pack(f"={len(self._sources)}q", *self._sources), struct.pack("=4q", *self._at)
        guards = [(self, "sent", sent), (self.executable.device, "capturing", False)]
        return (self._turns, None, (), sources, at, *self.executable.argument_table), guards

    def place_of(self, output: int) -> Place | None:
        """Where an output of the plan lies: in which of a turn's storages, and how. None: in state."""
        slot, offset, strides, _ = self.executable.binding.views[output]
        source = self._sources[slot]
        return None if source >= 0 else (~source, offset, strides)
