"""From an engine's chunks to an HTTP answer: whole or streamed, cancelled when the client goes, errors in its form."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from fastapi import Request as HttpRequest
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from pyflame.llm.server.errors import as_http
from pyflame.llm.server.openai_schema import CachedTokens, TopLogprob, Usage
from pyflame.llm.server.work import Work, while_connected
from pyflame.llm.text import Logprob
from pyflame.llm.tokenizer import Tokenizer

T = TypeVar("T")
Event = BaseModel | dict[str, Any]
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


def as_json(value: Event) -> str:
    found = value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


class WorkResponse(StreamingResponse):
    """A stream that takes its work off the engine however it ends."""

    def __init__(self, work: Work, lines: AsyncIterator[str], media_type: str) -> None:
        # no-store and the second header keep caches and nginx from holding tokens back
        super().__init__(lines, media_type=media_type, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.work.cancel()


async def streamed(
    http: HttpRequest, work: Work, events: AsyncIterator[Event], media_type: str = SSE, last: str = "data: [DONE]\n\n"
) -> WorkResponse:
    """A stream of events: named ones have a `type` and are sent under it, as the Responses API does. It begins with
    the first token, so that an error before that has a status of its own; `last` ends one without errors."""
    try:
        await while_connected(http, work.begin())
    except BaseException:
        work.cancel()
        raise
    return WorkResponse(work, _lines(http.url.path, events, media_type, last), media_type)


async def _lines(path: str, events: AsyncIterator[Event], media_type: str, last: str) -> AsyncIterator[str]:
    try:
        async for event in events:
            yield _line(event, media_type)
    except Exception as error:
        yield _line(as_http(error).body(path), media_type)
        return
    if last:
        yield last


def _line(event: Event, media_type: str) -> str:
    text = as_json(event)
    if media_type == NDJSON:
        return text + "\n"
    name = event.get("type") if isinstance(event, dict) else None
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


async def whole(http: HttpRequest, work: Work, answer: Coroutine[Any, Any, T]) -> T:
    """An answer that is sent at once."""
    try:
        return await while_connected(http, answer)
    finally:
        work.cancel()


def usage(work: Work) -> Usage:
    read, written = work.prompt_tokens, work.tokens
    return Usage(
        prompt_tokens=read,
        completion_tokens=written,
        total_tokens=read + written,
        prompt_tokens_details=CachedTokens(cached_tokens=work.cached_tokens),
    )


def token_text(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], special=True)


def top_logprobs(tokenizer: Tokenizer, logprob: Logprob, count: int) -> list[TopLogprob]:
    """The likeliest tokens, likeliest first."""
    best = sorted(logprob.top.items(), key=lambda item: -item[1])[:count]
    return [named_logprob(tokenizer, token, value) for token, value in best]


def named_logprob(tokenizer: Tokenizer, token: int, value: float) -> TopLogprob:
    text = token_text(tokenizer, token)
    return TopLogprob(token=text, logprob=max(value, -9999.0), bytes=list(text.encode()))
