"""Model: a decoder with its tokenizer. `generate` and `stream` write text, `embed` makes vectors of texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType, float32, int64
from pyflame.core.errors import ArgumentError
from pyflame.core.locks import rlock
from pyflame.core.state import state
from pyflame.llm.batch import Batch
from pyflame.llm.cache import bucket_of
from pyflame.llm.chat import render, template_for
from pyflame.llm.decoder import Decoder
from pyflame.llm.prompt_cache import save
from pyflame.llm.stream import Stream
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, tensor
from pyflame.tensor.gradients import no_grad
from pyflame.transform.jit import jit

Tokens = Sequence[int]
Prompt = str | Tokens
_KEPT = 2  # idle batches that a model keeps, with their caches and plans


class Model:
    """A loaded model. Several threads may use it: every generation has a batch of its own while it runs.

    `context` is how many tokens a prompt and its continuation may have together; keys and values are kept in `kv`.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Any,
        template: str | None,
        device: object,
        dtype: DType,
        context: int,
        kv: DType | None = None,
    ) -> None:
        self.decoder, self.tokenizer, self.chat_template = decoder, tokenizer, template
        self.config, self.dtype, self.context = decoder.config, dtype, context
        self.device = state.device if device is None else parse_device(device)
        self.kv = kv or dtype
        self._idle: list[Batch] = []
        self._lock = rlock()  # the collector may end a generation at any moment
        self._embed = jit(self._pooled)

    def __repr__(self) -> str:
        c = self.config
        sizes = f"{c.layers} layers of width {c.width}, {c.heads} heads, vocabulary {c.vocab}"
        where = self.decoder.places if self.decoder.places.split else self.device
        return f"<Model {c.architecture}: {sizes}, context {self.context}, {self.dtype.name} on {where}>"

    def generate(
        self,
        prompt: Prompt | Sequence[Prompt] | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        n: int = 1,
        **options: Any,
    ) -> Any:
        """Continue a prompt, or answer messages: a Generation; a list of them for several prompts or n > 1.

        A prompt is text or tokens; a list of prompts is written as one batch. `messages` are a chat's, rendered by the
        model's template. `n` texts share the work of reading the prompt. Options: `max_tokens` (what the context has
        room for unless given), `stop` (a string or several), `stop_tokens`, `ignore_eos`, `logprobs` (how many of the
        likeliest tokens to report beside each), `tools`, and the fields of `Sampling`: temperature, top_k, top_p,
        min_p, typical_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias, seed. `json_schema`,
        `grammar` (Lark) or `regex` lets only texts pass that fit. Speculative
        decoding (greedy, one text): `lookup=8` guesses so many tokens ahead from what was there, `draft=model` lets a
        smaller model of the same vocabulary guess `ahead=4`. `prompt_cache=path`: take what a file of `save_prompt` has
        of the prompt's beginning instead of reading it.
        """
        prompts, several = self.read_prompts(prompt, messages, options.pop("tools", None))
        stream = Stream(self, prompts, n, **options)
        for _ in stream:
            pass
        found = stream.generations()
        return found if several or n > 1 else found[0]

    def stream(
        self,
        prompt: Prompt | Sequence[Prompt] | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        n: int = 1,
        **options: Any,
    ) -> Stream:
        """As `generate`, token by token: an iterator of Chunks. Leaving the loop ends the generation; the model stays
        usable. When the last chunk has come, the stream has `generations()` and `timings`."""
        prompts, _ = self.read_prompts(prompt, messages, options.pop("tools", None))
        return Stream(self, prompts, n, **options)

    def save_prompt(
        self,
        path: str | os.PathLike[str],
        prompt: Prompt | None = None,
        *,
        messages: Sequence[dict[str, Any]] | None = None,
        tools: Any = None,
    ) -> None:
        """Read a prompt, or a chat, and write its tokens with their keys and values to a file, for generations to begin
        with, in this process or another: `generate(..., prompt_cache=path)`. The file is written whole or not at all.

        >>> model.save_prompt("manual.prompt", manual)
        >>> model.generate(manual + question, prompt_cache="manual.prompt")
        """
        (tokens, *others), _ = self.read_prompts(prompt, messages, tools)
        if others or len(tokens) > self.context:
            raise ArgumentError(
                f"[save_prompt] expected one prompt that fits into a context of {self.context} tokens but got "
                f"{1 + len(others)} of {len(tokens)}"
            )
        with self.lease(1) as batch:
            batch.prefill([tokens])
            save(path, self, batch)

    def read_prompts(self, prompt: Any, messages: Any, tools: Any) -> tuple[list[list[int]], bool]:
        """Tokens of each prompt, and whether several were asked for."""
        if (prompt is None) == (messages is None):
            raise ArgumentError("[generate] expected either a prompt or messages")
        if not self.config.causal:
            raise ArgumentError(f"[generate] expected a decoder but got {self.config.architecture}; use embed()")
        if messages is not None:
            return [self.chat_tokens(messages, tools)], False
        several = not isinstance(prompt, str) and not all(hasattr(t, "__index__") for t in prompt)
        found = [self.encode(p) for p in (prompt if several else [prompt])]
        if not found:
            raise ArgumentError("[generate] expected at least one prompt")
        return found, several

    def encode(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt; tokens are checked and handed on."""
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ArgumentError("[generate] expected tokens since this model has no tokenizer, but got text")
            prompt = self.tokenizer.encode(prompt)
        tokens, vocab = [int(t) for t in prompt], self.config.vocab
        if not tokens or not all(0 <= t < vocab for t in tokens):
            raise ArgumentError(
                f"[generate] expected a prompt of at least one token, each in [0, {vocab}), but got {tokens[:8]}"
            )
        return tokens

    def chat_tokens(self, messages: Sequence[dict[str, Any]], tools: Any = None) -> list[int]:
        """The tokens of a chat, up to where the answer begins."""
        if self.tokenizer is None:
            raise ArgumentError("[generate] expected tokens since this model has no tokenizer, but got messages")
        template = template_for(self.chat_template, self.tokenizer)
        ends = {"bos_token": self.tokenizer.bos, "eos_token": self.tokenizer.end}
        values: dict[str, Any] = {name: self.tokenizer.token(n) or "" for name, n in ends.items() if n is not None}
        return self.encode(self.tokenizer.encode(render(template, messages, tools=tools, **values), special=False))

    def embed(self, texts: str | Sequence[Prompt], normalize: bool = True) -> Tensor:
        """One vector for each text, (texts, width), of length 1 unless `normalize` is False; one text: (width).

        The encoder's output is pooled as the model was trained: the mean over tokens, or the first one.
        """
        if self.config.pooling == "none":
            raise ArgumentError(f"[embed] expected an encoder that is pooled but got {self.config.architecture}")
        tokens = [self.encode(t) for t in ([texts] if isinstance(texts, str) else texts)]
        longest, most = max(map(len, tokens), default=1), self.config.position_embeddings
        if longest > most:
            raise ArgumentError(f"[embed] expected texts of at most {most} tokens but got one of {longest}")
        size = bucket_of(longest, most)
        padded = tensor([t + [0] * (size - len(t)) for t in tokens], dtype=int64, device=self.device)
        with no_grad():
            out: Tensor = self._embed(padded, tensor(list(map(len, tokens)), dtype=int64, device=self.device))
        out = out / out.norm(2, -1, True).clamp(min=1e-12) if normalize else out
        return out[0] if isinstance(texts, str) else out

    def _pooled(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.decoder(tokens, lengths).to(float32)
        if self.config.pooling == "cls":
            first: Tensor = x[:, 0]
            return first
        counted = (arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)).to(float32)
        mean: Tensor = (x * counted.unsqueeze(-1)).sum(1) / lengths.to(float32).unsqueeze(1)
        return mean

    @contextmanager
    def lease(self, rows: int) -> Iterator[Batch]:
        """A batch for one generation. One that broke off in the middle of a step is not used again."""
        with self._lock:
            batch = next((b for b in reversed(self._idle) if b.rows == rows), None)
            if batch is not None:
                self._idle.remove(batch)
            elif len(self._idle) >= _KEPT:
                self._idle.pop(0)
        batch = batch or Batch(self.decoder, rows, self.context, self.kv, self.device)
        try:
            yield batch
        except GeneratorExit:
            self._give_back(batch)
            raise
        self._give_back(batch)

    def _give_back(self, batch: Batch) -> None:
        with self._lock:
            self._idle = [*self._idle, batch][-_KEPT:]
