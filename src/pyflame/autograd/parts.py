"""Sums of gradients that fill different parts of one tensor.

The gradient of a slice is zero outside of it. Where a tensor was cut up (q, k, v of one projection, the time steps of a
sequence) adding such gradients would move whole tensors for each piece; here the pieces are assigned to one buffer.
"""

from __future__ import annotations

from math import prod

import numpy as np

from pyflame.core.shape import Region, apart
from pyflame.ir import F, Node
from pyflame.ir.graph import shown_by
from pyflame.ir.opdef import CONST

Piece = tuple[Node, Region]


def added(before: Node, more: Node) -> Node:
    """before + more, as assignments where both are zero but for parts that do not overlap."""
    if before.op.name != "assign" or more.op.name != "assign" or before.meta is not more.meta:
        return before + more
    ours, theirs = _pieces(before), _pieces(more)
    if ours is None or theirs is None or not all(apart(p, q) for _, p in ours for _, q in theirs):
        return before + more
    for value, region in theirs:
        before = F.assign(before, value, region)
    return before


def filled(g: Node) -> Node:
    """The gradient; where its parts leave nothing at zero, without the zeros below."""
    if g.op.name != "assign":
        return g
    pieces = _pieces(g)
    if pieces is None or sum(prod(count for _, _, count in region) for _, region in pieces) != g.size:
        return g
    if not _disjoint([region for _, region in pieces]):  # some was assigned twice, so some is still zero
        return g
    out = F.uninitialized(g.shape, g.dtype)
    for value, region in pieces:
        out = F.assign(out, value, region)
    return out


def _disjoint(regions: list[Region]) -> bool:
    """Whether no two regions share an element. Few of the boxes around them do, so few pairs need a closer look."""
    bounds = np.array([[sorted((start, start + step * (count - 1))) for start, step, count in r] for r in regions])
    first, last = bounds[..., 0], bounds[..., 1]
    meet = (first[:, None] <= last).all(-1) & (first <= last[:, None]).all(-1)
    return all(apart(regions[i], regions[j]) for i, j in np.argwhere(np.triu(meet, 1)))


def _pieces(node: Node) -> list[Piece] | None:
    """What was assigned to a tensor of zeros, in order; None where there was something else below."""
    found: list[Piece] = []
    while node.op.name == "assign":
        base, value = node.srcs
        found.append((value, node.attrs[0]))
        node = base
    node = shown_by(node)
    return found[::-1] if node.op.kind == CONST and not node.attrs and node.data == 0 else None
