"""Queries, keys and values as rows of one matrix on a GPU: the same numbers, the same memory, never an old weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.attention import Attention
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.llm.checkpoints import make

GPU = "sim:gfx1100"
PROMPT = [5, 17, 3, 80, 22]


def model_of(name: str, folder: Path, quantized: str | None = None) -> Model:
    decoder = load_decoder(make(name, folder)[0], GPU, quantized=quantized, activation_bits=32)
    return Model(decoder, None, None, GPU, pf.float32, 64)


def logits(model: Model) -> np.ndarray:
    with model.lease(1) as batch:
        return batch.prefill([PROMPT]).numpy()


def attentions(decoder: Decoder) -> list[Attention]:
    return [block.attention for block in decoder.blk]


@pytest.mark.slow
@pytest.mark.parametrize("quantized", [None, "q8_0"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_same_logits_and_memory(
    name: str, quantized: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "join", lambda self: None)
        apart = logits(model_of(name, tmp_path / "apart", quantized))
    model = model_of(name, tmp_path / "joined", quantized)
    pf.eval(*model.decoder.state_dict().values())
    before = pf.memory_allocated(GPU)
    model.decoder.join()
    assert all(a.joined is not None for a in attentions(model.decoder))
    kept = sum(a.joined.bias.nbytes for a in attentions(model.decoder) if a.joined and a.joined.bias is not None)
    assert pf.memory_allocated(GPU) <= before + kept + 4096
    together = logits(model)
    np.testing.assert_allclose(together, apart, atol=1e-5 * np.abs(apart).max())


def test_other_weights_are_joined_anew(tmp_path: Path) -> None:
    model = model_of("llama", tmp_path)
    first = logits(model)
    query = attentions(model.decoder)[0].attn_q
    with pf.no_grad():
        query.weight.mul_(0.0)
    second = logits(model)
    assert np.abs(first - second).max() > 1e-3
    fresh = Model(model.decoder, None, None, GPU, pf.float32, 64)
    np.testing.assert_array_equal(logits(fresh), second)
    assert (query.weight.numpy() == 0).all() and not (attentions(model.decoder)[0].attn_k.weight.numpy() == 0).any()


def test_a_cpu_leaves_weights_where_they_are(tmp_path: Path) -> None:
    decoder = load_decoder(make("llama", tmp_path)[0], "cpu")
    decoder.join()
    assert all(a.joined is None for a in attentions(decoder))
