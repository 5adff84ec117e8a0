"""The cache: where lines lie, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.cache import PAGE, Cache, bucket_of, cache_bytes, want_room
from pyflame.llm.config import ModelConfig
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make

CONFIG = ModelConfig("test", 2, 32, 4, 2, 8, 48, 96, 1 << 40)


def test_lines_lie_at_their_positions() -> None:
    cache = Cache(CONFIG, 2, 300, pf.float32, "cpu")
    lines = np.random.default_rng(0).normal(size=(2, 3, 2, 8)).astype(np.float32)
    positions = np.array([[5, 6, 7], [270, 271, 272]])
    cache.write(1, cache.slots(pf.tensor(positions)), pf.tensor(lines), pf.tensor(2 * lines))
    (keys, _), (values, _) = cache.read(1)
    assert keys.shape == (2 * 10, PAGE, 2, 8)
    for row in range(2):
        pages, places = cache.tables[1].numpy()[row, positions[row] // PAGE], positions[row] % PAGE
        assert (keys.numpy()[pages, places] == lines[row]).all()
        assert (values.numpy()[pages, places] == 2 * lines[row]).all()
    assert np.count_nonzero(keys.numpy()) == lines.size and not cache.read(0)[0].lines.numpy().any()


@pytest.mark.parametrize(("dtype", "worst"), [(pf.int8, 0.5 / 127), (pf.float8_e4m3fn, 0.04)])
def test_narrow_lines_have_scales(dtype: pf.DType, worst: float) -> None:
    """Of each line of a head; lines of zeros stay zeros."""
    cache = Cache(CONFIG, 1, 40, dtype, "cpu")
    lines = np.random.default_rng(0).normal(size=(1, 3, 2, 8)).astype(np.float32) * [[[[1.0]], [[1e4]], [[0.0]]]]
    cache.write(
        0, cache.slots(pf.tensor([[3, 33, 39]])), pf.tensor(lines).to(pf.float32), pf.tensor(-lines).to(pf.float32)
    )
    for sign, (pages, scales) in zip((1, -1), cache.read(0), strict=True):
        assert scales is not None
        found = (pages.to(pf.float32) * scales.unsqueeze(-1)).numpy()[[0, 1, 1], [3, 1, 7]]
        assert (np.abs(found - sign * lines[0]) <= worst * np.abs(lines[0]).max(-1, keepdims=True)).all()


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
