"""Texts: stop strings, streams and constraints, over a random model whose tokens are the printable letters of ASCII."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.text import Text
from tests.llm.checkpoints import make
from tests.llm.letters import EOS, letters_model, letters_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return letters_model(tmp_path_factory.mktemp("qwen3"))


def test_text_is_that_of_the_tokens(model: Model) -> None:
    found = model.generate("Hello", max_tokens=20, ignore_eos=True)
    assert found.text == model.tokenizer.decode(found.tokens)
    chunks = list(model.stream("Hello", max_tokens=20, ignore_eos=True))
    assert "".join(c.text for c in chunks) == found.text and [c.token for c in chunks] == found.tokens


def test_folder_of_transformers(model: Model, tmp_path: Path) -> None:
    """By path, through open_checkpoint, with the tokenizer and the end that lie in the folder."""
    make("qwen3", tmp_path)
    letters_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
    loaded = pf.llm.load(tmp_path, device="cpu", context=64)
    assert loaded.tokenizer.eos == {EOS} and loaded.config == model.config
    assert loaded.generate("Hello", max_tokens=9).text == model.generate("Hello", max_tokens=9).text
    assert loaded.generate(np.array([1, 2]), max_tokens=2).tokens == model.generate([1, 2], max_tokens=2).tokens


def test_stop_strings(model: Model) -> None:
    whole = model.generate("Hello", max_tokens=20, temperature=2.0, seed=1, logit_bias={EOS: -100.0}).text
    stop = whole[7:10]
    cut = model.generate("Hello", max_tokens=20, temperature=2.0, seed=1, logit_bias={EOS: -100.0}, stop=[stop, "\t"])
    assert cut.text == whole[: whole.index(stop)] and cut.finish_reason == "stop"
    options = dict(max_tokens=20, temperature=2.0, seed=1, logit_bias={EOS: -100.0}, stop=stop)
    assert "".join(c.text for c in model.stream("Hello", **options)) == cut.text
    with pytest.raises(pf.ArgumentError, match="stop strings that are not empty"):
        model.generate("Hello", stop="")


def test_stop_string_that_begins_and_does_not_end() -> None:
    """Letters that may begin a stop string are held back until it is clear that they do not."""

    class Letters:
        def push(self, token: int) -> str:
            return chr(token)

        def finish(self) -> str:
            return ""

    text = Text(Letters(), 10, (), ["abc"])
    assert [text.push(ord(c), None) for c in "xabab"] == ["x", "", "", "ab", ""]
    assert text.push(ord("c"), None) == "" and text.finish == "stop" and text.text == "xab"
    ended = Text(Letters(), 3, (), ["abc"])
    assert [ended.push(ord(c), None) for c in "xab"] == ["x", "", "ab"] and ended.finish == "length"


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_json_schema(model: Model) -> None:
    for options in (dict(), dict(temperature=1.5, seed=4, n=2)):
        found = model.generate("Hi", json_schema=SCHEMA, max_tokens=100, **options)
        for one in found if isinstance(found, list) else [found]:
            made = json.loads(one.text)
            assert set(made) == {"name", "age"} and 0 <= made["age"] <= 99 and one.finish_reason == "stop"


def test_regex_and_grammar(model: Model) -> None:
    found = model.generate("Hi", regex="[a-c]{4}-[0-9]{2}", max_tokens=30, temperature=1.0, seed=2)
    assert re.fullmatch("[a-c]{4}-[0-9]{2}", found.text)
    found = model.generate("Hi", grammar='start: "yes" | "no"', max_tokens=30)
    assert found.text in ("yes", "no")
    with pytest.raises(pf.ArgumentError, match="llguidance takes but it says"):
        model.generate("Hi", grammar="start: missing", max_tokens=3)
    with pytest.raises(pf.ArgumentError, match="expected one of json_schema, grammar and regex"):
        model.generate("Hi", grammar='start: "a"', regex="a", max_tokens=3)
