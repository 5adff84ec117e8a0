"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pyflame.core.errors import ArgumentError
from pyflame.llm.server.answers import named_logprob, streamed, top_logprobs, usage, whole
from pyflame.llm.server.models import Models
from pyflame.llm.server.openai_schema import (
    ChatAnswer,
    ChatChoice,
    ChatCompletion,
    ChatLogprobs,
    ChatRequest,
    TokenLogprob,
    ToolCall,
)
from pyflame.llm.server.options import messages_of, options_of, schema_of
from pyflame.llm.server.tools import Reader, Tools
from pyflame.llm.server.work import Work
from pyflame.llm.text import Chunk
from pyflame.llm.tokenizer import Tokenizer


@dataclass
class Delta:
    """What one chunk adds to an answer."""

    index: int
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    logprob: TokenLogprob | None = None
    finish: str | None = None


@dataclass
class Chat:
    """One chat that is being answered: chunks of the engine in, deltas of each choice out. The Responses API and
    Ollama's endpoints are written over it as well."""

    work: Work
    tokenizer: Tokenizer
    tools: Tools
    top: int | None = None  # how many of the likeliest tokens to report; None: no log probabilities

    def __post_init__(self) -> None:
        self._readers = [self.tools.reader(self.tokenizer) for _ in range(self.work.count)]
        self._sent = [0] * self.work.count

    async def deltas(self) -> AsyncIterator[Delta]:
        async for chunk in self.work.chunks():
            reader = self._readers[chunk.index]
            text = reader.push(chunk.text, chunk.token)
            if chunk.finish_reason:
                text += reader.finish()
            found = Delta(chunk.index, text, self._fresh(chunk.index, reader), self._logprob(chunk))
            if chunk.finish_reason:
                found.finish = self.tools.finish if reader.calls else chunk.finish_reason
            yield found

    def _fresh(self, index: int, reader: Reader) -> list[ToolCall]:
        calls = reader.calls[self._sent[index] :]
        self._sent[index] = len(reader.calls)
        return calls

    def _logprob(self, chunk: Chunk) -> TokenLogprob | None:
        ended = chunk.finish_reason == "stop" and chunk.token in self.tokenizer.eos
        if self.top is None or chunk.logprob is None or ended:
            return None
        own = named_logprob(self.tokenizer, chunk.token, chunk.logprob.logprob)
        return TokenLogprob(**own.model_dump(), top_logprobs=top_logprobs(self.tokenizer, chunk.logprob, self.top))


async def begin_chat(models: Models, body: ChatRequest, *, temperature: float = 1.0) -> Chat:
    """Give a chat to the engine of its model."""
    model = models[body.model].model
    tools = Tools.of(body.tools, body.tool_choice, body.parallel_tool_calls)
    options = options_of(body, temperature=temperature)
    if body.max_completion_tokens is not None:
        options["max_tokens"] = body.max_completion_tokens
    schema = tools.schema() or schema_of(body.response_format)
    if schema is not None:
        options["json_schema"] = schema
    if body.top_logprobs is not None and not body.logprobs:
        raise ArgumentError("[serve] expected logprobs: true with top_logprobs")
    top = (body.top_logprobs or 0) if body.logprobs else None
    if top is not None:
        options["logprobs"] = top
    shown = tools.shown(messages_of(body.messages), model.chat_template)
    return Chat(await models.write(body.model, options, **shown), model.tokenizer, tools, top)


async def answer(chat: Chat, body: ChatRequest) -> ChatCompletion:
    """The whole answer."""
    choices = [
        ChatChoice(index=n, message=ChatAnswer(content=""), finish_reason="stop") for n in range(chat.work.count)
    ]
    async for delta in chat.deltas():
        one = choices[delta.index]
        one.message.content = (one.message.content or "") + delta.text
        if delta.calls:
            one.message.tool_calls = (one.message.tool_calls or []) + delta.calls
        if delta.logprob is not None:
            one.logprobs = one.logprobs or ChatLogprobs(content=[])
            one.logprobs.content.append(delta.logprob)
        one.finish_reason = delta.finish or one.finish_reason  # type: ignore[assignment]
    for one in choices:
        if one.message.tool_calls and not one.message.content:
            one.message.content = None
    return ChatCompletion(id=_id(), created=int(time.time()), model=body.model, choices=choices, usage=usage(chat.work))


async def events(chat: Chat, body: ChatRequest) -> AsyncIterator[dict[str, Any]]:
    """The answer in chunks, as OpenAI sends them: a role first, then text and calls, then how it ended."""
    with_usage = bool(body.stream_options and body.stream_options.include_usage)
    common = {"id": _id(), "object": "chat.completion.chunk", "created": int(time.time()), "model": body.model}
    if with_usage:
        common["usage"] = None
    called = [0] * chat.work.count
    for index in range(chat.work.count):
        yield common | {"choices": [_choice(index, {"role": "assistant", "content": ""})]}
    async for delta in chat.deltas():
        if delta.text or delta.logprob is not None:
            yield common | {"choices": [_choice(delta.index, {"content": delta.text}, delta)]}
        for call in delta.calls:
            numbered = {"index": called[delta.index], **call.model_dump()}
            called[delta.index] += 1
            yield common | {"choices": [_choice(delta.index, {"tool_calls": [numbered]})]}
        if delta.finish:
            yield common | {"choices": [_choice(delta.index, {}) | {"finish_reason": delta.finish}]}
    if with_usage:
        yield common | {"choices": [], "usage": usage(chat.work).model_dump()}


def _choice(index: int, delta: dict[str, Any], of: Delta | None = None) -> dict[str, Any]:
    logprob = None if of is None or of.logprob is None else {"content": [of.logprob.model_dump()], "refusal": None}
    return {"index": index, "delta": delta, "logprobs": logprob, "finish_reason": None}


def _id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def router(models: Models) -> APIRouter:
    made = APIRouter(prefix="/v1", tags=["OpenAI"])

    @made.post("/chat/completions", response_model=ChatCompletion, responses=STREAMS)
    async def create_chat_completion(body: ChatRequest, http: Request) -> Response | ChatCompletion:
        """Answer a chat. With `stream` the answer is a stream of server-sent events."""
        chat = await begin_chat(models, body)
        if body.stream:
            return await streamed(http, chat.work, events(chat, body))
        return await whole(http, chat.work, answer(chat, body))

    return made


STREAMS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer, or a stream of its parts.", "content": {"text/event-stream": {}}}
}
