"""Graphs of work, and their capture from streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyflame.runtime.sim.hip.types import hipGraphNodeType, hipStreamCaptureMode
from pyflame.runtime.sim.hip.work import Scheduler, Stream, Work


@dataclass(eq=False)
class Node:
    """Work of a graph, behind other nodes of it."""

    kind: hipGraphNodeType
    device: int
    what: str
    run: Callable[..., None] | None
    behind: tuple[Node, ...] = ()
    handle: int = 0  # of a library whose work it is


@dataclass(eq=False)
class Graph:
    """Nodes, each listed behind those that it comes behind."""

    nodes: list[Node] = field(default_factory=list)

    def add(
        self,
        kind: hipGraphNodeType,
        device: int,
        what: str,
        run: Callable[[], None] | None,
        behind: Iterable[Node],
        handle: int = 0,
    ) -> Node:
        node = Node(kind, device, what, run, tuple(dict.fromkeys(behind)), handle)
        self.nodes.append(node)
        return node

    def copy(self) -> Graph:
        """The same nodes, which nobody changes."""
        return Graph(list(self.nodes))

    def launch(
        self,
        scheduler: Scheduler,
        device: int,
        behind: Iterable[Work | None],
        run: Callable[[Node], Callable[[], None] | None] = lambda node: node.run,
    ) -> Work:
        """Queue all of it behind other work; gives what comes behind all of it. `run`: what a node does."""
        first = list(behind)
        made: dict[Node, Work] = {}
        for node in self.nodes:
            leaders = [made[n] for n in node.behind] or first
            made[node] = scheduler.add(node.device, node.what, run(node), leaders, node.handle)
        return scheduler.add(device, "the end of a graph", None, [*first, *made.values()])


@dataclass(eq=False)
class Capture:
    """A capture under way: its graph, and the nodes that each stream's next one comes behind."""

    number: int
    origin: Stream
    mode: hipStreamCaptureMode
    graph: Graph = field(default_factory=Graph)
    thread: int = field(default_factory=threading.get_ident)
    tails: dict[Stream, list[Node]] = field(default_factory=dict)
    marks: dict[int, list[Node]] = field(default_factory=dict)  # of events recorded in it, by handle
    valid: bool = True

    def __post_init__(self) -> None:
        self.join(self.origin, [])

    def join(self, stream: Stream, behind: Iterable[Node]) -> None:
        """Let a stream take part, or come behind more nodes."""
        stream.capture = self
        known = self.tails.setdefault(stream, [])
        known += [n for n in behind if n not in known]

    def add(
        self, stream: Stream, kind: hipGraphNodeType, what: str, run: Callable[[], None] | None, handle: int = 0
    ) -> None:
        """Capture work of a stream."""
        self.tails[stream] = [self.graph.add(kind, stream.device, what, run, self.tails[stream], handle)]

    def joined(self) -> bool:
        """Whether the origin has waited for all that the other streams were given."""
        reached: set[Node] = set()
        stack = list(self.tails[self.origin])
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += node.behind
        return len(reached) == len(self.graph.nodes)

    def leave(self) -> None:
        """End it for every stream."""
        for stream in self.tails:
            stream.capture = None
