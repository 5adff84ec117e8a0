"""Tool calls in the forms that models write them, cut into pieces anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyflame.llm.server.openai_schema import Tool
from pyflame.llm.server.tools import Reader, Tools

CALL = '{"name": "weather", "arguments": {"city": "Rome"}}'
OTHER = '{"name": "time", "arguments": {}}'
RM = '{"name": "rm", "arguments": {}}'
TOOL = Tool.model_validate({"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}})


def read(text: str, size: int, forced: bool = False) -> tuple[str, list[tuple[str, Any]]]:
    reader = Reader(frozenset({"weather", "time"}), forced, {})
    shown = "".join(reader.push(text[n : n + size], -1) for n in range(0, len(text), size)) + reader.finish()
    return shown, [(c.function.name, json.loads(c.function.arguments)) for c in reader.calls]


ROME = ("weather", {"city": "Rome"})
CASES: dict[str, tuple[str, str, list[tuple[str, Any]]]] = {
    "hermes": (f"<tool_call>\n{CALL}\n</tool_call>", "", [ROME]),
    "hermes with text": (f"I look.\n<tool_call>{CALL}</tool_call>", "I look.\n", [ROME]),
    "hermes twice": (f"<tool_call>{CALL}</tool_call>\n<tool_call>{OTHER}</tool_call>", "", [ROME, ("time", {})]),
    "hermes cut off": (f"<tool_call>{CALL}", "", [ROME]),
    "llama": ('{"name": "weather", "parameters": {"city": "Rome"}}', "", [ROME]),
    "llama with tag": ('<|python_tag|>{"name": "weather", "parameters": {"city": "Rome"}}', "", [ROME]),
    "llama twice": (f"{CALL}; {OTHER}", "", [ROME, ("time", {})]),
    "mistral": (f"[TOOL_CALLS][{CALL}, {OTHER}]", "", [ROME, ("time", {})]),
    "mistral with args": ('[TOOL_CALLS]weather[ARGS]{"city": "Rome"}', "", [ROME]),
    "mistral behind text": (f"Well. [TOOL_CALLS][{CALL}]", "Well. ", [ROME]),
    "bare list": (f"[{CALL}]", "", [ROME]),
    "plain text": ("It is <b>warm</b> [Tuesday].", "It is <b>warm</b> [Tuesday].", []),
    "json that calls nothing": ('{"answer": 42}', '{"answer": 42}', []),
    "unknown function": (f"<tool_call>{RM}</tool_call> so", f"<tool_call>{RM}</tool_call> so", []),
    "broken json": ("<tool_call>{oops</tool_call>", "<tool_call>{oops</tool_call>", []),
    "unfinished marker": ("a <tool", "a <tool", []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_forms(name: str, size: int) -> None:
    text, shown, calls = CASES[name]
    assert read(text, size) == (shown, calls)


def test_text_is_shown_as_it_comes() -> None:
    reader = Reader(frozenset({"weather"}), False, {})
    assert reader.push("Hello ", -1) == "Hello " and reader.push("world <", -1) == "world "
    assert reader.push("b>", -1) == "<b>"


def test_special_tokens_are_markers() -> None:
    """Decoding leaves special tokens out: their ids tell."""
    reader = Reader(frozenset({"weather"}), False, {7: "[TOOL_CALLS]"})
    assert reader.push("", 7) == "" and reader.push(f"[{CALL}]", 1) == "" and reader.finish() == ""
    assert reader.calls[0].function.name == "weather"


def test_forced_calls_are_a_list() -> None:
    assert read(f"[{CALL}]", 4, forced=True) == ("", [ROME])
    schema = Tools.of([TOOL], "required", None).schema()
    assert schema is not None and schema["items"]["properties"]["name"] == {"const": "weather"}


def test_templates_without_tools_are_told_in_words() -> None:
    tools = Tools.of([TOOL], None, None)
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "weather", "arguments": {}}}]}
    chat = [{"role": "user", "content": "Hi"}, called, {"role": "tool", "content": "12"}]
    shown = tools.shown(chat, "{{ messages }}")
    assert "tools" not in shown and [m["role"] for m in shown["messages"]] == ["system", "user", "assistant", "user"]
    assert '"name": "weather"' in shown["messages"][0]["content"]
    assert shown["messages"][2]["content"].startswith("<tool_call>")
    assert tools.shown(chat, "{% if tools %}...{% endif %}") == {
        "messages": chat,
        "tools": [TOOL.model_dump(exclude_none=True)],
    }
