"""Mutated model files: each is read or refused by a typed error, fast, and with no size that does not fit its bytes."""

from __future__ import annotations

import contextlib
import json
import math
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pyflame.core.errors import PyFlameError
from pyflame.io.gguf import GGUFFile, formats
from pyflame.llm.files import Checkpoint, open_checkpoint
from pyflame.llm.gguf_tokenizer import from_gguf
from pyflame.llm.tokenizer import from_json
from tests.io.test_damage import mutations
from tests.llm import small

SECONDS = 20.0  # for one file; the machine may be busy
MEMORY = 300 << 20  # bytes that all of them together may add to the process
COUNTS = [pytest.param(300, 1), pytest.param(10_000, 2, marks=[pytest.mark.thorough, pytest.mark.slow])]
TEXT = "hello wörld 123 😀<|im_end|>"


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fail where the block takes too long."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def steady_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MEMORY


def use(checkpoint: Checkpoint) -> None:
    """What a loader does first. All of it may be refused by a typed error, nothing else may happen."""
    with contextlib.suppress(PyFlameError):
        made = checkpoint.tokenizer()
        made.decode(made.encode(TEXT))


def check_sizes(path: Path, checkpoint: Checkpoint) -> None:
    """Tensors have the bytes that shape and encoding ask for, and lie within the file."""
    blocks = {one.name: (one.block, one.nbytes) for one in formats().values()}
    size = path.stat().st_size
    for name in checkpoint.names():
        one = checkpoint.stored(name)
        block, nbytes = blocks[one.encoding]
        assert one.bytes.nbytes * block == math.prod(one.shape) * nbytes and one.bytes.nbytes < size
        one.bytes.sum()  # every byte can be read


@pytest.mark.parametrize(("count", "seed"), COUNTS)
@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
def test_mutated_gguf(tmp_path: Path, steady_memory: None, kind: str, count: int, seed: int) -> None:
    path = small.gguf(tmp_path / "small.gguf", getattr(small, kind)())
    raw, whole = path.read_bytes(), GGUFFile(path)
    header = len(raw) - sum(-(-t.bytes.nbytes // 32) * 32 for t in whole.tensors.values())
    refused: list[str] = []
    for changed in mutations(raw[:header], count, seed):  # the weights are any bytes
        path.write_bytes(changed + raw[header:])
        with bounded():
            try:
                found = open_checkpoint(path)
            except PyFlameError as error:
                refused.append(str(error))
                continue
            use(found)
            check_sizes(path, found)
            for name, tensor in whole.tensors.items():  # none is larger or smaller than its place
                if name in found.names():
                    place = -(-tensor.bytes.nbytes // 32)
                    assert -(-found.stored(name).bytes.nbytes // 32) == place
    assert len(refused) > count // 4 and all(path.name in words for words in refused)


@pytest.mark.parametrize(("count", "seed"), COUNTS)
def test_mutated_folders(tmp_path: Path, steady_memory: None, count: int, seed: int) -> None:
    path = small.folder(tmp_path / "hf", shards=2)
    chance = random.Random(seed)
    files = sorted(p for p in path.iterdir() if p.name != "tokenizer.json")
    parts = {p: p.read_bytes() for p in files}
    heads = {
        p: 8 + int.from_bytes(raw[:8], "little") if p.suffix == ".safetensors" else len(raw) for p, raw in parts.items()
    }
    refused: list[str] = []
    for number in range(count):
        file = chance.choice(files)
        raw, head = parts[file], heads[file]
        changed = next(mutations(raw[:head], 8, seed * count + number))
        file.write_bytes(changed + raw[head:])
        with bounded():
            try:
                found = open_checkpoint(path)
                assert all(found.stored(n).bytes.nbytes % max(1, found.stored(n).shape[0]) == 0 for n in found.names())
                for name in found.names():
                    found.stored(name).bytes.sum()
            except (PyFlameError, FileNotFoundError) as error:
                refused.append(str(error))
        file.write_bytes(raw)
    assert len(refused) > count // 4
    assert all(path.name in words for words in refused)


def mutated_json(value: Any, chance: random.Random) -> Any:
    """The value with one thing in it replaced by another: mutations of its text are hardly ever JSON."""
    odd = [None, True, -1, 1 << 40, 0.5, "", "x", "\x00", [], {}, ["a", "b"], {"type": "BPE"}, "a" * 1000]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated_json(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], *([] if chance.random() < 0.1 else [mutated_json(value[at], chance)]), *value[at + 1 :]]
    return chance.choice(odd)


@pytest.mark.parametrize(("count", "seed"), COUNTS)
def test_mutated_tokenizers(tmp_path: Path, steady_memory: None, count: int, seed: int) -> None:
    path, chance = tmp_path / "tokenizer.json", random.Random(seed)
    raw = small.tokenizer_json()
    texts = [bytes(x) for x in mutations(raw.encode(), count // 2, seed)]
    texts += [json.dumps(mutated_json(json.loads(raw), chance)).encode() for _ in range(count - len(texts))]
    refused: list[str] = []
    for text in texts:
        path.write_bytes(text)
        with bounded():
            try:
                made = from_json(path, {"eos_token": "<|im_end|>"})
                made.decode(made.encode(TEXT))
            except PyFlameError as error:
                refused.append(str(error))
    assert len(refused) > count // 10 and all(path.name in words for words in refused)


@pytest.mark.parametrize(("count", "seed"), COUNTS)
@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece", "wordpiece", "unigram"])
def test_mutated_vocabularies(tmp_path: Path, steady_memory: None, kind: str, count: int, seed: int) -> None:
    chance, vocabulary = random.Random(seed), getattr(small, kind)()
    vocabulary["tokenizer.ggml.precompiled_charsmap"] = [chance.randrange(256) for _ in range(40)]
    for _ in range(count):
        key = chance.choice(list(vocabulary))
        changed = {**vocabulary, key: mutated_json(vocabulary[key], chance)}
        with bounded(), contextlib.suppress(PyFlameError):
            made = from_gguf(changed, Path("x.gguf"))
            made.decode(made.encode(TEXT))
