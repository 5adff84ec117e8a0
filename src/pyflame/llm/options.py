"""The options of one generation, checked: how its tokens are chosen, what its texts must fit, and where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Any

from pyflame.core.errors import ArgumentError, suggest
from pyflame.llm.constraint import constraint_of
from pyflame.llm.sampler import Features, Sampling
from pyflame.llm.text import Text

if TYPE_CHECKING:
    from pyflame.llm.generate import Model

_SAMPLING = [field.name for field in fields(Sampling)]


class Options:
    """What `generate`, `stream` and `Engine.submit` take alike."""

    def __init__(
        self,
        model: Model,
        n: int = 1,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        ignore_eos: bool = False,
        logprobs: int | None = None,
        json_schema: Any = None,
        grammar: str | None = None,
        regex: str | None = None,
        **sampling: Any,
    ) -> None:
        vocab, tokenizer = model.config.vocab, model.tokenizer
        if type(n) is not int or n < 1:
            raise ArgumentError(f"[generate] expected n >= 1 but got n={n!r}")
        if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
            raise ArgumentError(f"[generate] expected max_tokens >= 1 but got {max_tokens!r}")
        if logprobs is not None and not 0 <= logprobs <= vocab:
            raise ArgumentError(f"[generate] expected logprobs of 0 to {vocab} but got {logprobs}")
        stops = [stop] if isinstance(stop, str) else list(stop)
        if not all(isinstance(s, str) and s for s in stops):
            raise ArgumentError(f"[generate] expected stop strings that are not empty but got {stops}")
        if stops and tokenizer is None:
            raise ArgumentError("[generate] expected no stop strings since this model has no tokenizer")
        self.model, self.n, self.max_tokens, self.stops = model, n, max_tokens, stops
        self.sampling, self.logprobs = _sampling(vocab, sampling), logprobs
        self.constraint = constraint_of(tokenizer, vocab, json_schema=json_schema, grammar=grammar, regex=regex)
        self.features = Features.of([self.sampling], logprobs, self.constraint is not None)
        ends = frozenset() if ignore_eos or tokenizer is None else frozenset(tokenizer.eos)
        self.ends = frozenset(stop_tokens) | ends

    def text(self, prompt: Sequence[int]) -> Text:
        """A text that follows a prompt."""
        tokenizer = self.model.tokenizer
        return Text(None if tokenizer is None else tokenizer.stream(), self.limit(prompt), self.ends, self.stops)

    def limit(self, prompt: Sequence[int]) -> int:
        """How many tokens may follow a prompt. The last one needs no line in the cache."""
        asked, context = self.max_tokens, self.model.context
        room = context - len(prompt) + 1
        if room < (asked or 1):
            raise ArgumentError(
                f"[generate] expected prompt and text to fit into a context of {context} tokens but got a prompt of "
                f"{len(prompt)} and max_tokens={asked}; load with context={len(prompt) + (asked or 256)}"
            )
        return asked or room


OPTIONS = (*[name for name in signature(Options).parameters if name not in ("model", "n", "sampling")], *_SAMPLING)


def _sampling(vocab: int, given: dict[str, Any]) -> Sampling:
    for name in given:
        if name not in _SAMPLING:
            raise ArgumentError(f"[generate] expected an option of generate but got {name!r}{suggest(name, OPTIONS)}")
    made = Sampling(**given)
    made.want_tokens(vocab)
    return made
