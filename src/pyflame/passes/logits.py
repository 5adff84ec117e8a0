"""Logits that only a cross-entropy reads, chunk by chunk: of them and of their gradient one chunk is in memory at most.

    logits = x @ w.T + b                                   (N, V), and any reshapes and casts of it
    loss   = cross_entropy_rows(logits, target)            (N,)
    slopes = cross_entropy_slopes(g, logits, target)       (N, V)
    slopes @ w, slopes.T @ x, slopes.sum(0)                the gradients of x, w and b

For some rows all of this is computed at once. What belongs to rows is put one behind the other, sums over rows are
added up in float32 or wider. Nothing is computed twice, so g must be known without the loss, as it is unless the loss
goes through something that is not linear. It is found after autodiff: only the whole graph tells who reads the logits.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import prod

from pyflame.core import knobs
from pyflame.core.dtype import float16
from pyflame.core.shape import Region
from pyflame.core.state import mode
from pyflame.ir import OPS, F, Node, apply, cast
from pyflame.ir.graph import Graph
from pyflame.passes.simplify import simplify

FUSED = ("linear_cross_entropy_rows", "linear_cross_entropy_slopes")
LOSS, SLOPES = "cross_entropy_rows", "cross_entropy_slopes"
MOST = 64  # chunks: a plan is as long as they are many
AS_IT_IS = -1  # of LOSS and SLOPES, as rows per chunk
TURNED = ((1, 0),)


def chunk_logits(graph: Graph, data: Container[Node] = ()) -> tuple[Graph, list[str]]:
    """The graph with logits in chunks, and what was done in words. `data`: as in `simplify`."""
    names = {op.name for op in graph.ops}
    notes: list[str] = []
    if not names.intersection((LOSS, SLOPES, *FUSED)):
        return graph, notes
    if names.intersection(FUSED):
        graph = simplify(graph.rewritten(_composed), data)
    while (site := _find(graph)) is not None:
        made = _Chunks(site).run()
        graph = graph.rewritten(lambda n, made=made: made.get(n, n))  # type: ignore[misc]
        chunks = -(-site.rows // site.step)
        notes.append(f"{site.rows}x{site.size} logits of a cross-entropy are computed in {chunks} chunks of rows")
    return graph, notes


def _composed(node: Node) -> Node:
    """A fused loss, or a gradient of one, as what it is made of."""
    if node.op.name not in FUSED or node.op.decompose is None:
        return node
    with mode(line=node.line):
        return node.op.decompose(*node.srcs, *node.attrs)


def _find(graph: Graph) -> _Site | None:
    """Logits that should be in chunks and can be."""
    kept, seen = set(graph.outputs), set()
    for node in graph.order:
        if node.op.name not in (LOSS, SLOPES) or node.attrs[-1] == AS_IT_IS:
            continue
        logits = _layer_below(node.srcs[node.op.name == SLOPES])
        if logits is None or logits in seen:
            continue
        seen.add(logits)
        step = _rows_at_once(logits, node.attrs[-1])
        if step and (site := _Site(logits, step)).follow(graph.order, kept):
            return site
    return None


def _layer_below(node: Node) -> Node | None:
    """The linear layer whose result this is, cast, seen under another shape or with a bias."""
    while _keeps_rows(node):
        node = node.srcs[0]
    return node if node.op.name in ("linear", "matmul") and node.srcs[1].ndim == 2 and node.ndim >= 2 else None


def _keeps_rows(node: Node) -> bool:
    """Whether each row of a value is made of the same row of its first source."""
    size = node.shape[-1:]
    if node.op.name == "add":  # of a bias
        return node.srcs[0].shape == node.shape and node.srcs[1].shape[-1:] == size == (node.srcs[1].size,)
    return node.op.name == "cast" or (node.op.name == "reshape" and node.srcs[0].shape[-1:] == size != ())


def _rows_at_once(logits: Node, asked: int) -> int:
    """How many rows a chunk has: as many as are asked for, or a power of two whose logits are not too large. 0: all."""
    count, most = prod(logits.shape[:-1]), knobs.MAX_LOGITS.integer()
    if not asked and (most <= 0 or logits.meta.nbytes <= most):
        return 0
    fitting = int(most // (logits.shape[-1] * logits.dtype.itemsize))
    step = asked or max(1 << max(fitting.bit_length() - 1, 0), -(-count // MOST))
    return int(step) if step < count else 0


class _Site:
    """Logits, what is made of each of them (`inner`, sources first), and what is made of whole rows (`ends`)."""

    def __init__(self, logits: Node, step: int) -> None:
        self.step = step
        self.rows = int(prod(logits.shape[:-1]))
        self.size = logits.shape[-1]
        self.inner: dict[Node, None] = {logits: None}
        self.ends: list[Node] = []

    def follow(self, order: Sequence[Node], kept: Container[Node]) -> bool:
        """Find all that is made of the logits; whether it can be made of chunks of them."""
        behind = set(self.inner)  # all that needs them
        for node in order:
            if node in behind or behind.isdisjoint(node.srcs):
                continue
            behind.add(node)
            places = [at for at, s in enumerate(node.srcs) if s in self.inner]
            if not places:
                continue
            if len(places) < len([s for s in node.srcs if s in behind]):  # it needs the loss too
                return False
            if self._is_inner(node, places):
                self.inner[node] = None
            elif self._is_end(node, places):
                self.ends.append(node)
            else:
                return False
        return not any(n in kept for n in self.inner)

    def _is_inner(self, node: Node, places: list[int]) -> bool:
        source = node.srcs[places[0]]
        if node.op.name == SLOPES:
            return places == [1] and _by_rows(node, source)
        if any(_is_turned(node.srcs[at]) for at in places):
            return False
        if places == [0, 1]:  # gradients of two losses
            return node.op.name == "add" and source.shape == node.srcs[1].shape
        if places != [0]:
            return False
        return _keeps_rows(node) or (node.op.name == "permute" and node.attrs == TURNED)

    def _is_end(self, node: Node, places: list[int]) -> bool:
        if len(places) > 1:
            return False
        (place,) = places
        name, source = node.op.name, node.srcs[place]
        if name == LOSS:
            return place == 0 and _by_rows(node, source)
        if name == "matmul":
            other = node.srcs[1 - place]
            return other.ndim == 2 and (
                (place == 0 and source.ndim >= 2) or (source.ndim == 2 and not _is_turned(source))
            )
        if _is_turned(source):
            return False
        return name == "matmul_of_rows" or (name == "reduce_sum" and node.attrs == (tuple(range(source.ndim - 1)),))


def _by_rows(node: Node, source: Node) -> bool:
    """Whether a loss takes the logits of a class index as a row."""
    return source.ndim == 2 and node.attrs[0] == 1 and not _is_turned(source)


def _is_turned(node: Node) -> bool:
    return node.op.name == "permute"


class _Chunks:
    """What a site's ends are, made of chunks of its logits."""

    def __init__(self, site: _Site) -> None:
        self.site = site
        self.pieces: dict[Node, list[Node]] = {end: [] for end in site.ends}  # one per chunk, or their sum so far
        self.rows = (0, 1, 0)  # of a chunk: the first, the step, and how many
        self.values: dict[Node, Node] = {}  # of a chunk

    def run(self) -> dict[Node, Node]:
        """The values of all ends."""
        site = self.site
        for start in range(0, site.rows, site.step):
            self.rows = (start, 1, min(site.step, site.rows - start))
            for node in site.inner:
                with mode(line=node.line):
                    self.values[node] = self.inside(node)
            for end in site.ends:
                with mode(line=end.line):
                    self.add(end)
        self.finish()
        return {end: F.reshape(cast(F.cat(pieces), end.dtype), end.shape) for end, pieces in self.pieces.items()}

    def part(self, node: Node, axis: int = 0) -> Node:
        """The chunk's rows of a value from outside; along its last axis where that is axis 1."""
        rest = node.size // self.site.rows
        flat = F.reshape(node, ((self.site.rows, rest), (rest, self.site.rows))[axis]) if node.ndim > 1 else node
        whole = (0, 1, rest)
        region: Region = (self.rows,) if node.ndim == 1 else (self.rows, whole) if axis == 0 else (whole, self.rows)
        return F.slice(flat, region)

    def inside(self, node: Node) -> Node:
        source = self.values.get(node.srcs[0])
        if node.op.name in ("linear", "matmul"):
            return apply(node.op, (self.late(self.part(node.srcs[0])), *node.srcs[1:]), node.attrs)
        if node.op.name == SLOPES:
            g, logits, target, *rest = node.srcs
            srcs = (self.part(g), self.values[logits], self.part(target), *rest)
            return apply(node.op, srcs, (*node.attrs[:-1], AS_IT_IS))
        assert source is not None
        if node.op.name == "cast":
            return cast(source, node.dtype)
        if node.op.name == "add":
            other = self.values.get(node.srcs[1])
            return F.add(source, F.reshape(node.srcs[1], (self.site.size,)) if other is None else other)
        return F.permute(source, (1, 0)) if _is_turned(node) else source

    def late(self, x: Node) -> Node:
        """x, but not before the chunk before is done with.

        That is where its share is in all sums; who else reads it runs early, as that frees it. A sum which this and the
        next chunk read is stored, so fusion does not keep all shares to add them up at the end.
        """
        done = [pieces[-1] for pieces in self.pieces.values() if pieces]
        for made in [pieces[0] for end, pieces in self.pieces.items() if pieces and not self.by_rows(end)] or done[:1]:
            x = F.after(x, F.reshape(F.slice(made, tuple((0, 1, 1) for _ in made.shape)), (1, 1)))
        return x

    def finish(self) -> None:
        """Have the last sums made before the backward pass goes on from the gradient of x: else their products would
        wait for whoever reads them, and the last chunk with them."""
        for pieces in [p for end, p in self.pieces.items() if end.op.name == "matmul" and self.by_rows(end)][:1]:
            pieces[-1] = self.late(pieces[-1])

    def by_rows(self, end: Node) -> bool:
        """Whether each row of an end is made of one row of logits; else it is a sum over them."""
        first = end.srcs[0]
        return end.op.name == LOSS or (end.op.name == "matmul" and first in self.values and not _is_turned(first))

    def add(self, end: Node) -> None:
        """What an end is for this chunk, behind the others' or added to theirs."""
        pieces, srcs = self.pieces[end], end.srcs
        if end.op.name == LOSS:
            made = apply(end.op, (self.values[srcs[0]], self.part(srcs[1]), *srcs[2:]), (*end.attrs[:-1], AS_IT_IS))
        elif self.by_rows(end):
            made = apply(end.op, (self.values[srcs[0]], srcs[1]), end.attrs)
        else:
            made = self.summed(end)
            pieces[:], made = [], F.add(pieces[0], made) if pieces else made
        pieces.append(made)

    def summed(self, end: Node) -> Node:
        """A sum over the rows of this chunk."""
        srcs, wide = end.srcs, end.dtype.compute
        if end.op.name == "reduce_sum":
            return F.reduce_sum(cast(self.values[srcs[0]], wide), (0,))
        if end.op.name == "matmul_of_rows":
            left, right = (self.values[s] if s in self.values else self.part(s) for s in srcs)
            left = F.permute(left, (1, 0))
        else:
            left = self.values[srcs[0]] if srcs[0] in self.values else self.part(srcs[0], 1)
            right = self.values[srcs[1]] if srcs[1] in self.values else self.part(srcs[1])
        return apply(OPS["matmul"], (left, right), (wide, left.dtype is float16))
