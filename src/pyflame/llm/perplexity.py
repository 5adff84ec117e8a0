"""Perplexity: exp of the mean of -log p over the tokens of a text, each given those before it in its window.

Without a stride windows of `context` tokens follow each other, and what stands behind the first context // 2 + 1 tokens
of each is scored, so that every scored token has seen half a window. That is what llama.cpp's tool does: the rest
behind the last window is left out, and a window begins with the token that texts begin with, where there is one.
With a stride windows begin every `stride` tokens and score what no earlier one did: all tokens of a text but the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from pyflame.core.dtype import float32, int64
from pyflame.core.errors import ArgumentError
from pyflame.llm.attention import Where
from pyflame.llm.generate import Model
from pyflame.nn.ops import F
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor
from pyflame.tensor.gradients import no_grad
from pyflame.transform.jit import jit

_ROWS = 512  # positions whose logits are held at once


@dataclass
class Perplexity:
    """The losses (-log p) of scored tokens so far."""

    losses: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return len(self.losses)

    @property
    def value(self) -> float:
        return math.exp(np.mean(self.losses))

    @property
    def error(self) -> float:
        """The standard error: that of the mean loss, times the perplexity."""
        if self.tokens < 2:
            return math.inf
        return float(np.std(self.losses, ddof=1)) / math.sqrt(self.tokens) * self.value


@dataclass(frozen=True)
class Window:
    """Tokens start to stop of a text; those from `first` on are scored."""

    start: int
    stop: int
    first: int


def windows(count: int, context: int, stride: int | None = None) -> list[Window]:
    """The windows of a text of so many tokens.

    >>> windows(8, 4), windows(6, 4, 2)
    ([Window(0, 4, 3), Window(4, 8, 7)], [Window(0, 4, 1), Window(2, 6, 4)])
    """
    if context < 3 or (stride is not None and not 1 <= stride < context):
        raise ArgumentError(
            f"[perplexity] expected a context of at least 3 tokens and a stride below it but got {context} and {stride}"
        )
    if stride is None:
        if count < context:
            raise ArgumentError(
                f"[perplexity] expected a text of at least {context} tokens but got {count}; take a shorter context"
            )
        return [Window(at, at + context, at + context // 2 + 1) for at in range(0, count - context + 1, context)]
    if count < 2:
        raise ArgumentError(f"[perplexity] expected a text of at least 2 tokens but got {count}")
    found = [Window(0, min(context, count), 1)]
    while (stop := found[-1].stop) < count:
        start = found[-1].start + stride
        found.append(Window(start, min(start + context, count), stop))
    return found


def perplexity(
    model: Model,
    text: str | Sequence[int],
    context: int = 512,
    stride: int | None = None,
    ran: Callable[[Perplexity], object] = lambda so_far: None,
) -> Perplexity:
    """The perplexity of a text, or of tokens. `ran` is called after each window with what was found so far.

    >>> perplexity(model, open("text.txt").read()).value
    17.3
    """
    tokens = model.encode(text)
    if not model.config.causal:
        raise ArgumentError(f"[perplexity] expected a decoder but got {model.config.architecture}")
    if context > model.config.context:
        raise ArgumentError(f"[perplexity] expected a context of at most {model.config.context} but got {context}")
    bos = model.tokenizer.bos if isinstance(text, str) and tokens[0] == model.tokenizer.bos else None
    losses, found = _Losses(model), Perplexity()
    for window in windows(len(tokens), context, stride):
        seen = tokens[window.start : window.stop]
        if bos is not None:
            seen = [bos, *seen[1:]]
        found.losses += losses(seen, window.first - window.start, min(context, len(tokens)))
        ran(found)
    return found


class _Losses:
    """-log p of a window's tokens, jitted: one pass through the blocks, then logits of some positions at a time."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.hidden, self.losses = jit(self._hidden), jit(self._of)

    def __call__(self, tokens: list[int], first: int, size: int) -> Iterator[float]:
        """Of tokens[first:], padded to `size` so that all windows share a plan."""
        count, device = len(tokens), self.model.device
        padded = tensor([tokens + [0] * (size - count)], dtype=int64, device=device)
        with no_grad():
            x = self.hidden(padded)
            for at in range(first, count, _ROWS):
                stop = min(at + _ROWS, count)
                targets = tensor(tokens[at:stop], dtype=int64, device=device)
                yield from self.losses(x[0, at - 1 : stop - 1], targets).tolist()

    def _hidden(self, tokens: Tensor) -> Tensor:
        positions = arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        return self.model.decoder.hidden(tokens, Where(positions))

    def _of(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = self.model.decoder.logits(x).to(float32)
        return F["cross_entropy"](logits, targets, reduction="none")
