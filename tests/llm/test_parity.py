"""Every architecture against transformers: logits of a whole forward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.batch import Batch
from pyflame.llm.load import load_decoder
from pyflame.llm.sampler import Features, Picked
from tests.llm.checkpoints import MODELS, make, oracle_logits


@pytest.mark.parametrize("name", MODELS)
def test_logits(name: str, tmp_path: Path) -> None:
    checkpoint, oracle = make(name, tmp_path)
    tokens = np.random.default_rng(0).integers(0, 96, (2, 12))
    want = oracle_logits(oracle, tokens)
    model = load_decoder(checkpoint)
    with pf.no_grad():
        got = model(pf.tensor(tokens)).numpy()
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()


@pytest.mark.parametrize("name", MODELS)
def test_cached_logits(name: str, tmp_path: Path) -> None:
    """A prompt in two chunks of different rows, then single tokens, against the oracle's whole forward."""
    checkpoint, oracle = make(name, tmp_path)
    tokens = np.random.default_rng(1).integers(0, 96, (2, 12))
    want = oracle_logits(oracle, tokens)
    batch = Batch(load_decoder(checkpoint), 2, 32, pf.float32, "cpu")
    got = [batch.prefill([tokens[0, :9].tolist(), tokens[1, :7].tolist()]).numpy()]
    logits = []
    batch.sampler.pick = lambda x, features: logits.append(x) or Picked(batch.forced, x)  # type: ignore[method-assign]
    for step in range(3):
        batch.tokens.copy_(pf.tensor([[tokens[0, 9 + step]], [tokens[1, 7 + step]]]))
        batch.forced = batch.tokens[:, 0]
        got.append(batch.next(Features()).logprob.numpy())
    for step, one in enumerate(got):
        expected = np.stack([want[0, 8 + step], want[1, 6 + step]])
        assert np.abs(one - expected).max() < 2e-3 * np.abs(want).max(), step
