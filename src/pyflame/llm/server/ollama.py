"""Ollama's endpoints, for its clients: /api/chat, generate, embed, tags, ps, show and version. Models come from the
command line only, so there is no pull, push, create, copy or delete."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

import pyflame
from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.server.answers import NDJSON, streamed, whole
from pyflame.llm.server.embeddings import embed
from pyflame.llm.server.models import Models, Served
from pyflame.llm.server.ollama_schema import (
    OllamaChat,
    OllamaEmbed,
    OllamaError,
    OllamaGenerate,
    OllamaMessage,
    OllamaShow,
    Options,
    Writing,
)
from pyflame.llm.server.openai_chat import Chat, Delta, begin_chat
from pyflame.llm.server.openai_schema import ChatRequest
from pyflame.llm.server.options import options_of
from pyflame.llm.server.tools import Tools

Shape = Callable[[Delta], dict[str, Any]]


def chat_request(body: Writing, messages: list[dict[str, Any]], tools: Any = None) -> ChatRequest:
    """The same as a request of OpenAI's endpoint."""
    options = body.options or Options()
    limit = options.num_predict
    wanted: dict[str, Any] = {
        "model": body.model,
        "messages": messages,
        "tools": tools,
        "max_tokens": limit if limit is not None and limit > 0 else None,
        "temperature": min(options.temperature, 2.0),
        "repetition_penalty": options.repeat_penalty,
        "response_format": _format(body.format),
    }
    same = (
        "top_k", "top_p", "min_p", "typical_p", "presence_penalty", "frequency_penalty", "seed", "stop",
    )  # fmt: skip
    return ChatRequest.model_validate(wanted | {name: getattr(options, name) for name in same})


def _format(asked: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if asked is None or asked == "":
        return None
    if isinstance(asked, dict):
        return {"type": "json_schema", "json_schema": {"name": "format", "schema": asked}}
    if asked != "json":
        raise ArgumentError(f"[serve] expected format to be json or a JSON schema but got {asked!r}")
    return {"type": "json_object"}


def _message(message: OllamaMessage) -> dict[str, Any]:
    if message.images:
        raise NotSupportedError("[serve] expected no images; this server reads text only")
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        calls = [c.function for c in message.tool_calls]
        found["tool_calls"] = [
            {"id": f"call_{n}", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for n, c in enumerate(calls)
        ]
    return found | ({"name": message.tool_name} if message.tool_name else {})


async def _begin_generate(models: Models, body: OllamaGenerate) -> Chat:
    if body.suffix or body.images:
        raise NotSupportedError("[serve] expected neither suffix nor images; this server continues text only")
    system = [] if body.system is None else [{"role": "system", "content": body.system}]
    request = chat_request(body, [*system, {"role": "user", "content": body.prompt}])
    if not body.raw:
        return await begin_chat(models, request)
    work = await models.write(body.model, options_of(request), prompts=[body.prompt])
    return Chat(work, models[body.model].model.tokenizer, Tools())


async def _objects(chat: Chat, name: str, shape: Shape) -> AsyncIterator[dict[str, Any]]:
    """One object for each piece of text, and a last one with how it ended and how long it took."""
    finish = "stop"
    async for delta in chat.deltas():
        finish = delta.finish or finish
        if delta.text or delta.calls:
            yield {"model": name, "created_at": _now(), **shape(delta), "done": False}
    yield {"model": name, "created_at": _now(), **shape(Delta(0)), **_summary(chat, finish)}


def _summary(chat: Chat, finish: str) -> dict[str, Any]:
    """Times are in nanoseconds."""
    work, now = chat.work, time.perf_counter()
    return {
        "done": True,
        "done_reason": "length" if finish == "length" else "stop",
        "total_duration": int((now - work.begun) * 1e9),
        "load_duration": 0,
        "prompt_eval_count": work.prompt_tokens,
        "prompt_eval_duration": int((work.first - work.begun) * 1e9),
        "eval_count": work.tokens,
        "eval_duration": int((now - work.first) * 1e9),
    }


def _as_message(delta: Delta) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": delta.text}
    if delta.calls:
        calls = [c.function for c in delta.calls]
        message["tool_calls"] = [{"function": {"name": c.name, "arguments": json.loads(c.arguments)}} for c in calls]
    return {"message": message}


def _as_response(delta: Delta) -> dict[str, Any]:
    return {"response": delta.text}


async def _respond(http: Request, chat: Chat, body: Writing, shape: Shape) -> Response | dict[str, Any]:
    if body.stream:
        return await streamed(http, chat.work, _objects(chat, body.model, shape), NDJSON, last="")
    return await whole(http, chat.work, _joined(chat, body.model, shape))


async def _joined(chat: Chat, name: str, shape: Shape) -> dict[str, Any]:
    await chat.work.begin()  # the first token's time is part of the summary
    total, finish = Delta(0), "stop"
    async for delta in chat.deltas():
        total.text += delta.text
        total.calls += delta.calls
        finish = delta.finish or finish
    return {"model": name, "created_at": _now(), **shape(total), **_summary(chat, finish)}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")


def _about(one: Served) -> dict[str, Any]:
    config = one.model.config
    details = {
        "parent_model": "",
        "format": "pyflame",
        "family": config.architecture,
        "families": [config.architecture],
        "parameter_size": "",
        "quantization_level": "",
    }
    made = datetime.fromtimestamp(one.created, timezone.utc).isoformat()
    return {"name": one.name, "model": one.name, "modified_at": made, "size": 0, "digest": "", "details": details}


def router(models: Models) -> APIRouter:
    refused: dict[int | str, dict[str, Any]] = {code: {"model": OllamaError} for code in ("4XX", "5XX")}
    made = APIRouter(prefix="/api", tags=["Ollama"], responses=refused)
    write = {"content": {NDJSON: {}}, "description": "Objects, one per line, or a single one."}

    @made.post("/chat", responses={200: write}, response_model=None)
    async def chat(body: OllamaChat, http: Request) -> Response | dict[str, Any]:
        """Answer a chat."""
        if not body.messages:  # how its clients load a model ahead of time
            models[body.model].writer()
            return {"model": body.model, "created_at": _now(), **_as_message(Delta(0)), "done": True}
        request = chat_request(body, [_message(m) for m in body.messages], body.tools)
        return await _respond(http, await begin_chat(models, request), body, _as_message)

    @made.post("/generate", responses={200: write}, response_model=None)
    async def generate(body: OllamaGenerate, http: Request) -> Response | dict[str, Any]:
        """Answer a prompt by the model's template, or continue it with `raw`."""
        if not body.prompt:
            models[body.model].writer()
            return {"model": body.model, "created_at": _now(), "response": "", "done": True}
        return await _respond(http, await _begin_generate(models, body), body, _as_response)

    @made.post("/embed")
    async def embed_texts(body: OllamaEmbed) -> dict[str, Any]:
        """Vectors of texts."""
        begun = time.perf_counter()
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors, tokens = await embed(models, body.model, texts)
        spent = int((time.perf_counter() - begun) * 1e9)
        return {
            "model": body.model,
            "embeddings": vectors.tolist(),
            "total_duration": spent,
            "prompt_eval_count": tokens,
        }

    @made.get("/tags")
    @made.get("/ps")
    async def tags() -> dict[str, Any]:
        """The models that are served."""
        return {"models": [_about(one) for one in models.by_name.values()]}

    @made.get("/version")
    async def version() -> dict[str, str]:
        return {"version": pyflame.__version__}

    @made.post("/show")
    async def show(body: OllamaShow) -> dict[str, Any]:
        """What is known of a model."""
        one = models[body.model or body.name or ""]
        config = one.model.config
        sizes = {"context_length": one.model.context, "embedding_length": config.width, "block_count": config.layers}
        info = {f"{config.architecture}.{name}": value for name, value in sizes.items()}
        return {
            "details": _about(one)["details"],
            "model_info": {"general.architecture": config.architecture, **info},
            "template": one.model.chat_template or "",
            "capabilities": ["embedding"] if one.engine is None else ["completion", "tools"],
        }

    return made
