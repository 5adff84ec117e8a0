"""Replays of a plan as one captured graph: what a jitted function does on a GPU from its third call on.

A captured launch has its addresses inside. State stays where it is, since new values take over the old ones' buffers;
arguments are copied to places of the graph's own before each replay, results are copied out of them behind it. Numbers
that change are uploaded. Where state lies elsewhere than before, another graph is captured; where it cannot stay where
it is, because somebody else holds it, the launches are given one by one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

from pyflame.core import trace
from pyflame.engine.events import graph_event
from pyflame.engine.gpu import ERROR_BYTES, GpuExecutable
from pyflame.engine.value import Value
from pyflame.runtime.gpu.driver import Words

MAX_GRAPHS = 4  # of one trace: each holds an arena
_ONE_BY_ONE = (
    "jitted functions were launched kernel by kernel, where they are otherwise replayed as captured graphs; "
    "profile(graphs=True) times their replays, each as one"
)


class CapturedRunner:
    """Runs a plan for jit. `why` says what happened at the last run."""

    def __init__(self, executable: GpuExecutable, arguments: Collection[int]) -> None:
        self.executable = executable
        self.arguments = sorted(arguments)  # positions of inputs that are elsewhere at each call
        self.seconds = executable.seconds
        self.why = "not run yet"
        self._graphs: OrderedDict[tuple[int, ...], _Captured | None] = OrderedDict()

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        given: Sequence[int] = (),
    ) -> list[Value]:
        executable = self.executable
        self.why = self._obstacle(inputs, given, timed)
        if self.why:
            return executable.run(inputs, constants, timed, lines, given)
        key = tuple([v.address for p, v in enumerate(inputs) if p not in self.arguments])
        if key not in self._graphs:  # seen for the first time: it may be the last
            self._graphs[key] = None
            self.why = "state lies elsewhere than at the last call"
            return executable.run(inputs, constants, timed, lines, given)
        captured = self._graphs[key]
        if captured is None:
            captured = self._graphs[key] = _Captured(executable, inputs, self.arguments)
        self._graphs.move_to_end(key)
        while len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        self.why = "replayed as a graph"
        return captured.replay(inputs, constants, lines)

    def _obstacle(self, inputs: Sequence[Value], given: Sequence[int], timed: bool) -> str:
        """Why a graph cannot serve now; empty where it can."""
        plan = self.executable.plan
        if timed:
            return "launches are timed one by one"
        if trace.recording is not None and not trace.recording.graphs:
            trace.recording.notes[_ONE_BY_ONE] = None
            return "launches are profiled one by one"
        if not plan.launches:
            return "there is nothing to launch"
        if any(inputs[p].strides is not None for p in self.arguments):
            return "an argument is a view that is not dense"
        if not set(given) >= {*plan.heirs, *plan.consumed}:
            return "state is held by somebody else and cannot be updated where it lies"
        return ""


class _Captured:
    """A graph for state at certain addresses."""

    def __init__(self, executable: GpuExecutable, inputs: Sequence[Value], arguments: Sequence[int]) -> None:
        device = self.device = executable.device
        plan = executable.plan
        binding = executable.binding
        self.places = {p: device.allocate(binding.input_bytes[p]) for p in arguments}
        fixed = [Value(self.places[p]) if p in self.places else v for p, v in enumerate(inputs)]
        given = [*plan.heirs, *plan.consumed]
        held = binding.hold(fixed, given)
        self.executable = executable = executable.suited(held)
        self.workspace, self.at = executable.workspace()
        self.words = Words(executable.words(held, self.at))
        self.watched = False
        device.zero(self.at[3], ERROR_BYTES)
        if plan.uniforms and not executable.varies:
            executable.upload(self.at[2], ())
        with device.capture() as graph:
            executable.launch(self.words)
        self.graph = graph
        heirs = {binding.slot_of[plan.heirs[p]]: p for p in plan.heirs}
        inputs_at = dict(enumerate(binding.positions))
        # for each output buffer: the input that it lies in, or None where it must be copied out
        self.source_of = {slot: heirs.get(slot, inputs_at.get(slot)) for slot, _, _ in binding.views}
        # What the graph computes into places of its own. It must not hold state: that would be held by somebody else.
        self.results = {slot: held[slot][0] for slot, source in self.source_of.items() if source is None}

    def replay(self, inputs: Sequence[Value], constants: Sequence[Any], lines: Sequence[str]) -> list[Value]:
        executable, device, binding = self.executable, self.device, self.executable.binding
        if device.forked:
            device.note_uses([v.storage for v in inputs])
        for p, place in self.places.items():
            device.copy(place.address, inputs[p].address, binding.input_bytes[p])
        if executable.varies:
            executable.upload(self.at[2], constants)
        if trace.recording is None:
            self.graph.replay()
        else:
            device.timings.around(graph_event(executable.plan.launches), self.graph.replay)
        plan = executable.plan
        if plan.checks and not self.watched:
            # The first bad index stays in the record until somebody looks.
            self.watched = True
            device.watch(self.workspace, self.at[3], ERROR_BYTES, lambda record: self._look(record, lines))
        fresh: dict[int, Any] = {}
        out = []
        for slot, offset, strides in binding.views:
            source = self.source_of[slot]
            if source is not None:
                value = inputs[source]
                out.append(Value(value.storage, value.offset + offset, strides))
                continue
            if slot not in fresh:
                nbytes = binding.output_sizes[slot - len(binding.positions)]
                fresh[slot] = device.allocate(nbytes)
                device.copy(fresh[slot].address, self.results[slot].address, nbytes)
            out.append(Value(fresh[slot], offset, strides))
        return out

    def _look(self, record: bytes, lines: Sequence[str]) -> None:
        self.watched = False
        try:
            self.executable.report(record, lines)
        except BaseException:
            self.device.zero(self.at[3], ERROR_BYTES)
            raise
