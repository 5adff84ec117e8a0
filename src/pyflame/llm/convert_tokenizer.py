"""A tokenizer.json as the vocabulary of a GGUF file (`tokenizer.ggml.*`).

GGUF knows kinds of vocabularies, and for byte-level ones the names of ways to cut words, but not the pipeline that a
tokenizer.json spells out. So the kind and the name are looked for, a tokenizer is built of them as it would be of the
file, and both must give the same ids for texts in many scripts and for all added tokens. Where none does, GGUF cannot
hold this tokenizer, and the error says why. Texts in NFC are the same to a tokenizer that normalises them: NFC is left
out, as llama.cpp's converter does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.core.optional import optional
from pyflame.llm.gguf_tokenizer import from_gguf, splitter
from pyflame.llm.pretokenizers import PRE_TOKENIZERS
from pyflame.llm.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6  # GGUF's types of tokens
_KEY = "tokenizer.ggml."
_TEXTS = (
    "Hello, world! I'm here; you're THERE and WE'LL see what they'd say...",
    "  two  spaces,   three\n\n\nlines \t tabs\r\n and an end   ",
    "1 12 123 1234 12345 3.14159 0x1F 2024-11-05 $5,000.00 50% 1e-9",
    "def camelCase(self, snake_case: int) -> None:  # note\n    return x[i] += 'a' if HTTPServer2 else \"b\"",
    "Grüße, ça va? Ελληνικά, Русский текст, שלום, مرحبا، हिन्दी में, 中文和标点。日本語のテキスト、한국어 문장",
    "emoji 👩‍👩‍👧 🇩🇪 👍🏽 ☃ ∑∫√ ½ ² ① … — “quotes” \u2018more\u2019 «these»",
    "https://example.org/a?b=c&d=e#f user@mail.com C++ /usr/bin $HOME <tag attr='v'/> {json: [1, 2]}",
    "a", " a", "", "ALLCAPS word's O'Neil don't DON'T 'tis ''quoted''",
)  # fmt: skip


def vocabulary_of(tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """GGUF's keys of a tokenizer for a model whose embeddings have so many rows."""
    data = json.loads(tokenizer.inner.to_str())
    kind = _kind(tokenizer, data)
    tokens, types = _tokens(tokenizer, data, rows)
    found: dict[str, Any] = {"model": kind, "tokens": tokens, "token_type": types}
    found |= _ends(tokenizer, kind)
    found |= {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _wordpiece}[kind](tokenizer, data, tokens, types)
    named = {_KEY + key: value for key, value in found.items()}
    _want_equal(tokenizer, named)
    return named


def _refused(tokenizer: Tokenizer, reason: str) -> NotSupportedError:
    return NotSupportedError(
        f"[convert] expected a tokenizer that a GGUF vocabulary can hold but {tokenizer.path} {reason}; the folder can "
        "be used as it is"
    )


def _kind(tokenizer: Tokenizer, data: Mapping[str, Any]) -> str:
    model = data["model"]
    if model["type"] == "WordPiece":
        return "bert"
    if model["type"] == "BPE" and "ByteLevel" in json.dumps(data["pre_tokenizer"]):
        return "gpt2"
    if model["type"] == "BPE" and model.get("byte_fallback"):
        return "llama"
    raise _refused(
        tokenizer,
        f"is of type {model['type']}{'' if model['type'] != 'BPE' else ' without bytes'}; known are byte-level BPE, "
        "SentencePiece BPE with bytes for what the vocabulary lacks, and WordPiece",
    )


def _tokens(tokenizer: Tokenizer, data: Mapping[str, Any], rows: int) -> tuple[list[str], list[int]]:
    """Tokens by id with their types; ids that no token has are unused ones."""
    vocab: dict[str, int] = tokenizer.inner.get_vocab(with_added_tokens=True)
    most = max(vocab.values(), default=-1) + 1
    if most > rows:
        raise FileFormatError(
            f"[convert] expected embeddings of all {most} tokens of {tokenizer.path} but the model has {rows}"
        )
    tokens, types = [f"[PAD{n}]" for n in range(rows)], [_UNUSED] * rows
    for token, number in vocab.items():
        tokens[number], types[number] = token, _NORMAL
    unknown = data["model"].get("unk_token")
    for added in data["added_tokens"]:
        types[added["id"]] = _CONTROL if added["special"] else _USER
    if unknown in vocab:
        types[vocab[unknown]] = _UNKNOWN
    return tokens, types


def _ends(tokenizer: Tokenizer, kind: str) -> dict[str, Any]:
    """The ids that begin and end a text, and whether they are put around it."""
    bare, whole = tokenizer.encode("a", special=False), tokenizer.encode("a")
    at = next((n for n in range(len(whole)) if whole[n : n + len(bare)] == bare), None)
    if not bare or at is None or at > 1 or len(whole) - len(bare) - at > 1:
        raise _refused(tokenizer, f"puts more than one token before or behind a text: {whole} around {bare}")
    before, behind = whole[:at], whole[at + len(bare) :]
    first, last = ("cls", "seperator") if kind == "bert" else ("bos", "eos")  # GGUF's own spelling
    own = [] if tokenizer.end is None else [tokenizer.end]
    ends = list(dict.fromkeys([*behind, *own, *sorted(tokenizer.eos)]))
    found: dict[str, Any] = {f"{name}_token_id": n for name, n in zip((last, "eot", "eom"), ends, strict=False)}
    begin = before[0] if before else tokenizer.bos
    if begin is not None:
        found[f"{first}_token_id"] = begin
    return found | {"add_bos_token": bool(before), "add_eos_token": bool(behind)}


def _byte_level(tokenizer: Tokenizer, data: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    if data["normalizer"] not in (None, {"type": "NFC"}):
        raise _refused(tokenizer, f"changes texts by {_names(data['normalizer'])}, which GGUF has no key for")
    tokenizers = optional("tokenizers", "llm", "convert")
    whole_words = bool(data["model"].get("ignore_merges"))
    inner = tokenizer.inner.pre_tokenizer
    for name, pre in PRE_TOKENIZERS.items():
        own = splitter(pre, tokenizers)
        if pre.whole_words == whole_words and all(
            own.pre_tokenize_str(text) == inner.pre_tokenize_str(text) for text in _TEXTS
        ):
            return {"pre": name, "merges": [" ".join(pair) for pair in _merges(data)]}
    raise _refused(
        tokenizer,
        f"cuts texts into words by {_names(data['pre_tokenizer'])}, and in none of the ways that GGUF has names for: "
        f"{', '.join(PRE_TOKENIZERS)}",
    )


def _merges(data: Mapping[str, Any]) -> list[list[str]]:
    return [m.split(" ", 1) if isinstance(m, str) else m for m in data["model"]["merges"]]


def _sentencepiece(
    tokenizer: Tokenizer, data: Mapping[str, Any], tokens: list[str], types: list[int]
) -> dict[str, Any]:
    """The order of merges becomes scores: the earlier a token is made, the higher. Bytes get their type."""
    rank: dict[str, int] = {}
    for number, (left, right) in enumerate(_merges(data)):
        rank.setdefault(left + right, number)
    for number, token in enumerate(tokens):
        if types[number] == _NORMAL and len(token) == 6 and token.startswith("<0x"):
            types[number] = _BYTE
    scores = [-float(rank.get(token, len(rank) + n)) if types[n] == _NORMAL else 0.0 for n, token in enumerate(tokens)]
    first = tokenizer.encode("a", special=False)[0]
    unknown = tokenizer.id(data["model"].get("unk_token") or "")
    found = {"scores": scores, "add_space_prefix": tokens[first].startswith("▁")}
    return found | ({} if unknown is None else {"unknown_token_id": unknown})


def _wordpiece(tokenizer: Tokenizer, data: Mapping[str, Any], tokens: list[str], types: list[int]) -> dict[str, Any]:
    """GGUF marks where words begin, WordPiece where they go on."""
    for number, token in enumerate(tokens):
        if types[number] == _NORMAL:
            tokens[number] = token[2:] if token.startswith("##") and len(token) > 2 else "▁" + token
    unknown = tokenizer.id(data["model"]["unk_token"])
    return {} if unknown is None else {"unknown_token_id": unknown}


def _names(part: Any) -> str:
    """The types of a pipeline's parts."""
    if isinstance(part, dict):
        inner = [_names(value) for key, value in part.items() if key in ("pretokenizers", "normalizers")]
        return inner[0] if inner else str(part.get("type"))
    return " + ".join(map(_names, part)) if isinstance(part, list) else str(part)


def _want_equal(tokenizer: Tokenizer, named: dict[str, Any]) -> None:
    """The vocabulary must give the ids that the tokenizer gives."""
    made = from_gguf(named, tokenizer.path)
    added = [token.content for token in tokenizer.inner.get_added_tokens_decoder().values()]
    for text in [*_TEXTS, *added]:
        want, got = tokenizer.encode(text), made.encode(text)
        if want != got:
            raise _refused(tokenizer, f"makes {want} of {text!r}, for which its GGUF vocabulary would give {got}")
    if not tokenizer.eos <= made.eos:
        raise _refused(tokenizer, f"has {len(tokenizer.eos)} tokens that end a text, more than GGUF has keys for")
