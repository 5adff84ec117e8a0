"""Text to token ids and back: the `tokenizers` library, from a tokenizer.json or built of a GGUF file's vocabulary.

What comes out of the library for a damaged tokenizer, be it an error or a panic, becomes a FileFormatError with the
file's name.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyflame.core.errors import ArgumentError, FileFormatError, PyFlameError
from pyflame.core.files import MAX_JSON, parse_json, read_file
from pyflame.core.optional import optional

# U+FFFD stands for bytes that are no code point, or not one yet. A code point has at most four bytes, and decoders show
# at most those of two tokens' worth of them for one that is incomplete: as many in a row are garbage, not a beginning.
_HELD = 8


class Tokenizer:
    """Encodes and decodes. `bos` is None and `eos` empty where a file names none. Of several tokens that end a text
    or a turn, `end` is the one that files and templates call eos.

    >>> tokenizer = open_checkpoint("model.gguf").tokenizer()
    >>> tokenizer.decode(tokenizer.encode("Hello world"))
    'Hello world'
    """

    def __init__(self, inner: Any, path: Path, bos: int | None, eos: Iterable[int], end: int | None = None) -> None:
        self.inner = inner  # the tokenizers.Tokenizer
        self.path = path
        self.bos = bos
        self.eos = set(eos)
        self.end: int | None = min(self.eos, default=None) if end is None else end
        self.vocab_size: int = inner.get_vocab_size(with_added_tokens=True)
        self._literal = _literal_tokens(inner)

    def __repr__(self) -> str:
        return f"<Tokenizer of {self.path.name}: {self.vocab_size} tokens, bos {self.bos}, eos {sorted(self.eos)}>"

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of a text. `special` adds what the model wants around a text (bos, eos); a rendered chat has it
        already. Special tokens that are written out in the text are found either way."""
        if not isinstance(text, str):
            raise ArgumentError(f"[encode] expected text but got {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ArgumentError("[encode] expected text but got half of a surrogate pair in it") from None
        with refusing(self.path, "a tokenizer that can encode"):
            ids: list[int] = self.inner.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of ids, with or without that of special tokens. Ids that no token has are nothing."""
        numbers = [int(i) for i in ids]
        if min(numbers, default=0) < 0 or max(numbers, default=0) >> 32:
            raise ArgumentError(f"[decode] expected ids from 0 to {self.vocab_size - 1} but got {numbers[:8]}")
        runs = itertools.groupby(numbers, self._literal.get) if self._literal else [(None, numbers)]
        with refusing(self.path, "a tokenizer that can decode"):
            return "".join(
                literal * len(list(run)) if literal else self.inner.decode(list(run), skip_special_tokens=not special)
                for literal, run in runs
            )

    def stream(self, special: bool = False) -> Stream:
        """An incremental detokeniser: ids in, text out, never a part of a code point."""
        return Stream(self, special)

    def id(self, token: str) -> int | None:
        """The id of a token's text, if there is one."""
        found: int | None = self.inner.token_to_id(token)
        return found

    def token(self, number: int) -> str | None:
        """The token of an id, as the vocabulary writes it."""
        found: str | None = self.inner.id_to_token(number)
        return found


class Stream:
    """Text of ids that come one by one. All parts, with that of `finish`, are the text of all ids.

    How a token is written may depend on the one before it, so the last part's ids are decoded again with the new ones.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._ids: list[int] = []
        self._shown = 0  # how many of these ids have been given out as text

    def push(self, number: int) -> str:
        """The text that became certain by this id: often a word, sometimes nothing."""
        self._ids.append(number)
        text = self._pending()
        held = len(text) - len(text.rstrip("\ufffd"))
        if not text or 0 < held < _HELD:
            return ""
        self._ids, self._shown = self._ids[self._shown :], len(self._ids) - self._shown
        return text

    def finish(self) -> str:
        """What is left at the end: bytes that never became a code point."""
        text = self._pending()
        self._ids, self._shown = [], 0
        return text

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._ids[: self._shown], self._special)
        return self._tokenizer.decode(self._ids, self._special)[len(before) :]


def _literal_tokens(inner: Any) -> dict[int, str]:
    """Added tokens that are no ASCII, of byte-level vocabularies: their letters are text, but the library would take
    those that stand for a byte in other tokens for that byte."""
    if type(inner.decoder).__name__ != "ByteLevel":
        return {}
    added = inner.get_added_tokens_decoder().items()
    return {number: token.content for number, token in added if not (token.special or token.content.isascii())}


@contextlib.contextmanager
def refusing(path: Path, expected: str) -> Iterator[None]:
    """Turn what the library raises into an error that names the file."""
    try:
        yield
    except PyFlameError:
        raise
    except BaseException as error:  # a panic of Rust's is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise FileFormatError(f"[tokenizer] expected {expected} but {path} is damaged: {error}") from None


def from_json(path: Path, config: Mapping[str, Any], eos: Iterable[int] = (), bos: int | None = None) -> Tokenizer:
    """The tokenizer of a tokenizer.json. `config` is tokenizer_config.json, which names special tokens; `eos` are more
    ids that end a text, `bos` is the beginning's where `config` has none."""
    tokenizers = optional("tokenizers", "llm", "tokenizer")
    raw = read_file(path, MAX_JSON)
    try:
        parse_json(raw)  # the library would end the process where JSON is nested too deeply
        text = raw.decode()
    except ValueError as error:
        raise FileFormatError(f"[tokenizer] expected JSON but {path} is damaged: {error}") from None
    with refusing(path, "a tokenizer"):
        inner = tokenizers.Tokenizer.from_str(text)
        inner.no_padding()
        inner.no_truncation()
        named = {kind: _special(inner, config, kind) for kind in ("bos_token", "eos_token")}
        ends = {*eos, *([] if named["eos_token"] is None else [named["eos_token"]])}
        first = bos if named["bos_token"] is None else named["bos_token"]
        return Tokenizer(inner, path, first, ends, named["eos_token"])


def _special(inner: Any, config: Mapping[str, Any], kind: str) -> int | None:
    """The id of a special token that tokenizer_config.json names, as text or as an object with its content."""
    value = config.get(kind)
    text = value.get("content") if isinstance(value, Mapping) else value
    return inner.token_to_id(text) if isinstance(text, str) else None
