"""explain: what a tensor or a function would launch, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyflame.core.device import parse_device
from pyflame.core.state import state
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import find_plan, settle_copies
from pyflame.engine.pending import PendingGraph
from pyflame.engine.report import replay_text
from pyflame.tensor import Tensor
from pyflame.transform.jit import Jitted, jit
from pyflame.transform.replay import Part
from pyflame.transform.trace import Trace, trace_function
from pyflame.transform.traced_plan import workspace_of_trace
from pyflame.transform.tree import flatten, is_tensor, is_traced


@dataclass
class LaunchReport:
    """One launch: the ops fused into it, what it must move and compute, and which implementation runs it."""

    name: str
    ops: tuple[str, ...]
    shape: tuple[int, ...]
    bytes: int
    flops: int
    implementation: str
    why: str
    seconds: float | None = None

    @property
    def gb_per_second(self) -> float | None:
        return self.bytes / self.seconds / 1e9 if self.seconds else None


@dataclass
class Report:
    """What `explain` found. Prints as a table; `.html()` draws it."""

    device: str
    launches: list[LaunchReport]
    arena_bytes: int
    intermediate_bytes: int
    edges: list[tuple[int, int]] = field(default_factory=list)
    replay: str = ""  # of a jitted function on a GPU: whether it is replayed as a graph, and if not why
    notes: list[str] = field(default_factory=list)  # what was done to the graph as a whole

    def __str__(self) -> str:
        from pyflame.transform.explain_text import table

        return table(self)

    __repr__ = __str__

    def html(self) -> str:
        """The report as a page of its own, with the graph of launches drawn."""
        from pyflame.transform.explain_text import page

        return page(self)


def explain(target: Tensor | Callable[..., Any], *args: Any, run: bool = True, **kwargs: Any) -> Report:
    """Explain a pending tensor, or a function called with these arguments. With run=True times and GB/s are measured.

    >>> pf.explain(pf.randn(4, 4).exp().sum()).launches[0].ops
    """
    if isinstance(target, Tensor):
        return _explain_nodes([target], run)
    if isinstance(target, Jitted):
        jitted = target
    elif callable(target):
        jitted = jit(target)
    else:
        tensors: list[Tensor] = []
        flatten(target, tensors, is_tensor)
        return _explain_nodes(tensors, run)
    traced, leaves = jitted.find(args, kwargs)
    # The plan runs, but what it would change stays as it is.
    if run:
        while (fed := traced.feed.nodes(leaves)) is None:
            traced, leaves = jitted.find(args, kwargs)
        inputs, constants = traced.feed.values(fed), traced.numbers(leaves)
        _time(traced.parts, lambda: traced.runner.run(inputs, constants, timed=True))
    found = report(traced.parts, run)
    if jitted is target:
        told = [(device, text) for device, _, runner in traced.parts if (text := replay_text(runner))]
        several = len(traced.parts) > 1
        found.replay = "; ".join(dict.fromkeys([f"{device}: {text}" if several else text for device, text in told]))
    return found


def workspace_bytes(function: Jitted, device: object, *args: Any) -> int:
    """What a call of a jitted function takes on a device beside arguments, state and results: intermediates, and what
    the hungriest of its kernels needs for itself. Nothing runs, so tensors may lie on a null device.

    >>> x = pf.empty(1024, 1024, device="null")
    >>> workspace_bytes(pf.jit(lambda x: x @ x @ x), "sim:gfx942", x) >= 4 << 20
    True
    """
    return workspace_of_trace(_traced(function, args), parse_device(device))


def call_bytes(function: Jitted, device: object, *args: Any) -> int:
    """What a call takes beside arguments and state: its workspace and what it returns. Nothing runs.

    >>> x = pf.empty(1024, 1024, device="null")
    >>> call_bytes(pf.jit(lambda x: x + 1), "cpu", x)
    4194304
    """
    trace = _traced(function, args)
    results = {node: node.meta.nbytes for node in trace.nodes[: trace.returned]}
    return workspace_of_trace(trace, parse_device(device)) + sum(results.values())


def _traced(function: Jitted, args: tuple[Any, ...]) -> Trace:
    leaves: list[Any] = []
    for arg in args:
        flatten(arg, leaves, is_traced)
    return trace_function(function.fn, args, {}, leaves, getattr(function.fn, "__name__", "a function"))


def _explain_nodes(tensors: list[Tensor], run: bool) -> Report:
    nodes = [t._node for t in tensors]
    settle_copies(nodes)
    parts: list[Part] = []
    for device in dict.fromkeys([n.meta.device or state.device for n in nodes]):
        graph = PendingGraph([n for n in nodes if (n.meta.device or state.device) == device])
        plan, runner = find_plan(graph, get_device(device))
        parts.append((device, plan, runner))
        inputs, constants = [n.data for n in graph.inputs], [n.data for n in graph.constants]
        if run:
            _time(parts[-1:], partial(runner.run, inputs, constants, timed=True))
    return report(parts, run)


def _time(parts: Sequence[Part], run: Callable[[], object]) -> None:
    """Take the seconds of each launch of a second run, with memory and threads awake."""
    for _ in range(2):
        for _, _, runner in parts:
            runner.seconds[:] = 0
        run()


def report(parts: Sequence[Part], timed: bool) -> Report:
    """Plans in words; if they were timed, with the times that their runners have."""
    found = Report(", ".join(dict.fromkeys([str(device) for device, _, _ in parts])), [], 0, 0)
    for _, plan, runner in parts:
        first, times = len(found.launches), runner.seconds.tolist() if timed and runner.seconds.any() else None
        found.launches += [
            LaunchReport(
                x.name,
                x.ops,
                x.output,
                x.nbytes,
                x.flops,
                x.implementation,
                x.why,
                times[i] if times is not None else None,
            )
            for i, x in enumerate(plan.launches)
        ]
        written: dict[int, int] = {}
        for i, x in enumerate(plan.launches, first):
            stored = {x.buffers[a.buffer][0] for _, a in x.kernel.stores}
            found.edges += [(written[b], i) for b in sorted({b for b, _ in x.buffers} - stored) if b in written]
            written.update(dict.fromkeys(stored, i))
        found.arena_bytes += plan.arena_bytes
        found.intermediate_bytes += plan.intermediate_bytes
        found.notes += plan.notes
    return found


__all__ = ["LaunchReport", "Report", "explain"]
