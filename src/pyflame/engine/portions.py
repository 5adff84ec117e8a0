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

from pyflame.ir import OPS, Node
from pyflame.ir.opdef import CONST, IOTA, LEAF, MOVEMENT

PORTION = 64  # nodes of a portion, at least
MOST = 512  # nodes between two cuts: beyond that they are no loop
TURNS = 4  # that a loop has at least
MANY = 8  # parts that are put together, and that are evaluated together
KINDS = 4  # of such parts, at most
DEPTH = 3  # steps below a node that tell its kind

_CAT = OPS["cat"]
FREE = (LEAF, CONST, IOTA, MOVEMENT)  # nothing to compute


def portions(order: Sequence[Node], key: Sequence[int], outputs: Sequence[int], varied: bool) -> list[list[int]]:
    """Positions in `order` of nodes to evaluate together, in turn; none where a graph does not repeat itself.

    `key`: per node a negative number, then the positions of its sources. `outputs`: positions. `varied`: whether other
    graphs of these ops came before, so that each turn may be another.
    """
    sources = _sources(key)
    program = sorted(range(len(order)), key=[node.serial for node in order].__getitem__)
    place = [0] * len(order)
    for line, at in enumerate(program):
        place[at] = line
    last = _last_reads(sources, place, outputs)
    free = [node.op.kind in FREE for node in order]
    shown = _seen_through(order, sources)
    kinds = _kinds(order, sources, shown)
    members = _best(_alike(program, kinds, free), _crossing(program, last, free))
    if len(members) < TURNS:
        return []
    turns = max(1, PORTION * (len(members) - 1) // (members[-1] - members[0]))
    if varied or not _regular(program, members[turns - 1 :: turns], [number for number in key if number < 0]):
        turns = 1
    whole = len(members) - len(members) % turns
    ends = [members[i + turns - 1] for i in range(0, whole, turns)] + list(members[whole:])
    groups = []
    for begin, end in zip([-1, *ends], ends, strict=False):
        needed = dict.fromkeys([shown[at] for at in program[begin + 1 : end + 1] if last[at] > end])
        groups.append([at for at in needed if not free[at]])
    return [group for group in groups if group]


def parts_of_joined(order: Sequence[Node], key: Sequence[int]) -> list[list[int]]:
    """Positions of nodes to evaluate together, in turn, where many parts are put together, as items of a dataset and
    numbers of an episode are: the parts, as many of a kind together as come in any number of them, then the whole.

    None where hardly two parts are alike, as those of a recurrence are not.
    """
    wide = [at for at, node in enumerate(order) if node.op is _CAT and len(node.srcs) >= MANY]
    if not wide:
        return []
    sources, numbers = _sources(key), [number for number in key if number < 0]
    shown, read = _seen_through(order, sources), {source for of in sources for source in of}
    below: list[int] = []  # of each node, a number for all that it is made of
    for number, of in zip(numbers, sources, strict=True):
        below.append(hash((number, *[below[s] for s in of])))
    groups: list[list[int]] = []
    for at in wide:
        alike: defaultdict[int, list[int]] = defaultdict(list)
        for part in dict.fromkeys([shown[s] for s in sources[at]]):
            if order[part].op.kind not in FREE:
                alike[below[part]].append(part)
        if len(alike) > KINDS:
            continue
        for parts in alike.values():
            while parts:
                count = min(MANY, 1 << len(parts).bit_length() - 1)
                groups.append(parts[:count])
                del parts[:count]
        if at in read:
            groups.append([at])
    return groups


def _regular(program: Sequence[int], ends: Sequence[int], numbers: Sequence[int]) -> bool:
    """Whether portions that end there are the same again and again, but for few. `numbers`: of each node."""
    parts = [tuple([numbers[at] for at in program[a + 1 : b + 1]]) for a, b in pairwise(ends)]
    return len(set(parts)) <= 2 + len(parts) // 4


def _sources(key: Sequence[int]) -> list[list[int]]:
    """Of each node."""
    found: list[list[int]] = []
    for number in key:
        if number < 0:
            of: list[int] = []
            found.append(of)
        else:
            of.append(number)
    return found


def _last_reads(sources: Sequence[Sequence[int]], place: Sequence[int], outputs: Sequence[int]) -> list[int]:
    """The line of the program in which each node is read last; outputs behind its end."""
    last = list(place)
    for here, of in zip(place, sources, strict=True):
        for source in of:
            if last[source] < here:
                last[source] = here
    for at in outputs:
        last[at] = len(place)
    return last


def _seen_through(order: Sequence[Node], sources: Sequence[Sequence[int]]) -> list[int]:
    """The node whose value each one shows: itself, or what a view is one of."""
    shown: list[int] = []
    for at, (node, of) in enumerate(zip(order, sources, strict=True)):
        shown.append(shown[of[0]] if node.op.kind == MOVEMENT and of else at)
    return shown


def _kinds(order: Sequence[Node], sources: Sequence[Sequence[int]], shown: Sequence[int]) -> list[int]:
    """A number for each node that is the same for nodes with the same ops below them, but for views."""
    ops = [id(node.op) for node in order]
    below = [[shown[s] for s in of] for of in sources]
    kinds = ops
    for _ in range(DEPTH):
        kinds = [hash((op, *[kinds[s] for s in of])) if of else op for op, of in zip(ops, below, strict=True)]
    return kinds


def _alike(program: Sequence[int], kinds: Sequence[int], free: Sequence[bool]) -> list[list[int]]:
    """Lines of the program with nodes that are alike, of each kind that comes often enough."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for line, at in enumerate(program):
        if not free[at]:
            found[kinds[at]].append(line)
    return [members for members in found.values() if len(members) >= TURNS]


def _crossing(program: Sequence[int], last: Sequence[int], free: Sequence[bool]) -> list[int]:
    """How many values are needed behind each line of the program that were computed up to it."""
    ends = [0] * (len(program) + 1)
    alive, out = 0, []
    for line, at in enumerate(program):
        if not free[at]:
            alive += 1
            ends[last[at]] += 1
        alive -= ends[line]
        out.append(alive)
    return out


def _best(kinds: Sequence[Sequence[int]], crossing: Sequence[int]) -> Sequence[int]:
    """The kind of node to cut at."""
    usual = 1 + sum(crossing) / len(crossing)

    def worth(members: Sequence[int]) -> float:
        span = (members[-1] - members[0]) / len(crossing)
        return span - 0.5 * sum(crossing[m] for m in members) / len(members) / usual

    good = [m for m in kinds if (m[-1] - m[0]) / (len(m) - 1) <= MOST]
    return max(reversed(good), key=worth, default=())  # of equals the last one in a turn
