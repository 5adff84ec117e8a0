"""Batch: some sequences that are written together, with their cache, their sampler and the jitted steps.

All that changes from token to token (tokens, lengths, settings, random numbers) lies in tensors that the steps read and
overwrite, so a decode step is one replay without arguments, and the host reads tokens only. Prompts are taken in by
chunks padded to one of a few sizes; padding lies behind the last position, where no query sees it before it is
overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType, float32, int64
from pyflame.llm.attention import Where
from pyflame.llm.cache import bucket_of
from pyflame.llm.decoder import Decoder
from pyflame.llm.sampler import Features, Picked, Sampler, overwrite
from pyflame.tensor import Tensor
from pyflame.tensor.counted import where as choose
from pyflame.tensor.creation import arange, tensor, zeros
from pyflame.tensor.gradients import no_grad
from pyflame.transform.jit import jit

CHUNKS = (8, 32, 128, 512)  # how many tokens of a prompt are taken in at once, and what fewer are padded to
LARGE = 2048  # as many on a GPU, where they are there: large products are faster, and steps are few


def chunk_of(count: int, device: object) -> int:
    """How many of so many tokens the next step takes in: as many as leave no more than half of it to padding, where
    that is more than 32.

    >>> [chunk_of(count, "cpu") for count in (3, 10, 150, 22, 400)]
    [8, 32, 128, 32, 512]
    """
    if count >= LARGE and parse_device(device).kind != "cpu":
        return LARGE
    few, many, *_ = CHUNKS
    return few if count <= few else next(n for n in reversed(CHUNKS) if n <= max(2 * count, many))


class Batch:
    """`rows` sequences of up to `capacity` tokens."""

    def __init__(self, decoder: Decoder, rows: int, capacity: int, dtype: DType, device: object) -> None:
        self.decoder, self.rows, self.capacity, self.device = decoder, rows, capacity, device
        self.cache = decoder.cache(rows, capacity, dtype, device)
        self.sampler = Sampler(rows, decoder.config.vocab, capacity, device)
        self.tokens = zeros(rows, 1, dtype=int64, device=device)
        self.lengths = zeros(rows, dtype=int64, device=device)
        self.counts = [0] * rows  # what `lengths` holds, known to the host
        self.held: list[list[int]] = [[] for _ in range(rows)]  # tokens whose lines are in the cache
        self.held_by: list[object] = []  # the weights that made them
        self.reused = 0  # tokens of the last prompts that were there
        self._take_in = jit(self._take_in_step)
        self._first = jit(self._first_step)
        self._next = jit(self._next_step)
        self._check = jit(self._check_step)

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Take prompts in, one per row; gives the logits of what follows each: (rows, vocab)."""
        self.want_weights()
        start = min(common(held, prompt) for held, prompt in zip(self.held, prompts, strict=True))
        longest, self.reused = max(map(len, prompts)), start
        self.held = [list(p[:start]) for p in prompts]
        logits = zeros(self.rows, self.decoder.config.vocab, dtype=float32, device=self.device)
        while start < longest:
            size = min(chunk_of(longest - start, self.device), self.capacity - start)
            parts = [list(p[start : start + size]) for p in prompts]
            padded = tensor([p + [0] * (size - len(p)) for p in parts], dtype=int64, device=self.device)
            last = [min(max(len(p) - 1 - start, 0), size - 1) for p in prompts]
            ends = [start < len(p) <= start + size for p in prompts]
            with no_grad():
                logits = self._take_in(
                    padded,
                    tensor([start], dtype=int64, device=self.device),
                    tensor(last, dtype=int64, device=self.device),
                    tensor(ends, device=self.device),
                    logits,
                    bucket_of(start + size, self.capacity),
                )
            start += size
        self.held = [list(p) for p in prompts]
        self._set_lengths(list(map(len, prompts)))
        return logits

    def want_weights(self) -> None:
        """Forget lines that other weights made, before training or with other adapters."""
        now = weights_of(self.decoder)
        if not same_weights(now, self.held_by):
            self.held_by, self.held = now, [[] for _ in range(self.rows)]

    def share(self, other: Batch) -> None:
        """Let every row begin with what the one row of another batch holds."""
        self.cache.copy_from(other.cache, other.counts[0])
        self.held, self.held_by = [list(other.held[0]) for _ in range(self.rows)], other.held_by
        self._set_lengths(other.counts * self.rows)

    def _set_lengths(self, counts: list[int]) -> None:
        self.counts = counts
        overwrite(self.lengths, counts, range(self.rows))

    def first(self, logits: Tensor, features: Features) -> Picked:
        """Pick the first token of each row."""
        with no_grad():
            return self._first(logits, features)  # type: ignore[no-any-return]

    def took(self, tokens: list[int]) -> None:
        """Note what the next step takes in. The last line may be overwritten by rows that are done."""
        for held, token in zip(self.held, tokens, strict=True):
            if len(held) < self.capacity - 1:
                held.append(token)

    def continued(self, tokens: Sequence[int]) -> Picked:
        """The likeliest token behind these, of which this one row holds all but the last few, and perhaps others
        behind those."""
        start = common(self.held[0], tokens)
        self._set_lengths([start])
        for token in tokens[start:]:
            overwrite(self.tokens, [[token]], [0])
            picked = self.next(Features())
        return picked

    def next(self, features: Features) -> Picked:
        """Take in the tokens that were picked last and pick the ones that follow."""
        with no_grad():
            picked: Picked = self._next(features)
        self.counts = [n + 1 for n in self.counts]
        return picked

    def check(self, tokens: list[int], size: int) -> list[int]:
        """Take in one row's last token and guesses of what follows; gives the likeliest tokens as far as guesses were
        right, and one more. Lines of wrong guesses lie behind the end. `size`: what the tokens are padded to."""
        size = size if len(tokens) > 1 else 1
        padded = tensor([tokens + [0] * (size - len(tokens))], dtype=int64, device=self.device)
        with no_grad():
            likeliest = self._check(padded, bucket_of(self.counts[0] + size, self.capacity)).tolist()
        right = next((n for n, t in enumerate(tokens[1:]) if likeliest[n] != t), len(tokens) - 1)
        self.held[0] += tokens[: right + 1]
        self._set_lengths([self.counts[0] + right + 1])
        return list(likeliest[: right + 1])

    def _check_step(self, tokens: Tensor, bucket: int) -> Tensor:
        positions = self.lengths.unsqueeze(1) + arange(tokens.shape[1], device=tokens.device)
        x = self._hidden(tokens, positions, self.lengths, self.lengths + tokens.shape[1], bucket)
        likeliest: Tensor = self.decoder.logits(x[0]).argmax(-1)
        return likeliest

    def _take_in_step(
        self, tokens: Tensor, start: Tensor, last: Tensor, ends: Tensor, logits: Tensor, bucket: int
    ) -> Tensor:
        positions = (start + arange(tokens.shape[1], device=tokens.device)).unsqueeze(0).expand(*tokens.shape)
        first = start.expand(self.rows)
        x = self._hidden(tokens, positions, first, first + tokens.shape[1], bucket)
        own = x.gather(1, last.reshape(-1, 1, 1).expand(self.rows, 1, x.shape[2]))[:, 0]
        logits = choose(ends.unsqueeze(1), self.decoder.logits(own), logits)
        return logits

    def _hidden(self, tokens: Tensor, positions: Tensor, first: Tensor, lengths: Tensor, bucket: int) -> Tensor:
        where = Where(positions, first, lengths, self.cache, self.cache.slots(positions), bucket)
        return self.decoder.hidden(tokens, where)

    def _first_step(self, logits: Tensor, features: Features) -> Picked:
        picked = self.sampler.pick(logits, features)
        self.tokens.index_copy_(0, arange(self.rows, device=self.device), picked.tokens.unsqueeze(1))  # where they lie
        return picked

    def _next_step(self, features: Features) -> Picked:
        first = self.lengths.clamp(max=self.capacity - 1)  # rows that are done may go on until the last one is
        x = self._hidden(self.tokens, first.unsqueeze(1), first, first + 1, self.capacity)
        picked = self.sampler.pick(self.decoder.logits(x[:, -1]), features)
        self.tokens.copy_(picked.tokens.unsqueeze(1).clone())  # whoever holds what was picked holds no state
        self.lengths.add_(1)
        return picked


def weights_of(decoder: Decoder) -> list[object]:
    """What makes lines of tokens. What is held here is not overwritten in place, so that a change shows."""
    decoder.join()
    return [decoder.lora, *(p._node for p in decoder.parameters())]


def same_weights(now: Sequence[object], before: Sequence[object]) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def common(held: Sequence[int], prompt: Sequence[int]) -> int:
    """How many tokens both begin with; the last of the prompt is always taken in, since its logits are wanted."""
    most = min(len(held), len(prompt) - 1)
    return next((n for n in range(most) if held[n] != prompt[n]), most)
