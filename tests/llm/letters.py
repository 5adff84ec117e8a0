"""A random model whose tokens are the printable letters of ASCII, and an end."""

from __future__ import annotations

from pathlib import Path

import tokenizers

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.tokenizer import Tokenizer
from tests.llm.checkpoints import VOCAB, make

EOS = VOCAB - 1
TEMPLATE = "{% for m in messages %}{{ m['role'][0] + m['content'] }}{% endfor %}"


def letters_tokenizer() -> tokenizers.Tokenizer:
    letters = {chr(32 + n) if n else "Ġ": n for n in range(EOS)}  # how byte-level vocabularies write a space
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({**letters, "<eos>": EOS}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<eos>"])
    return inner


def letters_model(folder: Path) -> Model:
    checkpoint, _ = make("qwen3", folder)
    tokenizer = Tokenizer(letters_tokenizer(), Path("letters"), None, {EOS})
    return Model(load_decoder(checkpoint), tokenizer, TEMPLATE, "cpu", pf.float32, 128)
