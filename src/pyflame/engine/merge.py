"""Launches that run one text on different buffers, one after the other, become one launch: all parameters of an
optimiser's step are updated together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyflame.ir.kernel import Launch, Phase, Plan, Source

MAX_BUFFERS = 448  # of one launch: the runner's limit is 512
WINDOW = 16  # launches to look back for one to join
SENTINEL = 1 << 62

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


def merge(plan: Plan, sources: Sequence[Source]) -> list[Source]:
    """Merge the plan's launches where that changes nothing; gives their sources."""
    runs: list[list[int]] = []
    for number, source in enumerate(sources):
        run = _host(plan, sources, runs, number) if _plain(plan.launches[number], source) else None
        if run is None:
            runs.append([number])
        else:
            run.append(number)
    merged = [_merged([plan.launches[i] for i in run], [sources[i] for i in run]) for run in runs]
    plan.launches = [launch for launch, _ in merged]
    return [source for _, source in merged]


def _host(plan: Plan, sources: Sequence[Source], runs: list[list[int]], number: int) -> list[int] | None:
    """The run of launches that a launch can join: same text, and nothing since it began stands in the way."""
    launch = plan.launches[number]
    for run in reversed(runs[-WINDOW:]):
        if any(_conflict(plan, plan.launches[i], launch) for i in run):
            return None
        buffers = sum(len(plan.launches[i].buffers) for i in [*run, number])
        if sources[run[0]].text == sources[number].text and buffers <= MAX_BUFFERS:
            return run
    return None


def _plain(launch: Launch, source: Source) -> bool:
    own_memory = source.worker_bytes or source.scratch_bytes or source.scratch_position >= 0
    return launch.kernel.anchor is None and len(source.phases) == 1 and not own_memory and not launch.kernel.checked


def _conflict(plan: Plan, first: Launch, second: Launch) -> bool:
    """Whether one writes what the other touches, in the arena or through an heir."""
    written = [[launch.buffers[a.buffer][0] for _, a in launch.kernel.stores] for launch in (first, second)]
    touched = [[buffer for buffer, _ in launch.buffers] for launch in (first, second)]
    return any(
        _overlap(place(plan, w), place(plan, t))
        for mine, theirs in ((written[0], touched[1]), (written[1], touched[0]))
        for w in mine
        for t in theirs
    )


def place(plan: Plan, buffer: int) -> tuple[int, int, int]:
    """Memory, first byte and end of a buffer. An heir may lie where its input lies."""
    decl = plan.buffers[buffer]
    if decl.role == "scratch":
        return -1, decl.offset, decl.offset + decl.nbytes
    given = next((p for p, heir in plan.heirs.items() if heir == buffer), None)
    if given is None:
        given = decl.position if decl.role == "input" else len(plan.buffers) + buffer
    return given, 0, SENTINEL


def _overlap(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _merged(launches: Sequence[Launch], sources: Sequence[Source]) -> tuple[Launch, Source]:
    if len(launches) == 1:
        return launches[0], sources[0]
    table: list[int] = [len(sources)]
    args: list[int] = []
    iterations = buffers = 0
    for launch, source in zip(launches, sources, strict=True):
        table += [iterations, 2 + 3 * len(sources) + len(args), buffers]
        args += source.args
        iterations += source.phases[0].iterations
        buffers += len(launch.buffers)
    first = sources[0]
    text = "static " + first.text.lstrip().replace("PF_KEY_0", "PF_KEY_part") + _DISPATCH
    phase = Phase("_0", iterations, first.phases[0].grain)
    whole = replace(
        launches[0],
        buffers=[b for launch in launches for b in launch.buffers],
        nbytes=sum(launch.nbytes for launch in launches),
        flops=sum(launch.flops for launch in launches),
        why=f"{len(launches)} x {launches[0].why}",
    )
    return whole, replace(first, text=text, phases=(phase,), args=(*table, iterations, *args))
