"""Plan -> GpuRunner: kernels, compiled together or loaded, and how to launch them.

Which kernel arguments are addresses is known beforehand (`engine/layout.py`), so one sum gives the arguments of all
launches of a run. Launches are asynchronous; a bad index is found when the host next waits for the device.

Some launches may be calls into vendors' libraries. They find their addresses among the arguments too, their workspace
is the launch's scratch, and they go to the same stream in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from pyflame.core import trace
from pyflame.engine.binding import Held, addresses
from pyflame.engine.branches import Step
from pyflame.engine.events import launch_event, note_memory
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.gpu_layout import Given, GpuLayout
from pyflame.engine.gpu_row import gpu_row
from pyflame.engine.layout import ERROR_BYTES
from pyflame.engine.planned_target import planned_target
from pyflame.engine.texts import gpu_sources
from pyflame.engine.value import Value
from pyflame.ir.kernel import LibraryCall, Plan
from pyflame.runtime.base import Event, GpuDevice, Storage, Stream
from pyflame.runtime.gpu.driver import KernelArguments

K = TypeVar("K")
V = TypeVar("V")
ALIGNMENT = 256  # of what lies in the workspace beside the arena
MAX_SENT = 4  # sets of uniforms that stay on the device
MAX_KNOWN = 8  # sets of kernel arguments that are kept
Replayed = Callable[[tuple[int, ...], KernelArguments], bool]


class GpuRunner:
    """A compiled plan for a GPU. `aligned`: whether its texts rely on where memory begins.

    Slots of addresses: nothing (0), the inputs, the outputs, the arena, scratch, uniforms, error record.
    """

    def __init__(self, plan: Plan, device: GpuDevice, aligned: bool = True, layout: GpuLayout | None = None) -> None:
        self.plan = plan
        self.device = device
        self.aligned = aligned
        self._target = planned_target(device)  # a runner is made where its plan was
        self._other: GpuRunner | None = None  # for buffers that miss the alignment asked for
        self._sent: dict[tuple[int, bytes], Any] = {}  # uniforms on the device, by the stream that sent them
        self._staying: tuple[bytes, Any] = b"", None  # uniforms that lie at the same place in every run, and where
        self._known: dict[tuple[int, ...], KernelArguments] = {}  # by the places of all memory: a loop's come back
        self._records: dict[tuple[Any, ...], Storage] = {}  # of errors, by stream and the lines that may have made one
        layout = layout or GpuLayout(plan, device)
        binding = self.binding = layout.binding
        self.scratch_bytes = binding.scratch_bytes
        self._sizes = [binding.arena_bytes, self.scratch_bytes, 8 * len(plan.uniforms)]
        self._starts = [0]
        for size in self._sizes:
            self._starts.append(self._starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        self.scratch_start, self.uniforms_start = self._starts[1:3]
        self.seconds = np.zeros(layout.launches)
        self._slots, self._constants, self._alignment = (
            np.array(numbers, np.int64) for numbers in (layout.slots, layout.constants, layout.alignment)
        )
        self._scratch_at = layout.scratch_at
        given = list(layout.given())
        self._runs = _together([g for _, g in given])
        self._parts = [(n, _together([g for _, g in part])) for n, part in groupby(given, itemgetter(0))]

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]:
        """Start the plan on these inputs and constants; gives its outputs, which the device will have filled."""
        if self.device.forked:
            self.device.note_uses([v.storage for v in inputs])
        return self._start(self.binding.hold(inputs, donated), constants, timed, lines)

    def run_at(
        self,
        places: list[int],
        constants: Sequence[Any],
        lines: Sequence[str] = (),
        replayed: Replayed | None = None,
    ) -> None:
        """Start the plan on memory of the caller's: the addresses of all inputs and outputs, in the order of the slots.

        The caller keeps that memory until the stream has come to the end of the run. `replayed` may do without
        launches, where it is told of places and arguments that it has met before.
        """
        if not self.start_at(places, constants, lines, replayed=replayed):
            self._unaligned().run_at(places, constants, lines)

    def _start(self, held: Held, constants: Sequence[Any], timed: bool, lines: Sequence[str]) -> list[Value]:
        if not self.start_at(addresses(held), constants, lines, timed):
            other = self._unaligned()
            return other._start(other.binding.rehold(held), constants, timed, lines)
        return self.binding.outputs(held)

    def start_at(
        self,
        slots: list[int],
        constants: Sequence[Any],
        lines: Sequence[str],
        timed: bool = False,
        replayed: Replayed | None = None,
    ) -> bool:
        """Give the launches to the device, unless `replayed` has done so; False where memory misses the alignment that
        they rely on."""
        plan = self.plan
        if not self._runs:
            return True
        needed = self.binding.arena_bytes or self.scratch_bytes
        _held, at = self._workspace() if needed else ([], [0] * 4)
        record = self.record(lines) if plan.checks else None
        at[3] = record.address if record is not None else 0
        if plan.uniforms:
            send = self.sent if replayed is None else self._sent_in_place
            uniforms = send(self.binding.pack_uniforms(constants))
            at[2] = uniforms.address
        places = (*slots, *at)
        kernel_args = self._known.get(places)
        if kernel_args is None:
            kernel_args = KernelArguments(self._kernel_args(places))
            if self._misaligned(kernel_args.array):
                return False
            _keep(self._known, places, kernel_args, MAX_KNOWN)
        if replayed is None or not replayed(places, kernel_args):
            self.launch(kernel_args, timed)
        if record is not None:
            self.watch(record, lines)
        return True

    def record(self, lines: Sequence[str]) -> Storage:
        """Where a run finds bad indices: empty, for the first one stays there until somebody has looked."""
        key = self.device.chosen.handle, *lines
        record = self._records.get(key)
        if record is None:
            record = self.device.allocate(ERROR_BYTES)
            self.device.zero(record.address, ERROR_BYTES)
            _keep(self._records, key, record, MAX_KNOWN)
        return record

    def watch(self, record: Storage, lines: Sequence[str]) -> None:
        """Have an error record looked at when the host next waits."""
        self.device.watch(record, record.address, ERROR_BYTES, partial(self._look, record, lines))

    def _look(self, record: Storage, lines: Sequence[str], found: bytes) -> None:
        try:
            self.report(found, lines)
        except BaseException:
            self.device.zero(record.address, ERROR_BYTES)
            raise

    def known_row(self, sigs: tuple[int, ...]) -> tuple[Any, ...] | None:
        """What gpu_run.c must know of the plan, whose results have these signatures."""
        return None if self.device.pool.exact else gpu_row(self, self._runs, sigs)

    def report(self, record: bytes, lines: Sequence[str]) -> None:
        """Raise what a run has left in its error record."""
        raise_bad_index(record, self.plan.checks, self.plan.check_lines, lines)

    def workspace(self) -> tuple[list[Any], list[int]]:
        """Memory for one run after the other, and where in it arena, scratch, uniforms and error record begin.

        The record of a plan with checks is the last block, on its own: it is held until the host looks at it.
        """
        blocks, at = self._workspace()
        if self.plan.checks:
            blocks.append(self.device.allocate(ERROR_BYTES))
            at[3] = blocks[-1].address
        return blocks, at

    def _workspace(self) -> tuple[list[Any], list[int]]:
        """The same without a record."""
        if self.device.pool.exact:
            blocks = [self.device.allocate(size) for size in self._sizes]
            return blocks, [*[block.address for block in blocks], 0]
        blocks = [self.device.allocate(self._starts[-1])]
        return blocks, [*[blocks[0].address + start for start in self._starts[:-1]], 0]

    def kernel_args(self, held: Held, at: Sequence[int]) -> np.ndarray[Any, Any]:
        """The arguments of all launches for these places."""
        return self._kernel_args((*addresses(held), *at))

    def _kernel_args(self, places: Sequence[int]) -> np.ndarray[Any, Any]:
        out: np.ndarray[Any, Any] = self._constants + np.array([0, *places], np.int64)[self._slots]
        return out

    def blank(self) -> KernelArguments:
        """Room for the arguments of all launches."""
        return KernelArguments(self._constants.copy())

    def fill_in(self, kernel_args: KernelArguments, places: Sequence[int]) -> bool:
        """Put the places of all slots into arguments; False where memory misses the alignment that launches rely on."""
        np.add(self._constants, np.array([0, *places], np.int64)[self._slots], out=kernel_args.array)
        return not self._misaligned(kernel_args.array)

    @property
    def argument_table(self) -> tuple[bytes, bytes, bytes]:
        """Of each argument its slot, what is added to that slot's place, and what the sum is a multiple of."""
        return self._slots.tobytes(), self._constants.tobytes(), self._alignment.tobytes()

    def sent(self, packed: bytes) -> Any:
        """Memory of the device with these uniforms, which is theirs while somebody holds it.

        They are sent once: most runs have those of the run before.
        """
        key = (self.device.chosen.handle, packed)
        block = self._sent.get(key)
        if block is None:
            block = self.device.allocate(len(packed))
            self.device.upload(block.address, packed)
            _keep(self._sent, key, block, MAX_SENT)
        return block

    def _sent_in_place(self, packed: bytes) -> Any:
        """The same at a place of their own, for graphs, which have it inside. Runs are in the stream's order."""
        sent, block = self._staying
        block = self.device.allocate(len(packed)) if block is None else block
        if packed != sent:
            self._staying = b"", block  # whatever comes between
            self.device.upload(block.address, packed)
            self._staying = packed, block
        return block

    def upload(self, address: int, constants: Sequence[Any]) -> None:
        """Send the uniforms."""
        self.device.upload(address, self.binding.pack_uniforms(constants))

    @property
    def varies(self) -> bool:
        """Whether uniforms may differ from run to run."""
        return any(slot for slot, _ in self.binding.uniforms)

    def launch(self, kernel_args: KernelArguments, timed: bool = False) -> None:
        """Give all launches to the device."""
        if not timed and (trace.recording is None or self.device.capturing):
            self._give(self._runs, kernel_args)
            return
        note_memory(self.device)
        events = [(number, launch_event(self.plan.launches[number])) for number, _ in self._parts]
        with trace.span("run", f"{len(events)} launches"):
            for (_, event), (_, part) in zip(events, self._parts, strict=True):
                self.device.timings.around(event, partial(self._give, part, kernel_args))
        if timed:
            self.device.timings.resolve()
            for number, event in events:
                self.seconds[number] += event.seconds or 0.0

    def launch_in_branches(
        self, kernel_args: KernelArguments, order: Sequence[Step], side: Stream, scratch: int
    ) -> None:
        """Give all launches to two streams of a capture: to the captured one and, with scratch of its own, another."""
        device, main, parts = self.device, self.device.stream, dict(self._parts)
        beside = {step.launch for step in order if step.side}
        for number, at in self._scratch_at:
            if number in beside:
                kernel_args.array[at] = scratch
        awaited, passed = {step.after for step in order}, dict[int, Event]()
        kernels: dict[bool, bool] = {}  # by side: whether the last thing there is a kernel
        side.wait(device.event().record(main))
        for step in order:
            stream = side if step.side else main
            if step.after >= 0:
                stream.wait(passed[step.after])
                kernels[step.side] = False
            self._give(parts[step.launch], kernel_args, stream, kernels.get(step.side, False))
            kernels[step.side] = isinstance(parts[step.launch][-1], list)
            if step.launch in awaited:
                passed[step.launch] = device.event().record(stream)
        main.wait(device.event().record(side))

    def _give(
        self,
        runs: Sequence[list[Any] | tuple[LibraryCall, int]],
        kernel_args: KernelArguments,
        stream: Stream | None = None,
        behind: bool = False,
    ) -> None:
        """Start kernels and libraries' work, in order. `behind`: a kernel is what the stream was given last."""
        for number, run in enumerate(runs):
            if isinstance(run, list):
                self.device.launch_all(run, kernel_args, stream, behind and not number)
                continue
            call, start = run
            *addresses, workspace = kernel_args.array[start : start + len(call.buffers) + 1].tolist()
            self.device.start(call.name, partial(call.start, addresses, workspace), stream)

    def suited(self, held: Held) -> GpuRunner:
        """This one, or one that relies on no alignment where memory misses that which this one relies on."""
        return self._unaligned() if self._misaligned(self.kernel_args(held, [0] * 4)) else self

    def _misaligned(self, kernel_args: np.ndarray[Any, Any]) -> bool:
        return self.aligned and bool((kernel_args % self._alignment).any())

    def _unaligned(self) -> GpuRunner:
        if self._other is None:
            sources = gpu_sources(self.plan.launches, self._target, aligned=False)
            self._other = GpuRunner(self.plan.by(sources), self.device, aligned=False)
            self._other.seconds = self.seconds
        return self._other


def _keep(table: dict[K, V], key: K, value: V, most: int) -> None:
    """Add to a table of at most so many entries; the oldest makes room."""
    if len(table) >= most:
        table.pop(next(iter(table)), None)
    table[key] = value


def _together(given: Sequence[Given]) -> list[Any]:
    """Kernels in a row as one list, which the device takes at once; calls as they are."""
    out: list[Any] = []
    for library, part in groupby(given, lambda g: isinstance(g[0], LibraryCall)):
        kept = list(part)
        out += kept if library else [kept]
    return out
