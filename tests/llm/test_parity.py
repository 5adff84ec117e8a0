"""Every architecture against transformers: logits of a whole forward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.load import load_decoder
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
