"""Byte-pair tokens for text: bytes, and pairs that were joined because they are frequent.

Written here because a demonstration on a bare machine has no tokenizer library, and because what it needs is small:
about a second for a thousand tokens. The tokenizers of published models are read by `pyflame.llm`.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError

# Joins never cross these borders: a line's end with the indentation after it, a word, a digit, a run of signs.
_WORDS = re.compile(rb"\n *| ?[^\W\d]+|\d| ?[^\w\s]+|\s+?(?=\n|\S)|\s+")
_RARE = 2  # words seen less often teach nothing about frequent pairs


class BytePairs:
    """A tokenizer of bytes. Token i < 256 is the byte i; token 256 + n joins the n-th pair of `merges`.

    >>> tokenizer = BytePairs.train(b"def f(x):\\n    return x\\n" * 3, 270)
    >>> bytes(tokenizer.decode(tokenizer.encode(b"return")))
    b'return'
    """

    def __init__(self, merges: Sequence[Sequence[int]] = ()) -> None:
        self.merges = [(int(a), int(b)) for a, b in merges]
        self.pieces = [bytes([i]) for i in range(256)]
        for number, (a, b) in enumerate(self.merges):
            if not 0 <= min(a, b) <= max(a, b) < 256 + number:
                raise ArgumentError(
                    f"[BytePairs] expected merges of earlier tokens but number {number} joins {a} and {b}"
                )
            self.pieces.append(self.pieces[a] + self.pieces[b])
        self._rank = {pair: 256 + number for number, pair in enumerate(self.merges)}
        self._known: dict[bytes, tuple[int, ...]] = {}

    def __len__(self) -> int:
        """Tokens in the vocabulary."""
        return len(self.pieces)

    @classmethod
    def train(cls, text: bytes, vocab_size: int) -> BytePairs:
        """Join the most frequent pair of tokens inside words until there are `vocab_size` tokens or no pair is left."""
        if not 256 <= vocab_size <= 1 << 16:
            raise ArgumentError(f"[BytePairs] expected a vocab_size in [256, 65536] but got {vocab_size}")
        counts = Counter(_WORDS.findall(text))
        words = [list(word) for word, n in counts.items() if n >= _RARE and len(word) > 1]
        weights = [n for word, n in counts.items() if n >= _RARE and len(word) > 1]
        seen, where = _pairs(words, weights)
        # The heap may hold old counts: one that is no longer true goes back with its new count. Ties go to the pair
        # of lowest tokens, so the same text gives the same tokens.
        heap = [(-n, pair) for pair, n in seen.items()]
        heapq.heapify(heap)
        merges: list[tuple[int, int]] = []
        while heap and 256 + len(merges) < vocab_size:
            count, pair = heapq.heappop(heap)
            if -count != seen[pair]:
                if seen[pair] > 0:
                    heapq.heappush(heap, (-seen[pair], pair))
                continue
            new = 256 + len(merges)
            merges.append(pair)
            grown: set[tuple[int, int]] = set()
            for number in where.pop(pair):
                word, weight = words[number], weights[number]
                for before in pairwise(word):
                    seen[before] -= weight
                words[number] = word = _joined(word, pair, new)
                for after in pairwise(word):
                    seen[after] += weight
                    where[after].add(number)
                    if new in after:
                        grown.add(after)
            for after in grown:
                heapq.heappush(heap, (-seen[after], after))
            seen[pair] = 0
        return cls(merges)

    def encode(self, text: bytes | str) -> np.ndarray[Any, Any]:
        """Tokens of a text, as uint16."""
        data = text.encode() if isinstance(text, str) else text
        known = self._known
        out: list[int] = []
        for word in _WORDS.findall(data):
            tokens = known.get(word)
            if tokens is None:
                tokens = known[word] = self._encode_word(word)
            out += tokens
        return np.array(out, np.uint16)

    def _encode_word(self, word: bytes) -> tuple[int, ...]:
        """Join the pair that was learnt first, as long as there is one."""
        tokens = list(word)
        rank = self._rank
        while len(tokens) > 1:
            new, pair = min((rank.get(p, 1 << 16), p) for p in pairwise(tokens))
            if new == 1 << 16:
                break
            tokens = _joined(tokens, pair, new)
        return tuple(tokens)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The bytes that tokens stand for. They need not be whole characters: decode a stream with `codecs`."""
        return b"".join([self.pieces[int(t)] for t in tokens])


def _pairs(
    words: list[list[int]], weights: list[int]
) -> tuple[Counter[tuple[int, int]], defaultdict[tuple[int, int], set[int]]]:
    """How often each pair of neighbours comes, and the numbers of the words that it comes in."""
    seen: Counter[tuple[int, int]] = Counter()
    where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in pairwise(word):
            seen[pair] += weights[number]
            where[pair].add(number)
    return seen, where


def _joined(word: list[int], pair: tuple[int, int], new: int) -> list[int]:
    out: list[int] = []
    i = 0
    while i < len(word):
        if i + 1 < len(word) and word[i] == pair[0] and word[i + 1] == pair[1]:
            out.append(new)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out
