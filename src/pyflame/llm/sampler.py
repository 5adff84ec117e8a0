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

    def want_tokens(self, vocab: int) -> None:
        """Refuse a bias of tokens that a model does not have."""
        wrong = [t for t in self.logit_bias if not 0 <= t < vocab]
        if wrong:
            raise ArgumentError(f"[sampling] expected logit_bias of tokens in [0, {vocab}) but got {wrong}")

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

    def joined(self, other: Features) -> Features:
        """What a step over the rows of both needs."""
        return Features(*map(max, self, other))  # type: ignore[arg-type]


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


def overwrite(cell: Tensor, values: Any, rows: Sequence[int]) -> None:
    """Set rows where they lie, so that graphs that were captured for a text before serve for the next one too."""
    made = tensor(values, dtype=cell.dtype, device=cell.device)
    cell.index_copy_(0, tensor(list(rows), dtype=int64, device=cell.device), made)


class Sampler:
    """The settings of `rows` sequences and what they have said so far."""

    def __init__(self, rows: int, vocab: int, capacity: int, device: object) -> None:
        self.rows, self.vocab, self.capacity, self.device = rows, vocab, capacity, device
        self.settings = zeros(rows, len(_COLUMNS), dtype=float32, device=device)
        self.uniforms = zeros(rows, capacity, dtype=float32, device=device)
        self.drawn = zeros(rows, dtype=int64, device=device)  # how many random numbers each row has used
        self.allowed = ones(rows, vocab, dtype=bool_, device=device)  # which tokens a constraint lets through
        self.bias = zeros(rows, vocab, dtype=float32, device=device)
        self.said = zeros(rows, vocab, dtype=float32, device=device)  # how often each token is in the text
        self.read = zeros(rows, vocab, dtype=float32, device=device)  # 1 where it is in the prompt
        self._shaped: set[int] = set()  # rows with a bias

    @property
    def nbytes(self) -> int:
        """What it keeps between steps."""
        kept = (self.settings, self.uniforms, self.drawn, self.allowed, self.bias, self.said, self.read)
        return sum(x.nbytes for x in kept)

    def start(
        self,
        settings: Sequence[Sampling],
        prompts: Sequence[Sequence[int]],
        streams: Sequence[int],
        count: int,
        rows: Sequence[int] | None = None,
        said: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Begin texts of up to `count` tokens in these rows (all), or go on behind what they have `said`. `streams`
        tells apart rows of the same seed."""
        every = range(self.rows) if rows is None else rows
        said = [()] * len(every) if said is None else said
        self._set(self.settings, [[float(getattr(s, name)) for name in _COLUMNS] for s in settings], rows)
        self._set(self.drawn, list(map(len, said)), rows)
        if any(s.temperature > 0.0 for s in settings):
            uniforms = np.zeros((len(every), self.capacity), np.float32)
            for row, (one, stream) in enumerate(zip(settings, streams, strict=True)):
                uniforms[row, :count] = random_uniform_f32(one.seed & (2**64 - 1), stream, count)
            self._set(self.uniforms, uniforms, rows)
        if any(s.shapes for s in settings) or not self._shaped.isdisjoint(every):
            self._start_shaping(settings, prompts, said, rows)
            self._shaped = self._shaped.difference(every) | {
                r for r, s in zip(every, settings, strict=True) if s.shapes
            }

    def _start_shaping(
        self,
        settings: Sequence[Sampling],
        prompts: Sequence[Sequence[int]],
        said: Sequence[Sequence[int]],
        rows: Sequence[int] | None,
    ) -> None:
        bias, read, counts = (np.zeros((len(settings), self.vocab), np.float32) for _ in range(3))
        for row, (one, prompt, text) in enumerate(zip(settings, prompts, said, strict=True)):
            one.want_tokens(self.vocab)
            bias[row, list(one.logit_bias)] = list(one.logit_bias.values())
            read[row, list(prompt)] = 1.0
            np.add.at(counts[row], list(text), 1.0)
        for cell, values in ((self.bias, bias), (self.read, read), (self.said, counts)):
            self._set(cell, values, rows)

    def allow(self, masks: Any, rows: Sequence[int] | None = None) -> None:
        """Which tokens may come next in these rows (all): (rows, vocab)"""
        self._set(self.allowed, masks, rows)

    def _set(self, cell: Tensor, values: Any, rows: Sequence[int] | None) -> None:
        overwrite(cell, values, range(self.rows) if rows is None else rows)

    def pick(self, logits: Tensor, features: Features, rows: Tensor | None = None) -> Picked:
        """One token for each row of logits (B, V), which are these rows (B) or all. Each goes on to its next random
        number."""
        raw, settings = logits, _of(self.settings, rows)
        if features.shaped:
            logits = self._shaped_logits(logits, settings, rows)
        if features.constrained:
            logits = where(_of(self.allowed, rows), logits, float("-inf"))
        tokens = logits.argmax(-1)
        if features.sampled:
            drawn = self._drawn(logits, settings, rows, features.typical)
            tokens = where(_column(settings, "temperature")[:, 0] > 0.0, drawn, tokens)
            self.drawn.add_(1 if rows is None else named_by(rows, self.rows).to(int64).sum(1))
        if features.shaped:
            self._say(tokens, rows)
        if features.logprobs < 0:
            return Picked(tokens)
        scores = raw.log_softmax(-1)
        own = scores.gather(1, tokens.unsqueeze(1))[:, 0]
        top = scores.topk(features.logprobs) if features.logprobs else (None, None)
        return Picked(tokens, own, top[0], top[1])

    def _say(self, tokens: Tensor, rows: Tensor | None) -> None:
        """Count the tokens that were picked. Element by element, so that it happens where the counts lie."""
        own = tokens if rows is None else spread(tokens, rows, -1, self.rows)
        self.said.add_((arange(self.vocab, device=tokens.device) == own.unsqueeze(1)).to(float32))

    def _shaped_logits(self, logits: Tensor, settings: Tensor, rows: Tensor | None) -> Tensor:
        """Penalties of what was read or said, and bias."""
        said, read, bias = (_of(cell, rows) for cell in (self.said, self.read, self.bias))
        factor = _column(settings, "repetition_penalty")
        repeated = (said + read) > 0.0
        weaker = where(logits > 0.0, logits / factor, logits * factor)
        logits = where(repeated, weaker, logits) + bias
        often = said * _column(settings, "frequency_penalty")
        return logits - often - (said > 0.0).to(float32) * _column(settings, "presence_penalty")

    def _drawn(self, logits: Tensor, settings: Tensor, rows: Tensor | None, typical: bool) -> Tensor:
        """A token of what top-k, typical, top-p and min-p leave."""
        warm = _column(settings, "temperature").clamp(min=1e-6)
        values, ids = (logits / warm).sort(-1, True)
        rank = arange(self.vocab, device=logits.device)
        limit = _column(settings, "top_k")
        values = where((limit > 0.0) & (rank.to(float32) >= limit), float("-inf"), values)
        if typical:
            values = _typical(values, _column(settings, "typical_p"))
        p = values.softmax(-1)
        before = p.cumsum(-1) - p
        least = _column(settings, "min_p") * p.amax(-1, True)
        keep = (before < _column(settings, "top_p")) & (p >= least) & (p > 0.0)
        kept = where(keep, p, 0.0)
        reached = kept.cumsum(-1)
        uniform = _of(self.uniforms, rows).gather(1, _of(self.drawn, rows).clamp(max=self.capacity - 1).unsqueeze(1))
        place = (reached <= uniform * reached[:, -1:]).to(int64).sum(-1, True)
        last = where(keep, rank, 0).amax(-1, True)  # rounding may take the target to the very end
        chosen: Tensor = ids.gather(1, place.minimum(last))[:, 0]
        return chosen


def _of(cell: Tensor, rows: Tensor | None) -> Tensor:
    """These rows of a cell, or all."""
    return cell if rows is None else cell.index_select(0, rows)


def named_by(rows: Tensor, count: int) -> Tensor:
    """Whether row r of `count` is number b of these rows: (count, B)"""
    found: Tensor = arange(count, device=rows.device).unsqueeze(1) == rows.unsqueeze(0)
    return found


def spread(values: Tensor, rows: Tensor, others: Tensor | int, count: int) -> Tensor:
    """Whole numbers (B) of these rows as those of all rows (count), where rows that are not named have `others`. Rows
    that are named twice have anything."""
    marks = named_by(rows, count)
    found: Tensor = where(marks.any(1), where(marks, values, -1).amax(1), others)
    return found


def _column(settings: Tensor, name: str) -> Tensor:
    n = _COLUMNS.index(name)
    return settings[:, n : n + 1]


def _typical(values: Tensor, mass: Tensor) -> Tensor:
    """Only tokens whose information is closest to the expected one, up to this mass."""
    scores = values.log_softmax(-1)
    p = scores.exp()
    entropy = -where(p > 0.0, p * scores, 0.0).sum(-1, True)
    distance = (scores + entropy).abs()
    nearest, order = distance.sort(-1)
    below = p.gather(1, order).cumsum(-1) < mass
    last = below.to(int64).sum(-1, True).clamp(max=values.shape[-1] - 1)
    values = where(distance > nearest.gather(1, last), float("-inf"), values)
    return values
