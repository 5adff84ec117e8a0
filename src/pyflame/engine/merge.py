"""Launches that run one text on different buffers, one after the other, become one launch: all parameters of an
optimiser's step are updated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyflame.ir.kernel import Draft, Launch, Phase, Plan, Source

MAX_BUFFERS = 448  # of one launch: the runner's limit is 512
WINDOW = 16  # launches to look back for one to join
SENTINEL = 1 << 62
ARENA = -1  # as memory

Place = tuple[int, int, int]  # memory, first byte, end

# arg: parts, then per part where its iterations, its args and its buffers begin; a last entry ends the iterations
_DISPATCH = """
PF_KERNEL(PF_KEY_0) {
  for (int64_t p = 0; p < arg[0]; p++) {
    const int64_t *part = arg + 1 + 3 * p;
    const int64_t low = part[0] > begin ? part[0] : begin, high = part[3] < end ? part[3] : end;
    if (low < high) PF_KEY_part(buf + part[2], arg + part[1], uni, low - part[0], high - part[0], worker);
  }
}
"""


@dataclass
class _Footprint:
    """What some launches write and what they touch: memory of inputs and outputs, and spans of the arena."""

    written: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    spans_written: list[tuple[int, int]] = field(default_factory=list)
    spans_touched: list[tuple[int, int]] = field(default_factory=list)

    def add(self, other: _Footprint) -> None:
        self.written |= other.written
        self.touched |= other.touched
        self.spans_written += other.spans_written
        self.spans_touched += other.spans_touched

    def conflicts(self, other: _Footprint) -> bool:
        """Whether one writes what the other touches."""
        return (
            not self.written.isdisjoint(other.touched)
            or not other.written.isdisjoint(self.touched)
            or _overlap(self.spans_written, other.spans_touched)
            or _overlap(other.spans_written, self.spans_touched)
        )


@dataclass
class _Run:
    """Launches that become one: their numbers, and how many buffers they have."""

    launches: list[int]
    buffers: int
    footprint: _Footprint


def merge(plan: Draft, sources: Sequence[Source]) -> list[Source]:
    """Join launches of a draft where that changes nothing; gives the sources of those that are left."""
    at = places(plan)
    runs: list[_Run] = []
    for number, (launch, source) in enumerate(zip(plan.launches, sources, strict=True)):
        single = _Run([number], len(launch.buffers), _footprint(launch, at))
        run = _host(sources, runs, single) if _plain(launch, source) else None
        if run is None:
            runs.append(single)
        else:
            run.launches.append(number)
            run.buffers += single.buffers
            run.footprint.add(single.footprint)
    merged = [_merged([plan.launches[i] for i in run.launches], [sources[i] for i in run.launches]) for run in runs]
    plan.launches = [launch for launch, _ in merged]
    return [source for _, source in merged]


def _host(sources: Sequence[Source], runs: list[_Run], single: _Run) -> _Run | None:
    """The run of launches that a launch can join: same text, and nothing since it began stands in the way."""
    (number,) = single.launches
    for run in reversed(runs[-WINDOW:]):
        if run.footprint.conflicts(single.footprint):
            return None
        if sources[run.launches[0]].text == sources[number].text and run.buffers + single.buffers <= MAX_BUFFERS:
            return run
    return None


def _plain(launch: Launch, source: Source) -> bool:
    own_memory = source.worker_bytes or source.scratch_bytes or source.scratch_position >= 0
    return launch.kernel.anchor is None and len(source.phases) == 1 and not own_memory and not launch.kernel.checked


def _footprint(launch: Launch, places: Sequence[Place]) -> _Footprint:
    out = _Footprint()
    stored = {launch.buffers[access.buffer][0] for _, access in launch.kernel.stores}
    for buffer, _ in launch.buffers:
        memory, begin, end = places[buffer]
        if memory != ARENA:
            out.touched.add(memory)
            if buffer in stored:
                out.written.add(memory)
        else:
            out.spans_touched.append((begin, end))
            if buffer in stored:
                out.spans_written.append((begin, end))
    return out


def places(plan: Plan | Draft) -> list[Place]:
    """Where each buffer lies. A receiver may lie where its input lies."""
    given = {receiver: position for position, receiver in plan.donations.items()}
    out = []
    for number, decl in enumerate(plan.buffers):
        if decl.role == "scratch":
            out.append((ARENA, decl.offset, decl.offset + decl.nbytes))
        else:
            own = decl.position if decl.role == "input" else len(plan.buffers) + number
            out.append((given.get(number, own), 0, SENTINEL))
    return out


def _overlap(ones: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(begin < last and first < end for begin, end in ones for first, last in others)


def _merged(launches: Sequence[Launch], sources: Sequence[Source]) -> tuple[Launch, Source]:
    if len(launches) == 1:
        return launches[0], sources[0]
    table: list[int] = [len(sources)]
    args: list[int] = []
    iterations = buffers = 0
    starts: list[tuple[int, int]] = []
    for launch, source in zip(launches, sources, strict=True):
        starts += [(buffers + number, start) for number, start in launch.starts]
        table += [iterations, 2 + 3 * len(sources) + len(args), buffers]
        args += source.args
        iterations += source.phases[0].iterations
        buffers += len(launch.buffers)
    first = sources[0]
    text = "static " + first.text.lstrip().replace("PF_KEY_0", "PF_KEY_part") + _DISPATCH
    phase = Phase("_0", iterations, first.phases[0].grain)
    whole = replace(
        launches[0],
        buffers=tuple([b for launch in launches for b in launch.buffers]),
        nbytes=sum(launch.nbytes for launch in launches),
        flops=sum(launch.flops for launch in launches),
        why=f"{len(launches)} x {launches[0].why}",
        starts=tuple(starts),
    )
    return whole, replace(first, text=text, phases=(phase,), args=(*table, iterations, *args))
