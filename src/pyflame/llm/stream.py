"""Stream: one generation, from prompts to finished texts. `Model.generate` and `Model.stream` make one."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.llm.batch import Batch
from pyflame.llm.constraint import Matcher
from pyflame.llm.options import Options
from pyflame.llm.prompt_cache import restore
from pyflame.llm.sampler import Features, Picked
from pyflame.llm.speculative import Draft, Lookup, Speculation, want_draft
from pyflame.llm.text import Chunk, Generation, Logprob, Text, Timings
from pyflame.tensor import Tensor
from pyflame.tensor.arriving import arriving
from pyflame.tensor.devices import synchronize

if TYPE_CHECKING:
    from pyflame.llm.generate import Model


class Stream(Iterator[Chunk]):
    """One call of generate or stream: texts that are written as its chunks are asked for."""

    def __init__(self, model: Model, prompts: list[list[int]], n: int, **options: Any) -> None:
        # What writes does not know of this object, so that it ends as soon as this is let go of.
        self._writing = Writing(model, prompts, n, **options)
        self._chunks = self._writing.chunks()

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        """End it here: what it holds on the device is free for the next one."""
        self._chunks.close()

    @property
    def finished(self) -> bool:
        """Whether all texts are complete."""
        return self._writing.finished

    def generations(self) -> list[Generation]:
        """The texts, once all are complete."""
        return self._writing.generations()

    @property
    def timings(self) -> Timings:
        """Of the first text."""
        return self._writing.timings


class Writing:
    """From prompts to texts, with the options of `generate`."""

    def __init__(
        self,
        model: Model,
        prompts: list[list[int]],
        n: int,
        lookup: int = 0,
        draft: Model | None = None,
        ahead: int = 4,
        prompt_cache: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if n != 1 and len(prompts) > 1:
            raise ArgumentError(f"[generate] expected n = 1 with several prompts but got n={n!r}")
        wanted = Options(model, n, **options)
        self.model, self.shared = model, n > 1
        self.prompts, self.features = prompts * n, wanted.features
        self.settings = [wanted.sampling] * len(self.prompts)
        found = wanted.constraint
        self.matchers: list[Matcher] = [] if found is None else [found.matcher() for _ in self.prompts]
        self.lookup, self.draft, self.ahead, self.prompt_cache = lookup, draft, ahead, prompt_cache
        self._want_speculation()
        self.texts = [wanted.text(p) for p in self.prompts]
        self._times: list[float] = []  # when it began, when the prompt was read, when all was written
        self.cached = self.guessed = self.accepted = 0

    def _want_speculation(self) -> None:
        """Refuse guesses where they have no meaning."""
        if not self.speculates:
            return
        greedy = self.features == Features() and len(self.prompts) == 1
        count = self.lookup if self.draft is None else self.ahead
        if not greedy or (self.lookup and self.draft is not None) or type(count) is not int or count < 1:
            raise ArgumentError(
                "[generate] expected lookup >= 1, or a draft with ahead >= 1, with greedy decoding of one text and no "
                f"other option but got lookup={self.lookup}, draft={self.draft}, ahead={self.ahead}, {self.features} "
                f"and {len(self.prompts)} texts"
            )
        if self.draft is not None:
            want_draft(self.model, self.draft)

    @property
    def speculates(self) -> bool:
        """Whether tokens are guessed and checked."""
        return bool(self.lookup) or self.draft is not None

    @property
    def finished(self) -> bool:
        return len(self._times) == 3

    def chunks(self) -> Generator[Chunk, None, None]:
        """Write the texts, token by token."""
        begun = time.perf_counter()
        with self.model.lease(len(self.prompts)) as batch:
            logits = self._read(batch)
            longest = max(t.limit for t in self.texts)
            batch.sampler.start(self.settings, self.prompts, self._streams(), longest)
            self._constrain(batch)
            picked = batch.first(logits, self.features)
            read = arriving(picked.tokens)
            ahead = self._ahead(batch)
            tokens = read()
            self._times = [begun, time.perf_counter()]
            yield from self._pushed(tokens, picked)
            yield from self._checked(batch, tokens[0]) if self.speculates else self._stepped(batch, tokens, ahead)
            self._times.append(time.perf_counter())
            if ahead is not None:
                synchronize(self.model.device)  # and look whether a step has found fault with something

    def _ahead(self, batch: Batch) -> Picked | None:
        """Begin the next step on a GPU before the host reads the tokens of this one, which the step knows already. The
        last one then is for nothing: on the CPU that would cost more than it saves."""
        free = self.model.device.kind != "cpu" and not self.matchers and not self.speculates
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
            read = arriving(picked.tokens)  # behind this step, and not behind the next one
            ahead = self._ahead(batch)
            tokens = read()
            if ahead is not None:
                batch.took(tokens)
            yield from self._pushed(tokens, picked)

    def _checked(self, batch: Batch, first: int) -> Iterator[Chunk]:
        """Several tokens per step, where guesses are right."""
        with nullcontext() if self.draft is None else self.draft.lease(1) as drafting:
            guesser = Lookup(self.lookup) if drafting is None else Draft(drafting, self.ahead)
            speculation = Speculation(batch, guesser)
            found = speculation.tokens(self.prompts[0], first)
            while not self.texts[0].finish:
                yield from self._pushed([next(found)], None)
        self.guessed, self.accepted = speculation.guessed, speculation.accepted

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
            return self._prefilled(batch, self.prompts)
        with self.model.lease(1) as one:
            logits = self._prefilled(one, self.prompts[:1])
            batch.share(one)
        return logits.expand(len(self.prompts), logits.shape[1]).contiguous()

    def _prefilled(self, batch: Batch, prompts: list[list[int]]) -> Tensor:
        if self.prompt_cache is not None:
            restore(self.prompt_cache, self.model, batch, prompts)
        logits = batch.prefill(prompts)
        self.cached = batch.reused
        return logits

    def _pushed(self, tokens: list[int], picked: Picked | None) -> Iterator[Chunk]:
        logprobs = logprobs_of(tokens, picked)
        for index, (text, token) in enumerate(zip(self.texts, tokens, strict=True)):
            if text.finish is None:
                complete = bool(self.matchers) and self.matchers[index].push(token)
                shown = text.push(token, logprobs[index], complete)
                yield Chunk(shown, token, index, text.finish, logprobs[index])

    def generations(self) -> list[Generation]:
        wanted = self.features.logprobs >= 0
        return [
            Generation(t.text, t.tokens, t.finish or "length", self._timed(p, t), t.logprobs if wanted else None)
            for p, t in zip(self.prompts, self.texts, strict=True)
        ]

    @property
    def timings(self) -> Timings:
        return self._timed(self.prompts[0], self.texts[0])

    def _timed(self, prompt: list[int], text: Text) -> Timings:
        if not self.finished:
            raise ArgumentError("[stream] expected a finished stream: take all of its chunks first")
        begun, read, done = self._times
        guesses = self.guessed, self.accepted
        return Timings(len(prompt), read - begun, len(text.tokens), done - read, self.cached, *guesses)


def logprobs_of(tokens: list[int], picked: Picked | None) -> list[Logprob | None]:
    """What a step reports beside the tokens that it picked."""
    if picked is None or picked.logprob is None:
        return [None] * len(tokens)
    tops: list[dict[int, float]] = [{} for _ in tokens]
    if picked.top_tokens is not None and picked.top_logprobs is not None:
        pairs = zip(picked.top_tokens.tolist(), picked.top_logprobs.tolist(), strict=True)
        tops = [dict(zip(ids, values, strict=True)) for ids, values in pairs]
    return [Logprob(*one) for one in zip(tokens, picked.logprob.tolist(), tops, strict=True)]
