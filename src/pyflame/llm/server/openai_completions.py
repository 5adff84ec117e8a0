"""POST /v1/completions: continue prompts."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.generate import Prompt
from pyflame.llm.server.answers import streamed, token_text, top_logprobs, usage, whole
from pyflame.llm.server.models import Models
from pyflame.llm.server.openai_chat import STREAMS
from pyflame.llm.server.openai_schema import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest
from pyflame.llm.server.options import options_of
from pyflame.llm.server.work import Work
from pyflame.llm.text import Chunk
from pyflame.llm.tokenizer import Tokenizer

_TOKENS = 16  # OpenAI's default of this endpoint


def prompts_of(given: str | Sequence[Any]) -> list[Prompt]:
    """A prompt is text or tokens; several come as a list of either."""
    if not given:
        raise ArgumentError("[serve] expected at least one prompt, with at least one token, but got none")
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


async def begin(models: Models, body: CompletionRequest) -> tuple[Work, list[str]]:
    """Give the prompts to the engine. Gives what each text begins with as well: the prompt, with `echo`."""
    if body.suffix:
        raise NotSupportedError("[serve] expected no suffix: models here continue a text, they do not fill gaps")
    if body.best_of not in (None, body.n or 1):
        raise NotSupportedError(f"[serve] expected best_of to be n but got {body.best_of}; all texts are returned")
    if body.echo and body.logprobs is not None:
        raise NotSupportedError("[serve] expected echo without logprobs: those of a prompt are not kept")
    options = options_of(body)
    options.setdefault("max_tokens", _TOKENS)
    if body.logprobs is not None:
        options["logprobs"] = body.logprobs
    prompts, tokenizer = prompts_of(body.prompt), models[body.model].model.tokenizer
    texts = [p if isinstance(p, str) else tokenizer.decode(p) for p in prompts] if body.echo else [""] * len(prompts)
    work = await models.write(body.model, options, prompts=prompts)
    return work, [text for text in texts for _ in range(work.n)]


class Logprobs:
    """The log probabilities of one text, in the lists of this endpoint."""

    def __init__(self, tokenizer: Tokenizer, top: int) -> None:
        self.tokenizer, self.top, self.offset = tokenizer, top, 0

    def of(self, chunk: Chunk) -> CompletionLogprobs | None:
        if chunk.logprob is None or (chunk.finish_reason == "stop" and chunk.token in self.tokenizer.eos):
            return None
        text = token_text(self.tokenizer, chunk.token)
        best = {one.token: one.logprob for one in top_logprobs(self.tokenizer, chunk.logprob, self.top)}
        found = CompletionLogprobs(
            tokens=[text],
            token_logprobs=[chunk.logprob.logprob],
            top_logprobs=[best] if self.top else None,
            text_offset=[self.offset],
        )
        self.offset += len(text)
        return found


async def answer(work: Work, body: CompletionRequest, tokenizer: Tokenizer, begins: list[str]) -> Completion:
    choices = [CompletionChoice(index=n, text=text, finish_reason="length") for n, text in enumerate(begins)]
    logprobs = [Logprobs(tokenizer, body.logprobs or 0) for _ in choices]
    async for chunk in work.chunks():
        one = choices[chunk.index]
        one.text += chunk.text
        one.logprobs = _joined(one.logprobs, logprobs[chunk.index].of(chunk))
        one.finish_reason = chunk.finish_reason or one.finish_reason
    return Completion(id=_id(), created=int(time.time()), model=body.model, choices=choices, usage=usage(work))


def _joined(before: CompletionLogprobs | None, new: CompletionLogprobs | None) -> CompletionLogprobs | None:
    if before is None or new is None:
        return before or new
    before.tokens += new.tokens
    before.token_logprobs += new.token_logprobs
    before.text_offset += new.text_offset
    if before.top_logprobs is not None and new.top_logprobs is not None:
        before.top_logprobs += new.top_logprobs
    return before


async def events(
    work: Work, body: CompletionRequest, tokenizer: Tokenizer, begins: list[str]
) -> AsyncIterator[dict[str, Any]]:
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    common = {"id": _id(), "object": "text_completion", "created": int(time.time()), "model": body.model}
    if with_usage:
        common["usage"] = None
    logprobs = [Logprobs(tokenizer, body.logprobs or 0) for _ in begins]
    for index, text in enumerate(begins):
        if text:
            yield common | {"choices": [CompletionChoice(index=index, text=text, finish_reason=None).model_dump()]}
    async for chunk in work.chunks():
        found = logprobs[chunk.index].of(chunk)
        if chunk.text or chunk.finish_reason or found is not None:
            one = CompletionChoice(
                index=chunk.index, text=chunk.text, logprobs=found, finish_reason=chunk.finish_reason
            )
            yield common | {"choices": [one.model_dump()]}
    if with_usage:
        yield common | {"choices": [], "usage": usage(work).model_dump()}


def _id() -> str:
    return f"cmpl-{secrets.token_hex(12)}"


def router(models: Models) -> APIRouter:
    made = APIRouter(prefix="/v1", tags=["OpenAI"])

    @made.post("/completions", response_model=Completion, responses=STREAMS)
    async def create_completion(body: CompletionRequest, http: Request) -> Response | Completion:
        """Continue prompts. With `stream` the answer is a stream of server-sent events."""
        tokenizer = cast(Tokenizer, models[body.model].model.tokenizer)
        work, begins = await begin(models, body)
        if body.stream:
            return await streamed(http, work, events(work, body, tokenizer, begins))
        return await whole(http, work, answer(work, body, tokenizer, begins))

    return made
