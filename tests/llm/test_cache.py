"""The cache: where lines lie, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.cache import Cache, bucket_of, cache_bytes, want_room
from pyflame.llm.config import ModelConfig
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make

CONFIG = ModelConfig("test", 2, 32, 4, 2, 8, 48, 96, 1 << 40)


def test_lines_lie_at_their_positions() -> None:
    cache = Cache(CONFIG, 2, 300, pf.float32, "cpu")
    lines = np.random.default_rng(0).normal(size=(2, 3, 2, 8)).astype(np.float32)
    positions = np.array([[5, 6, 7], [270, 271, 272]])
    cache.write(1, pf.tensor(positions), pf.tensor(lines), pf.tensor(2 * lines))
    keys, values = cache.read(1, 300)
    assert keys.shape == (2, 2, 300, 8)
    for row in range(2):
        assert (keys.numpy()[row][:, positions[row]] == lines[row].swapaxes(0, 1)).all()
        assert (values.numpy()[row][:, positions[row]] == 2 * lines[row].swapaxes(0, 1)).all()
    assert np.count_nonzero(keys.numpy()) == lines.size and not cache.read(0, 300)[0].numpy().any()


def test_buckets() -> None:
    assert [bucket_of(n, 1000) for n in (1, 256, 257, 512, 513, 1000)] == [256, 256, 512, 512, 1000, 1000]


def test_too_long_a_context_is_refused_with_the_figure() -> None:
    rows = pf.memory_info("cpu")[1] // cache_bytes(CONFIG, 1, 1024, pf.float32) + 1
    with pytest.raises(pf.OutOfMemoryError, match=r"tokens to fit but they take [0-9.]+ GiB and [0-9.]+ GiB are free"):
        Cache(CONFIG, rows, 1024, pf.float32, "cpu")


def test_context_beyond_the_model(tmp_path: Path) -> None:
    checkpoint, _ = make("llama", tmp_path)
    config = load_decoder(checkpoint).config
    with pytest.raises(pf.ArgumentError, match="expected a context of 1 to 128 tokens but got 129"):
        want_room(config, 1, 129, pf.float32, "cpu")
