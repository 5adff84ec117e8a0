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
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from pyflame.ir import OPS, Node
from pyflame.ir.opdef import CONST, IOTA, LEAF, MOVEMENT, OpDef

PORTION = 64  # nodes of a portion, at least
MOST = 512  # nodes between two cuts: beyond that they are no loop
TURNS = 4  # that a loop has at least
MANY = 8  # parts that are put together, and that are evaluated together
KINDS = 4  # of such parts, at most
DEPTH = 3  # steps below a node that tell its kind

_CAT = OPS["cat"]
_FREE = (LEAF, CONST, IOTA, MOVEMENT)


def is_free(op: OpDef) -> bool:
    """Whether there is nothing to compute, and so nothing to keep for what comes later."""
    return op.kind in _FREE or op.name == "uninitialized"


def portions(order: Sequence[Node], key: Sequence[int], outputs: Sequence[int], varied: bool) -> list[list[int]]:
    """Positions in `order` of nodes to evaluate together, in turn; none where a graph does not repeat itself.

    `key`: per node a negative number, then the positions of its sources. `outputs`: positions. `varied`: whether other
    graphs of these ops came before, so that each turn may be another.
    """
    numbers, reads = _arrays(key)
    program = np.argsort(np.array([node.serial for node in order]))
    place = np.empty_like(program)
    place[program] = np.arange(len(order))
    last = _last_reads(reads, place, outputs)
    ops: dict[OpDef, int] = {}
    op_of = np.array([ops.setdefault(node.op, len(ops)) for node in order])
    free = np.array([is_free(op) for op in ops])[op_of]
    shown = _seen_through(np.array([op.kind == MOVEMENT for op in ops])[op_of], reads)
    kinds = _kinds(op_of, reads, shown)
    members = _best(_alike(program, kinds, free), _crossing(program, last, free).tolist())
    if len(members) < TURNS:
        return []
    turns = max(1, PORTION * (len(members) - 1) // (members[-1] - members[0]))
    if varied or not _regular(numbers[program], members[turns - 1 :: turns]):
        turns = 1
    whole = len(members) - len(members) % turns
    ends = [members[i + turns - 1] for i in range(0, whole, turns)] + list(members[whole:])
    groups = []
    for begin, end in zip([-1, *ends], ends, strict=False):
        turn = program[begin + 1 : end + 1]
        needed = shown[turn[last[turn] > end]]
        groups.append(list(dict.fromkeys(needed[~free[needed]].tolist())))
    return [group for group in groups if group]


def parts_of_joined(order: Sequence[Node], key: Sequence[int]) -> list[list[int]]:
    """Positions of nodes to evaluate together, in turn, where many parts are put together, as items of a dataset and
    numbers of an episode are: the parts, as many of a kind together as come in any number of them, then the whole.

    None where hardly two parts are alike, as those of a recurrence are not.
    """
    wide = [at for at, node in enumerate(order) if node.op is _CAT and len(node.srcs) >= MANY]
    if not wide:
        return []
    numbers: list[int] = []
    sources: list[list[int]] = []
    for number in key:
        if number < 0:
            numbers.append(number)
            sources.append([])
        else:
            sources[-1].append(number)
    below: list[int] = []  # of each node, a number for all that it is made of
    for number, of in zip(numbers, sources, strict=True):
        below.append(hash((number, *map(below.__getitem__, of))) if of else number)
    groups: list[list[int]] = []
    for at in wide:
        alike: defaultdict[int, list[int]] = defaultdict(list)
        for part in dict.fromkeys([_shown(s, order, sources) for s in sources[at]]):
            if not is_free(order[part].op):
                alike[below[part]].append(part)
        if len(alike) > KINDS:
            continue
        for parts in alike.values():
            while parts:
                count = min(MANY, 1 << len(parts).bit_length() - 1)
                groups.append(parts[:count])
                del parts[:count]
        if any(at in of for of in sources[at:]):
            groups.append([at])
    return groups


def _shown(at: int, order: Sequence[Node], sources: Sequence[Sequence[int]]) -> int:
    """The node whose value one shows: itself, or what a view is one of."""
    while order[at].op.kind == MOVEMENT and sources[at]:
        at = sources[at][0]
    return at


Array = np.ndarray[Any, Any]


class _Reads(NamedTuple):
    """Who reads what, as positions, in the order of the readers, and as which of its sources."""

    reader: Array
    source: Array
    number: Array


def _arrays(key: Sequence[int]) -> tuple[Array, _Reads]:
    """The numbers of all nodes, and what they read."""
    cells = np.fromiter(key, np.int64, len(key))
    is_node = cells < 0
    (begins,) = is_node.nonzero()
    (sources,) = (~is_node).nonzero()
    reader = np.searchsorted(begins, sources) - 1
    return cells[begins], _Reads(reader, cells[sources], sources - begins[reader])


def _regular(numbers: Array, ends: Sequence[int]) -> bool:
    """Whether portions that end there are the same again and again, but for few. `numbers`: of each line's node."""
    parts = [numbers[a + 1 : b + 1].tobytes() for a, b in pairwise(ends)]
    return len(set(parts)) <= 2 + len(parts) // 4


def _last_reads(reads: _Reads, place: Array, outputs: Sequence[int]) -> Array:
    """The line of the program in which each node is read last; outputs behind its end."""
    last = place.copy()
    np.maximum.at(last, reads.source, place[reads.reader])
    last[list(outputs)] = len(place)
    return last


def _seen_through(moving: Array, reads: _Reads) -> Array:
    """The node whose value each one shows. `moving`: whether it moves elements."""
    shown = list(range(len(moving)))
    moved = moving[reads.reader]
    for at, source in zip(reads.reader[moved].tolist(), reads.source[moved].tolist(), strict=True):  # each reads one
        shown[at] = shown[source]
    return np.array(shown)


def _kinds(ops: Array, reads: _Reads, shown: Array) -> Array:
    """A number for each node that is the same for nodes with the same ops below them, but for views. `ops`: numbers."""
    own = _mixed(ops.astype(np.uint64) + np.uint64(1))
    below, weight = shown[reads.source], _mixed(reads.number.astype(np.uint64))
    kinds = own
    for _ in range(DEPTH):
        sums = own.copy()
        np.add.at(sums, reads.reader, _mixed(kinds[below] + weight))
        kinds = sums
    return kinds


def _mixed(numbers: Array) -> Array:
    """Numbers of 64 bits whose sums tell which they were made of (the finaliser of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = numbers ^ (numbers >> np.uint64(31))
    return mixed


def _alike(program: Array, kinds: Array, free: Array) -> list[list[int]]:
    """Lines of the program with nodes that are alike, of each kind that comes often enough."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    (lines,) = (~free[program]).nonzero()
    for line, kind in zip(lines.tolist(), kinds[program[lines]].tolist(), strict=True):
        found[kind].append(line)
    return [members for members in found.values() if len(members) >= TURNS]


def _crossing(program: Array, last: Array, free: Array) -> Array:
    """How many values are needed behind each line of the program that were computed up to it."""
    computed = ~free[program]
    ends = np.bincount(last[program[computed]], minlength=len(program) + 1)[:-1]
    return np.cumsum(computed) - np.cumsum(ends)


def _best(kinds: Sequence[Sequence[int]], crossing: Sequence[int]) -> Sequence[int]:
    """The kind of node to cut at."""
    usual = 1 + sum(crossing) / len(crossing)

    def worth(members: Sequence[int]) -> float:
        span = (members[-1] - members[0]) / len(crossing)
        return span - 0.5 * sum([crossing[m] for m in members]) / len(members) / usual

    good = [m for m in kinds if (m[-1] - m[0]) / (len(m) - 1) <= MOST]
    return max(reversed(good), key=worth, default=())  # of equals the last one in a turn
