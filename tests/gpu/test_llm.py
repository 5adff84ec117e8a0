"""Generation on a real NVIDIA GPU: the CPU's tokens, greedy and drawn, of plain and encoded weights, one step ahead."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.gpu.nvidia import absent
from tests.llm.checkpoints import make

pytestmark = pytest.mark.gpu
if absent():
    pytest.skip(absent(), allow_module_level=True)

PROMPTS = [[5, 17, 3, 80, 22], [9, 1]]


def tokens(model: Model) -> list[list[int]]:
    drawn = dict(temperature=1.0, top_p=0.9, seed=3)
    return [g.tokens for options in (dict(), drawn) for g in model.generate(PROMPTS, max_tokens=12, **options)]


@pytest.mark.parametrize("quantized", [None, "q8_0", "q4_0"])
@pytest.mark.parametrize("name", ["llama", "gemma3", "mixtral", "deepseek_v3", "gpt_oss"])
def test_same_tokens(name: str, quantized: str | None, tmp_path: Path) -> None:
    checkpoint, _ = make(name, tmp_path)
    found = [
        tokens(Model(load_decoder(checkpoint, d, quantized=quantized, exact=True), None, None, d, pf.float32, 64))
        for d in ("cpu", "cuda")
    ]
    assert found[0] == found[1]
