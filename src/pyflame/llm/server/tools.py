"""Tool calls: how tools are shown to a model, and how its calls are found in what it writes.

Three forms of common chat templates are read: Hermes' and Qwen's <tool_call>{...}</tool_call>, Llama 3's bare JSON with
"parameters", and Mistral's [TOOL_CALLS] with a list, or with name[ARGS]{...}. A model whose template has no place for
tools is told of them in Hermes' form. A call that must be made (`required`, or a named function) is written under a
JSON schema, as a list of {"name", "arguments"}.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyflame.core.errors import ArgumentError
from pyflame.llm.server.openai_schema import FunctionCall, NamedTool, Tool, ToolCall, ToolChoice
from pyflame.llm.server.options import compact
from pyflame.llm.tokenizer import Tokenizer

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_MISTRAL, _ARGS, _PYTHON = "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"
_ABOUT = """You may call functions to answer. They are given as JSON schemas:
<tools>
{tools}
</tools>
To call one, write a JSON object with its name and arguments:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""


@dataclass(frozen=True)
class Tools:
    """The tools of one request and what is to be done with them."""

    tools: tuple[Tool, ...] = ()
    choice: str = "none"  # none, auto, required; or named, with one tool
    parallel: bool = True

    @classmethod
    def of(cls, tools: Sequence[Tool] | None, choice: ToolChoice | None, parallel: bool | None) -> Tools:
        if not tools:
            if choice not in (None, "none", "auto"):
                raise ArgumentError("[serve] expected tools with this tool_choice but got none")
            return cls()
        if isinstance(choice, NamedTool):
            chosen = tuple(t for t in tools if t.function.name == choice.function.name)
            if not chosen:
                names = ", ".join(t.function.name for t in tools)
                raise ArgumentError(
                    f"[serve] expected tool_choice to name one of {names} but got {choice.function.name}"
                )
            return cls(chosen[:1], "named", False)
        return cls(() if choice == "none" else tuple(tools), choice or "auto", parallel is not False)

    @property
    def forced(self) -> bool:
        return self.choice in ("required", "named")

    @property
    def finish(self) -> str:
        """How a text ends that holds calls. OpenAI's is "stop" where the caller has named the function."""
        return "stop" if self.choice == "named" else "tool_calls"

    def schema(self) -> dict[str, Any] | None:
        """What the text must fit where a call must be made."""
        if not self.forced:
            return None
        calls = [_call_schema(t) for t in self.tools]
        items = calls[0] if len(calls) == 1 else {"anyOf": calls}
        return compact({"type": "array", "items": items, "minItems": 1, "maxItems": 8 if self.parallel else 1})

    def shown(self, messages: list[dict[str, Any]], template: str | None) -> dict[str, Any]:
        """Messages and tools for the template; tools are described in a message where it does not read them."""
        if template is not None and re.search(r"\btools\b", template):
            return {"messages": messages, "tools": [t.model_dump(exclude_none=True) for t in self.tools] or None}
        messages = [_as_hermes(m) for m in messages]
        if self.tools:
            lines = "\n".join(json.dumps(t.model_dump(exclude_none=True)) for t in self.tools)
            about = _ABOUT.format(tools=lines)
            if messages[0]["role"] == "system":
                messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{about}"}
            else:
                messages.insert(0, {"role": "system", "content": about})
        return {"messages": messages}

    def reader(self, tokenizer: Tokenizer) -> Reader:
        return Reader(frozenset(t.function.name for t in self.tools), self.forced, _markers(tokenizer))


def _call_schema(tool: Tool) -> dict[str, Any]:
    parameters = tool.function.parameters or {"type": "object"}
    return {
        "type": "object",
        "properties": {"name": {"const": tool.function.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _as_hermes(message: dict[str, Any]) -> dict[str, Any]:
    """Calls and results as text, for a template that knows neither."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    if calls := message.get("tool_calls"):
        texts = [f"{_OPEN}\n{json.dumps(c['function'])}\n{_CLOSE}" for c in calls]
        return {"role": message["role"], "content": "\n".join(filter(None, [message["content"], *texts]))}
    return message


def _markers(tokenizer: Tokenizer) -> dict[int, str]:
    """Tokens that mark calls and that decoding leaves out, where a vocabulary has them as special ones."""
    found = {tokenizer.id(text): text for text in (_OPEN, _CLOSE, _MISTRAL, _ARGS, _PYTHON)}
    return {n: text for n, text in found.items() if n is not None and not tokenizer.decode([n])}


@dataclass
class Reader:
    """Follows one text and tells what of it is for the user, and what calls tools. Text is handed on as soon as it
    cannot be the beginning of a call; a call when it is complete."""

    names: frozenset[str]
    forced: bool
    markers: Mapping[int, str]
    calls: list[ToolCall] = field(default_factory=list)
    _held: str = ""
    _shown: bool = False  # whether text was handed on: bare JSON is a call only at the very beginning

    def push(self, text: str, token: int) -> str:
        """Take what a token added; gives the text for the user."""
        if not self.names:
            return text
        self._held += self.markers.get(token, "") + text
        if self.forced or self._is_bare() or _MISTRAL in self._held:
            return ""
        out = ""
        while _OPEN in self._held and _CLOSE in self._held:
            out += self._take_hermes()
        keep = self._held.find(_OPEN)
        if keep < 0:
            keep = len(self._held) - max(_overlap(self._held, marker) for marker in (_OPEN, _MISTRAL))
        if not self._shown and not (out + self._held[:keep]).strip():
            return ""  # blank so far: a call may follow
        out, self._held = out + self._held[:keep], self._held[keep:]
        return self._show(out)

    def finish(self) -> str:
        """The text is complete: what is left of it for the user."""
        out = ""
        while _OPEN in self._held:
            out += self._take_hermes()
        before, marker, rest = self._held.partition(_MISTRAL)
        found = list(_named_calls(rest) if marker else _bare_calls(before))
        if found and all(name in self.names for name, _ in found):
            for name, arguments in found:
                self._add(name, arguments)
            return self._show(out + before if marker else out)
        return self._show(out + self._held)

    def _show(self, text: str) -> str:
        """Blanks around calls are for nobody."""
        if self.calls and not text.strip():
            return ""
        self._shown = self._shown or bool(text)
        return text

    def _is_bare(self) -> bool:
        """Whether the text so far may be nothing but JSON."""
        if self._shown or self.calls:
            return False
        start = self._held.lstrip()
        if _PYTHON.startswith(start):
            return True
        start = start.removeprefix(_PYTHON).lstrip()
        return start[:1] in ("{", "[") and not start.startswith("[T")

    def _take_hermes(self) -> str:
        """Cut the first call out of what is held; gives the text before it, and the call itself if it is none."""
        before, _, rest = self._held.partition(_OPEN)
        inner, _, self._held = rest.partition(_CLOSE)
        found = [(name, arguments) for name, arguments in _bare_calls(inner) if name in self.names]
        for name, arguments in found:
            self._add(name, arguments)
        return before if found else before + _OPEN + rest[: len(rest) - len(self._held)]

    def _add(self, name: str, arguments: Any) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self.calls.append(
            ToolCall(id=f"call_{secrets.token_hex(12)}", function=FunctionCall(name=name, arguments=text))
        )


def _bare_calls(text: str) -> Iterator[tuple[str, Any]]:
    """Calls written as JSON: an object, a list of them, or objects with semicolons between."""
    text = text.strip().removeprefix(_PYTHON).strip()
    decoder = json.JSONDecoder()
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            return
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict) and isinstance(one.get("name"), str):
                yield one["name"], one.get("arguments", one.get("parameters", {}))
        text = text[end:].lstrip("; \n")


def _named_calls(text: str) -> Iterator[tuple[str, Any]]:
    """Mistral's: a list of objects, or name[ARGS]{...} (older: name{...}) once or more."""
    if text.lstrip().startswith(("[", "{")):
        yield from _bare_calls(text)
        return
    decoder = json.JSONDecoder()
    for part in filter(None, text.split(_MISTRAL)):
        found = re.match(r"\s*([\w.-]+)\s*(?:\[ARGS\])?\s*", part)
        if found:
            try:
                yield found[1], decoder.raw_decode(part, found.end())[0]
            except ValueError:
                return


def _overlap(text: str, marker: str) -> int:
    """How many characters at the end of a text are the beginning of a marker."""
    return next((n for n in range(len(marker) - 1, 0, -1) if text.endswith(marker[:n])), 0)
