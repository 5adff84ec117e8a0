"""Graphs that cross devices or processes, as jit plans and runs them: stages, each a plan of one device, and copies and
collectives between them.

What lies on the right device already is not copied, and what is made of numbers alone is made where it is needed. All
other copies happen at each run, as in eager execution: those of inputs first, others when all devices have their work.
A collective starts when its value is there, in the order of the calls, and is waited for where it is first read: the
stages between compute meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.device import DeviceId
from pyflame.engine.collective import Flight, agreement
from pyflame.engine.copies import moved
from pyflame.engine.devices import get_device
from pyflame.engine.evaluate import evaluate
from pyflame.engine.launch import Runner, replayed, runner_for
from pyflame.engine.pending import PendingGraph
from pyflame.engine.planning import make_plan
from pyflame.engine.value import Value
from pyflame.ir import OPS, Meta, Node, signature
from pyflame.ir.kernel import OutputView, Plan
from pyflame.ir.opdef import COLLECTIVE, COPY, LEAF
from pyflame.runtime.base import Device

# Bytes that the stages of a device may keep to be replayed: each captured graph has memory of its own, where launches
# that are given one by one use the same in turn.
MAX_KEPT = 256 << 20


def crosses(graph: PendingGraph) -> bool:
    """Whether one plan cannot do it: it has copies or collectives, or parts on several devices."""
    return (
        bool(graph.copies or graph.collectives)
        or len({n.meta.device for n in graph.order if n.meta.device is not None}) > 1
    )


def without_needless_copies(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Every node under these -> the same value without needless copies."""
    done: dict[Node, Node] = {}
    free: set[Node] = set()  # made of numbers alone, so that they can be made anywhere
    made: dict[tuple[Node, DeviceId], Node] = {}
    for node in PendingGraph(nodes, keep_held=False).order:
        srcs = tuple([done[s] for s in node.srcs])
        there = node.meta.device
        if node.op.kind == COPY and there is not None:
            if srcs[0].meta.device == there:
                done[node] = srcs[0]
                continue
            if srcs[0] in free:
                done[node] = _made_on(there, srcs[0], made)
                free.add(done[node])
                continue
        done[node] = node if srcs == node.srcs else _like(node, srcs, node.meta)
        if node.op.kind not in (LEAF, COLLECTIVE) and free.issuperset(srcs):
            free.add(done[node])
    return done


def _made_on(device: DeviceId, wanted: Node, made: dict[tuple[Node, DeviceId], Node]) -> Node:
    """A node that reads no memory, on another device. `made`: what is there already."""
    for node in PendingGraph([wanted], keep_held=False).order:
        m = node.meta
        if m.device not in (None, device) and (node, device) not in made:
            srcs = tuple([made.get((s, device), s) for s in node.srcs])
            made[node, device] = _like(node, srcs, Meta(m.shape, m.dtype, device, m.committed))
    return made[wanted, device]


def _like(node: Node, srcs: tuple[Node, ...], meta: Meta) -> Node:
    """The same op on other sources."""
    out = Node(node.op, srcs, node.attrs, meta, signature(node.op.name, node.attrs, meta))
    out.line = node.line
    return out


def _leaf(meta: Meta, value: Value) -> Node:
    return Node(OPS["leaf"], (), (), meta, signature("leaf", meta, value.strides), value)


class Stage(NamedTuple):
    """The plan of one device. Inputs and outputs are known by the nodes of the whole graph."""

    device: Device
    graph: PendingGraph
    plan: Plan
    inputs: list[Node]
    constants: list[int]  # positions among those of the whole graph
    outputs: list[Node]
    copied: list[Node]  # copies to other devices behind the last stage of a round: of its outputs, and copies of those
    started: list[Node]  # collectives that start behind these


class CrossDevicePlan(NamedTuple):
    """Stages in order. `plan` describes them as a whole: it has launches and outputs but no buffers."""

    graph: PendingGraph
    stages: list[Stage]
    copied: list[Node]  # copies of inputs
    started: list[Node]  # collectives of inputs that start before all stages
    plan: Plan
    moving: Collection[Node]  # inputs whose new values lie elsewhere: one stage reads them, and another makes these


def plan_stages(graph: PendingGraph, successor: Mapping[Node, Node]) -> CrossDevicePlan:
    """Plan a graph that crosses devices.

    `successor`: the new values of inputs, which take over their memory where nobody else reads that.
    """
    return _StagePlanner(graph).run(successor)


class _StagePlanner:
    def __init__(self, graph: PendingGraph) -> None:
        self._graph = graph
        self._strides: dict[Node, tuple[int, ...] | None] = {n: n.data.strides for n in graph.inputs}
        self._strides |= dict.fromkeys((*graph.copies, *graph.collectives))
        self._root: dict[Node, Node] = {}  # values of stages that are views of what the stage was given -> that

    def run(self, successor: Mapping[Node, Node]) -> CrossDevicePlan:
        graph = self._graph
        first, before = self._copies(graph.inputs), list[Node]()
        rounds: list[tuple[list[list[Node]], list[Node]]] = []  # stages, and collectives that start behind them
        for members, collective in segments(graph):
            rounds += [(together, []) for together in _rounds(graph, members)]
            if collective is not None:
                (rounds[-1][1] if rounds else before).append(collective)
        stage_of = {n: i for i, members in enumerate(chain.from_iterable([r for r, _ in rounds])) for n in members}
        asked = {*graph.outputs, *[n.srcs[0] for n in (*graph.copies, *graph.collectives)]}
        readers: dict[Node, set[int]] = {}
        for node, stage in stage_of.items():
            for s in node.srcs:
                readers.setdefault(s, set()).add(stage)
                if stage_of.get(s, stage) != stage:
                    asked.add(s)
        mine: dict[int, dict[Node, Node]] = {}
        for leaf, new in successor.items():
            if leaf not in asked:
                mine.setdefault(stage_of.get(new, -1), {})[leaf] = new
        stay: set[Node] = set()
        stages: list[Stage] = []
        for together, started in rounds:
            made = []
            for number, members in enumerate(together, len(stages)):
                late = self._read_late(number, readers)
                takes = {leaf: new for leaf, new in mine.get(number, {}).items() if leaf not in late}
                stay |= takes.keys()
                made.append(self._stage(members, asked, takes))
            # Values travel when every device of a round has its work: a copy has both of its devices wait.
            copied = self._copies([n for stage in made for n in stage.outputs])
            made[-1] = made[-1]._replace(copied=copied, started=started)
            stages += made
        return CrossDevicePlan(graph, stages, first, before, self._whole(stages), successor.keys() - stay)

    def _read_late(self, number: int, readers: Mapping[Node, set[int]]) -> set[Node]:
        """Inputs that a stage may not overwrite: it does not read them, later stages do, or somebody still has a view
        that an earlier stage has made of one."""
        late = {n for n in self._graph.inputs if max(readers.get(n, ()), default=-1) != number}
        outputs = set(self._graph.outputs)
        late |= {
            root for n, root in self._root.items() if n in outputs or max(readers.get(n, ()), default=-1) >= number
        }
        return late

    def _whole(self, stages: Sequence[Stage]) -> Plan:
        at = {n: i for i, n in enumerate(self._graph.inputs)}
        return Plan(
            (),
            tuple([launch for s in stages for launch in s.plan.launches]),
            (),
            tuple([OutputView(-1, 0, self._strides[n]) for n in self._graph.outputs]),
            donations={at[s.inputs[p]]: -1 for s in stages for p in s.plan.donations},
            overwritten_inputs=tuple([at[s.inputs[p]] for s in stages for p in s.plan.overwritten_inputs]),
        )

    def _copies(self, sources: Collection[Node]) -> list[Node]:
        """Copies of these values, and copies of copies, in order."""
        known, found = set(sources), []
        for node in self._graph.copies:
            if node.srcs[0] in known:
                known.add(node)
                found.append(node)
        return found

    def _stage(self, members: Sequence[Node], asked: Collection[Node], successor: Mapping[Node, Node]) -> Stage:
        inside: dict[Node, Node] = {}
        for node in members:
            for s in node.srcs:
                if s not in inside:
                    free = s.op.kind == LEAF or s.meta.device is None
                    inside[s] = s if free else _leaf(s.meta, Value(None, 0, self._strides[s]))
            srcs = tuple([inside[s] for s in node.srcs])
            inside[node] = node if srcs == node.srcs else _like(node, srcs, node.meta)
        outputs = [n for n in members if n in asked]
        graph = PendingGraph([inside[n] for n in outputs], keep_held=False)
        input_at = {n: i for i, n in enumerate(graph.inputs)}
        graph.owned = [leaf for leaf in successor if leaf in input_at]
        position = {n: i for i, n in enumerate(graph.outputs)}
        donations = {input_at[leaf]: position[inside[new]] for leaf, new in successor.items() if leaf in input_at}
        where = members[0].meta.device
        assert where is not None, "only numbers are nowhere"
        device = get_device(where)
        plan = make_plan(graph, device, donations)
        self._strides |= {n: view.strides for n, view in zip(outputs, plan.outputs, strict=True)}
        outside = {leaf: n for n, leaf in inside.items()}
        for node, view in zip(outputs, plan.outputs, strict=True):
            if (buffer := plan.buffers[view.buffer]).role == "input":
                given = outside[graph.inputs[buffer.position]]
                self._root[node] = self._root.get(given, given)
        all_constants = {n: i for i, n in enumerate(self._graph.constants)}
        return Stage(
            device,
            graph,
            plan,
            [outside[n] for n in graph.inputs],
            [all_constants[n] for n in graph.constants],
            outputs,
            [],
            [],
        )


class MultiDeviceRunner:
    """Runs a plan that crosses devices. `arguments`: inputs that change place, for stages that are replayed."""

    def __init__(self, plan: CrossDevicePlan, arguments: Collection[int]) -> None:
        self.seconds = np.zeros(0)  # each stage's runner has those of its launches
        self.stages = plan.stages
        self._plan = plan
        at = {n: i for i, n in enumerate(plan.graph.inputs)}
        # of each stage: its inputs that it may take over, by their positions there and among those of the whole graph
        self._given = [[(p, at[stage.inputs[p]]) for p in _overwritten(stage.plan)] for stage in plan.stages]
        self._done = _last_uses(plan)
        kept = Counter[Device]()
        for stage in plan.stages:
            kept[stage.device] += stage.plan.arena_bytes + sum(n.meta.nbytes for n in stage.outputs)
        self.runners: list[Runner] = []
        for stage in plan.stages:
            stay = {n for n in stage.inputs if n in at and at[n] not in arguments and n not in plan.moving}
            moving = [p for p, n in enumerate(stage.inputs) if n not in stay]
            runner = runner_for(stage.graph, stage.plan, stage.device)
            self.runners.append(runner if kept[stage.device] > MAX_KEPT else replayed(runner, moving))

    def run(
        self,
        inputs: Sequence[Value],
        constants: Sequence[Any],
        timed: bool = False,
        lines: Sequence[str] = (),
        donated: Sequence[int] = (),
    ) -> list[Value]:
        plan = self._plan
        known = Known(plan.graph, inputs)
        known.move(plan.copied, plan.started)
        taken = frozenset(donated)
        for stage, runner, given, done in zip(self.stages, self.runners, self._given, self._done, strict=True):
            values = [known[n] for n in stage.inputs]
            numbers = [constants[i] for i in stage.constants]
            mine = [p for p, i in given if i in taken]
            out = runner.run(values, numbers, timed, stage.graph.lines, mine)
            known.update(zip(stage.outputs, out, strict=True))
            known.move(stage.copied, stage.started)
            del values, out
            for node in done:
                del known[node]
        return [known[n] for n in plan.graph.outputs]


class Known(dict[Node, Value]):
    """The values of a run so far; one that a collective makes is waited for when it is read."""

    def __init__(self, graph: PendingGraph, inputs: Sequence[Value]) -> None:
        super().__init__(zip(graph.inputs, inputs, strict=True))
        self._flights: dict[Node, Flight] = {}
        self._agreed = agreement(graph.collectives)

    def move(self, copied: Sequence[Node], started: Sequence[Node]) -> None:
        """Copy values to other devices, and start collectives."""
        for node in copied:
            self[node] = _copied(node, self[node.srcs[0]])
        for node in started:
            self._agreed()
            self._flights[node] = node.attrs[0].start(node.srcs[0].meta, self[node.srcs[0]])

    def __missing__(self, node: Node) -> Value:
        """What a collective makes, or a copy of that."""
        flight = self._flights.pop(node, None)
        value = self[node] = flight() if flight is not None else _copied(node, self[node.srcs[0]])
        return value


def _overwritten(plan: Plan) -> set[int]:
    return {*plan.donations, *plan.overwritten_inputs}


def _last_uses(plan: CrossDevicePlan) -> list[list[Node]]:
    """The values that nobody reads behind a stage and its copies: their memory serves later ones."""
    last: dict[Node, int] = {}
    for number, stage in enumerate(plan.stages):
        moved = [*stage.copied, *stage.started]
        used = [*stage.inputs, *stage.outputs, *stage.copied, *[n.srcs[0] for n in moved]]
        last |= dict.fromkeys(used, number)
    found: list[list[Node]] = [[] for _ in plan.stages]
    for node in last.keys() - set(plan.graph.outputs):
        found[last[node]].append(node)
    return found


def _copied(node: Node, value: Value) -> Value:
    """What a copy between devices gives for this value."""
    source, there = node.srcs[0].meta, node.meta.device
    if value.strides is None and source.device is not None and there is not None:
        return moved(value, node.meta.nbytes, get_device(source.device), get_device(there))
    copy = Node(node.op, (_leaf(source, value),), (), node.meta, node.sig)  # a view is made dense before it travels
    evaluate([copy])
    found: Value = copy.data
    return found


def segments(graph: PendingGraph) -> Iterator[tuple[list[Node], Node | None]]:
    """What each collective waits for, and no earlier one does; at last all the rest. In the graph's order each."""
    seen: set[Node] = set()
    for collective in graph.collectives:
        found, stack = set[Node](), list(collective.srcs)
        while stack:
            node = stack.pop()
            if node not in seen and node.op.kind != COLLECTIVE:
                seen.add(node)
                found.add(node)
                stack += node.srcs
        yield [n for n in graph.order if n in found], collective
    yield [n for n in graph.order if n not in seen and n.op.kind != COLLECTIVE], None


def _rounds(graph: PendingGraph, members: Sequence[Node]) -> list[list[list[Node]]]:
    """The nodes of each stage, by rounds: what devices do at once before values travel.

    A node's round is the number of copies that it waits for, one behind the other; copies of inputs are there already.
    Nobody waits for a stage whose values stay on its device, so it is done together with that device's next one.
    """
    level: dict[Node, int] = {}
    stages: dict[int, dict[DeviceId, list[Node]]] = {}
    for node in members:
        before = max([level.get(s, -1) for s in node.srcs], default=-1)
        if node.op.kind == LEAF or node.meta.device is None:
            level[node] = -1
        elif node.op.kind == COPY:
            level[node] = before if before < 0 else before + 1
        else:
            level[node] = max(before, 0)
            stages.setdefault(level[node], {}).setdefault(node.meta.device, []).append(node)
    travel = {n.srcs[0] for n in graph.copies}
    last = {device: number for number in sorted(stages) for device in stages[number]}
    waiting: dict[DeviceId, list[Node]] = {}
    rounds: list[list[list[Node]]] = []
    for number in sorted(stages):
        rounds.append([])
        for device, nodes in stages[number].items():
            members = [*waiting.pop(device, []), *nodes]
            if number == last[device] or not travel.isdisjoint(members):
                rounds[-1].append(members)
            else:
                waiting[device] = members
    return [stages for stages in rounds if stages]
