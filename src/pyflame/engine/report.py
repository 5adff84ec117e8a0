"""Words about a plan: the lines of PYFLAME_DEBUG, and whether it is replayed."""

from __future__ import annotations

import sys
from functools import cache

from pyflame.core import knobs
from pyflame.engine.launch import Runner, on_host
from pyflame.ir.kernel import CompiledKernel, LibraryCall, Plan

REPLAYED = "replayed as a graph"  # what a CapturedRunner may say of its last run
NOT_CALLED = "not called yet"


@cache
def debugging() -> bool:
    """Whether PYFLAME_DEBUG asks for anything. Read once: a look at the environment takes 1.5 us."""
    return knobs.DEBUG.text() != "0"


def debug_print(plan: Plan, runner: Runner) -> None:
    """PYFLAME_DEBUG=1: a line per plan; 2: a line per launch with its time and GB/s; 4: also the source."""
    level = knobs.DEBUG.integer()
    print(f"*** plan: {len(plan.launches)} launches, arena {plan.arena_bytes:,} B", file=sys.stderr)
    for number, launch in enumerate(plan.launches):
        seconds = float(runner.seconds[number])
        runner.seconds[number] = 0
        if level >= 2:
            rate = (
                f"{launch.nbytes / seconds / 1e9:8.2f} GB/s {launch.flops / seconds / 1e9:8.2f} GFLOP/s"
                if seconds
                else ""
            )
            print(f"    {seconds * 1e6:10.1f} us {rate}  {launch.name}  {list(launch.output)}", file=sys.stderr)
        if level >= 4:
            print(_text(plan, number), file=sys.stderr)


def replay_text(runner: Runner) -> str:
    """Whether a jitted function's last call was replayed as a graph, and if not why; empty: there are no graphs."""
    if on_host(runner):
        return ""
    from pyflame.engine.capture import CapturedRunner  # not before a GPU is used

    if not isinstance(runner, CapturedRunner):
        return ""
    if debugging():
        return "not replayed as a graph: PYFLAME_DEBUG looks at each launch"
    if runner.why == NOT_CALLED:
        return "not called yet; it may be replayed as a graph from the second or third call on"
    return (
        f"{REPLAYED} at the last call" if runner.why == REPLAYED else f"not {REPLAYED} at the last call: {runner.why}"
    )


def _text(plan: Plan, number: int) -> str:
    """The source of a launch; empty where it has none."""
    source = plan.sources[number] if plan.sources else None
    return "" if source is None or isinstance(source, (LibraryCall, CompiledKernel)) else source.text
