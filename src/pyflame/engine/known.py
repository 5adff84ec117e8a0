"""Evaluation in one step of graphs whose plan is known: what known.c does, and what it must know of a plan.

A loop evaluates the same structures again and again. When one has been run in Python (engine/evaluate.py), all that
depends on the plan alone is laid down here as one row of numbers; the next time C walks the graph, finds the row, takes
memory, runs the launches (on a GPU: gives them to the driver) and turns nodes into leaves. What is rare is left to
Python, by rows that are not there: writes to memory that somebody may hold, copies between devices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyflame.core import trace
from pyflame.core.device import CPU, DeviceId
from pyflame.core.precision import tf32_allowed
from pyflame.core.state import state
from pyflame.engine import views
from pyflame.engine.devices import get_device
from pyflame.engine.report import debugging
from pyflame.engine.starts import STARTS

if TYPE_CHECKING:
    from pyflame.engine.launch import PlanRunner
    from pyflame.engine.pending import PendingGraph
    from pyflame.ir import Node
    from pyflame.ir.kernel import Plan

in_c: Callable[[Sequence[Node], dict[bytes, Any], Any, bool], int] | None = None
RAN = 2  # what it says where one plan has run

_modes = itemgetter("deterministic", "libraries", "max_fused", "matrix_cores")
# By device and these modes, and by the key of a graph as 64-bit integers: the numbers of its run, size classes of the
# memory that it takes, signatures and strides of its results, and whose all that is.
_rows: dict[tuple[Any, ...], dict[bytes, tuple[Any, ...]]] = {}

_PENDING = {0}  # memory that is yet to come, among what a graph would like to overwrite


def mode_of(device: DeviceId) -> tuple[Any, ...]:
    """What a plan depends on beside its graph."""
    return device, device is not CPU and tf32_allowed(), *_modes(state.__dict__)


def evaluate_known(nodes: Sequence[Node]) -> int:
    """Evaluate nodes as far as their plans are known: gives how many have run and one more, or, where something is left
    to do, how many as a negative number."""
    if in_c is None or trace.recording is not None or debugging():
        return 0
    place = nodes[0].meta.device
    if place is None or (rows := _rows.get(mode_of(place))) is None:
        return 0
    return in_c(nodes if type(nodes) is list else list(nodes), rows, get_device(place).lock, place is CPU)


def remember(graph: PendingGraph, plan: Plan, runner: PlanRunner, device: DeviceId) -> None:
    """Lay down the run of a plan, after one: the graph's outputs are leaves."""
    if in_c is None or not graph.overwritten <= _PENDING or plan.overwritten_inputs:
        return
    rows = _rows.setdefault(mode_of(device), {})
    words = graph.key[: len(graph.key) - len(graph.owned)]  # it overwrites no input, whoever owns that
    key = struct.pack(f"={len(words)}q", *words)
    if key not in rows:
        row = runner.known_row(tuple([n.sig for n in graph.outputs]))
        if row is not None:
            rows[key] = row


def forget() -> None:
    """Forget all of it."""
    _rows.clear()
    STARTS.clear()
    views.LAYOUTS.clear()
