"""Evaluation: from pending Nodes to Values, through the cache of plans.

The key of a plan is the structure of the graph: per node its signature and the positions of its sources. Numbers are not
part of it, so a changing learning rate neither plans nor compiles anything. Nodes that something outside of the graph
still holds (a Tensor, the tape, another pending graph) are computed along, so nothing is computed twice.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyflame.core import knobs
from pyflame.core.device import CPU
from pyflame.core.state import state
from pyflame.engine import reference
from pyflame.engine.build import Executable
from pyflame.engine.devices import get_device
from pyflame.engine.report import debug_print
from pyflame.engine.table import implementations
from pyflame.engine.value import Value
from pyflame.ir import OPS, Node, signature
from pyflame.ir.kernel import Plan
from pyflame.ir.opdef import CONST, COPY, IOTA, LEAF, MOVEMENT
from pyflame.passes.legalise import legalise
from pyflame.passes.simplify import simplify
from pyflame.schedule.plan import make_plan

# Pairs of plan and its executable (None on the null device), least recently used first.
_plans: OrderedDict[tuple[Any, ...], tuple[Plan, Executable | None]] = OrderedDict()
_lock = threading.RLock()


@dataclass
class PlanStats:
    """How often evaluation found its plan, and how long planning took."""

    hits: int = 0
    misses: int = 0
    seconds: float = 0.0


plan_stats = PlanStats()


class PendingGraph:
    """The unevaluated nodes under some outputs: their structure as a key, their leaves and constants."""

    __slots__ = ("constants", "inputs", "key", "order", "outputs", "owned")

    def __init__(self, outputs: Sequence[Node], keep_held: bool = True) -> None:
        order: list[Node] = []
        index: dict[Node, int] = {}
        key: list[int] = []
        self.inputs: list[Node] = []
        self.constants: list[Node] = []
        uses: list[int] = []
        aliasing = False
        for root in outputs:
            if root in index:
                continue
            stack = [root]
            while stack:
                node = stack[-1]
                if node in index:
                    stack.pop()
                    continue
                missing = [s for s in node.srcs if s not in index]
                if missing:
                    stack.extend(missing)
                    continue
                stack.pop()
                index[node] = len(order)
                order.append(node)
                uses.append(0)
                key.append(-node.sig - 1)
                for s in node.srcs:
                    at = index[s]
                    uses[at] += 1
                    key.append(at)
                kind = node.op.kind
                if kind == LEAF:
                    self.inputs.append(node)
                elif kind == CONST:
                    self.constants.append(node)
                elif node.op.alias is not None:
                    aliasing = True
        self.order = order
        wanted = dict.fromkeys(outputs)
        if keep_held:
            for at, node in enumerate(order):
                # References of this walk: order, index, the loop variable and getrefcount's argument.
                if sys.getrefcount(node) > uses[at] + 4 and node.op.kind not in _NEVER_KEPT and node not in wanted:
                    wanted[node] = None
        self.outputs = list(wanted)
        self.owned = [n for n in self.inputs if aliasing and self._owns(n, uses[index[n]])]
        key.append(-1)
        key += [index[n] for n in self.outputs]
        self.key = (*key, *(("own", index[n]) for n in self.owned))

    @staticmethod
    def _owns(leaf: Node, uses: int) -> bool:
        """Whether nobody else can see a leaf's buffer: order, index, inputs, the variable here and the argument refer to it."""
        return uses == 1 and sys.getrefcount(leaf) <= uses + 6 and sys.getrefcount(leaf.data.storage) <= 2


_NEVER_KEPT = (LEAF, CONST, IOTA, MOVEMENT, COPY)


def evaluate(nodes: Sequence[Node]) -> None:
    """Compute these nodes. Afterwards each is a leaf with its Value in `data`."""
    state.pending = 0
    if all(n.op.kind == LEAF for n in nodes):
        return
    with _lock:
        _evaluate([n for n in nodes if n.op.kind != LEAF])


def _evaluate(nodes: list[Node]) -> None:
    graph = PendingGraph(nodes)
    for node in graph.order:
        if node.op.kind == COPY:
            _copy(node)
            return _evaluate([n for n in nodes if n.op.kind != LEAF]) if any(n.op.kind != LEAF for n in nodes) else None
    device = get_device(next((n.meta.device for n in graph.outputs if n.meta.device is not None), state.device))
    if device.id == CPU and device.compiler is None:
        values = reference.run(graph.order, graph.outputs, device)
    else:
        plan, executable = find_plan(graph, device)
        if executable is None:
            values = [Value(None, 0, view.strides) for view in plan.outputs]
        else:
            debug = knobs.DEBUG.text() != "0"
            values = executable.run([n.data for n in graph.inputs], [n.data for n in graph.constants], timed=debug)
            if debug:
                debug_print(plan, executable)
    outputs = graph.outputs
    del graph
    for node, value in zip(outputs, values, strict=True):
        become_leaf(node, value)


def become_leaf(node: Node, value: Value) -> None:
    """Turn an evaluated node into a leaf: it drops its sources, so the graph behind it can go."""
    meta = node.meta
    node.op = OPS["leaf"]
    node.srcs = ()
    node.attrs = ()
    node.sig = signature("leaf", meta, value.strides)
    node.data = value


def find_plan(graph: PendingGraph, device: Any) -> tuple[Plan, Executable | None]:
    """The plan of a graph and its executable, made if this structure is new."""
    key = (device.id, *graph.key)
    found = _plans.get(key)
    if found is not None:
        plan_stats.hits += 1
        _plans.move_to_end(key)
        return found
    plan_stats.misses += 1
    started = time.perf_counter()
    plan = plan_graph(graph, device.target)
    plan_stats.seconds += time.perf_counter() - started
    executable = Executable(plan, device) if device.id == CPU else None
    _plans[key] = (plan, executable)
    while len(_plans) > knobs.PLAN_CACHE.integer():
        _plans.popitem(last=False)
    return plan, executable


def plan_graph(graph: PendingGraph, target: Any) -> Plan:
    """Passes and schedule."""
    table = implementations(target)
    outputs = legalise(graph.outputs, table, set(graph.owned))
    outputs = simplify(outputs)
    inputs = {n: i for i, n in enumerate(graph.inputs)}
    constants = {n: i for i, n in enumerate(graph.constants)}
    return make_plan(outputs, inputs, constants, target, table, knobs.MAX_FUSED.integer())


def clear_plans() -> None:
    """Forget all plans."""
    with _lock:
        _plans.clear()


def _copy(node: Node) -> None:
    """Realise a copy between devices."""
    source = node.srcs[0]
    if source.op.kind != LEAF:
        _evaluate([source])
    kinds = {source.meta.device.kind if source.meta.device else "cpu", node.meta.device.kind if node.meta.device else "cpu"}
    value: Value = source.data
    become_leaf(node, Value(None, 0, value.strides) if "null" in kinds else value)
