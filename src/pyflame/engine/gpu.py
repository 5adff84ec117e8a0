"""Plan -> GpuExecutable: the text of every launch, compiled together, and how to launch it.

A launch takes 8-byte words: the addresses of its buffers, its scratch, the uniforms and the error record, then its
arguments. Which words are addresses is known beforehand, so one sum gives the words of all launches of a run.
Launches are asynchronous; a bad index is found when the host next waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.codegen import gpu as codegen_gpu
from pyflame.codegen.gpu_epilogue import epilogue
from pyflame.core.device import Target
from pyflame.core.errors import DeviceError
from pyflame.engine.binding import Binding, Held
from pyflame.engine.faults import raise_bad_index
from pyflame.engine.value import Value
from pyflame.ir.kernel import GpuSource, Launch, Plan
from pyflame.kernels import SPECS, Epilogue
from pyflame.runtime.gpu.driver import Words

ALIGNMENT = 256  # of what lies in the workspace beside the arena
ERROR_BYTES = 24


def gpu_source(launch: Launch, target: Target, aligned: bool = True) -> GpuSource:
    """The text of one launch."""
    anchor = launch.kernel.anchor
    if anchor is None:
        return codegen_gpu.generate(launch.kernel, target, aligned)
    spec = SPECS.get((anchor.op.name, launch.implementation))
    if spec is None:
        raise DeviceError(f"[{anchor.op.name}] expected a kernel for {target.name} but there is none yet; use the CPU")
    after = None
    if spec.epilogue is not None:
        slot = spec.epilogue
        layout, value = slot.layout(launch), slot.accumulator(launch)
        after = Epilogue(*epilogue(launch.kernel, target, layout, value, len(launch.buffers)))
    write = spec.source if aligned or spec.unaligned is None else spec.unaligned
    source: Any = write(launch, target, after)
    assert isinstance(source, GpuSource)
    return source


class GpuExecutable:
    """A compiled plan for a GPU.

    Slots of addresses: nothing (0), the inputs, the outputs, the arena, scratch, uniforms, error record.
    """

    def __init__(self, plan: Plan, device: Any, aligned: bool = True) -> None:
        self.plan = plan
        self.device = device
        self.aligned = aligned
        self._other: GpuExecutable | None = None  # for buffers that miss the alignment asked for
        sources = [gpu_source(launch, device.target, aligned) for launch in plan.launches]
        self.binding = Binding(plan, device.allocate, device.copy)
        self._arena = len(self.binding.slot_of)
        sizes = [plan.arena_bytes, max((s.scratch_bytes for s in sources), default=0), 8 * len(plan.uniforms)]
        self._starts = [0]
        for size in (*sizes, ERROR_BYTES):
            self._starts.append(self._starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        self.seconds = np.zeros(len(plan.launches))
        self._lay_out(sources)
        functions = device.functions([(s.text, tuple(p.suffix for p in s.phases)) for s in sources])
        calls = [
            (number, function, phase)
            for number, (source, found) in enumerate(zip(sources, functions, strict=True))
            for phase, function in zip(source.phases, found, strict=True)
        ]
        # LDS is declared in the text: there is nothing to ask for at the launch
        self._calls = [
            (function, (phase.grid, 1, 1), (phase.block, 1, 1), 0, start)
            for (_, function, phase), start in zip(calls, self._starts_of, strict=True)
        ]
        self._numbers = [number for number, _, _ in calls]

    def _lay_out(self, sources: Sequence[GpuSource]) -> None:
        """The words of all launches: constants, plus the address in a slot."""
        constants: list[int] = []
        slots: list[int] = []
        alignment: list[int] = []
        self._starts_of: list[int] = []  # where the words of each call begin
        for launch, source in zip(self.plan.launches, sources, strict=True):
            pairs = [self.binding.place(*pair) for pair in launch.buffers[: source.buffers]]
            pairs += [(self._arena + n, 0) for n in (1, 2, 3)]
            for phase in source.phases:
                self._starts_of.append(len(constants))
                constants += [offset for _, offset in pairs]
                slots += [slot + 1 for slot, _ in pairs]  # behind nothing, which plain arguments add
                alignment += [*source.alignment[: source.buffers], 1, 1, 1]
                constants += phase.args
                slots += [0] * len(phase.args)
                alignment += [1] * len(phase.args)
        self._constants = np.array(constants, np.int64)
        self._slots = np.array(slots, np.int64)
        self._alignment = np.array(alignment, np.int64)

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        given: Sequence[int] = (),
    ) -> list[Value]:
        """Start the plan on these inputs and constants; gives its outputs, which the device will have filled."""
        return self._start(self.binding.hold(inputs, given), constants, timed, lines)

    def _start(self, held: Held, constants: Sequence[Any], timed: bool, lines: Sequence[str]) -> list[Value]:
        plan, device = self.plan, self.device
        if self._calls:
            workspace, at = self.workspace()
            words = self.words(held, at)
            if self.aligned and (words % self._alignment).any():
                return self._unaligned()._start(held, constants, timed, lines)
            if plan.uniforms:
                self.upload(at[2], constants)
            if plan.checks:
                device.zero(at[3], ERROR_BYTES)
            self.launch(Words(words), timed)
            if plan.checks:
                device.watch(workspace, at[3], ERROR_BYTES, lambda record: self.report(record, lines))
        return self.binding.outputs(held)

    def report(self, record: bytes, lines: Sequence[str]) -> None:
        """Raise what a run has left in its error record."""
        raise_bad_index(record, self.plan.checks, self.plan.check_lines, lines)

    def workspace(self) -> tuple[Any, list[int]]:
        """Memory for one run, and where in it arena, scratch, uniforms and error record begin."""
        block = self.device.allocate(self._starts[-1])
        return block, [block.address + start for start in self._starts[:-1]]

    def words(self, held: Held, at: Sequence[int]) -> np.ndarray[Any, Any]:
        """The words of all launches for these places."""
        addresses = [0, *[storage.address + offset for storage, offset in held], *at]
        out: np.ndarray[Any, Any] = self._constants + np.array(addresses, np.int64)[self._slots]
        return out

    def upload(self, address: int, constants: Sequence[Any]) -> None:
        """Send the uniforms."""
        self.device.upload(address, self.binding.pack_uniforms(constants))

    @property
    def varies(self) -> bool:
        """Whether uniforms may differ from run to run."""
        return any(slot for slot, _ in self.binding.uniforms)

    def launch(self, words: Words, timed: bool = False) -> None:
        """Give all launches to the device."""
        if not timed:
            self.device.launch_all(self._calls, words)
            return
        clock = self.device.clock()
        for number, call in zip(self._numbers, self._calls, strict=True):
            self.device.launch_all([call], words)
            clock.mark(number)
        for number, seconds in clock.read():
            self.seconds[number] += seconds

    def _unaligned(self) -> GpuExecutable:
        if self._other is None:
            self._other = GpuExecutable(self.plan, self.device, aligned=False)
            self._other.seconds = self.seconds
        return self._other
