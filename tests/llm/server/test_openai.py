"""OpenAI's endpoints, through its official client against a live server."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import openai
import pytest

from tests.llm.server.live import CONTEXT, Live

ASK: list[Any] = [{"role": "user", "content": "Hi"}]
GREEDY: dict[str, Any] = {"model": "letters", "temperature": 0}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def test_models(live: Live) -> None:
    assert [m.id for m in live.openai.models.list()] == ["letters", "bert"]
    assert live.openai.models.retrieve("letters").id == "letters"
    with pytest.raises(openai.NotFoundError, match=r"did you mean 'letters'\?") as caught:
        live.openai.chat.completions.create(model="leters", messages=ASK)
    assert caught.value.code == "model_not_found"


def test_chat(live: Live) -> None:
    want = live.model.generate(messages=ASK, max_tokens=12)
    got = live.openai.chat.completions.create(**GREEDY, messages=ASK, max_tokens=12)
    assert got.choices[0].message.content == want.text and got.choices[0].finish_reason == want.finish_reason
    assert got.usage is not None and got.usage.prompt_tokens == 3 and got.usage.completion_tokens == 12
    parts: Any = [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]
    same = live.openai.chat.completions.create(**GREEDY, messages=parts, max_completion_tokens=12)
    assert same.choices[0].message.content == want.text


def test_chat_stream_with_usage(live: Live) -> None:
    want = live.model.generate(messages=ASK, max_tokens=12).text
    options: Any = {"include_usage": True}
    stream = live.openai.chat.completions.create(
        **GREEDY, messages=ASK, max_tokens=12, stream=True, stream_options=options
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == want
    assert [c.choices[0].finish_reason for c in chunks[-3:-1]] == [None, "length"]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 15
    assert all(c.usage is None for c in chunks[:-1])


@pytest.mark.slow
def test_stop_seed_bias_and_n(live: Live) -> None:
    create = live.openai.chat.completions.create
    whole = create(**GREEDY, messages=ASK, max_tokens=12).choices[0].message.content or ""
    cut = create(**GREEDY, messages=ASK, max_tokens=12, stop=whole[3:5]).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == whole[: whole.index(whole[3:5])]
    drawn: dict[str, Any] = {"model": "letters", "messages": ASK, "max_tokens": 10, "seed": 5, "temperature": 1.0}
    several = create(**drawn, n=3)
    texts = [c.message.content for c in several.choices]
    assert texts == [g.text for g in live.model.generate(messages=ASK, max_tokens=10, seed=5, temperature=1.0, n=3)]
    assert len(set(texts)) == 3 and [c.index for c in several.choices] == [0, 1, 2]
    streamed = ["", "", ""]
    for chunk in create(**drawn, n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts
    biased = create(**GREEDY, messages=ASK, max_tokens=4, logit_bias={str(live.model.tokenizer.id("Z")): 100})
    assert biased.choices[0].message.content == "ZZZZ"


def test_chat_logprobs(live: Live) -> None:
    got = live.openai.chat.completions.create(**GREEDY, messages=ASK, max_tokens=5, logprobs=True, top_logprobs=2)
    assert got.choices[0].logprobs is not None and got.choices[0].logprobs.content is not None
    content = got.choices[0].logprobs.content
    assert "".join(t.token for t in content) == got.choices[0].message.content
    assert all(t.top_logprobs[0].token == t.token and len(t.top_logprobs) == 2 for t in content)
    want = live.model.generate(messages=ASK, max_tokens=5, logprobs=2).logprobs
    assert [t.logprob for t in content] == pytest.approx([p.logprob for p in want])


def test_json_schema(live: Live) -> None:
    parameters = WEATHER["function"]["parameters"]
    asked: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": parameters}}
    got = live.openai.chat.completions.create(**GREEDY, messages=ASK, response_format=asked)
    assert got.choices[0].finish_reason == "stop"
    found = json.loads(got.choices[0].message.content or "")
    assert found["city"] in ("Rome", "Oslo") and 1 <= found["days"] <= 9


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
@pytest.mark.parametrize("stream", [False, True])
def test_forced_tool_call(live: Live, choice: Any, stream: bool) -> None:
    asked: Any = dict(**GREEDY, messages=ASK, tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False)
    if stream:
        with live.openai.chat.completions.stream(**asked) as chunks:
            got = chunks.get_final_completion()
    else:
        got = live.openai.chat.completions.create(**asked)
    calls = got.choices[0].message.tool_calls
    assert calls is not None and len(calls) == 1 and calls[0].function.name == "weather"
    found = json.loads(calls[0].function.arguments)
    assert found["city"] in ("Rome", "Oslo") and 1 <= found["days"] <= 9
    assert got.choices[0].finish_reason == ("tool_calls" if choice == "required" else "stop")
    assert not got.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_tool_call_of_the_model_s_own_accord(live: Live, stream: bool) -> None:
    """The model is made to write a call in Hermes' form, behind a word of its own."""
    text = r'Well <tool_call>\{"name": "weather", "arguments": \{"city": "Rome", "days": [1-9]\}\}</tool_call>'
    asked: Any = dict(**GREEDY, messages=ASK, tools=[WEATHER], extra_body={"regex": text})
    if stream:
        with live.openai.chat.completions.stream(**asked) as chunks:
            got = chunks.get_final_completion()
    else:
        got = live.openai.chat.completions.create(**asked)
    calls = got.choices[0].message.tool_calls
    assert got.choices[0].finish_reason == "tool_calls" and calls is not None
    assert json.loads(calls[0].function.arguments)["city"] == "Rome" and calls[0].id
    assert (got.choices[0].message.content or "").strip() == "Well"


def test_tools_that_are_not_called_leave_the_text(live: Live) -> None:
    asked: Any = dict(**GREEDY, messages=ASK, tools=[WEATHER], max_tokens=8)
    got = live.openai.chat.completions.create(**asked)
    assert got.choices[0].message.tool_calls is None and got.choices[0].message.content
    none = live.openai.chat.completions.create(**asked, tool_choice="none")
    assert none.choices[0].message.content == live.model.generate(messages=ASK, max_tokens=8).text


def test_completions(live: Live) -> None:
    want = [live.model.generate(p, max_tokens=7).text for p in ("abc", "Hello")]
    on: Any = {"ignore_eos": True}
    got = live.openai.completions.create(**GREEDY, prompt=["abc", "Hello"], max_tokens=7, extra_body=on)
    assert all(c.text.startswith(w) for c, w in zip(got.choices, want, strict=True))
    assert got.usage is not None and got.usage.prompt_tokens == 8 and got.usage.completion_tokens == 14
    tokens = live.model.encode("abc")
    assert live.openai.completions.create(**GREEDY, prompt=tokens, max_tokens=7).choices[0].text == want[0]
    assert (
        live.openai.completions.create(**GREEDY, prompt="abc", echo=True, max_tokens=7).choices[0].text
        == "abc" + want[0]
    )
    streamed = ["", ""]
    for chunk in live.openai.completions.create(**GREEDY, prompt=["abc", "Hello"], max_tokens=7, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == want


def test_completions_logprobs(live: Live) -> None:
    got = live.openai.completions.create(**GREEDY, prompt="abc", max_tokens=4, logprobs=3).choices[0]
    assert got.logprobs is not None and got.logprobs.tokens is not None and got.logprobs.top_logprobs is not None
    assert "".join(got.logprobs.tokens) == got.text and got.logprobs.text_offset == [0, 1, 2, 3]
    assert [max(t, key=t.__getitem__) for t in got.logprobs.top_logprobs] == got.logprobs.tokens


def test_responses(live: Live) -> None:
    want = live.model.generate(messages=[{"role": "system", "content": "Be"}, *ASK], max_tokens=9).text
    asked: dict[str, Any] = {**GREEDY, "instructions": "Be", "input": "Hi", "max_output_tokens": 9}
    got = live.openai.responses.create(**asked)
    assert got.output_text == want and got.status == "incomplete" and got.usage is not None
    assert got.usage.output_tokens == 9
    items: Any = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]
    assert live.openai.responses.create(**asked | {"input": items}).output_text == want
    events = list(live.openai.responses.create(**asked, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == want
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == want
    assert [e.sequence_number for e in events] == list(range(len(events)))
    with pytest.raises(openai.BadRequestError, match="whole conversation as input"):
        live.openai.responses.create(**asked, previous_response_id="resp_1")


def test_responses_tools_and_schema(live: Live) -> None:
    tool: Any = {"type": "function", **WEATHER["function"]}
    got = live.openai.responses.create(
        **GREEDY, input="Hi", tools=[tool], tool_choice={"type": "function", "name": "weather"}
    )
    call = got.output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["city"] in ("Rome", "Oslo")
    answered: Any = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "12 degrees"},
    ]
    assert live.openai.responses.create(**GREEDY, input=answered, tools=[tool], max_output_tokens=4).output_text
    with live.openai.responses.stream(**GREEDY, input="Hi", tools=[tool], tool_choice="required") as stream:
        final = stream.get_final_response().output[0]
    assert final.type == "function_call" and json.loads(final.arguments)["days"] >= 1
    schema: Any = {"format": {"type": "json_schema", "name": "w", "schema": WEATHER["function"]["parameters"]}}
    assert json.loads(live.openai.responses.create(**GREEDY, input="Hi", text=schema).output_text)["days"] >= 1


def test_embeddings(live: Live) -> None:
    want = live.openai.embeddings.create(model="bert", input=["abc", "xyz"])  # the client asks for base64
    plain = live.openai.embeddings.create(model="bert", input="abc", encoding_format="float")
    assert want.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert math.hypot(*plain.data[0].embedding) == pytest.approx(1.0, abs=1e-5)
    assert want.usage.prompt_tokens == 6
    with pytest.raises(openai.BadRequestError, match="expected an encoder"):
        live.openai.embeddings.create(model="letters", input="abc")
    with pytest.raises(openai.BadRequestError, match="makes embeddings only"):
        live.openai.chat.completions.create(model="bert", messages=ASK)


def test_tokenize(live: Live) -> None:
    found = live.http.post("/v1/tokenize", json={"model": "letters", "prompt": "abc"}).json()
    assert found == {"tokens": live.model.encode("abc"), "count": 3, "max_model_len": CONTEXT}
    chat = live.http.post("/tokenize", json={"model": "letters", "messages": ASK}).json()
    assert chat["tokens"] == live.model.encode("uHi")
    back = live.http.post("/v1/detokenize", json={"model": "letters", "tokens": found["tokens"]}).json()
    assert back == {"prompt": "abc"}


MOON = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "moon"}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 5000}, f"fit into a context of {CONTEXT} tokens"),
        ({"temperature": -1}, "temperature: Input should be greater"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"messages": []}, "messages: List should have at least 1 item"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "of text but got 'image_url'"),
        ({"logit_bias": {"a": 1}}, "token ids as keys of logit_bias"),
        ({"top_logprobs": 2}, "logprobs: true"),
        ({"n": 1000}, "at most 32 texts"),
        ({"adapter": "mine"}, "expected an adapter among none"),
        ({"tool_choice": "required"}, "expected tools"),
        ({"response_format": MOON}, "schema"),
    ],
)  # fmt: skip
def test_mistakes_are_told(live: Live, changes: dict[str, Any], message: str) -> None:
    for stream in (False, True):
        answer = live.http.post("/v1/chat/completions", json={**GREEDY, "messages": ASK, "stream": stream, **changes})
        found = answer.json()["error"]
        assert answer.status_code == 400 and found["type"] == "invalid_request_error"
        assert message in found["message"]


def test_unknown_paths_and_broken_json(live: Live) -> None:
    assert live.http.get("/v1/nothing").json()["error"]["message"].endswith("Not Found")
    assert live.http.get("/v1/chat/completions").status_code == 405
    broken = live.http.post("/v1/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400 and "JSON" in broken.json()["error"]["message"]


@pytest.mark.slow
def test_document(live: Live) -> None:
    """Every path is described, and answers in the forms that the document has."""
    document = httpx.get(f"{live.url}/openapi.json").json()
    chat = document["paths"]["/v1/chat/completions"]["post"]
    assert "422" not in json.dumps(list(chat["responses"]))
    schemas = document["components"]["schemas"]
    assert schemas["ChatRequest"]["additionalProperties"] is False
    assert {"model", "messages"} == set(schemas["ChatRequest"]["required"])
    assert {
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/models",
        "/health",
        "/metrics",
        "/api/chat",
    } <= set(document["paths"])
