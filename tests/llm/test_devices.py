"""The same tokens on the CPU and on simulated AMD GPUs: greedy, drawn by one seed, plain and encoded weights."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make


@pytest.mark.parametrize(("device", "quantized"), [("sim:gfx942", None), ("sim:gfx1100", "q8_0")])
def test_same_tokens(device: str, quantized: str | None, tmp_path: Path) -> None:
    checkpoint, _ = make("llama", tmp_path)
    prompts = [[5, 17, 3, 80, 22], [9, 1]]
    for options in (dict(), dict(temperature=1.0, top_p=0.9, seed=3)):
        found = []
        for place in ("cpu", device):
            model = Model(
                load_decoder(checkpoint, place, quantized=quantized, exact=True), None, None, place, pf.float32, 32
            )
            found.append([g.tokens for g in model.generate(prompts, max_tokens=4, **options)])
        assert found[0] == found[1]
