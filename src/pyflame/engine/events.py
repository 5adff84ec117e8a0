"""What a recording is told of launches and memory. Bytes and operations are those that the plan has counted."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyflame.core import trace
from pyflame.core.trace import TraceEvent
from pyflame.ir.kernel import Launch
from pyflame.runtime.base import Device


def launch_event(launch: Launch) -> TraceEvent:
    """One launch of a plan."""
    return TraceEvent(
        "kernel",
        launch.name,
        nbytes=launch.nbytes,
        flops=launch.flops,
        ops=launch.ops,
        shape=launch.output,
        implementation=launch.implementation,
        why=launch.why,
    )


def graph_event(launches: Sequence[Launch]) -> TraceEvent:
    """A replay of captured launches."""
    return TraceEvent(
        "graph",
        f"replay of {len(launches)} launches",
        nbytes=sum(x.nbytes for x in launches),
        flops=sum(x.flops for x in launches),
        ops=tuple(op for x in launches for op in x.ops),
        implementation="captured graph",
        why="timed as one",
    )


def note_memory(device: Device) -> None:
    """Record what is in use on a device now."""
    pool = device.pool
    if trace.recording is not None and pool is not None:
        event = TraceEvent("memory", f"memory of {device.id}", str(device.id), time.perf_counter())
        event.nbytes = pool.stats.allocated
        trace.recording.add(event)
