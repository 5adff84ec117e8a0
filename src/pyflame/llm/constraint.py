"""Constraints on a text: a JSON schema, a grammar (Lark's syntax) or a regular expression, through `llguidance`.

Before each token it says which ones may follow; the sampler gives the others no chance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.core.optional import optional
from pyflame.llm.tokenizer import Tokenizer

# llguidance's own form of a tokenizer takes 0.4 s to make of 49,000 tokens, and serves all generations.
_made: WeakKeyDictionary[Tokenizer, dict[int, Any]] = WeakKeyDictionary()


def _tokens(library: Any, tokenizer: Tokenizer, vocab: int) -> Any:
    kept = _made.setdefault(tokenizer, {})
    if vocab not in kept:
        try:
            kept[vocab] = library.LLTokenizer(tokenizer.inner.to_str(), vocab, sorted(tokenizer.eos))
        except ValueError as error:
            raise NotSupportedError(
                f"[generate] expected a tokenizer that llguidance knows but it says of {tokenizer.path}: {error}"
            ) from None
    return kept[vocab]


class Constraint:
    """What all texts of one generation must fit. `matcher()` follows one of them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab: int,
        json_schema: Mapping[str, Any] | str | None = None,
        grammar: str | None = None,
        regex: str | None = None,
    ) -> None:
        self.library = optional("llguidance", "llm", "generate")
        self.vocab = vocab
        kind = self.library.LLMatcher
        if json_schema is not None:
            text = json_schema if isinstance(json_schema, str) else json.dumps(json_schema)
            made = kind.grammar_from_json_schema(text)
        else:
            made = kind.grammar_from_lark(grammar) if grammar is not None else kind.grammar_from_regex(regex)
        self.tokens = _tokens(self.library, tokenizer, vocab)
        wrong = kind.validate_grammar(made, self.tokens)
        if wrong:
            raise ArgumentError(f"[generate] expected a schema or grammar that llguidance takes but it says: {wrong}")
        self.grammar = made

    def matcher(self) -> Matcher:
        return Matcher(self.library.LLMatcher(self.tokens, self.grammar), self.vocab)


class Matcher:
    """One text and what may follow."""

    def __init__(self, inner: Any, vocab: int) -> None:
        self.inner, self.vocab = inner, vocab

    def allowed(self) -> npt.NDArray[np.bool_]:
        """Which tokens may come next: (vocab)"""
        bits = np.frombuffer(self.inner.compute_bitmask(), np.uint8)
        found = np.zeros(self.vocab, bool)
        open_ = np.unpackbits(bits, bitorder="little")[: self.vocab]
        found[: len(open_)] = open_
        return found

    def push(self, token: int) -> bool:
        """Take a token; gives whether the text is complete and nothing may follow."""
        if not self.inner.consume_token(token):
            raise ArgumentError(f"[generate] expected a token that the grammar allows but got {token}")
        return bool(self.inner.is_stopped())


def constraint_of(tokenizer: Tokenizer | None, vocab: int, **given: Any) -> Constraint | None:
    """The constraint that one of json_schema, grammar and regex asks for."""
    asked = {name: value for name, value in given.items() if value is not None}
    if not asked:
        return None
    if len(asked) > 1 or tokenizer is None:
        raise ArgumentError(
            "[generate] expected one of json_schema, grammar and regex, of a model with a tokenizer, but got "
            f"{', '.join(asked)}"
        )
    return Constraint(tokenizer, vocab, **asked)
