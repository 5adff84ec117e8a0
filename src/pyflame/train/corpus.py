"""Text to train a language model on: files, split into training and held-out ones, as windows of tokens.

Every machine with Python has a few megabytes of Python source: its standard library.
"""

from __future__ import annotations

import sysconfig
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.data import Dataset
from pyflame.train.bpe import BytePairs

# Tests, tables and generated code, and packages that are not part of Python.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "__pycache__"}
_SAMPLE = 1 << 21  # bytes that a tokenizer is trained on: more changes little


def python_sources(folder: Path | None = None) -> list[Path]:
    """The Python files of the standard library, or of another folder, in order of their names."""
    root = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    found = [p for p in root.rglob("*.py") if not _LEFT_OUT.intersection(p.relative_to(root).parts)]
    return sorted(found, key=lambda p: p.relative_to(root).as_posix())


@dataclass(frozen=True)
class Corpus:
    """Tokens of many files, one after the other: those to train on, and those of files that are held out."""

    tokenizer: BytePairs
    train: np.ndarray[Any, Any]  # uint16
    held_out: np.ndarray[Any, Any]
    files: int
    nbytes: int

    @property
    def bytes_per_token(self) -> float:
        return self.nbytes / (len(self.train) + len(self.held_out))


def read_corpus(
    files: Iterable[Path], vocab_size: int = 1024, *, tokenizer: BytePairs | None = None, held_out: float = 0.05
) -> Corpus:
    """Read files, train a tokenizer on them unless one is given, and encode them.

    A file's name alone decides whether it is held out, so a corpus that grows keeps its split.

    >>> corpus = read_corpus(python_sources())
    """
    if not 0.0 < held_out < 1.0:
        raise ArgumentError(f"[read_corpus] expected held_out in (0, 1) but got {held_out}")
    parts: dict[bool, list[bytes]] = {False: [], True: []}
    for path in files:
        apart = zlib.crc32(path.name.encode()) < held_out * 2**32
        parts[apart].append(path.read_bytes())
    if not parts[False] or not parts[True]:
        raise ArgumentError(
            f"[read_corpus] expected files to train on and to hold out but got {len(parts[False])} and "
            f"{len(parts[True])}; give more files"
        )
    train, apart_text = (b"".join(parts[apart]) for apart in (False, True))
    if tokenizer is None:
        tokenizer = BytePairs.train(_sample(parts[False]), vocab_size)
    return Corpus(
        tokenizer,
        tokenizer.encode(train),
        tokenizer.encode(apart_text),
        len(parts[False]) + len(parts[True]),
        len(train) + len(apart_text),
    )


def _sample(texts: list[bytes]) -> bytes:
    """Every n-th text, about _SAMPLE bytes of them: the beginning of a corpus is often one package."""
    every = max(1, round(sum(map(len, texts)) / _SAMPLE))
    return b"".join(texts[::every])


class Windows(Dataset[tuple[Any, Any]]):
    """Pieces of `context` tokens, and the tokens that follow each: (tokens, targets), both int64.

    >>> Windows(np.arange(7), 3)[1]
    (array([3, 4, 5]), array([4, 5, 6]))
    """

    def __init__(self, tokens: np.ndarray[Any, Any], context: int) -> None:
        self.tokens = tokens
        self.context = context
        if len(tokens) <= context:
            raise ArgumentError(
                f"[Windows] expected more than {context} tokens, the context, but got {len(tokens)}; give more text"
            )

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.context

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        if not 0 <= number < len(self):
            raise IndexError(f"[Windows] expected a number in [0, {len(self) - 1}] but got {number}")
        start = number * self.context
        piece = self.tokens[start : start + self.context + 1].astype(np.int64)
        return piece[:-1], piece[1:]
