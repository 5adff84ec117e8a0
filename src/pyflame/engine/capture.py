"""Replays of a plan as one captured graph: what a jitted function does on a GPU.

It is captured when state lies where it lay at a call before: at the second call, if there is no state; at the third, if
the first one has moved state to memory of its own.

A captured launch has its addresses inside. State stays where it is, since new values take over the old ones' buffers;
arguments are copied to places of the graph's own before each replay, results are copied out of them behind it. Numbers
are uploaded when they have changed. Where state lies elsewhere than before, another graph is captured; where it cannot
stay where it is, because somebody else holds it, the launches are given one by one. So they are where copying would
take longer than that, and where the driver refuses to capture them.

Arguments that come back to a place get a graph that reads them there and gives its results away where they are, so that
nothing is copied. It serves when nobody holds what it gave away last.

The first replay of a function's first graph is compared with its launches one by one (`engine/graph_check.py`). If it
differs, no graph of that function is used.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyflame.core import knobs, trace
from pyflame.core.locks import lock
from pyflame.engine.binding import Held, Written, addresses
from pyflame.engine.branches import Step, steps
from pyflame.engine.events import graph_event
from pyflame.engine.gpu import GpuRunner
from pyflame.engine.layout import ERROR_BYTES
from pyflame.engine.one_launch import MAX_KEPT, MAX_TURNS, OneLaunch, Place, suits
from pyflame.engine.ownership import held, reliable
from pyflame.engine.report import NOT_CALLED, REPLAYED
from pyflame.engine.trust import Refused, Trust, policy, refusals
from pyflame.engine.value import Value
from pyflame.runtime.gpu.driver import KernelArguments

MAX_GRAPHS = 4  # of one trace: each holds an arena
MAX_PLACES = 4  # of arguments that are read where they lie
MAX_WASTED = 4  # graphs that made room for others before they were of use
USEFUL = 8  # replays that are worth a capture
MAX_COPIED = 8  # replays that copy where one launch does as well
COPIED_PER_SECOND = 2e12  # bytes inside of a large GPU, each read and written
LAUNCH_SECONDS = 4e-6  # that a launch takes the host
FEW_COPIES = 8
_MOVING = "arguments lie elsewhere at each call, and one launch is given to the device as fast as copies of them"
_ONE_BY_ONE = (
    "jitted functions were launched kernel by kernel, where they are otherwise replayed as captured graphs; "
    "profile(graphs=True) times their replays, each as one"
)


class CapturedRunner:
    """Runs a plan for jit. `why` says what happened at the last run, but for those that time each launch."""

    def __init__(self, executable: GpuRunner, arguments: Collection[int]) -> None:
        self.executable = executable
        self.arguments = sorted(arguments)  # positions of inputs that are elsewhere at each call
        self.seconds = executable.seconds
        self.why = NOT_CALLED
        self.served: Served | None = None  # by what the last run was; None where no graph read arguments where they lie
        plan, binding = executable.plan, executable.binding
        self._state = sorted({*binding.positions, *plan.donations}.difference(self.arguments))
        self._graphs: OrderedDict[tuple[int, ...], _Captured | None] = OrderedDict()
        self._refused, checks = policy(executable)
        self._trust = Trust(checks)
        self._wasted = 0
        sizes = zip(binding.output_sizes, binding.takers, strict=True)
        self._result_bytes = sum(size for size, taken in sizes if taken is None)
        self._one = OneLaunch(executable) if suits(plan) else None
        copies = [binding.input_bytes[p] for p in self.arguments]
        copies += [size for size, taken in zip(binding.output_sizes, binding.takers, strict=True) if taken is None]
        self._costly = _costly(len(plan.launches), copies)

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]:
        """As any runner's. An input and the output that takes it over share one Value; `constants` may be a tuple that
        is known again."""
        self.served = None
        if not timed:
            out = self._replayed(inputs, constants, lines, donated)
            if out is None and self._one is not None and trace.recording is None and self._owns(donated):
                out = self._one.run(inputs, constants)
                self.served = None if out is None else Served(self, self._one, self._one.sent, self.why)
            if out is not None:
                return out
        return self.executable.run(inputs, constants, timed, lines, donated)

    def _replayed(
        self, inputs: Sequence[Value], constants: Sequence[Any], lines: Sequence[str], donated: Sequence[int]
    ) -> list[Value] | None:
        """The plan's outputs by a graph; None where none serves, and `why` says so."""
        self.why = self._obstacle(inputs, donated)
        if self.why:
            return None
        try:
            captured = self._find(inputs)
            if captured is None:
                return None
            self.why = self._costly or _MOVING
            out = captured.replay(inputs, constants, lines)
        except Refused as refusal:
            self._graphs.clear()
            self.why = self._refused = str(refusal)
            return None
        if out is not None:
            self.why = REPLAYED
            self.served = Served(self, captured, captured.sent, REPLAYED) if captured.direct else None
        return out

    def _owns(self, donated: Sequence[int]) -> bool:
        """Whether all state may be updated where it lies."""
        return len(donated) == len(self.executable.binding.updated)

    def _find(self, inputs: Sequence[Value]) -> _Captured | None:
        """The graphs for state where it lies now, if it lay there before."""
        key = tuple([v.storage.address + v.offset for v in [inputs[p] for p in self._state]])  # type: ignore[union-attr]
        captured = self._graphs.get(key)
        if captured is None and key not in self._graphs:  # seen for the first time: it may be the last
            self.why = "state lies where it did not lie at a call before" if self._graphs else "it was the first call"
            self._graphs[key] = None
            return None
        if captured is None:
            with refusals():
                captured = _Captured(self.executable, inputs, self.arguments, not self._costly, self._trust)
                captured.copies_left = MAX_COPIED if self._one is not None else -1
            self._graphs[key] = captured
        captured.asked += 1
        self._graphs.move_to_end(key)
        while len(self._graphs) > MAX_GRAPHS:
            self._forget_oldest()
        return captured

    def _forget_oldest(self) -> None:
        _, oldest = self._graphs.popitem(last=False)
        self._wasted += oldest is not None and oldest.asked < USEFUL
        if self._wasted > MAX_WASTED:
            raise Refused("state lies elsewhere at almost every call")

    def _obstacle(self, inputs: Sequence[Value], donated: Sequence[int]) -> str:
        """Why a graph cannot serve now; empty where it can."""
        if trace.recording is not None and not trace.recording.graphs:
            trace.recording.notes[_ONE_BY_ONE] = None
            return "launches are profiled one by one"
        if self._refused:
            return self._refused
        if not self.executable.plan.launches:
            return "there is nothing to launch"
        if [p for p in self.arguments if inputs[p].strides is not None]:
            return "an argument is a view that is not dense"
        if not self._owns(donated):
            return "state is held by somebody else and cannot be updated where it lies"
        return self._costly if self._result_bytes > MAX_KEPT else ""


class Served(NamedTuple):
    """What a run was done by, the numbers that the device has since, and what the runner said of it."""

    runner: CapturedRunner
    by: _Captured | OneLaunch
    sent: Any
    why: str


def _costly(launches: int, copies: Sequence[int]) -> str:
    """Why launches are rather given one by one than arguments and results of so many bytes copied; empty: they are
    not. A copy takes the host as long as a launch; a few do not count."""
    seconds = sum(copies) / COPIED_PER_SECOND + max(0, len(copies) - FEW_COPIES) * LAUNCH_SECONDS
    if seconds <= launches * LAUNCH_SECONDS:
        return ""
    return (
        f"a replay would copy {sum(copies):,} bytes of {len(copies)} arguments and results, which takes longer than to "
        f"give {launches} launches to the device"
    )


@dataclass(eq=False)
class _Ready:
    """A graph, the arguments of its launches, and the places of its own that it computes into: results, and
    intermediates outside of the workspace. `written`: all memory that it writes; `left`: replays until it is compared
    with its launches, -1: never."""

    graph: Any
    kernel_args: KernelArguments
    storages: list[Any]
    intermediates: Held
    written: Sequence[Written]
    left: int

    def __post_init__(self) -> None:
        self.replay = self.graph.replay  # with `left` and `storages` what engine/jitted_call.c knows a graph by

    @property
    def free(self) -> bool:
        """Whether nobody holds what it has computed."""
        return reliable() and not any(held(self.storages, [0] * len(self.storages)))


class _Captured:
    """Graphs for state at certain addresses. They share a workspace.

    `copies`: whether there is one for arguments that lie anywhere, which are copied, as its results are.
    """

    def __init__(
        self, executable: GpuRunner, inputs: Sequence[Value], arguments: Sequence[int], copies: bool, trust: Trust
    ) -> None:
        device = self.device = executable.device
        plan, binding = executable.plan, executable.binding
        self.arguments, self.trust = arguments, trust
        self.donated = sorted(plan.updated)
        self.places = {p: device.allocate(binding.input_bytes[p]) for p in arguments if copies}
        held = binding.hold(
            [Value(self.places[p]) if p in self.places else v for p, v in enumerate(inputs)], self.donated
        )
        self.executable = executable = executable.suited(held)
        held = executable.binding.rehold(held)
        self.workspace, self.at = executable.workspace()
        self.watched = False
        if plan.checks:
            device.zero(self.at[3], ERROR_BYTES)
        self.sent: tuple[Sequence[Any] | None, bytes] = None, b""  # the numbers that the device has, and their bytes
        self.varies = executable.varies
        if plan.uniforms and not self.varies:
            executable.upload(self.at[2], ())
        sources = [*binding.positions, *binding.takers]  # by slot
        # for each output: the input that it lies in, or None where the graph has a place of its own for it; its slot;
        # whether it is the first that begins there; offset and strides
        self.views: list[tuple[int | None, int, bool, int, tuple[int, ...] | None]] = []
        for at, offset, strides, first in binding.views:
            self.views.append((sources[at], at, first, offset, strides))
        self.sizes = {
            at: binding.output_sizes[at - len(binding.positions)] for source, at, *_ in self.views if source is None
        }
        branched = steps(plan) if knobs.GRAPH_BRANCHES.integer() > 1 else []
        self.order: list[Step] = branched if any(step.side for step in branched) else []
        self.side = device.allocate(executable.scratch_bytes) if self.order else None
        self.copying = self._capture(held) if copies else None
        self.direct: dict[tuple[int, ...], list[_Ready | None]] = {}  # by the addresses of arguments
        self.asked = 0  # how often it was found
        self.copies_left = -1  # replays that copy arguments, before something else is better; -1: nothing is
        self.seen: deque[tuple[int, ...]] = deque(maxlen=MAX_PLACES)
        self.lock = lock()  # what belongs to a replay comes to the stream in one piece

    def _capture(self, held: Held) -> _Ready:
        """A graph over this memory. It must not hold state: that would be held by somebody else."""
        kernel_args = KernelArguments(self.executable.kernel_args(held, self.at))
        stream = self.device.make_stream() if self.order else None  # before the capture: it could be the first of them
        with self.device.capture() as graph:
            if stream is None or self.side is None:
                self.executable.launch(kernel_args)
            else:
                self.executable.launch_in_branches(kernel_args, self.order, stream, self.side.address)
        results = [held[slot].storage for slot in self.sizes]
        binding = self.executable.binding
        written = binding.written(addresses(held)) if self.trust.checks >= 0 else []
        return _Ready(graph, kernel_args, results, binding.intermediates(held), written, min(self.trust.checks, 0))

    def replay(self, inputs: Sequence[Value], constants: Sequence[Any], lines: Sequence[str]) -> list[Value] | None:
        """The plan's outputs; None where no graph serves."""
        executable, device = self.executable, self.device
        with self.lock:
            ready = self._suited(inputs)
            if ready is None or (ready is self.copying and not self.copies_left):
                return None
            if device.forked:
                device.note_uses([v.storage for v in inputs])
            if ready is self.copying:
                self.copies_left -= self.copies_left > 0
                for p, place in self.places.items():
                    device.copy(place.address, inputs[p].address, executable.binding.input_bytes[p])
            if self.varies and constants is not self.sent[0]:
                self._send(constants)
            if not ready.left:
                self.trust.compare(executable, ready.graph, ready.written, ready.kernel_args)
                ready.left = self.trust.checks or -1
            elif trace.recording is None:
                ready.replay()
            else:
                device.timings.around(graph_event(executable.plan.launches), ready.graph.replay)
            ready.left -= ready.left > 0
            if executable.plan.checks and not self.watched:
                # The first bad index stays in the record until somebody looks.
                self.watched = True
                device.watch(self.workspace[-1], self.at[3], ERROR_BYTES, lambda record: self._look(record, lines))
            return self._outputs(inputs, self._copied_out(ready) if ready is self.copying else ready.storages)

    def _suited(self, inputs: Sequence[Value]) -> _Ready | None:
        """The graph for these arguments: one that reads them where they lie, if they were there before."""
        if self.device.forked:  # another stream may still read what looks free
            return self.copying
        where = tuple([inputs[p].address for p in self.arguments])
        turns = self.direct.get(where)
        if turns is None:
            if where not in self.seen or len(self.direct) == MAX_PLACES:
                self.seen.append(where)
                return self.copying
            turns = self.direct[where] = []
        for ready in turns:
            if ready is None or ready.free:
                return ready
        graphs = 1 + sum(ready is not self.copying for kept in self.direct.values() for ready in kept)
        if len(turns) == MAX_TURNS or graphs * sum(self.sizes.values()) > MAX_KEPT:
            return self.copying
        held = self.executable.binding.hold(inputs, self.donated)
        with refusals():
            turns.append(self._capture(held) if self.executable.suited(held) is self.executable else self.copying)
        return turns[-1]

    def _send(self, constants: Sequence[Any]) -> None:
        """Upload the uniforms, if they are not those that the device has."""
        packed = self.executable.binding.pack_uniforms(constants)
        if packed != self.sent[1]:
            self.sent = None, b""  # whatever comes between
            self.device.upload(self.at[2], packed)
        self.sent = constants if isinstance(constants, tuple) else None, packed

    def _copied_out(self, ready: _Ready) -> list[Any]:
        """A graph's results in memory of their own."""
        fresh = [self.device.allocate(nbytes) for nbytes in self.sizes.values()]
        for to, result, nbytes in zip(fresh, ready.storages, self.sizes.values(), strict=True):
            self.device.copy(to.address, result.address, nbytes)
        return fresh

    def _outputs(self, inputs: Sequence[Value], storages: Sequence[Any]) -> list[Value]:
        out = []
        results = dict(zip(self.sizes, storages, strict=True))
        for source, slot, first, offset, strides in self.views:
            if source is None:
                out.append(Value(results[slot], offset, strides))
                continue
            value = inputs[source]
            same = first and value.strides == strides
            out.append(value if same else Value(value.storage, value.offset + offset, strides))
        return out

    def known(self, sent: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """What engine/jitted_call.c must know of it, and guards of that: owners, attributes and values."""
        guards: list[Any] = [(self, "sent", sent)] if self.varies else []
        if self.executable.plan.checks:
            guards.append((self, "watched", True))
        return (self.direct, self.copying, tuple(self.arguments)), guards

    def place_of(self, output: int) -> Place | None:
        """Where an output of the plan lies: in which of a graph's storages, and how. None: in state."""
        source, slot, _, offset, strides = self.views[output]
        return None if source is not None else (list(self.sizes).index(slot), offset, strides)

    def _look(self, record: bytes, lines: Sequence[str]) -> None:
        self.watched = False
        try:
            self.executable.report(record, lines)
        except BaseException:
            self.device.zero(self.at[3], ERROR_BYTES)
            raise
