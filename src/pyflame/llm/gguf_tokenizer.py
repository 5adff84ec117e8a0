"""Builds a tokenizer of the vocabulary in a GGUF file's metadata (`tokenizer.ggml.*`).

Kinds are "gpt2" (byte-level BPE with merges), "llama" (SentencePiece BPE: scores, spaces written as ▁, bytes for what
the vocabulary lacks), "bert" (WordPiece) and "t5" (SentencePiece unigram).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyflame.core.errors import FileFormatError, NotSupportedError, suggest
from pyflame.core.optional import optional
from pyflame.llm.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from pyflame.llm.tokenizer import Tokenizer, refusing

_KEY = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6  # GGUF's types of tokens
_SPACE = "▁"
# Ends of a turn in the chats of models whose files name another end only.
_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",
    "<end_of_turn>", "<turn|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
})  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file with their types and scores, and what else the file says of them."""

    path: Path
    metadata: Mapping[str, Any]
    tokens: list[str]
    types: list[int]
    scores: list[float]

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        value = self.metadata.get(_KEY + key, default)
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise self.damaged(key, f"{type(value).__name__} where {kind.__name__} was expected")
        return value

    def token_id(self, *keys: str) -> int | None:
        """The first of these ids that the file has."""
        for key in keys:
            number: int | None = self.get(key + "_token_id", int)
            if number is not None and number < 1 << 31:  # 2**32 - 1 is none
                if not 0 <= number < len(self.tokens):
                    raise self.damaged(key + "_token_id", f"{number} of {len(self.tokens)} tokens")
                return number
        return None

    def of_type(self, *kinds: int) -> list[str]:
        return [token for token, kind in zip(self.tokens, self.types, strict=True) if kind in kinds]

    def damaged(self, key: str, reason: str) -> FileFormatError:
        return FileFormatError(f"[tokenizer] expected a tokenizer but {self.path} is damaged: {_KEY}{key}: {reason}")


def from_gguf(metadata: Mapping[str, Any], path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, from its metadata."""
    tokenizers = optional("tokenizers", "llm", "tokenizer")
    kind = metadata.get(_KEY + "model")
    if kind is None:
        raise FileFormatError(f"[tokenizer] expected a vocabulary but {path} has no {_KEY}model")
    if not isinstance(kind, str) or kind not in _BUILDERS:
        raise NotSupportedError(
            f"[tokenizer] expected {_KEY}model to be one of {', '.join(_BUILDERS)} but {path} has {kind!r}"
        )
    vocabulary = _vocabulary(metadata, path)
    with refusing(path, "a tokenizer"):
        inner, bos, eos = _BUILDERS[kind](vocabulary, tokenizers)
        _add_special(inner, vocabulary, tokenizers)
        _add_ends(inner, vocabulary, tokenizers, bos, eos)
        return Tokenizer(inner, path, vocabulary.token_id("bos"), _ends(vocabulary), vocabulary.token_id("eos"))


def _vocabulary(metadata: Mapping[str, Any], path: Path) -> Vocabulary:
    v = Vocabulary(path, metadata, [], [], [])
    tokens = v.get("tokens", list)
    if not tokens or not all(isinstance(token, str) for token in tokens):
        raise v.damaged("tokens", "no list of texts")
    tokens = [token or f"[EMPTY_{number}]" for number, token in enumerate(tokens)]
    if len(set(tokens)) < len(tokens):
        seen: set[str] = set()
        twice = next(token for token in tokens if token in seen or seen.add(token))  # type: ignore[func-returns-value]
        raise v.damaged("tokens", f"{twice!r} is there twice")
    types = v.get("token_type", list, [_NORMAL] * len(tokens))
    scores = v.get("scores", list, [0.0] * len(tokens))
    if len(types) != len(tokens) or not all(isinstance(t, int) and _NORMAL <= t <= _BYTE for t in types):
        raise v.damaged("token_type", f"no list of {len(tokens)} numbers from 1 to 6")
    if len(scores) != len(tokens) or not all(isinstance(s, (int, float)) and math.isfinite(s) for s in scores):
        raise v.damaged("scores", f"no list of {len(tokens)} finite numbers")
    return Vocabulary(path, metadata, tokens, types, scores)


def _byte_level(v: Vocabulary, tokenizers: Any) -> tuple[Any, bool, bool]:
    name = v.get("pre", str, "default")
    if name not in PRE_TOKENIZERS:
        raise NotSupportedError(
            f"[tokenizer] expected {_KEY}pre to be one of {', '.join(PRE_TOKENIZERS)} but {v.path} has "
            f"{name!r}{suggest(name, PRE_TOKENIZERS)}"
        )
    pre = PRE_TOKENIZERS[name]
    merges = []
    for merge in v.get("merges", list, []):
        at = merge.find(" ", 1) if isinstance(merge, str) else -1  # a token may begin with a space
        if at < 0:
            raise v.damaged("merges", f"{merge!r} is no pair of tokens")
        merges.append((merge[:at], merge[at + 1 :]))
    vocab = {token: number for number, token in enumerate(v.tokens)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, ignore_merges=pre.whole_words))
    inner.pre_tokenizer = splitter(pre, tokenizers)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner, pre.bos, False


def splitter(pre: PreTokenizer, tokenizers: Any) -> Any:
    """Cuts a text into words, and writes these as bytes."""
    parts = tokenizers.pre_tokenizers
    cuts = [parts.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    return parts.Sequence([*cuts, parts.ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentencepiece(v: Vocabulary, tokenizers: Any) -> tuple[Any, bool, bool]:
    vocab = {token: number for number, token in enumerate(v.tokens)}
    unknown = v.token_id("unknown")
    bpe = tokenizers.models.BPE(
        vocab, _merges(v), byte_fallback=True, fuse_unk=True, unk_token=None if unknown is None else v.tokens[unknown]
    )
    inner = tokenizers.Tokenizer(bpe)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    prefix = v.get("add_space_prefix", bool, True)
    first = [normalizers.Prepend(_SPACE)] if prefix else []
    inner.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", _SPACE)])
    last = [decoders.Strip(" ", 1, 0)] if prefix else []
    inner.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last])
    return inner, True, False


def _merges(v: Vocabulary) -> list[tuple[str, str]]:
    """All pairs of tokens that make a token, that of the best score first: what SentencePiece does without a list."""
    known = set(v.tokens)
    found = []
    for token, kind, score in zip(v.tokens, v.types, v.scores, strict=True):
        if kind in (_NORMAL, _UNUSED):
            for at in range(1, len(token)):
                if token[:at] in known and token[at:] in known:
                    found.append((-score, token[:at], token[at:]))
    found.sort(key=lambda pair: pair[0])  # stable: tokens of one score in the vocabulary's order
    return [(left, right) for _, left, right in found]


def _wordpiece(v: Vocabulary, tokenizers: Any) -> tuple[Any, bool, bool]:
    """GGUF marks where words begin, WordPiece where they go on."""

    def piece(token: str, kind: int) -> str:
        if kind != _NORMAL:
            return token
        return token[1:] if token.startswith(_SPACE) and len(token) > 1 else "##" + token

    vocab: dict[str, int] = {}
    for number, (token, kind) in enumerate(zip(v.tokens, v.types, strict=True)):
        vocab.setdefault(piece(token, kind), number)
    unknown = v.token_id("unknown")
    model = tokenizers.models.WordPiece(vocab, unk_token="[UNK]" if unknown is None else v.tokens[unknown])
    inner = tokenizers.Tokenizer(model)
    inner.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner, True, True


def _unigram(v: Vocabulary, tokenizers: Any) -> tuple[Any, bool, bool]:
    scores = [float(score) for score in v.scores]
    unknown = v.token_id("unknown")
    model = tokenizers.models.Unigram(
        list(zip(v.tokens, scores, strict=True)), unk_id=unknown, byte_fallback=_BYTE in v.types
    )
    inner = tokenizers.Tokenizer(model)
    steps = []
    charsmap = v.get("precompiled_charsmap", list, [])
    if charsmap:
        steps.append(tokenizers.normalizers.Precompiled(_bytes(v, charsmap)))
    if v.get("remove_extra_whitespaces", bool, False):
        steps.append(tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " "))
        steps.append(tokenizers.normalizers.Strip())
    inner.normalizer = tokenizers.normalizers.Sequence(steps)
    scheme = "always" if v.get("add_space_prefix", bool, True) else "never"
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    inner.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    return inner, False, True


def _bytes(v: Vocabulary, numbers: list[Any]) -> bytes:
    try:
        return bytes(number & 0xFF for number in numbers)  # int8 in some files
    except TypeError:
        raise v.damaged("precompiled_charsmap", "no list of bytes") from None


_BUILDERS = {"gpt2": _byte_level, "llama": _sentencepiece, "bert": _wordpiece, "t5": _unigram}


def _add_special(inner: Any, v: Vocabulary, tokenizers: Any) -> None:
    """Control tokens are found in a text as they are; so are the user's own, which are text all the same."""
    typed = "token_type" in {key.removeprefix(_KEY) for key in v.metadata}
    ends = (v.token_id(kind) for kind in ("bos", "eos", "unknown"))
    control = v.of_type(_CONTROL, _UNKNOWN) if typed else [v.tokens[i] for i in ends if i is not None]
    added = tokenizers.AddedToken
    inner.add_special_tokens([added(token, special=True, normalized=False) for token in dict.fromkeys(control)])
    inner.add_tokens([added(token, special=False, normalized=False) for token in v.of_type(_USER)])


def _add_ends(inner: Any, v: Vocabulary, tokenizers: Any, bos: bool, eos: bool) -> None:
    """What is put around a text, as the file says, or as is usual for this kind of vocabulary."""
    bert = v.metadata[_KEY + "model"] == "bert"
    first = v.token_id("cls", "bos") if bert else v.token_id("bos")
    last = v.token_id("seperator", "separator", "eos") if bert else v.token_id("eos")
    around = [
        number if v.get(key, bool, default) else None
        for number, key, default in ((first, "add_bos_token", bos), (last, "add_eos_token", eos or bert))
    ]
    names = [None if number is None else v.tokens[number] for number in around]
    template = [*names[:1], "$A", *names[1:]]
    special = [(name, number) for name, number in zip(names, around, strict=True) if name is not None]
    if special:
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single=[name for name in template if name is not None], special_tokens=list(dict.fromkeys(special))
        )


def _ends(v: Vocabulary) -> set[int]:
    """The ids that end a text or a turn."""
    found = {v.token_id(kind) for kind in ("eos", "eot", "eom")}
    names = {token: number for number, token in enumerate(v.tokens)}
    ends = _ENDS - {"<|end|>"} if {"<|return|>", "<|call|>"} <= names.keys() else _ENDS  # there: of a message
    return {number for number in found if number is not None} | {names[end] for end in ends if end in names}
