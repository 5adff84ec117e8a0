"""Tokenizers of GGUF vocabularies and of tokenizer.json: ids, round trips, streams, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.llm.gguf_tokenizer import from_gguf
from pyflame.llm.pretokenizers import PRE_TOKENIZERS
from pyflame.llm.tokenizer import Tokenizer, from_json
from tests.llm import small

tokenizers = pytest.importorskip("tokenizers")

WHERE = Path("x.gguf")
TEXTS = [
    "hello world", "", " ", "  two  spaces  ", "a\n\nb\r\n\tc", "naïve café", "日本語 한국어 العربية", "😀👩‍👩‍👧‍👦🏳️‍🌈",
    "def f(x):\n    return x**2", "1234567", "I'm WE'LL don'T", "e\u0301 \u200d\ufeff", "\x00\x7f\x80", "\ufffd",
]  # fmt: skip


def byte_level(**changes: Any) -> Tokenizer:
    keys = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return from_gguf({**small.byte_level(), **keys}, WHERE)


def tokens(tokenizer: Tokenizer, text: str, special: bool = True) -> list[str | None]:
    return [tokenizer.token(n) for n in tokenizer.encode(text, special)]


def test_byte_level_merges() -> None:
    made = byte_level()
    assert tokens(made, "hello world") == ["hello", "Ġworld"]
    assert tokens(made, "123") == ["1", "2", "3"]  # smollm: digits stand alone
    assert tokens(byte_level(pre="gpt-2"), "123") == ["123"]
    assert tokens(made, "hi<|im_end|>") == ["h", "i", "<|im_end|>"]
    assert (made.bos, made.eos, made.vocab_size) == (1, {0, 2}, 271)
    assert made.end == 2  # the file's own, whatever else ends a text


def test_what_is_put_around_a_text() -> None:
    assert tokens(byte_level(add_bos_token=True, add_eos_token=True), "h") == ["<|im_start|>", "h", "<|im_end|>"]
    assert tokens(byte_level(add_bos_token=True, add_eos_token=True), "h", special=False) == ["h"]
    assert tokens(byte_level(pre="llama-bpe"), "h") == ["<|im_start|>", "h"]  # its default
    assert tokens(byte_level(pre="llama-bpe", add_bos_token=False), "h") == ["h"]


def test_sentencepiece_merges_by_score() -> None:
    made = from_gguf(small.sentencepiece(), WHERE)
    assert tokens(made, "hello world") == ["<s>", "▁hello", "▁world"]
    assert tokens(made, "é", special=False) == ["▁", "<0xC3>", "<0xA9>"]
    assert made.decode(made.encode("hello é world")) == "hello é world"
    bare = from_gguf({**small.sentencepiece(), "tokenizer.ggml.add_space_prefix": False}, WHERE)
    assert tokens(bare, "hello world", special=False) == ["hello", "▁world"]


def test_wordpiece() -> None:
    made = from_gguf(small.wordpiece(), WHERE)
    assert tokens(made, "Hello, WÖRLD zzz") == ["[CLS]", "hello", ",", "wor", "##ld", "[UNK]", "[SEP]"]
    assert made.decode(made.encode("hello, world")) == "hello, world"


def test_unigram() -> None:
    made = from_gguf(small.unigram(), WHERE)
    assert tokens(made, "hello world") == ["▁hello", "▁world", "</s>"]
    assert made.decode(made.encode("hello world")) == "hello world"


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_pre_tokenizer_keeps_every_text(name: str) -> None:
    made = byte_level(pre=name, add_bos_token=False)
    for text in TEXTS:
        assert made.decode(made.encode(text)) == text


# Cuts that tell the kinds apart; the ids of whole vocabularies were compared with llama.cpp's.
CUTS = {
    "gpt-2": ["I", "'m", " at", " 12345", "!!", "\n", "\n", "XMLHttp"],
    "smollm": ["I", "'m", " at", " ", "1", "2", "3", "4", "5", "!!", "\n", "\n", "XMLHttp"],
    "llama-bpe": ["I", "'m", " at", " ", "123", "45", "!!\n\n", "XMLHttp"],
    "qwen2": ["I", "'m", " at", " ", "1", "2", "3", "4", "5", "!!\n\n", "XMLHttp"],
    "gpt-4o": ["I'm", " at", " ", "123", "45", "!!\n\n", "XMLHttp"],
    "tekken": ["I", "'m", " at", " ", "1", "2", "3", "4", "5", "!!\n\n", "XMLHttp"],
    "deepseek-v3": ["I", "'m", " at", " ", "123", "45", "!!\n\n", "XMLHttp"],
    "falcon": ["I", "'", "m", " at", " ", "123", "45", "!!", "\n", "\n", "XMLHttp"],
}


@pytest.mark.parametrize("name", CUTS)
def test_where_texts_are_cut(name: str) -> None:
    cuts = byte_level(pre=name).inner.pre_tokenizer.pre_tokenize_str("I'm at 12345!!\n\nXMLHttp")
    text = "I'm at 12345!!\n\nXMLHttp"
    assert [text[start:end] for _, (start, end) in cuts] == CUTS[name]


def stream_of(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(n) for n in ids), stream.finish()]


@pytest.mark.slow
@given(st.text(max_size=40))
@settings(deadline=None, max_examples=60)
def test_streams_give_the_text_and_no_half_of_a_code_point(text: str) -> None:
    for made in (_BYTE_LEVEL, _PIECES):
        ids = made.encode(text, special=False)
        parts = stream_of(made, ids)
        assert "".join(parts) == made.decode(ids)
        if "\ufffd" not in text and made is _BYTE_LEVEL:
            assert "".join(parts) == text and "\ufffd" not in "".join(parts)


@given(st.lists(st.integers(0, 270), max_size=40))
@settings(deadline=None, max_examples=60)
def test_streams_of_garbage_end(ids: list[int]) -> None:
    assert "".join(stream_of(_BYTE_LEVEL, ids)) == _BYTE_LEVEL.decode(ids)


_BYTE_LEVEL, _PIECES = byte_level(), from_gguf(small.sentencepiece(), WHERE)


def test_a_stream_waits_for_whole_code_points() -> None:
    parts = stream_of(_BYTE_LEVEL, _BYTE_LEVEL.encode("😀é!"))
    assert parts == ["", "", "", "😀", "", "é", "!", ""]
    assert stream_of(_BYTE_LEVEL, _BYTE_LEVEL.encode("😀")[:2])[-1] == "\ufffd"
    garbage = [_BYTE_LEVEL.id("ÿ")] * 100  # byte 0xFF, never a part of a text
    assert "".join(stream_of(_BYTE_LEVEL, garbage)[:-1]).count("\ufffd") > 90


def test_added_tokens_are_what_they_look_like() -> None:
    """ö is the token of a byte in a byte-level vocabulary, and here also text of the user's own."""
    vocabulary = small.byte_level()
    types = list(vocabulary["tokenizer.ggml.token_type"])
    types[vocabulary["tokenizer.ggml.tokens"].index("ö")] = 4
    made = byte_level(token_type=types)
    assert made.decode(made.encode("schön")) == "schön"


def test_special_tokens_are_left_out_or_not() -> None:
    ids = _BYTE_LEVEL.encode("h<|im_end|>")
    assert _BYTE_LEVEL.decode(ids) == "h" and _BYTE_LEVEL.decode(ids, special=True) == "h<|im_end|>"
    with pytest.raises(ArgumentError, match=r"ids from 0 to 270 but got \[-1\]"):
        _BYTE_LEVEL.decode([-1])
    with pytest.raises(ArgumentError, match="surrogate"):
        _BYTE_LEVEL.encode("\ud800")


def test_tokenizer_json_and_gguf_agree(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(small.tokenizer_json())
    made = from_json(tmp_path / "tokenizer.json", {"eos_token": "<|im_end|>"})
    assert made.eos == {2} and made.bos is None and made.end == 2
    for text in [*TEXTS, "<|im_start|>user\nhello<|im_end|>"]:
        assert made.encode(text) == _BYTE_LEVEL.encode(text)


def test_transformers_agrees(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_text(small.tokenizer_json())
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert theirs(text)["input_ids"] == _BYTE_LEVEL.encode(text)


WRONG = {
    "tokens": ([], "tokens: no list of texts"),
    "token_type": ([1], "token_type: no list of 271 numbers"),
    "scores": ([1.0, float("nan")], "scores: no list of 271 finite"),
    "eos_token_id": (999, "eos_token_id: 999 of 271 tokens"),
    "bos_token_id": ("x", "bos_token_id: str where int was expected"),
    "merges": (["hello"], "merges: 'hello' is no pair"),
    "add_bos_token": (3, "add_bos_token: int where bool"),
}


@pytest.mark.parametrize("key", WRONG)
def test_wrong_vocabularies(key: str) -> None:
    value, expected = WRONG[key]
    with pytest.raises(FileFormatError, match=rf"x\.gguf is damaged: tokenizer\.ggml\.{expected}"):
        byte_level(**{key: value})


def test_other_wrong_vocabularies() -> None:
    with pytest.raises(FileFormatError, match=r"x\.gguf is damaged: .*zz"):
        byte_level(merges=["zz yy"])
    twice = small.byte_level()["tokenizer.ggml.tokens"]
    with pytest.raises(FileFormatError, match="'h' is there twice"):
        byte_level(tokens=[*twice[:-1], "h"])
    with pytest.raises(NotSupportedError, match=r"one of default, .* has 'lama-bpe'; did you mean 'llama-bpe'"):
        byte_level(pre="lama-bpe")
    with pytest.raises(NotSupportedError, match=r"one of gpt2, llama, bert, t5 but .* has 'rwkv'"):
        from_gguf({**small.byte_level(), "tokenizer.ggml.model": "rwkv"}, WHERE)
    with pytest.raises(FileFormatError, match=r"has no tokenizer\.ggml\.model"):
        from_gguf({}, WHERE)


def test_an_expression_that_would_search_for_ever(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer.from_str(small.tokenizer_json())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("(a|aa)+$"), "isolated")
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(FileFormatError, match=r"tokenizer\.json is damaged: .*retry-limit"):
        from_json(tmp_path / "tokenizer.json", {}).encode("a" * 60 + "b")


def test_wrong_tokenizer_json(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    for text in ("", "[]", "{}", "[" * 100_000, json.dumps({"model": {"type": "BPE"}})):
        path.write_text(text)
        with pytest.raises(FileFormatError, match=r"tokenizer\.json is damaged"):
            from_json(path, {})
