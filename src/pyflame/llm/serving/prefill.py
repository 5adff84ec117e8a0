"""Prefill: which tokens of which prompts one launch takes in.

A launch is (pieces, size): each of its rows is a piece of up to `size` tokens of some prompt, so that prompts of
several requests, or several pieces of one, share one reading of the weights. Pieces of one prompt may be in the same
launch, since every layer writes all keys and values before it looks at any. There are few shapes, as each is a plan,
and on a GPU a graph; the one that takes in most for what it costs is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyflame.llm.batch import CHUNKS
from pyflame.llm.cache import PAGE, bucket_of, pages_of
from pyflame.llm.serving.request import TextSequence

_STEP = 4  # from one number of pieces to the next
_WEIGHTS = 64  # tokens whose work takes as long as reading the weights once
_LINES = 128  # lines of the cache that are gathered while one token is computed


class Shape(NamedTuple):
    """So many pieces of so many tokens."""

    pieces: int
    size: int

    @property
    def tokens(self) -> int:
        return self.pieces * self.size


@dataclass(frozen=True)
class Piece:
    """`count` tokens of a sequence from position `start` on; `last`: the sequence has no more to read."""

    sequence: TextSequence
    start: int
    count: int
    last: bool


@dataclass(frozen=True)
class Prefill:
    """What a launch takes in. Last pieces come first: tokens are picked behind them."""

    shape: Shape
    pieces: list[Piece]
    bucket: int  # how many positions of the cache it looks at

    @property
    def worth(self) -> float:
        """Tokens that it takes in, for what it costs."""
        cost = self.shape.tokens + self.shape.pieces * self.bucket / _LINES + _WEIGHTS
        return sum(piece.count for piece in self.pieces) / cost

    @property
    def sequences(self) -> list[TextSequence]:
        return list(dict.fromkeys(piece.sequence for piece in self.pieces))


def shapes_of(most: int, capacity: int) -> list[Shape]:
    """The shapes of launches of up to `most` tokens, of prompts that have up to `capacity`.

    >>> [tuple(shape) for shape in shapes_of(256, 4096)]
    [(1, 8), (4, 8), (16, 8), (32, 8), (1, 32), (4, 32), (8, 32), (1, 128), (2, 128), (1, 256)]
    """
    longest = min(most, pages_of(capacity) * PAGE)
    sizes = [*(n for n in CHUNKS if n < longest), longest]
    found = []
    for size in sizes:
        whole, count = most // size, 1
        while count < whole:
            found.append(Shape(count, size))
            count *= _STEP
        found.append(Shape(whole, size))
    return found


def prefill(waiting: Sequence[TextSequence], shapes: Iterable[Shape], room: int, capacity: int) -> Prefill | None:
    """What to take in of sequences, the first of which must be among them, in at most `room` tokens."""
    found = [
        Prefill(shape, pieces, bucket_of(max(p.start for p in pieces) + shape.size, capacity))
        for shape in shapes
        if shape.tokens <= room and (pieces := _filled(waiting, shape, capacity))
    ]
    return max(found, key=lambda one: (one.worth, one.shape.size), default=None)


def _filled(waiting: Sequence[TextSequence], shape: Shape, capacity: int) -> list[Piece]:
    """Pieces of sequences in their order; none where the first does not fit. Whoever waits for a page that is read here
    will share it."""
    pieces: list[Piece] = []
    claimed: set[bytes] = set()
    for one in waiting:
        left = shape.pieces - len(pieces)
        if not left:
            break
        end = one.lines + min(one.unread, left * shape.size)
        starts, whole = range(one.lines, end, shape.size), one.lines + one.unread
        # Few queries have a kernel of their own: ends take it here if they do where a text is written alone.
        fits = starts[-1] + shape.size <= pages_of(capacity) * PAGE and (shape.size < PAGE) == (one.unread <= CHUNKS[0])
        if fits and claimed.isdisjoint(one.keys[one.lines // PAGE : (whole - 1) // PAGE][:1]):
            claimed.update(one.keys[one.lines // PAGE : end // PAGE])
            pieces += [Piece(one, at, min(end - at, shape.size), at + shape.size >= whole) for at in starts]
        elif not pieces:
            break
    return sorted(pieces, key=lambda piece: not piece.last)
