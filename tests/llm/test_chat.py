"""Chat templates: what transformers makes of them, and what hostile ones may not do."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from pyflame.core.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from pyflame.llm import chat
from pyflame.llm.chat import CHATML, render, template_for
from pyflame.llm.gguf_tokenizer import from_gguf
from tests.llm import small

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b> & 'ö' 😀"},
    {
        "role": "assistant",
        "content": "Hello",
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, None]}}}],
    },
    {"role": "tool", "content": "3"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "ö <>", "parameters": {"type": "object"}}}]
TEMPLATES = {
    "chatml": CHATML,
    "tools": (
        "{%- if tools %}\n    {%- for tool in tools %}\n{{ tool | tojson }}\n{{ tool | tojson(indent=2) }}\n"
        "    {%- endfor %}\n"
        "{%- endif %}\n{%- for m in messages %}\n    {{- m.role }}{% if m.tool_calls %}{{ m.tool_calls[0] | tojson }}"
        "{% endif %}\n{%- endfor %}"
    ),
    "trimmed blocks": "  {% for m in messages %}\n  {{ m['role'] }}\n  {% endfor %}\n",
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
        "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ bos_token }}{% if enable_thinking is defined %}?{% endif %}"
    ),
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "macro": "{% macro show(m) %}[{{ m.role | upper }}]{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
    "year": "{{ strftime_now('%Y')[:2] }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_transformers_renders_the_same(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(small.tokenizer_json()), bos_token="<|im_start|>"
    )
    for prompt in (True, False):
        expected = theirs.apply_chat_template(
            MESSAGES, tools=TOOLS, chat_template=TEMPLATES[name], add_generation_prompt=prompt, tokenize=False
        )
        assert render(TEMPLATES[name], MESSAGES, TOOLS, prompt, bos_token="<|im_start|>") == expected


def test_the_default_template() -> None:
    made = from_gguf(small.byte_level(), Path("x.gguf"))
    assert template_for(None, made) == CHATML and template_for("own", made) == "own"
    assert render(CHATML, [{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    other = from_gguf(small.sentencepiece(), Path("x.gguf"))
    with pytest.raises(NotSupportedError, match=r"x\.gguf has none, and no tokens of ChatML"):
        template_for(None, other)


def test_what_a_template_refuses() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ArgumentError, match="it says: roles must alternate"):
        render(template, MESSAGES)


FORBIDDEN = {
    "classes": "{{ ().__class__.__bases__[0].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "formats": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "changes": "{{ messages.append(1) }}",
    "files": "{% include '/etc/passwd' %}",
    "syntax": "{% if",
    "undefined": "{{ messages[0].x.y }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "digits": "{{ 10 ** 5000 }}",
}


@pytest.mark.parametrize("kind", FORBIDDEN)
def test_what_templates_may_not_do(kind: str) -> None:
    with pytest.raises(ArgumentError, match="a chat template that can be rendered but got: "):
        render(FORBIDDEN[kind], MESSAGES)
    assert render("still here", MESSAGES) == "still here"


ENDLESS = {
    "a loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "one call": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "a product": "{{ 'a' * 10 ** 10 }}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "a width": "{{ '%9999999999d' % 1 }}",
    "a text": "{% for i in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_endless_and_huge_templates_are_stopped(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_CPU_SECONDS", 0.5)
    monkeypatch.setattr(chat, "_MEMORY_BYTES", 256 << 20)
    monkeypatch.setattr(chat, "_worker", chat._Worker())
    with pytest.raises(ArgumentError, match="a chat template that makes do with"):
        render(ENDLESS[kind], MESSAGES)
    assert render("still here", MESSAGES) == "still here"
    chat._worker._stop()


def test_what_is_no_message() -> None:
    with pytest.raises(ArgumentTypeError, match="dicts with a role but got 'Hi'"):
        render(CHATML, ["Hi"])  # type: ignore[list-item]
    with pytest.raises(ArgumentTypeError, match="JSON's types but got: object"):
        render(CHATML, [{"role": "user", "content": object()}])


def test_threads_get_their_own_answers() -> None:
    found: dict[int, str] = {}

    def ask(n: int) -> None:
        found[n] = render("{{ n }}", [], n=n)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: str(n) for n in range(20)}


def test_a_worker_that_was_killed_is_replaced() -> None:
    render("x", [])
    process = chat._worker._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(ArgumentError, match="makes do with"):
        render("x", [])
    assert render("x", []) == "x"


def test_an_interrupted_call_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(process: Any, request: str) -> bytes:
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(chat, "_exchange", interrupted)
        with pytest.raises(KeyboardInterrupt):
            render("old", [])
    assert render("new", []) == "new"
