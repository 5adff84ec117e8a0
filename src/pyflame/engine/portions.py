"""Cutting large graphs where their structure recurs: in go the nodes of a pending graph and its key, out come the nodes
to evaluate one after the other, before the graph's own outputs.

A loop that nobody evaluates, the layers of a deep network and the steps of an episode are one graph, as long as the
loop. Planned as a whole, every length is another plan, and a plan costs some 100 us per node. Cut after each turn of
the loop it is a few small plans that are found again: planned once for any number of turns.

Nodes stand in the order of the program. They are alike if the ops within a few steps below them are. Of all kinds of
nodes that come often, the one is taken to cut at that spans most of the graph, and where the fewest values are needed
on both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyflame.ir import Node
from pyflame.ir.opdef import CONST, IOTA, LEAF, MOVEMENT

PORTION = 64  # nodes of a portion, at least
MOST = 512  # nodes between two cuts: beyond that they are no loop
TURNS = 4  # that a loop has at least
DEPTH = 4  # steps below a node that tell its kind

_FREE = (LEAF, CONST, IOTA, MOVEMENT)  # nothing to compute


def portions(order: Sequence[Node], key: Sequence[int], outputs: Sequence[int]) -> list[list[int]]:
    """Positions in `order` of nodes to evaluate together, in turn; none where a graph does not repeat itself.

    `key`: per node a negative number, then the positions of its sources. `outputs`: positions.
    """
    program = sorted(range(len(order)), key=lambda at: order[at].serial)
    place = {at: n for n, at in enumerate(program)}
    nodes = [order[at] for at in program]
    found = _sources(key)
    sources = [[place[s] for s in found[at]] for at in program]
    last = _last_reads(sources, [place[at] for at in outputs])
    members = _best(_kinds(nodes, sources), _crossing(nodes, last))
    if len(members) < TURNS:
        return []
    turns = max(1, PORTION * (len(members) - 1) // (members[-1] - members[0]))
    whole = len(members) - len(members) % turns
    ends = [members[i + turns - 1] for i in range(0, whole, turns)] + list(members[whole:])
    groups = []
    for begin, end in zip([-1, *ends], ends, strict=False):
        needed = [n for n in range(begin + 1, end + 1) if last[n] > end]
        groups.append([program[n] for n in dict.fromkeys([_computed(n, nodes, sources) for n in needed]) if n >= 0])
    return [group for group in groups if group]


def _sources(key: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in key:
        if number < 0:
            found.append([])
        else:
            found[-1].append(number)
    return found


def _last_reads(sources: Sequence[Sequence[int]], outputs: Sequence[int]) -> list[int]:
    """Where each node is read last; outputs at the end."""
    last = list(range(len(sources)))
    for reader, of in enumerate(sources):
        for source in of:
            last[source] = reader
    for at in outputs:
        last[at] = len(sources)
    return last


def _computed(at: int, nodes: Sequence[Node], sources: Sequence[Sequence[int]]) -> int:
    """The node whose value this one shows; -1 where nothing is computed for it."""
    while nodes[at].op.kind == MOVEMENT and sources[at]:
        (at,) = sources[at]
    return -1 if nodes[at].op.kind in _FREE else at


def _kinds(nodes: Sequence[Node], sources: Sequence[Sequence[int]]) -> list[list[int]]:
    """Positions of nodes that are alike, of each kind that comes often enough."""
    ops = [id(node.op) for node in nodes]
    kinds = ops
    for _ in range(DEPTH):
        kinds = [hash((op, *[kinds[s] for s in of])) for op, of in zip(ops, sources, strict=True)]
    found: defaultdict[int, list[int]] = defaultdict(list)
    for position, (node, kind) in enumerate(zip(nodes, kinds, strict=True)):
        if node.op.kind not in _FREE:
            found[kind].append(position)
    return [members for members in found.values() if len(members) >= TURNS]


def _crossing(nodes: Sequence[Node], last: Sequence[int]) -> list[int]:
    """How many values behind each position were computed up to it."""
    ends = [0] * (len(nodes) + 1)
    alive, out = 0, []
    for position, node in enumerate(nodes):
        if node.op.kind not in _FREE:
            alive += 1
            ends[last[position]] += 1
        alive -= ends[position]
        out.append(alive)
    return out


def _best(kinds: Sequence[Sequence[int]], crossing: Sequence[int]) -> Sequence[int]:
    """The kind of node to cut at."""
    usual = 1 + sum(crossing) / len(crossing)

    def worth(members: Sequence[int]) -> float:
        span = (members[-1] - members[0]) / len(crossing)
        return span - 0.5 * sum(crossing[m] for m in members) / len(members) / usual

    good = [m for m in kinds if (m[-1] - m[0]) / (len(m) - 1) <= MOST]
    return max(good, key=worth, default=())
