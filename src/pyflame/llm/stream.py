"""Stream: one generation, from prompts to finished texts. `Model.generate` and `Model.stream` make one."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.llm.batch import Batch
from pyflame.llm.constraint import Matcher, constraint_of
from pyflame.llm.lookup import looked_up
from pyflame.llm.sampler import Features, Picked, Sampling
from pyflame.llm.text import Chunk, Generation, Logprob, Text, Timings

if TYPE_CHECKING:
    from pyflame.llm.generate import Model


class Stream(Iterator[Chunk]):
    """One call of generate or stream: texts that are written as its chunks are asked for."""

    def __init__(
        self,
        model: Model,
        prompts: list[list[int]],
        n: int,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        json_schema: Any = None,
        grammar: str | None = None,
        regex: str | None = None,
        lookup: int = 0,
        **sampling: Any,
    ) -> None:
        if type(n) is not int or n < 1 or (n > 1 and len(prompts) > 1):
            raise ArgumentError(f"[generate] expected n >= 1, and n = 1 with several prompts, but got n={n!r}")
        if logprobs is not None and not 0 <= logprobs <= model.config.vocab:
            raise ArgumentError(f"[generate] expected logprobs of 0 to {model.config.vocab} but got {logprobs}")
        self.model, self.shared = model, n > 1
        self.prompts = prompts * n
        self.settings = [Sampling(**sampling)] * len(self.prompts)
        found = constraint_of(
            model.tokenizer, model.config.vocab, json_schema=json_schema, grammar=grammar, regex=regex
        )
        self.matchers: list[Matcher] = [] if found is None else [found.matcher() for _ in self.prompts]
        self.features = Features.of(self.settings, logprobs, bool(self.matchers))
        self.lookup = lookup
        if lookup and (self.features != Features() or len(self.prompts) > 1 or lookup < 1):
            raise ArgumentError("[generate] expected lookup >= 1 with greedy decoding of one text and no other option")
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(s, str) and s for s in stops):
            raise ArgumentError(f"[generate] expected stop strings that are not empty but got {stops}")
        tokenizer = model.tokenizer
        if stops and tokenizer is None:
            raise ArgumentError("[generate] expected no stop strings since this model has no tokenizer")
        ends = frozenset(stop_tokens) | (frozenset() if ignore_eos or tokenizer is None else frozenset(tokenizer.eos))
        self.texts = [
            Text(None if tokenizer is None else tokenizer.stream(), self._limit(p, max_tokens), ends, stops)
            for p in self.prompts
        ]
        self._times: list[float] = []  # when it began, when the prompt was read, when all was written
        self.cached = 0
        self._chunks = self._written()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        """End it here: what it holds on the device is free for the next one."""
        self._chunks.close()

    @property
    def finished(self) -> bool:
        """Whether all texts are complete."""
        return len(self._times) == 3

    def _limit(self, prompt: list[int], asked: int | None) -> int:
        """How many tokens may follow a prompt. The last one needs no line in the cache."""
        room = self.model.context - len(prompt) + 1
        if asked is not None and (type(asked) is not int or asked < 1):
            raise ArgumentError(f"[generate] expected max_tokens >= 1 but got {asked!r}")
        if room < (asked or 1):
            raise ArgumentError(
                f"[generate] expected prompt and text to fit into a context of {self.model.context} tokens but got a "
                f"prompt of {len(prompt)} and max_tokens={asked}; load with context={len(prompt) + (asked or 256)}"
            )
        return asked or room

    def _written(self) -> Generator[Chunk, None, None]:
        begun = time.perf_counter()
        with self.model.lease(len(self.prompts)) as batch:
            logits = self._read(batch)
            longest = max(t.limit for t in self.texts)
            batch.sampler.start(self.settings, self.prompts, self._streams(), longest)
            self._constrain(batch)
            picked = batch.first(logits, self.features)
            ahead = self._ahead(batch)
            tokens = picked.tokens.tolist()
            self._times = [begun, time.perf_counter()]
            yield from self._pushed(tokens, picked)
            yield from self._checked(batch, tokens[0]) if self.lookup else self._stepped(batch, tokens, ahead)
        self._times.append(time.perf_counter())

    def _ahead(self, batch: Batch) -> Picked | None:
        """Begin the next step on a GPU before the host reads the tokens of this one, which the step knows already. The
        last one then is for nothing: on the CPU that would cost more than it saves."""
        free = self.model.device.kind != "cpu" and not self.matchers and not self.lookup
        return batch.next(self.features) if free else None

    def _stepped(self, batch: Batch, tokens: list[int], ahead: Picked | None) -> Iterator[Chunk]:
        """One token of each text per step."""
        if ahead is not None:
            batch.took(tokens)
        while not all(t.finish for t in self.texts):
            if ahead is None:
                batch.took(tokens)
                self._constrain(batch)
            picked = batch.next(self.features) if ahead is None else ahead
            ahead = self._ahead(batch)
            tokens = picked.tokens.tolist()
            if ahead is not None:
                batch.took(tokens)
            yield from self._pushed(tokens, picked)

    def _checked(self, batch: Batch, first: int) -> Iterator[Chunk]:
        """Several tokens per step, where guesses are right."""
        guessed = looked_up(batch, self.prompts[0], first, self.lookup)
        while not self.texts[0].finish:
            yield from self._pushed([next(guessed)], None)

    def _constrain(self, batch: Batch) -> None:
        if self.matchers:
            pairs = zip(self.matchers, self.texts, strict=True)
            # a text that is done may go on as it likes
            batch.sampler.allow(np.stack([~np.zeros(m.vocab, bool) if t.finish else m.allowed() for m, t in pairs]))

    def _streams(self) -> Sequence[int]:
        """Samples of one prompt draw from streams of their own; separate prompts draw as if alone."""
        return range(len(self.prompts)) if self.shared else [0] * len(self.prompts)

    def _read(self, batch: Batch) -> Any:
        if not self.shared:
            logits = batch.prefill(self.prompts)
            self.cached = batch.reused
            return logits
        with self.model.lease(1) as one:
            logits = one.prefill(self.prompts[:1])
            self.cached = one.reused
            batch.share(one)
        return logits.expand(len(self.prompts), logits.shape[1]).contiguous()

    def _pushed(self, tokens: list[int], picked: Picked | None) -> Iterator[Chunk]:
        logprobs = _logprobs(tokens, picked)
        for index, (text, token) in enumerate(zip(self.texts, tokens, strict=True)):
            if text.finish is None:
                complete = bool(self.matchers) and self.matchers[index].push(token)
                shown = text.push(token, logprobs[index], complete)
                yield Chunk(shown, token, index, text.finish, logprobs[index])

    def generations(self) -> list[Generation]:
        """The texts, once all are complete."""
        wanted = self.features.logprobs >= 0
        return [
            Generation(t.text, t.tokens, t.finish or "length", self._timed(p, t), t.logprobs if wanted else None)
            for p, t in zip(self.prompts, self.texts, strict=True)
        ]

    @property
    def timings(self) -> Timings:
        """Of the first text."""
        return self._timed(self.prompts[0], self.texts[0])

    def _timed(self, prompt: list[int], text: Text) -> Timings:
        if not self.finished:
            raise ArgumentError("[stream] expected a finished stream: take all of its chunks first")
        begun, read, done = self._times
        return Timings(len(prompt), read - begun, len(text.tokens), done - read, self.cached)


def _logprobs(tokens: list[int], picked: Picked | None) -> list[Logprob | None]:
    if picked is None or picked.logprob is None:
        return [None] * len(tokens)
    tops: list[dict[int, float]] = [{} for _ in tokens]
    if picked.top_tokens is not None and picked.top_logprobs is not None:
        pairs = zip(picked.top_tokens.tolist(), picked.top_logprobs.tolist(), strict=True)
        tops = [dict(zip(ids, values, strict=True)) for ids, values in pairs]
    return [Logprob(*one) for one in zip(tokens, picked.logprob.tolist(), tops, strict=True)]
