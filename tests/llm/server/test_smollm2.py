"""The real SmolLM2 behind the server: an answer, a stream, a schema and a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.llm.server import Served
from pyflame.llm.serving.engine import Engine
from tests.llm.server.live import Live, running
from tests.llm.server.test_openai import WEATHER

pytestmark = pytest.mark.slow
PARIS: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def smol(smollm2: Path) -> Iterator[Live]:
    model = pf.llm.load(smollm2, device="cpu", context=512)
    with running([Served("smollm2", model, Engine(model, rows=2, chunk=128))]) as live:
        yield live


def test_answers(smol: Live) -> None:
    asked: dict[str, Any] = {"model": "smollm2", "messages": PARIS, "temperature": 0, "max_tokens": 24}
    got = smol.openai.chat.completions.create(**asked)
    assert (
        got.choices[0].message.content == "The capital of France is Paris." and got.choices[0].finish_reason == "stop"
    )
    chunks = list(smol.openai.chat.completions.create(**asked, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "The capital of France is Paris."
    assert got.usage is not None and got.usage.prompt_tokens > 10


@pytest.mark.slow(16)
def test_calls_a_tool(smol: Live) -> None:
    ask: Any = [{"role": "user", "content": "What will the weather be like in Oslo for the next 3 days?"}]
    got = smol.openai.chat.completions.create(
        model="smollm2", messages=ask, temperature=0, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
    )
    call = (got.choices[0].message.tool_calls or [])[0]
    assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] == "Oslo"
