"""LangChain's adapters of OpenAI's interface, against a live server."""

from __future__ import annotations

import asyncio
from typing import Any

import langchain_openai as langchain
import pytest

from tests.llm.server.live import Live


def chat(live: Live, **options: Any) -> Any:
    options = {"model": "letters", "temperature": 0, "max_tokens": 8, "max_retries": 0, **options}
    return langchain.ChatOpenAI(base_url=f"{live.url}/v1", api_key="none", **options)


@pytest.mark.slow
def test_chats_and_streams(live: Live) -> None:
    want = live.model.generate(messages=[{"role": "user", "content": "hello"}], max_tokens=8)
    answer = chat(live).invoke("hello")
    assert answer.content == want.text
    assert answer.usage_metadata["output_tokens"] == len(want.tokens)
    parts = list(chat(live, stream_usage=True).stream("hello"))
    assert "".join(part.content for part in parts) == want.text
    assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) == len(want.tokens)

    async def both() -> list[Any]:
        return list(await asyncio.gather(*[chat(live).ainvoke("hello") for _ in range(2)]))

    assert [one.content for one in asyncio.run(both())] == [want.text] * 2


@pytest.mark.slow
def test_tools_and_structured_answers(live: Live) -> None:
    weather = {
        "name": "weather",
        "description": "The weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {"sure": {"type": "boolean"}},
            "required": ["sure"],
            "additionalProperties": False,
        },
    }
    tools = chat(live, max_tokens=200).bind_tools([{"type": "function", "function": weather}], tool_choice="weather")
    calls = tools.invoke("hello").tool_calls
    assert [(call["name"], list(call["args"])) for call in calls] == [("weather", ["sure"])]
    schema = {"title": "answer", **weather["parameters"]}
    found = chat(live, max_tokens=200).with_structured_output(schema, method="json_schema").invoke("hello")
    assert isinstance(found["sure"], bool)


@pytest.mark.slow
def test_embeddings_and_errors(live: Live) -> None:
    embeddings = langchain.OpenAIEmbeddings(
        base_url=f"{live.url}/v1", api_key="none", model="bert", check_embedding_ctx_length=False
    )
    vectors = embeddings.embed_documents(["hello", "world"])
    assert len(vectors) == 2 and len(vectors[0]) == len(embeddings.embed_query("hello"))
    with pytest.raises(Exception, match="expected one of the models letters, bert but got 'nobody'"):
        chat(live, model="nobody").invoke("hello")


@pytest.mark.slow
def test_the_page_of_the_document(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = live.http.get("/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    for word in ("/v1/chat/completions", "/api/chat", "messages", "logit_bias", "required", "Message"):
        assert word in answer.text
    assert "http://" not in answer.text and "https://" not in answer.text and "<script" not in answer.text
    monkeypatch.delattr("pyflame.llm.server.status.reference")  # it was made once
    assert live.http.get("/docs").text == answer.text
    assert live.http.get("/docs.css").headers["content-type"].startswith("text/css")
