"""POST /v1/responses: OpenAI's newer form of a chat, for text and functions. The server keeps no conversation."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.server.answers import streamed, whole
from pyflame.llm.server.models import Models
from pyflame.llm.server.openai_chat import STREAMS, Chat, begin_chat
from pyflame.llm.server.openai_schema import ChatRequest, ToolCall
from pyflame.llm.server.options import text_of
from pyflame.llm.server.responses_schema import (
    Incomplete,
    InputDetails,
    InputItem,
    NamedFunction,
    OutputCall,
    OutputMessage,
    OutputText,
    ResponseAnswer,
    ResponsesRequest,
    ResponseUsage,
    SchemaFormat,
)


def chat_request(body: ResponsesRequest) -> ChatRequest:
    """The same as a request of the chat endpoint."""
    if body.previous_response_id is not None or body.background:
        raise NotSupportedError(
            "[serve] expected neither previous_response_id nor background: this server keeps no responses; send the "
            "whole conversation as input"
        )
    given = [InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    system = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
    choice: Any = body.tool_choice
    if isinstance(choice, NamedFunction):
        choice = {"type": "function", "function": {"name": choice.name}}
    return ChatRequest.model_validate(
        {
            "model": body.model,
            "messages": system + _messages(given),
            "max_completion_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "tools": [
                {"type": "function", "function": t.model_dump(exclude={"type"}, exclude_none=True)}
                for t in body.tools or []
            ],
            "tool_choice": choice,
            "parallel_tool_calls": body.parallel_tool_calls,
            "response_format": _format(body),
        }
    )


def _format(body: ResponsesRequest) -> dict[str, Any] | None:
    asked = None if body.text is None else body.text.format
    if not isinstance(asked, SchemaFormat):
        return None if asked is None else {"type": asked.type}
    return {"type": "json_schema", "json_schema": {"name": asked.name, "schema": asked.schema_}}


def _messages(items: list[InputItem]) -> list[dict[str, Any]]:
    """Messages of items. Calls that follow each other are one message of the assistant's."""
    found: list[dict[str, Any]] = []
    for item in items:
        if item.type == "function_call_output":
            found.append({"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)})
        elif item.type == "function_call":
            if item.name is None or item.arguments is None:
                raise ArgumentError("[serve] expected a function_call with a name and arguments")
            call = {"id": item.call_id or "", "function": {"name": item.name, "arguments": item.arguments}}
            if not found or "tool_calls" not in found[-1]:
                found.append({"role": "assistant", "content": None, "tool_calls": []})
            found[-1]["tool_calls"].append(call)
        else:
            if item.role is None:
                raise ArgumentError("[serve] expected a message with a role")
            found.append({"role": item.role, "content": text_of(item.content)})
    return found


class Answering:
    """The response object as it grows."""

    def __init__(self, chat: Chat, body: ResponsesRequest) -> None:
        self.chat, self.text = chat, ""
        self.message: OutputMessage | None = None
        self.response = ResponseAnswer(
            id=_id("resp"),
            created_at=int(time.time()),
            status="in_progress",
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            model=body.model,
            output=[],
            parallel_tool_calls=body.parallel_tool_calls is not False,
            temperature=1.0 if body.temperature is None else body.temperature,
            text={"format": _format(body) or {"type": "text"}},
            tool_choice=body.model_dump()["tool_choice"] or "auto",
            tools=[t.model_dump() for t in body.tools or []],
            top_p=1.0 if body.top_p is None else body.top_p,
            metadata=body.metadata or {},
        )

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """What a stream sends; the last event has the whole response."""
        number = -1
        async for event in self._events():
            number += 1
            yield {"type": event.pop("type"), "sequence_number": number, **event}

    async def whole(self) -> ResponseAnswer:
        async for _ in self._events():
            pass
        return self.response

    async def _events(self) -> AsyncIterator[dict[str, Any]]:
        for kind in ("created", "in_progress"):
            yield {"type": f"response.{kind}", "response": self.response.model_dump()}
        finish = None
        async for delta in self.chat.deltas():
            finish = delta.finish or finish
            if delta.text:
                for event in self._add_text(delta.text):
                    yield event
            for call in delta.calls:
                for event in [*self._close_text(), *self._add_call(call)]:
                    yield event
        for event in self._close_text():
            yield event
        yield self._complete(cut=finish == "length")

    def _complete(self, cut: bool) -> dict[str, Any]:
        work, response = self.chat.work, self.response
        response.status = "incomplete" if cut else "completed"
        response.incomplete_details = Incomplete() if cut else None
        response.usage = ResponseUsage(
            input_tokens=work.prompt_tokens,
            input_tokens_details=InputDetails(cached_tokens=work.cached_tokens),
            output_tokens=work.tokens,
            total_tokens=work.prompt_tokens + work.tokens,
        )
        return {"type": f"response.{response.status}", "response": response.model_dump()}

    def _add_text(self, text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.message is None:
            self.message = OutputMessage(id=_id("msg"), status="in_progress", content=[])
            at = {"output_index": len(self.response.output)}
            found.append({"type": "response.output_item.added", **at, "item": self.message.model_dump()})
            part = OutputText(text="").model_dump()
            found.append({"type": "response.content_part.added", **at, **self._part(), "part": part})
        self.text += text
        at = {"output_index": len(self.response.output), **self._part()}
        return [*found, {"type": "response.output_text.delta", **at, "delta": text, "logprobs": []}]

    def _part(self) -> dict[str, Any]:
        return {"item_id": None if self.message is None else self.message.id, "content_index": 0}

    def _close_text(self) -> list[dict[str, Any]]:
        if self.message is None:
            return []
        part = OutputText(text=self.text)
        done = self.message.model_copy(update={"status": "completed", "content": [part]})
        index = {"output_index": len(self.response.output)}
        at = {**index, **self._part()}
        self.response.output.append(done)
        self.message, self.text = None, ""
        return [
            {"type": "response.output_text.done", **at, "text": part.text, "logprobs": []},
            {"type": "response.content_part.done", **at, "part": part.model_dump()},
            {"type": "response.output_item.done", **index, "item": done.model_dump()},
        ]

    def _add_call(self, call: ToolCall) -> list[dict[str, Any]]:
        name, arguments = call.function.name, call.function.arguments
        item = OutputCall(id=_id("fc"), call_id=call.id, name=name, arguments=arguments)
        begun = item.model_copy(update={"arguments": "", "status": "in_progress"})
        index = {"output_index": len(self.response.output)}
        at = {**index, "item_id": item.id}
        self.response.output.append(item)
        return [
            {"type": "response.output_item.added", **index, "item": begun.model_dump()},
            {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
            {"type": "response.function_call_arguments.done", **at, "arguments": arguments, "name": name},
            {"type": "response.output_item.done", **index, "item": item.model_dump()},
        ]


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def router(models: Models) -> APIRouter:
    made = APIRouter(prefix="/v1", tags=["OpenAI"])

    @made.post("/responses", response_model=ResponseAnswer, responses=STREAMS)
    async def create_response(body: ResponsesRequest, http: Request) -> Response | ResponseAnswer:
        """Answer a conversation. With `stream` the answer is a stream of named events."""
        answering = Answering(await begin_chat(models, chat_request(body)), body)
        if body.stream:
            return await streamed(http, answering.chat.work, answering.events(), last="")
        return await whole(http, answering.chat.work, answering.whole())

    return made
