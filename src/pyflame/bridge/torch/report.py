"""`explain`: what of a model runs here, what runs in torch, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from pyflame.bridge.torch.backend import compile_graph
from pyflame.bridge.torch.options import parse_options
from pyflame.bridge.torch.program import Program
from pyflame.bridge.torch.split import evaluated, fallen


@dataclass(frozen=True)
class GraphReport:
    """One compiled graph: `kind` is forward, backward or inference; `fallbacks` are (op, why, how often)."""

    kind: str
    device: str
    parts: tuple[tuple[bool, int], ...]  # whether it is ours, and its number of ops
    fallbacks: tuple[tuple[str, str, int], ...]
    between: int = 0  # ops of ours that look at values, and run between plans

    @property
    def here(self) -> int:
        """Ops that run as parts of our plans, or between them."""
        return sum(count for ours, count in self.parts if ours) + self.between

    @property
    def in_torch(self) -> int:
        """Ops that torch runs. Sizes of dynamic shapes, which are numbers of the host, do not count."""
        return sum(count for _, _, count in self.fallbacks)


@dataclass
class Explanation:
    """What `explain` found. Print it, or read `graphs` and `breaks`."""

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)  # why Dynamo ended a graph

    @property
    def fallbacks(self) -> dict[str, str]:
        """The ops that ran in torch, and why."""
        return {op: why for graph in self.graphs for op, why, _ in graph.fallbacks}

    def __str__(self) -> str:
        lines = []
        for number, graph in enumerate(self.graphs):
            parts = sum(ours for ours, _ in graph.parts)
            between = f", {graph.between} of them between plans" if graph.between else ""
            lines.append(
                f"graph {number} ({graph.kind}, {graph.device}): {graph.here} ops here in {parts} "
                f"{'plan' if parts == 1 else 'plans'}{between}, {graph.in_torch} in torch"
            )
            lines += [f"  torch runs {op} ({count}x): {why}" for op, why, count in graph.fallbacks]
        lines += [f"Dynamo ended a graph: {why}" for why in self.breaks]
        return "\n".join(lines) or "no graph: Dynamo found nothing to compile"


def report_of(kind: str, program: Program) -> GraphReport:
    """A program in words."""
    counts = Counter((str(n.target), why) for n, why in fallen(program.why).items())
    return GraphReport(
        kind,
        str(program.device),
        tuple((part.ours, len(part.nodes)) for part in program.parts),
        tuple((op, why, count) for (op, why), count in counts.items()),
        len(evaluated(program.why)),
    )


def explain(model: Any, *inputs: Any, options: Mapping[str, Any] | None = None, **named: Any) -> Explanation:
    """Run a model or function once, compiled, and say what ran where and why. Prints it, too.

    Where gradients are recorded the backward graphs are compiled and told as well.

    >>> pyflame.bridge.torch.explain(model, x)  # doctest: +SKIP
    graph 0 (inference, cpu): 9 ops here in 1 plan, 0 in torch
    """
    found = Explanation()
    chosen = parse_options(options)

    def heard(kind: str, program: Program) -> None:
        found.graphs.append(report_of(kind, program))

    def listening(graph: Any, given: Any) -> Any:
        return compile_graph(graph, given, chosen, heard)

    torch._dynamo.reset()
    torch._dynamo.utils.counters["graph_break"].clear()
    compiled: Any = torch.compile(model, backend=listening)
    out = compiled(*inputs, **named)
    _compile_backward(out)
    found.breaks = [reason.splitlines()[0] for reason in torch._dynamo.utils.counters["graph_break"]]
    torch._dynamo.reset()
    print(found)
    return found


def _compile_backward(out: Any) -> None:
    """Backward graphs are compiled when they first run. The gradients go nowhere."""
    tensors = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    roots = [t for t in tensors if t.grad_fn is not None]
    if not roots:
        return
    leaves = {id(leaf): leaf for root in roots for leaf in _leaves(root.grad_fn)}
    torch.autograd.grad(roots, list(leaves.values()), [torch.ones_like(t) for t in roots], allow_unused=True)


def _leaves(function: Any) -> list[torch.Tensor]:
    """The leaves that a gradient function leads to."""
    seen, stack, found = set(), [function], []
    while stack:
        at = stack.pop()
        if at is None or at in seen:
            continue
        seen.add(at)
        if hasattr(at, "variable"):
            found.append(at.variable)
        stack += [f for f, _ in at.next_functions]
    return found
