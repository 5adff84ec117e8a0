"""The order of launches: what is read has been stored, memory is freed early, and donated buffers are read first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

from pyflame.ir import Node
from pyflame.ir.opdef import GATHER
from pyflame.schedule.group import Group

NOTHING = 4096  # bytes


def sources(group: Group) -> set[Node]:
    """What a group reads from memory."""
    return {site.node for site in group.reads} | {o.source for o in group.operands if o.source is not None}


class Order:
    """Orders the groups of a plan.

    Of those that may run, one that lets go of at least as much memory as it takes comes first (a weight's gradient, as
    soon as its activations are there); otherwise the one that came first in the graph. `donations`: inputs and the
    stored nodes that would like their buffers; `kept`: nodes whose memory is the caller's.

    With `stops`, whoever runs the plan stops at a bad index, and donations wait until none can be found any more. A GPU
    goes on, so there an update comes as soon as it may: what it reads is still in the caches. For its sake what takes
    next to no memory, as the numbers of a step do, comes early.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        stored: Mapping[Node, Group],
        donations: Mapping[Node, Node],
        kept: Collection[Node],
        stops: bool = True,
    ) -> None:
        self.groups = groups
        self.stops = stops
        self.least = 0 if stops else NOTHING
        self.number = {g: -i for i, g in enumerate(groups)}  # groups were made from the outputs to the inputs
        self.reads = {g: sources(g) for g in groups}
        self.needs = {g: {stored[n] for n in self.reads[g] if n in stored} - {g} for g in groups}
        self.soft = self.waits_for(stored, donations)
        self.users: dict[Group, list[Group]] = {g: [] for g in groups}
        for group in groups:
            self.needs[group] |= self.soft.get(group, set())
            for other in self.needs[group]:
                self.users[other].append(group)
        self.readers: dict[Node, set[Group]] = {n: set() for n in stored if n not in kept}
        for group in groups:
            for node in self.reads[group]:
                if node in self.readers:
                    self.readers[node].add(group)
        # bytes that a group takes, less those that it alone still needs
        self.growth = {g: sum(s.node.meta.nbytes for s in g.stores if s.node in self.readers) for g in groups}
        for node, readers in self.readers.items():
            self.last_reader(node, readers)
        self.ready: list[tuple[int, Group]] = []
        self.freeing: list[tuple[int, int, Group]] = []

    def waits_for(self, stored: Mapping[Node, Group], donations: Mapping[Node, Node]) -> dict[Group, set[Group]]:
        """Who should wait for whom so that a donated buffer can be taken: for all its other readers, and for all that
        may find a bad index and stop there, which must leave every input as it was."""
        if not donations:
            return {}
        readers: dict[Node, set[Group]] = {leaf: set() for leaf in donations}
        checking = {g for g in self.groups if any(n.op.kind == GATHER or n.op.checked for n in g.nodes) and self.stops}
        for group in self.groups:
            for node in self.reads[group]:
                if node in readers:
                    readers[node].add(group)
        found: dict[Group, set[Group]] = {}
        for leaf, receiver in donations.items():
            writer = stored[receiver]
            found.setdefault(writer, set()).update((readers[leaf] | checking) - {writer} - self.needs[writer])
        return found

    def last_reader(self, node: Node, readers: set[Group]) -> None:
        """A buffer that one group alone still needs is free when that group is done."""
        if len(readers) == 1:
            (last,) = readers
            self.growth[last] -= node.meta.nbytes

    def run(self) -> list[Group]:
        done: dict[Group, None] = {}
        for group in self.groups:
            if not self.needs[group]:
                self.offer(group)
        while len(done) < len(self.groups):
            group = self.next(done)
            done[group] = None
            for user in self.users[group]:
                if group in self.needs[user]:
                    self.needs[user].discard(group)
                    if not self.needs[user]:
                        self.offer(user)
            for node in self.reads[group]:
                readers = self.readers.get(node)
                if readers is not None and group in readers:
                    readers.discard(group)
                    self.last_reader(node, readers)
                    if len(readers) == 1 and not self.needs[next(iter(readers))]:
                        self.offer(next(iter(readers)))
        return list(done)

    def offer(self, group: Group) -> None:
        """A group may run now."""
        heapq.heappush(self.ready, (self.number[group], group))
        if self.growth[group] <= self.least:
            heapq.heappush(self.freeing, (self.growth[group], self.number[group], group))

    def next(self, done: Mapping[Group, None]) -> Group:
        while self.freeing:
            group = heapq.heappop(self.freeing)[-1]
            if group not in done:
                return group
        while self.ready:
            group = heapq.heappop(self.ready)[-1]
            if group not in done:
                return group
        # Two of them wait for each other: one goes ahead, with a buffer of its own.
        group = next(g for g in self.groups if g not in done and self.needs[g] <= self.soft.get(g, set()))
        self.needs[group].clear()
        return group
