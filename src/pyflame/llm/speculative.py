"""Speculative decoding: guess the next tokens cheaply, and check all guesses in one step of the model.

Guesses come from what followed the same words before (prompt look-up: texts that repeat their prompt, as summaries,
edits and code do) or from a smaller model of the same vocabulary (a draft). Greedy only: a guess is taken where it is
the likeliest token, so the text is that of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyflame.core.errors import ArgumentError
from pyflame.llm.batch import Batch
from pyflame.llm.sampler import Features

if TYPE_CHECKING:
    from pyflame.llm.generate import Model

_LONGEST, _SHORTEST = 3, 2  # tokens at the end of the text that are looked for; one alone is too often wrong


class Guesser(Protocol):
    """Where guesses come from."""

    count: int  # how many it makes, at most

    def guess(self, tokens: Sequence[int]) -> list[int]:
        """What may follow these tokens; none where it does not know."""


class Lookup:
    """What followed the latest earlier occurrence of the last three, or two, tokens."""

    def __init__(self, count: int) -> None:
        self.count = count

    def guess(self, tokens: Sequence[int]) -> list[int]:
        for size in range(min(_LONGEST, len(tokens) - 1), _SHORTEST - 1, -1):
            end = list(tokens[-size:])
            for start in range(len(tokens) - size - 1, -1, -1):
                if list(tokens[start : start + size]) == end:
                    return list(tokens[start + size : start + size + self.count])
        return []


class Draft:
    """What a smaller model writes, greedily. Of wrong guesses it forgets what it took in."""

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch, self.count, self.reads = batch, count, True

    def guess(self, tokens: Sequence[int]) -> list[int]:
        batch = self.batch
        if len(tokens) + self.count > batch.capacity:
            return []
        picked = [batch.first(batch.prefill([tokens]), Features()) if self.reads else batch.continued(tokens)]
        picked += [batch.next(Features()) for _ in range(self.count - 1)]
        found = [int(one.tokens.item()) for one in picked]  # a GPU has the next step while the host reads this one
        batch.held, self.reads = [[*tokens, *found[:-1]]], False
        return found


class Speculation:
    """One text, several tokens per step where guesses are right."""

    def __init__(self, batch: Batch, guesser: Guesser) -> None:
        self.batch, self.guesser = batch, guesser
        self.guessed = self.accepted = 0

    def tokens(self, prompt: Sequence[int], first: int) -> Iterator[int]:
        """Those that follow the first one, without end: the caller stops."""
        tokens, count = [*prompt, first], self.guesser.count
        while True:
            room = self.batch.counts[0] + 1 + count <= self.batch.capacity
            guesses = self.guesser.guess(tokens) if room else []
            right = self.batch.check([tokens[-1], *guesses], count + 1)
            self.guessed, self.accepted = self.guessed + len(guesses), self.accepted + len(right) - 1
            tokens += right
            yield from right


def want_draft(model: Model, draft: Model) -> None:
    """Refuse a draft whose tokens mean something else."""
    ours, theirs = model.config.vocab, draft.config.vocab
    if ours != theirs or not draft.config.causal:
        raise ArgumentError(
            f"[generate] expected a draft that writes the model's {ours} tokens but got {draft.config.architecture} "
            f"with {theirs}"
        )
    if model.tokenizer is not None and draft.tokenizer is not None and model.tokenizer is not draft.tokenizer:
        other = [n for n in range(ours) if model.tokenizer.token(n) != draft.tokenizer.token(n)]
        if other:
            n = other[0]
            raise ArgumentError(
                f"[generate] expected a draft of the same vocabulary but token {n} is {model.tokenizer.token(n)!r} and "
                f"{draft.tokenizer.token(n)!r} in the draft"
            )
