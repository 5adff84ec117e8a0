"""The same tokens on the CPU and on simulated AMD GPUs: greedy, drawn by one seed, plain and encoded weights."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make


@pytest.mark.slow(16)
@pytest.mark.parametrize(
    ("name", "device", "quantized"),
    [("llama", "sim:gfx942", None), ("llama", "sim:gfx1100", "q8_0"), ("mixtral", "sim:gfx942", "q8_0")],
)
def test_same_tokens(name: str, device: str, quantized: str | None, tmp_path: Path) -> None:
    checkpoint, _ = make(name, tmp_path)
    prompts = [[5, 17, 3, 80, 22] * (8 if name == "mixtral" else 1), [9, 1]]  # more lines than a token's experts have
    for options in (dict(), dict(temperature=1.0, top_p=0.9, seed=3)):
        found = []
        for place in ("cpu", device):
            model = Model(
                load_decoder(checkpoint, place, quantized=quantized, activation_bits=32),
                None,
                None,
                place,
                pf.float32,
                64,
            )
            found.append([g.tokens for g in model.generate(prompts, max_tokens=4, **options)])
        assert found[0] == found[1]
