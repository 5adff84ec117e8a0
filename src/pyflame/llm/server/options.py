"""The one place where the fields of a request become options of `Engine.submit`, and messages what a template reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.server.openai_schema import Message, SchemaFormat, TextFormat, WriteRequest

# Fields that mean the same here, under the same name.
_SAME = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "ignore_eos", "grammar", "regex", "priority", "adapter",
)  # fmt: skip


def options_of(body: WriteRequest, *, temperature: float = 1.0) -> dict[str, Any]:
    """The options of `Engine.submit`. Without a temperature it is OpenAI's, 1; without a seed each text is another."""
    found: dict[str, Any] = {name: value for name in _SAME if (value := getattr(body, name)) is not None}
    found |= {"n": body.n or 1, "seed": _drawn_seed() if body.seed is None else body.seed}
    found.setdefault("temperature", temperature)
    if body.stop:
        found["stop"] = body.stop
    if body.stop_token_ids:
        found["stop_tokens"] = body.stop_token_ids
    if body.logit_bias:
        found["logit_bias"] = {_token(key): value for key, value in body.logit_bias.items()}
    return found


def _drawn_seed() -> int:
    return int.from_bytes(os.urandom(4), "little")


def _token(key: str) -> int:
    if not key.isdecimal():
        raise ArgumentError(f"[serve] expected token ids as keys of logit_bias but got {key!r}")
    return int(key)


# A small model may go on writing blanks for ever where JSON allows them.
_NO_BLANKS = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}


def compact(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema, for JSON with blanks behind commas and colons and nowhere else."""
    return {**schema, **_NO_BLANKS}


def schema_of(response_format: TextFormat | SchemaFormat | None) -> dict[str, Any] | None:
    """The JSON schema that an answer must fit."""
    if response_format is None or response_format.type == "text":
        return None
    if isinstance(response_format, SchemaFormat):
        return compact(response_format.json_schema.schema_)
    return compact({"type": "object"})


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as chat templates read them: content is text, arguments of calls are objects."""
    return [_message(one) for one in messages]


def _message(message: Message) -> dict[str, Any]:
    found = message.model_dump(exclude_none=True)
    found["content"] = text_of(message.content)
    if message.role == "developer":  # OpenAI's newer word for it, which no template knows
        found["role"] = "system"
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": c.id, "type": c.type, "function": {"name": c.function.name, "arguments": _arguments(c.function)}}
            for c in message.tool_calls
        ]
    return found


def text_of(content: Any) -> str:
    """The text of a message's content, which may come in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.text is None:
            raise NotSupportedError(
                f"[serve] expected parts of text but got {part.type!r}; this server reads text only"
            )
    return "".join(part.text for part in content)


def _arguments(function: Any) -> Any:
    try:
        return json.loads(function.arguments or "{}")
    except ValueError:
        raise ArgumentError(
            f"[serve] expected arguments of a call that are JSON but got {function.arguments[:80]!r}"
        ) from None
