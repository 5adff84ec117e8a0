"""Generation on a real NVIDIA GPU: the CPU's tokens, greedy and drawn, of plain and encoded weights, one step ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.decoding import Layer
from tests.gpu.nvidia import absent
from tests.llm import small
from tests.llm.checkpoints import make
from tests.llm.measuring import measured

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
        tokens(
            Model(load_decoder(checkpoint, d, quantized=quantized, activation_bits=32), None, None, d, pf.float32, 64)
        )
        for d in ("cpu", "cuda")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rows", [1, 16, 40])
def test_lines_are_turned_and_kept_as_on_the_cpu(rows: int, interleaved: bool) -> None:
    found = []
    for device in ("cpu", "cuda"):
        with pf.device(device):
            layer = Layer(rows, interleaved)
            step = layer.step()
            for _ in range(4):
                out = step(layer.x, layer.positions)
                layer.positions += 1
            found.append([t.numpy() for t in (out, layer.keys, layer.values)])
    for theirs, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_layers_on_gpu_and_cpu(tmp_path: Path) -> None:
    """Half of the layers on each: the CPU's tokens."""
    path = small.gguf(tmp_path / "small.gguf")
    options = dict(dtype="float32", activation_bits=32)
    whole = pf.llm.load(path, device="cpu", **options)
    spread = pf.llm.load(path, device_map={"blk.0": "cuda", "blk.1": "cpu"}, **options)
    assert tokens(spread) == tokens(whole)


def test_layers_divided_over_gpu_and_cpu(tmp_path: Path) -> None:
    """Half of every layer on each: the CPU's tokens."""
    path = small.folder(tmp_path / "hf")
    options = dict(dtype="float32", context=64)
    whole = pf.llm.load(path, device="cpu", **options)
    divided = pf.llm.load(path, tensor_parallel=["cuda", "cpu"], **options)
    assert tokens(divided) == tokens(whole)


def test_draft_and_saved_prompt(tmp_path: Path) -> None:
    """Guesses of a draft on the GPU, and a prompt that the CPU has read, give plain text on the GPU."""
    path, prompt = small.gguf(tmp_path / "small.gguf"), list(range(3, 60))
    options = dict(dtype="float32", activation_bits=32)
    model, host = (pf.llm.load(path, device=d, **options) for d in ("cuda", "cpu"))
    plain = model.generate(prompt, max_tokens=20).tokens
    for draft in (model, host):
        found = model.generate(prompt, max_tokens=20, draft=draft)
        assert found.tokens == plain and found.timings.accepted > 0
    host.save_prompt(tmp_path / "prompt", prompt)
    fresh = pf.llm.load(path, device="cuda", **options)
    assert fresh.generate(prompt, max_tokens=1, prompt_cache=tmp_path / "prompt").timings.cached == len(prompt) - 1


def test_estimate_is_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A library's workspace and what graphs hold are the same for all models: small beside one of some size.
    for name, size in dict(WIDTH=2048, FFN=8192, LAYERS=8, HEADS=16, KV_HEADS=4, HEAD=128, CONTEXT=1024).items():
        monkeypatch.setattr(small, name, size)
    monkeypatch.setenv("PYFLAME_GRAPHS", "trusted")  # to compare them takes memory too, where that is free
    path = small.folder(tmp_path / "hf")
    expected = pf.llm.estimate(path, context=1024, batch=4, kv="bf16", dtype="bfloat16", device="cuda")
    measured(path, "cuda", 4, "bfloat16")  # kernels are tried out first, in memory that is free
    assert abs(expected.total / measured(path, "cuda", 4, "bfloat16") - 1) < 0.05
