"""explain: what a tensor or a function would launch, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyflame.core.state import state
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import PendingGraph, find_plan, settle_copies
from pyflame.engine.launch import Runner
from pyflame.engine.value import Value
from pyflame.ir.kernel import Plan
from pyflame.tensor import Tensor
from pyflame.transform.jit import Jitted, jit
from pyflame.transform.tree import flatten, is_tensor


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
    seconds = _timed(traced.runner, *traced.feed(leaves)) if run else None
    return report(traced.plan, str(state.device), seconds)


def _explain_nodes(tensors: list[Tensor], run: bool) -> Report:
    nodes = [t._node for t in tensors]
    device = get_device(next((n.meta.device for n in nodes if n.meta.device is not None), state.device))
    settle_copies(nodes)
    graph = PendingGraph(nodes)
    plan, runner = find_plan(graph, device)
    inputs, constants = [n.data for n in graph.inputs], [n.data for n in graph.constants]
    seconds = _timed(runner, inputs, constants) if run and plan.launches else None
    return report(plan, str(device.id), seconds)


def _timed(runner: Runner, inputs: Sequence[Value], constants: Sequence[Any]) -> list[float] | None:
    """Seconds per launch of a second run, with memory and threads awake; None where nothing ran."""
    for _ in range(2):
        runner.seconds[:] = 0
        runner.run(inputs, constants, timed=True)
    return runner.seconds.tolist() if runner.seconds.any() else None


def report(plan: Plan, device: str, seconds: list[float] | None) -> Report:
    """A plan in words."""
    launches = [
        LaunchReport(
            x.name,
            x.ops,
            x.output,
            x.nbytes,
            x.flops,
            x.implementation,
            x.why,
            seconds[i] if seconds is not None else None,
        )
        for i, x in enumerate(plan.launches)
    ]
    written: dict[int, int] = {}
    edges = []
    for i, x in enumerate(plan.launches):
        stored = {x.buffers[a.buffer][0] for _, a in x.kernel.stores}
        edges += [(written[b], i) for b in sorted({b for b, _ in x.buffers} - stored) if b in written]
        written.update(dict.fromkeys(stored, i))
    return Report(device, launches, plan.arena_bytes, plan.intermediate_bytes, edges)


__all__ = ["LaunchReport", "Report", "explain"]
