"""What a generation is made of: texts that grow token by token, where they stop, and how long it took."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Timings:
    """Seconds and tokens of reading the prompt and of writing. `cached`: tokens of the prompt that were known;
    `guessed` and `accepted`: tokens that speculative decoding tried, and those of them that were right."""

    prompt_tokens: int
    prompt_seconds: float
    tokens: int
    seconds: float
    cached: int = 0
    guessed: int = 0
    accepted: int = 0

    @property
    def tokens_per_second(self) -> float:
        """The speed of writing, without the first token, which belongs to reading."""
        return max(self.tokens - 1, 0) / self.seconds if self.seconds > 0.0 else 0.0


@dataclass(frozen=True)
class Logprob:
    """A token's log probability as the model sees it, before any setting, and those of the likeliest tokens."""

    token: int
    logprob: float
    top: dict[int, float]


@dataclass(frozen=True)
class Generation:
    """A finished text. `finish_reason` is "stop" for an end token, a stop token or a stop string, else "length"."""

    text: str
    tokens: list[int]
    finish_reason: Finish
    timings: Timings
    logprobs: list[Logprob] | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Chunk:
    """What one token added to text number `index`: often a word, sometimes nothing yet."""

    text: str
    token: int
    index: int = 0
    finish_reason: Finish | None = None
    logprob: Logprob | None = None

    def __str__(self) -> str:
        return self.text


@dataclass
class Text:
    """One text that is being written."""

    stream: Any  # the tokenizer's incremental detokeniser, or None where tokens are all that is wanted
    limit: int
    ends: Collection[int]
    stops: Sequence[str]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    text: str = ""
    finish: Finish | None = None
    _held: str = ""  # the beginning of a stop string, perhaps

    def push(self, token: int, logprob: Logprob | None, complete: bool = False) -> str:
        """Take a token; gives the text that is certain by now. `complete`: nothing may follow it."""
        if token in self.ends:
            self.finish = "stop"
            return self._shown("", last=True)
        self.tokens.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if complete or len(self.tokens) >= self.limit:
            self.finish = "stop" if complete else "length"
        return self._shown("" if self.stream is None else self.stream.push(token), last=self.finish is not None)

    def _shown(self, fresh: str, last: bool) -> str:
        if last and self.stream is not None:
            fresh += self.stream.finish()
        text = self._held + fresh
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.finish, self._held, text = "stop", "", text[: min(found)]
        else:
            keep = 0 if last else max((_overlap(text, stop) for stop in self.stops), default=0)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.text += text
        return text


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop string."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if stop.startswith(text[-n:])), 0)
