"""Prompt look-up: guess the next tokens from what followed the same words before, and check all guesses in one step.

Texts that repeat their prompt (summaries, edits, code) get several tokens per step. Greedy only: a guess is taken where
it is the likeliest token, so the text is that of plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyflame.llm.batch import Batch

_LONGEST, _SHORTEST = 3, 2  # tokens at the end of the text that are looked for; one alone is too often wrong


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """What followed the latest earlier occurrence of the last three, or two, tokens."""
    for size in range(min(_LONGEST, len(tokens) - 1), _SHORTEST - 1, -1):
        end = list(tokens[-size:])
        for start in range(len(tokens) - size - 1, -1, -1):
            if list(tokens[start : start + size]) == end:
                return list(tokens[start + size : start + size + count])
    return []


def looked_up(batch: Batch, prompt: Sequence[int], first: int, count: int) -> Iterator[int]:
    """Tokens that follow the first one, without end: the caller stops."""
    tokens = [*prompt, first]
    while True:
        guesses = guess(tokens, count) if batch.counts[0] + 1 + count <= batch.capacity else []
        for token in batch.check([tokens[-1], *guesses], count + 1):
            tokens.append(token)
            yield token
