"""Which lines of a batch attention is about, as data: lengths of padded keys, offsets, and packed sequences.

A tensor of spans has one row of SPAN int32 numbers for each sequence: where its queries begin and how many there are;
where its keys begin, how many there are, and how many of them count; and at which key the first query stands. It has as
many rows as the batch, or, where sequences are packed one behind the other, the batch is 1 and there are three rows or
more: behind the sequences, what is left of the queries and what is left of the keys, so that every line has a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyflame.core.dtype import int32, int64
from pyflame.core.shape import Shape
from pyflame.ir import F, Node, cast

SPAN = 6


def seen_by(spans: Node, scores: Shape, low: int | None, high: int | None) -> Node:
    """(B or 1, 1, T, S): whether query i sees key j of its sequence, where low <= j - i - offset <= high."""
    count, (batch, _, rows, columns) = spans.shape[0], scores
    parts = [F.reshape(F.slice(spans, ((0, 1, count), (n, 1, 1))), (count, 1, 1)) for n in range(SPAN)]
    first, queries, start, _, live, offset = (cast(part, int64) for part in parts)
    own = F.reshape(F.iota((rows,)), (rows, 1)) - first
    other = F.iota((columns,)) - start
    seen = (own >= 0) & (own < queries) & (other >= 0) & (other < live)
    ahead = other - own - offset
    if low is not None:
        seen = seen & (ahead >= low)
    if high is not None:
        seen = seen & (ahead <= high)
    if count == batch:
        return F.reshape(seen, (batch, 1, rows, columns))
    return F.reshape(F.reduce_max(cast(seen, int32), (0,)) > 0, (1, 1, rows, columns))


def seen_by_reference(spans: Any, scores: Shape, low: int | None, high: int | None) -> Any:
    """What `seen_by` gives."""
    batch, _, rows, columns = scores
    first, queries, start, _, live, offset = spans.astype(np.int64).T[:, :, None, None]
    own, other = np.arange(rows)[:, None] - first, np.arange(columns) - start
    ahead = other - own - offset
    seen = (own >= 0) & (own < queries) & (other >= 0) & (other < live)
    seen &= (ahead >= (-np.inf if low is None else low)) & (ahead <= (np.inf if high is None else high))
    return seen[:, None] if len(spans) == batch else seen.any(0)[None, None]


def _table(columns: Sequence[Node], count: int) -> Node:
    """These numbers of each row as one tensor, elementwise: no copies of parts."""
    which = F.iota((SPAN,))
    out = F.reshape(columns[0], (count, 1))
    for n, column in enumerate(columns[1:], 1):
        out = F.where(which < n, out, F.reshape(column, (count, 1)))
    return F.contiguous(cast(out, int32))


def _spread(x: Node | int, count: int) -> Node:
    """A number, or one for all, as one for each."""
    each = F.expand(F.reshape(cast(x, int64), (-1,)), (count,)) if isinstance(x, Node) else x
    return F.iota((count,)) * 0 + each


def limited(lengths: Node | None, offset: Node | int, batch: int, queries: int, keys: int) -> Node:
    """The spans of a padded batch: of keys the first `lengths` count; offsets beyond all lines are as good as all."""
    none, rows, columns = (_spread(n, batch) for n in (0, queries, keys))
    live = columns if lengths is None else F.clamp(_spread(lengths, batch), 0, keys)
    return _table((none, rows, none, columns, live, F.clamp(_spread(offset, batch), -queries, keys)), batch)


def packed(cumulative_q: Node, cumulative_k: Node, used: Node | None, queries: int, keys: int) -> Node:
    """The spans of sequences between these lines; each begins where the one before ends, and the first at 0.

    `used`: how many keys of each count. The last query stands at the last key that counts. Behind the sequences are the
    rest of the queries, which sees nothing, and the rest of the keys, which none sees.
    """
    count = cumulative_q.shape[0] - 1
    row = F.iota((count + 2,))

    def lines(cumulative: Node, total: int, rest: int) -> tuple[Node, Node]:
        """Where each begins, and how many there are; what is left is row `rest`."""
        begin, end = (
            F.clamp(cast(F.index_select(cumulative, 0, F.clamp(row + ahead, 0, count)), int64), 0, total)
            for ahead in (0, 1)
        )
        begin = F.where(F.eq(row, 0) & (row < count), 0, begin)
        sizes = F.where(row < count, F.clamp(end - begin, 0, total), F.where(F.eq(row, rest), total - begin, 0))
        return begin, sizes

    (first, rows), (start, columns) = lines(cumulative_q, queries, count), lines(cumulative_k, keys, count + 1)
    live = F.where(row < count, columns, 0)
    if used is not None and count:
        live = F.minimum(live, F.clamp(cast(F.index_select(used, 0, F.clamp(row, 0, count - 1)), int64), 0, keys))
    return _table((first, rows, start, columns, live, live - rows), count + 2)
