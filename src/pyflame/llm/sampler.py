"""Sampling: from logits to one token per row, inside the jitted step.

Settings are numbers in a tensor, so requests with other settings use the same plan; only whether a feature is used at
all (`Features`) makes another one. Order, as in vLLM: penalties and bias, temperature, top-k, typical, top-p, min-p,
draw. A row's random numbers come from Philox by seed and place, so the same seed gives the same tokens on every device,
alone or in a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.dtype import bool_, float32, int64
from pyflame.core.errors import ArgumentError
from pyflame.core.philox import random_uniform_f32
from pyflame.tensor import Tensor
from pyflame.tensor.counted import where
from pyflame.tensor.creation import arange, ones, tensor, zeros


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 takes the likeliest; top_k=0, top_p=1, min_p=0 and typical_p=1 keep all."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0  # divides logits of tokens of the prompt and the text
    presence_penalty: float = 0.0  # is subtracted once from logits of tokens of the text,
    frequency_penalty: float = 0.0  # and this as often as they occur
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        whole = type(self.top_k) is int and type(self.seed) is int
        shares = 0.0 < self.top_p <= 1.0 and 0.0 <= self.min_p <= 1.0 and 0.0 < self.typical_p <= 1.0
        if not (whole and shares and self.temperature >= 0.0 and self.top_k >= 0 and self.repetition_penalty > 0.0):
            raise ArgumentError(
                "[sampling] expected temperature >= 0, top_k >= 0, top_p and typical_p in (0, 1], min_p in [0, 1], "
                f"repetition_penalty > 0 and a whole seed but got {self}"
            )

    @property
    def shapes(self) -> bool:
        """Whether it changes logits by token."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0) or bool(self.logit_bias)


class Features(NamedTuple):
    """What a step's plan can do beyond taking the likeliest token; part of its key."""

    sampled: bool = False
    typical: bool = False
    shaped: bool = False
    constrained: bool = False
    logprobs: int = -1  # how many of the likeliest are reported beside the chosen one; -1: not even that

    @classmethod
    def of(cls, settings: Sequence[Sampling], logprobs: int | None = None, constrained: bool = False) -> Features:
        sampled = [s for s in settings if s.temperature > 0.0]
        return cls(
            bool(sampled),
            any(s.typical_p < 1.0 for s in sampled),
            any(s.shapes for s in settings),
            constrained,
            -1 if logprobs is None else logprobs,
        )


class Picked(NamedTuple):
    """One token per row, with its log probability as the model sees it, and those of the likeliest tokens."""

    tokens: Tensor  # (B)
    logprob: Tensor | None = None  # (B)
    top_logprobs: Tensor | None = None  # (B, k)
    top_tokens: Tensor | None = None


_COLUMNS = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip


class Sampler:
    """The settings of `rows` sequences and what they have said so far."""

    def __init__(self, rows: int, vocab: int, capacity: int, device: object) -> None:
        self.rows, self.vocab, self.capacity, self.device = rows, vocab, capacity, device
        self.settings = zeros(rows, len(_COLUMNS), dtype=float32, device=device)
        self.uniforms = zeros(rows, capacity, dtype=float32, device=device)
        self.drawn = zeros(1, dtype=int64, device=device)
        self.allowed = ones(rows, vocab, dtype=bool_, device=device)  # which tokens a constraint lets through
        self.bias = zeros(rows, vocab, dtype=float32, device=device)
        self.said = zeros(rows, vocab, dtype=float32, device=device)  # how often each token is in the text
        self.read = zeros(rows, vocab, dtype=float32, device=device)  # 1 where it is in the prompt

    @property
    def nbytes(self) -> int:
        """What it keeps between steps."""
        kept = (self.settings, self.uniforms, self.drawn, self.allowed, self.bias, self.said, self.read)
        return sum(x.nbytes for x in kept)

    def start(
        self, settings: Sequence[Sampling], prompts: Sequence[Sequence[int]], streams: Sequence[int], count: int
    ) -> None:
        """Begin texts of up to `count` tokens. `streams` tells apart rows of the same seed."""
        table = [[float(getattr(s, name)) for name in _COLUMNS] for s in settings]
        uniforms = np.zeros((self.rows, self.capacity), np.float32)
        for row, (one, stream) in enumerate(zip(settings, streams, strict=True)):
            uniforms[row, :count] = random_uniform_f32(one.seed & (2**64 - 1), stream, count)
        self._set(self.settings, table)
        self._set(self.uniforms, uniforms)
        self.drawn.zero_()
        if any(s.shapes for s in settings):
            self._start_shaping(settings, prompts)

    def _start_shaping(self, settings: Sequence[Sampling], prompts: Sequence[Sequence[int]]) -> None:
        bias, read = (np.zeros((self.rows, self.vocab), np.float32) for _ in range(2))
        for row, (one, prompt) in enumerate(zip(settings, prompts, strict=True)):
            wrong = [t for t in one.logit_bias if not 0 <= t < self.vocab]
            if wrong:
                raise ArgumentError(f"[sampling] expected logit_bias of tokens in [0, {self.vocab}) but got {wrong}")
            bias[row, list(one.logit_bias)] = list(one.logit_bias.values())
            read[row, list(prompt)] = 1.0
        self._set(self.bias, bias)
        self._set(self.read, read)
        self.said.zero_()

    def allow(self, masks: Any) -> None:
        """Which tokens may come next: (rows, vocab)"""
        self._set(self.allowed, masks)

    def _set(self, cell: Tensor, values: Any) -> None:
        cell.copy_(tensor(values, dtype=cell.dtype, device=self.device))

    def pick(self, logits: Tensor, features: Features) -> Picked:
        """One token for each row of logits (B, V). Goes on to the next random number."""
        raw = logits
        if features.shaped:
            logits = self._shaped(logits)
        if features.constrained:
            logits = where(self.allowed, logits, float("-inf"))
        tokens = logits.argmax(-1)
        if features.sampled:
            drawn = self._drawn(logits, features.typical)
            tokens = where(self._column("temperature")[:, 0] > 0.0, drawn, tokens)
            self.drawn.add_(1)
        if features.shaped:
            self.said.scatter_add_(1, tokens.unsqueeze(1), self.said.new_ones((self.rows, 1)))
        if features.logprobs < 0:
            return Picked(tokens)
        scores = raw.log_softmax(-1)
        own = scores.gather(1, tokens.unsqueeze(1))[:, 0]
        top = scores.topk(features.logprobs) if features.logprobs else (None, None)
        return Picked(tokens, own, top[0], top[1])

    def _column(self, name: str) -> Tensor:
        n = _COLUMNS.index(name)
        return self.settings[:, n : n + 1]

    def _shaped(self, logits: Tensor) -> Tensor:
        """Penalties of what was read or said, and bias."""
        factor = self._column("repetition_penalty")
        repeated = (self.said + self.read) > 0.0
        weaker = where(logits > 0.0, logits / factor, logits * factor)
        logits = where(repeated, weaker, logits) + self.bias
        often = self.said * self._column("frequency_penalty")
        return logits - often - (self.said > 0.0).to(float32) * self._column("presence_penalty")

    def _drawn(self, logits: Tensor, typical: bool) -> Tensor:
        """A token of what top-k, typical, top-p and min-p leave."""
        warm = self._column("temperature").clamp(min=1e-6)
        values, ids = (logits / warm).sort(-1, True)
        rank = arange(self.vocab, device=logits.device)
        limit = self._column("top_k")
        values = where((limit > 0.0) & (rank.to(float32) >= limit), float("-inf"), values)
        if typical:
            values = self._typical(values)
        p = values.softmax(-1)
        before = p.cumsum(-1) - p
        keep = (before < self._column("top_p")) & (p >= self._column("min_p") * p.amax(-1, True)) & (p > 0.0)
        kept = where(keep, p, 0.0)
        reached = kept.cumsum(-1)
        target = self.uniforms.index_select(1, self.drawn) * reached[:, -1:]
        place = (reached <= target).to(int64).sum(-1, True)
        last = where(keep, rank, 0).amax(-1, True)  # rounding may take the target to the very end
        chosen: Tensor = ids.gather(1, place.minimum(last))[:, 0]
        return chosen

    def _typical(self, values: Tensor) -> Tensor:
        """Only tokens whose information is closest to the expected one, up to a mass of typical_p."""
        scores = values.log_softmax(-1)
        p = scores.exp()
        entropy = -where(p > 0.0, p * scores, 0.0).sum(-1, True)
        distance = (scores + entropy).abs()
        nearest, order = distance.sort(-1)
        below = p.gather(1, order).cumsum(-1) < self._column("typical_p")
        last = below.to(int64).sum(-1, True).clamp(max=self.vocab - 1)
        values = where(distance > nearest.gather(1, last), float("-inf"), values)
        return values
