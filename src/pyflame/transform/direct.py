"""A replay by addresses: for a caller that has memory of its own for arguments and results, as the torch bridge has.

No nodes, cells or tensors are made, so a call costs little more than the launches. It serves functions that change
nothing but what they return. On the CPU a call that comes again is one step in C (engine/direct.c), by a row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyflame.core import trace
from pyflame.engine import native
from pyflame.engine.build import CpuRunner
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.launch import Runner, on_host
from pyflame.engine.value import Value
from pyflame.ir import Meta
from pyflame.transform.replay import Replay

if TYPE_CHECKING:
    from pyflame.engine.devices import GpuDevice
    from pyflame.ir.kernel import Plan

MISSED: Any = object()  # instead of results: nothing has been done
MADE, ARGUMENT, ITSELF = range(3)  # what a result of a row is: memory that was made, an argument, or always the same
Row = tuple[Any, ...]


class Argument(NamedTuple):
    """What a row asks of a tensor: where it stands among the arguments, its strides, bits that its address has not."""

    at: int
    strides: tuple[int, ...]
    mask: int


def again(rows: Sequence[Row], args: list[Any]) -> Any:
    """The results of a call by one of these rows, a list, with `args` emptied; MISSED where none fits. There are rows
    only where C can take them."""
    assert native.direct is not None
    return native.direct(rows, args, MISSED)


class Result(NamedTuple):
    """Where a result lies: in the caller's memory number `slot`, or in that of argument `argument` if not None.

    `offset` is in bytes, `strides` in elements; None: contiguous.
    """

    meta: Meta
    slot: int
    argument: int | None
    offset: int
    strides: tuple[int, ...] | None


class Direct:
    """A replay that runs on given addresses. `sizes`: bytes of each piece of memory that it writes results to."""

    def __init__(self, replay: Replay, runner: Any) -> None:
        binding = runner.binding
        leaf_of, fixed = dict(replay.feed.arguments), dict(replay.feed.fixed)
        self._replay, self._runner, self._run_at = replay, runner, runner.run_at
        self._fixed: list[Value] = list(fixed.values())
        self._device: GpuDevice | None = None if isinstance(runner, CpuRunner) else runner.device
        self.graphs: Any = None if self._device is None else _graphs(runner)
        # of each input's slot: the leaf whose address goes there, or an address that stays
        self.sources = [leaf_of.get(position) for position in binding.positions]
        self._places = [fixed[p].address if p in fixed else 0 for p in binding.positions]
        self._given = [(slot, leaf) for slot, leaf in enumerate(self.sources) if leaf is not None]
        inputs = len(self.sources)
        self.sizes: list[int] = [runner.plan.buffers[n].nbytes for n, slot in binding.slot_of.items() if slot >= inputs]
        views = [(meta, binding.views[at]) for at, meta, _ in replay.results]
        self.results = [
            Result(meta, slot - inputs, self.sources[slot] if slot < inputs else None, offset, strides)
            for meta, (slot, offset, strides, _) in views
        ]

    def row(
        self,
        arguments: Sequence[Argument],
        makers: Sequence[Callable[[], Any]],
        results: Sequence[tuple[int, Any]],
        guards: Sequence[tuple[Any, str, Any]],
    ) -> Row | None:
        """What engine/direct.c must know of a call; None: it stays in Python. `arguments`: the leaves; `makers`: of
        memory with `sizes`; `results`: of each what it is and which; `guards`: owners, attributes and values."""
        runner, numbers = self._runner, self._replay.unchanging
        if not isinstance(runner, CpuRunner) or runner.starts_given or numbers is None:
            return None
        native.load()
        if native.direct is None:
            return None
        plan, lines = runner.plan, self._replay.lines
        numbered, classes = runner.known()
        count = len(self.sources)
        return (
            numbered,
            classes[len(self.sizes) :],  # its workspace alone
            runner.device.pool.parts,
            struct.pack(f"={count}q", *self._places),
            struct.pack(f"={count}q", *[-1 if leaf is None else leaf for leaf in self.sources]),
            numbers,
            partial(_report, plan, lines),
            tuple([part for guard in (*guards, (trace, "recording", None)) for part in guard]),
            tuple(arguments),
            tuple(makers),
            tuple(results),
            self,
        )

    def run(self, addresses: Sequence[int], results: Sequence[int], leaves: list[Any]) -> None:
        """Run it. `addresses`: of each leaf, 0 for a number; `results`: of memory with `sizes`; `leaves`: for their
        numbers."""
        places = self._places.copy()
        for slot, leaf in self._given:
            places[slot] = addresses[leaf]
        places += results
        numbers, lines = self._replay.numbers(leaves), self._replay.lines
        if self._device is None:
            self._run_at(places, numbers, lines)
            return
        with self._device.lock:
            if self._fixed and self._device.forked:
                self._device.note_uses([value.storage for value in self._fixed])
            self._run_at(places, numbers, lines, self.graphs.run)


def _report(plan: Plan, lines: Sequence[str], record: bytes) -> None:
    raise_bad_index(record, plan.checks, plan.check_lines, lines)


def _graphs(runner: Any) -> Any:
    from pyflame.engine.placed import PlacedGraphs  # the rooms of GPUs are imported when one is there

    return PlacedGraphs(runner)


def _executable(runner: Runner) -> Any:
    """What gives launches to the device one by one; None where there is no such thing."""
    if on_host(runner):
        return runner if isinstance(runner, CpuRunner) else None
    from pyflame.engine.capture import CapturedRunner  # the rooms of GPUs are imported when one is there

    return runner.executable if isinstance(runner, CapturedRunner) else None


def direct(replay: Replay) -> Direct | None:
    """A replay by addresses; None for one that has state, crosses devices, or computes nothing."""
    stateful = replay.changes or replay.cells or replay.grad_cells or replay.views or replay.guards
    runner = _executable(replay.runner)
    if stateful or replay.debug or runner is None:
        return None
    plan, binding = runner.plan, runner.binding
    own_slots = binding.arena != len(binding.positions) + len(binding.output_sizes)  # memory is exact
    if own_slots or plan.overwritten_inputs or plan.donations:
        return None
    found = Direct(replay, runner)
    in_place = [r for r in found.results if r.slot < 0 and r.argument is None]  # a constant's own memory
    return None if in_place else found
