"""Ollama's endpoints, through its official client."""

from __future__ import annotations

import json
from typing import Any

import ollama
import pytest

from tests.llm.server.live import Live
from tests.llm.server.test_openai import ASK, WEATHER

GREEDY: dict[str, Any] = {"temperature": 0, "num_predict": 9}


def test_chat(live: Live) -> None:
    want = live.model.generate(messages=ASK, max_tokens=9)
    got = live.ollama.chat("letters:latest", ASK, options=GREEDY)
    assert got.message.content == want.text and got.done and got.done_reason == want.finish_reason
    assert got.prompt_eval_count == 3 and got.eval_count == 9 and (got.total_duration or 0) > 0
    parts = list(live.ollama.chat("letters", ASK, options=GREEDY, stream=True))
    assert "".join(p.message.content or "" for p in parts) == want.text
    assert parts[-1].done and parts[-1].eval_count == 9 and not parts[0].done


def test_generate(live: Live) -> None:
    asked: dict[str, Any] = dict(model="letters", prompt="Hi", options=GREEDY)
    assert live.ollama.generate(**asked).response == live.model.generate(messages=ASK, max_tokens=9).text
    assert live.ollama.generate(**asked, raw=True).response == live.model.generate("Hi", max_tokens=9).text
    parts = list(live.ollama.generate(**asked, system="Be", stream=True))
    want = live.model.generate(messages=[{"role": "system", "content": "Be"}, *ASK], max_tokens=9).text
    assert "".join(p.response for p in parts) == want


def test_format_and_tools(live: Live) -> None:
    schema = WEATHER["function"]["parameters"]
    got = live.ollama.chat("letters", ASK, format=schema, options={"temperature": 0})
    assert json.loads(got.message.content or "")["city"] in ("Rome", "Oslo")
    call = {"function": {"name": "weather", "arguments": {"days": 1}}}
    result = {"role": "tool", "content": "12", "tool_name": "weather"}
    used: Any = [*ASK, {"role": "assistant", "tool_calls": [call]}, result]
    assert live.ollama.chat("letters", used, tools=[WEATHER], options=GREEDY).message.content


def test_embed(live: Live) -> None:
    got = live.ollama.embed("bert", ["abc", "xyz"])
    assert len(got.embeddings) == 2 and got.prompt_eval_count == 6


def test_about(live: Live) -> None:
    assert [m.model for m in live.ollama.list().models] == ["letters", "bert"]
    assert live.ollama.show("letters").capabilities == ["completion", "tools"]
    assert live.http.get("/api/version").json()["version"]
    assert live.http.head("/").status_code == 200  # how the command line client looks whether a server is there


def test_mistakes(live: Live) -> None:
    with pytest.raises(ollama.ResponseError, match="expected one of the models") as caught:
        live.ollama.chat("other", ASK)
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="context of"):
        live.ollama.chat("letters", ASK, options={"num_predict": 5000})
    with pytest.raises(ollama.ResponseError):
        live.ollama.pull("letters")
