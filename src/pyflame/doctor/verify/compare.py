"""Compare a call's values op by op between devices.

Each op runs on every device twice: over the reference's values, which shows the op's own error, and over what the
device itself has computed before, which shows how errors add up. At last the whole call runs as it would without us,
fused, for its results alone. Ops go some at a time, and values that nothing reads any more are let go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, sqrt
from typing import Any

from pyflame.core.device import parse_device
from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, DeviceFaultError, PyFlameError
from pyflame.core.precision import tf32_allowed
from pyflame.core.state import mode
from pyflame.doctor.closeness import allowed, gap
from pyflame.doctor.verify.graph import DeviceGraph, array_of, computed
from pyflame.doctor.verify.record import Recording, record
from pyflame.doctor.verify.report import Comparison, Report, Row
from pyflame.engine.devices import get_device
from pyflame.ir import Node, copy_to
from pyflame.ir.opdef import COMPOSITE, COPY, KERNEL, MOVEMENT, REDUCE

CHUNK = 32  # ops that are evaluated together: their kernels compile together
TF32 = 2.0**-14  # an eighth of what a number loses in TF32: errors of products are that share of their size
NOISE = 8.0  # times as far as the ops one by one may the fused results be from the reference


def compare(
    fn: Callable[..., Any],
    inputs: Any = (),
    devices: Sequence[object] = ("cpu", "rocm:0"),
    *,
    tell: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """Compare a module or a function on some devices, of which the first one is the reference.

    `inputs`: a tuple of arguments, a dict of keywords, or one tensor. The function is traced, so it must not ask for
    values (`item()`, `bool()`); a training step with backward and optimiser is fine, and changes nothing. `tell` is
    called with the ops that are done, and with all there are.

    >>> report = compare(lambda x: x.exp().sum(), pf.randn(8), devices=("cpu", "cpu"))
    >>> report.agrees
    True
    """
    args, kwargs = _arguments(inputs)
    places = [parse_device(d) for d in devices]
    if len(places) < 2:
        raise ArgumentError(f"[verify] expected at least two devices but got {', '.join(map(str, places)) or 'none'}")
    if any(place.kind == "null" for place in places):
        raise ArgumentError("[verify] expected devices that compute but got null, which only plans")
    for place in places:
        get_device(place)  # raises where it is not there: that is no failure of an op
    recording = record(fn, args, kwargs)
    first, *others = [DeviceGraph(recording, place) for place in places]
    found = Report(str(first.device), [Comparison(str(g.device)) for g in others], _outputs(recording))
    tolerances = _tolerances(recording)
    with mode(grad_enabled=False):
        for done, chunk in _chunks(recording, [first, *others]):
            _reference(first, chunk)
            for graph, into in zip(others, found.comparisons, strict=True):
                if not into.broken:
                    _chunk(first, graph, chunk, tolerances, into, done)
            tell(done + len(chunk), len(recording.compared))
        for graph, into in zip(others, found.comparisons, strict=True):
            if not into.broken:
                _whole(first, graph, into)
    return found


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else ((inputs,), {})


def _outputs(recording: Recording) -> list[int]:
    return [n for n, node in enumerate(recording.compared) if node in recording.outputs]


def _chunks(recording: Recording, graphs: list[DeviceGraph]) -> Iterator[tuple[int, list[Node]]]:
    """The ops some at a time; behind each, what nothing reads any more is forgotten."""
    last = _last_readers(recording)
    for begin in range(0, len(recording.compared), CHUNK):
        yield begin, recording.compared[begin : begin + CHUNK]
        for graph in graphs:
            for node in [n for n in graph.made if last.get(n, -1) < begin + CHUNK and n not in recording.outputs]:
                del graph.made[node]


def _last_readers(recording: Recording) -> dict[Node, int]:
    """The last op that reads a value, perhaps through views of it, by its number."""
    number = {node: n for n, node in enumerate(recording.compared)}
    last: dict[Node, int] = {}
    for node in reversed(recording.order):
        reads = max(number.get(node, -1), last.get(node, -1) if node.op.kind in (MOVEMENT, COPY) else -1)
        for source in node.srcs:
            last[source] = max(last.get(source, -1), reads)
    return last


def _reference(graph: DeviceGraph, chunk: list[Node]) -> None:
    failed = computed([graph.node(n) for n in chunk], graph.device)
    for error in failed.values():
        raise PyFlameError(f"[verify] the reference device {graph.device} could not compute its part: {error}")


def _chunk(
    first: DeviceGraph, graph: DeviceGraph, chunk: list[Node], limits: dict[Node, float], into: Comparison, begin: int
) -> None:
    """Rows of some ops."""
    try:
        lone = [graph.over(n, first) for n in chunk]
        failed = computed(lone, graph.device)
        for node, alone in zip(chunk, lone, strict=True):
            if alone in failed:  # go on with the right value: ops behind it are another matter
                graph.made[node] = copy_to(first.made[node], graph.device, commit=True)
        summed = [graph.node(n) for n in chunk]
        failed |= computed(summed, graph.device)
        for number, (node, alone, total) in enumerate(zip(chunk, lone, summed, strict=True), begin):
            into.rows.append(_row(number, node, (first, alone, total), limits[node], graph.recording, failed))
    except DeviceFaultError as error:
        into.broken = f"{graph.device} broke while ops {begin} to {begin + len(chunk) - 1} ran: {error}"


def _row(
    number: int,
    node: Node,
    values: tuple[DeviceGraph, Node, Node],
    limit: float,
    recording: Recording,
    failed: dict[Node, str],
) -> Row:
    first, alone, total = values
    place = recording.places[node]
    row = Row(number, node.op.name, place.line, place.module, node.shape, node.dtype.name, terms(node))
    row.allowed, row.allowed_total = own_tolerance(node), limit
    row.failed = failed.get(alone) or failed.get(total) or ""
    if not row.failed:
        want = array_of(first.made[node])
        row.own, row.total = (gap(array_of(n), want, node.dtype) for n in (alone, total))
    return row


def _whole(first: DeviceGraph, graph: DeviceGraph, into: Comparison) -> None:
    """The results of the call as it runs without us: with everything fused."""
    recording = graph.recording
    fresh = DeviceGraph(recording, graph.device)
    try:
        failed = computed([fresh.node(n) for n in recording.outputs], graph.device)
        for node, row in ((n, r) for r in into.rows for n in [recording.compared[r.number]] if n in recording.outputs):
            if fresh.made[node] in failed:
                row.whole_failed = failed[fresh.made[node]]
            else:
                row.whole = gap(array_of(fresh.made[node]), array_of(first.made[node]), node.dtype)
                row.allowed_whole = max(row.allowed_total, NOISE * row.total.error)
    except DeviceFaultError as error:
        into.broken = f"{graph.device} broke while the whole call ran: {error}"


def terms(node: Node) -> int:
    """How many numbers are added up for one element of a result: what rounding errors grow with."""
    if node.op.kind not in (REDUCE, KERNEL, COMPOSITE) or not node.srcs:
        return 1
    if node.op.kind == REDUCE:
        return max(1, node.srcs[0].size // max(1, node.size))
    if node.op.name.startswith("conv") and len(node.srcs) > 1:  # weights (out, in / groups, ...)
        return max(1, node.srcs[1].size // max(1, node.srcs[1].shape[0]))
    return max([1, *[extent for source in node.srcs for extent in source.shape]])


def own_tolerance(node: Node) -> float:
    """What an op may be off by over the same values."""
    eps = 0.0
    if "activation_bits" in node.op.attrs:  # the CPU multiplies in integers, other devices need not
        eps = 2.0 ** -node.attrs[node.op.attrs.index("activation_bits")]
    elif node.op.name in ("matmul", "conv_general") and node.dtype is float32 and tf32_allowed():
        eps = TF32
    return allowed(node.dtype, terms(node), eps)


def _tolerances(recording: Recording) -> dict[Node, float]:
    """What each value may be off by in all: errors add up along the deepest path as independent ones do.

    Whole numbers that are made of others that are off, as argmax gives them, may be any."""
    found: dict[Node, float] = {}
    compared = set(recording.compared)
    for node in recording.order:
        before = max((found[s] for s in node.srcs), default=0.0)
        own = own_tolerance(node) if node in compared else 0.0
        exact = node in compared and not node.dtype.has_gradient
        found[node] = inf if exact and before else sqrt(before * before + own * own)
    return found
