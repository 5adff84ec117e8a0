"""Load of a server: requests that arrive at a given pace, and what their clients see.

It talks to any server with OpenAI's /v1/completions and measures at the client: the time to the first token, between
tokens, and of whole requests. Requests arrive whether or not earlier ones have ended, as those of real clients do.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.core.optional import optional

_WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "was", "on", "are", "with", "as", "they", "one")
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Lengths:
    """How many tokens: `128`, `32-512` (any of them alike), or `lognormal:200:0.6` (median and spread)."""

    text: str

    def draw(self, rng: random.Random) -> int:
        try:
            if self.text.startswith("lognormal:"):
                _, median, spread = self.text.split(":")
                return max(1, round(float(median) * rng.lognormvariate(0.0, float(spread))))
            low, _, high = self.text.partition("-")
            return max(1, rng.randint(int(low), int(high or low)))
        except ValueError:
            raise ArgumentError(
                f"[load-test] expected lengths like 128, 32-512 or lognormal:200:0.6 but got {self.text!r}"
            ) from None


@dataclass(frozen=True)
class Load:
    """What to ask of a server: `requests` of them, `rate` per second (inf: all at once), Poisson or at fixed gaps."""

    url: str
    model: str | None = None  # None: the first that the server lists
    requests: int = 64
    rate: float = 4.0
    arrivals: str = "poisson"
    prompt: Lengths = Lengths("64-256")
    output: Lengths = Lengths("32-128")
    seed: int = 0
    token: str | None = None
    ignore_eos: bool = True  # so that texts are as long as asked for
    timeout: float = 600.0

    def arrivals_at(self) -> list[float]:
        """Seconds from the beginning."""
        if self.arrivals not in ("poisson", "fixed") or not self.rate > 0.0 or self.requests < 1:
            raise ArgumentError(
                "[load-test] expected poisson or fixed arrivals, a rate above 0 and at least one request but got "
                f"{self.arrivals}, {self.rate} and {self.requests}"
            )
        rng, at, found = random.Random(self.seed), 0.0, []
        for _ in range(self.requests):
            found.append(at)
            at += rng.expovariate(self.rate) if self.arrivals == "poisson" else 1.0 / self.rate
        return found


@dataclass
class Seen:
    """One request, as its client saw it. Times are seconds since the beginning."""

    begun: float
    pieces: list[float] = field(default_factory=list)  # when each piece of text came
    ended: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Report:
    """What was measured."""

    load: Load
    seen: list[Seen]
    seconds: float

    @property
    def done(self) -> list[Seen]:
        return [s for s in self.seen if s.error is None]

    def first_token(self) -> list[float]:
        return [s.pieces[0] - s.begun for s in self.done if s.pieces]

    def inter_token(self) -> list[float]:
        return [b - a for s in self.done for a, b in zip(s.pieces, s.pieces[1:], strict=False)]

    def whole(self) -> list[float]:
        return [s.ended - s.begun for s in self.done]

    def to_json(self) -> dict[str, Any]:
        """Numbers by name; times in seconds."""
        written, read = sum(s.tokens for s in self.done), sum(s.prompt_tokens for s in self.done)
        times = {
            "time_to_first_token": self.first_token(),
            "inter_token": self.inter_token(),
            "request": self.whole(),
        }
        return {
            "url": self.load.url,
            "model": self.load.model,
            "requests": len(self.seen),
            "failed": dict(Counter(s.error for s in self.seen if s.error is not None)),
            "seconds": self.seconds,
            "requests_per_second": len(self.done) / self.seconds,
            "generated_tokens": written,
            "generated_tokens_per_second": written / self.seconds,
            "prompt_tokens": read,
            "prompt_tokens_per_second": read / self.seconds,
            **{name: {f"p{p}": percentile(values, p) for p in PERCENTILES} for name, values in times.items()},
        }


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest value that so many percent are not above; None of none.

    >>> percentile([3.0, 1.0, 2.0], 50)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def load_test(load: Load, on_done: Callable[[], object] = lambda: None) -> Report:
    """Ask, and wait for all answers. `on_done` is called behind each.

    >>> load_test(Load("http://127.0.0.1:8000", requests=32, rate=8.0)).to_json()["time_to_first_token"]["p95"]
    """
    return asyncio.run(_run(load, on_done))


async def _run(load: Load, on_done: Callable[[], object]) -> Report:
    httpx = optional("httpx", "serve", "load-test")
    headers = {"Authorization": f"Bearer {load.token}"} if load.token else {}
    limits = httpx.Limits(max_connections=None)
    base = load.url.rstrip("/").removesuffix("/v1")
    async with httpx.AsyncClient(base_url=base, headers=headers, limits=limits, timeout=load.timeout) as client:
        model = load.model or await _first_model(client)
        rng = random.Random(load.seed)
        asked = [_body(load, model, rng) for _ in range(load.requests)]
        begun = time.perf_counter()
        tasks = [_one(client, body, at, begun, on_done) for body, at in zip(asked, load.arrivals_at(), strict=True)]
        seen = list(await asyncio.gather(*tasks))
    return Report(load, seen, max(s.ended for s in seen))


async def _first_model(client: Any) -> str:
    try:
        answer = await client.get("/v1/models")
    except optional("httpx", "serve", "load-test").HTTPError as error:
        raise ArgumentError(f"[load-test] expected a server at {client.base_url} but got: {error}") from None
    if answer.status_code != 200:
        raise ArgumentError(f"[load-test] expected a list of models but got {answer.status_code}: {answer.text[:200]}")
    return str(answer.json()["data"][0]["id"])


def _body(load: Load, model: str, rng: random.Random) -> dict[str, Any]:
    words = " ".join(rng.choice(_WORDS) for _ in range(load.prompt.draw(rng)))  # about a token each
    body = {"model": model, "prompt": words, "max_tokens": load.output.draw(rng), "seed": rng.getrandbits(31)}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | ({"ignore_eos": True} if load.ignore_eos else {})


async def _one(client: Any, body: dict[str, Any], at: float, begun: float, on_done: Callable[[], object]) -> Seen:
    await asyncio.sleep(begun + at - time.perf_counter())
    seen = Seen(time.perf_counter() - begun)
    try:
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                seen.error = f"{answer.status_code}: {_message(await answer.aread())}"
            else:
                async for line in answer.aiter_lines():
                    _note(seen, line, begun)
    except optional("httpx", "serve", "load-test").HTTPError as error:
        seen.error = type(error).__name__
    seen.ended = time.perf_counter() - begun
    on_done()
    return seen


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def _note(seen: Seen, line: str, begun: float) -> None:
    """Take one line of a stream."""
    if not line.startswith("data: {"):
        return
    event = json.loads(line[len("data: ") :])
    if "error" in event:
        seen.error = str(event["error"].get("message"))
    if event.get("choices") and event["choices"][0].get("text"):
        seen.pieces.append(time.perf_counter() - begun)
    if event.get("usage"):
        seen.prompt_tokens = event["usage"]["prompt_tokens"]
        seen.tokens = event["usage"]["completion_tokens"]
