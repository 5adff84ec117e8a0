"""How GPT writes text: one jitted step per token, over keys and values that are kept.

The cache holds the whole context from the start and positions are data, so one plan serves every step. A prompt is
padded to a power of two, so few plans serve every prompt. What the padding leaves in the cache lies behind the last
position: no query sees it before it is overwritten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflame.core.generator import Generator
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor
from pyflame.tensor.dispatch import FUNCTIONS as F
from pyflame.tensor.gradients import no_grad
from pyflame.transform.jit import jit

if TYPE_CHECKING:
    from pyflame.nn.gpt import GPT

# Keys and values of one layer (1, heads, context, size), the positions to write, and which keys each of them sees.
Cache = tuple[Tensor, Tensor, Tensor, Tensor]


class GPTDecoder:
    """One text being written: its cache and its random numbers."""

    def __init__(self, model: GPT, seed: int | None = None) -> None:
        config, like = model.config, model.wte.weight
        shape = (1, config.heads, config.context, config.width // config.heads)
        self.model = model
        self.layers = [(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(config.layers)]
        self.generator = None if seed is None else Generator(seed)
        self.step = jit(self._step)

    def next(self, tokens: list[int], start: int, temperature: float, top_k: int | None) -> int:
        """Take in these tokens, the first of which stands at position `start`, and draw the one that follows."""
        room = min(1 << (len(tokens) - 1).bit_length(), self.model.config.context - start)
        padded = tensor([tokens + [0] * (room - len(tokens))])
        positions = tensor(list(range(start, start + room)))
        with no_grad():
            return int(self.step(padded, positions, tensor([len(tokens) - 1]), temperature or None, top_k))

    def _step(
        self, tokens: Tensor, positions: Tensor, last: Tensor, temperature: Tensor | None, top_k: int | None
    ) -> Tensor:
        model = self.model
        x = model.wte(tokens) + model.wpe(positions)
        seen = positions.unsqueeze(1) >= arange(model.config.context)
        for block, (keys, values) in zip(model.h, self.layers, strict=True):
            x = block(x, 0.0, (keys, values, positions, seen))
        logits = model.logits(x.index_select(1, last)).reshape(-1)
        if temperature is None:
            return logits.argmax()
        logits, chosen = logits.topk(top_k) if top_k is not None else (logits, None)
        drawn: Tensor = F["multinomial"]((logits / temperature).softmax(-1), 1, True, self.generator)
        return drawn if chosen is None else chosen[drawn]
