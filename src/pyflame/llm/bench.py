"""How fast a model reads prompts and writes text: what llama-bench measures, over the same path that users take.

A test is "pp512", a prompt of 512 random tokens up to the logits behind it, or "tg128", 128 tokens written one after
the other from an almost empty context, each of them sampled, handed to the host and turned into text.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.parallel import parts_of
from pyflame.llm.text import Generation
from pyflame.tensor.devices import synchronize

# Runs of a test before any is timed: the first one compiles, on a GPU the second moves state and the third captures.
_WARM_UP = 3
_WARM_TOKENS = 8


@dataclass(frozen=True)
class Speed:
    """Tokens per second of each run of a test. `read`: bytes of weights that a step reads, of tests that write."""

    test: str
    samples: tuple[float, ...]
    read: int | None

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0

    @property
    def bytes_per_second(self) -> float | None:
        """How fast weights were read."""
        return None if self.read is None else self.read * self.mean


def bench(
    model: Model,
    prompt: int = 512,
    tokens: int = 128,
    repeats: int = 5,
    ran: Callable[[], object] = lambda: None,
    **options: Any,
) -> list[Speed]:
    """Time both tests `repeats` times, after a warm-up in which all is compiled; 0 leaves a test out.

    `ran` is called after each run, `runs(...)` times in all. `options` are those of `generate`, as lookup or draft.

    >>> [(speed.test, round(speed.mean)) for speed in bench(model, repeats=3)]
    [('pp512', 192), ('tg128', 40)]
    """
    if min(prompt, tokens) < 0 or prompt + tokens == 0 or repeats < 1:
        raise ArgumentError(
            f"[bench] expected tokens to read or write and at least one run but got {prompt}, {tokens} and {repeats}"
        )
    found = []
    if prompt:
        found.append(Speed(f"pp{prompt}", _timed(lambda warm: _read(model, prompt), repeats, ran), None))
    if tokens:
        run = lambda warm: _written(model, min(tokens, _WARM_TOKENS) if warm else tokens, **options)  # noqa: E731
        guesses = options.get("lookup") or options.get("draft")  # then a token reads a part of what a step reads
        found.append(Speed(f"tg{tokens}", _timed(run, repeats, ran), None if guesses else read_bytes(model.decoder)))
    return found


def runs(prompt: int, tokens: int, repeats: int) -> int:
    """How many runs `bench` makes of its tests."""
    return (bool(prompt) + bool(tokens)) * (_WARM_UP + repeats)


def context_for(prompt: int, tokens: int) -> int:
    """The tokens that a model's context needs to have room for."""
    return max(prompt + 1, max(tokens, 1) + 2)


def _timed(run: Callable[[bool], float], repeats: int, ran: Callable[[], object]) -> tuple[float, ...]:
    found = []
    for number in range(_WARM_UP + repeats):
        found.append(run(number < _WARM_UP))
        ran()
    return tuple(found[_WARM_UP:])


def _read(model: Model, count: int) -> float:
    """Tokens per second of reading a prompt: a random one, of which (almost surely) nothing is in the cache."""
    tokens = [random.randrange(model.config.vocab) for _ in range(count)]
    with model.lease(1) as batch:
        begun = time.perf_counter()
        batch.prefill([tokens])
        synchronize(model.device)
        return (count - batch.reused) / (time.perf_counter() - begun)


def write_first_token(model: Model) -> None:
    """Read a prompt of one token and write one: all that a user waits for after loading, compiling included."""
    _text(model, 1)


def _written(model: Model, count: int, **options: Any) -> float:
    """Tokens per second of writing; the first token of a text belongs to its prompt."""
    return _text(model, count + 1, **options).timings.tokens_per_second


def _text(model: Model, count: int, **options: Any) -> Generation:
    first = model.tokenizer.bos if model.tokenizer is not None and model.tokenizer.bos is not None else 0
    made: Generation = model.generate([first], max_tokens=count, ignore_eos=True, **options)
    return made


def read_bytes(decoder: Decoder) -> int:
    """The bytes of weights that one token reads: a row of a table of embeddings, and the experts that are used."""
    config, total = decoder.config, 0
    tables = ["position_embd.", "token_types."] + ([] if config.tied else ["token_embd."])
    weights = [item for part, _ in parts_of(decoder) for item in part.state_dict().items()]
    for name, weight in weights:
        nbytes = weight.numel() * weight.dtype.itemsize
        if any(map(name.startswith, tables)):
            nbytes //= weight.shape[0]
        elif "_exps." in name and config.experts is not None:
            nbytes = nbytes * config.experts.used // config.experts.count
        total += nbytes
    return total
