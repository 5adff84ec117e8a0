"""Every architecture against transformers: logits of a whole forward, from a Hugging Face folder and with GGUF's keys,
and of a prompt and single tokens by the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.llm.architectures import find
from pyflame.llm.batch import Batch
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.sampler import Features
from tests.llm.checkpoints import MODELS, VOCAB, make, make_bert, oracle_logits
from tests.llm.gguf_files import as_gguf

# What GGUF has no key for: a scale of its own, groups of DeepSeek V2, two different factors of yarn.
_FACTORS = {"rope_factors_short.weight", "rope_factors_long.weight"}
_ONLY_HF = {"gemma2_scaled", "deepseek_v2", "deepseek_v3"}


@pytest.mark.parametrize("name", MODELS)
def test_logits(name: str, tmp_path: Path) -> None:
    checkpoint, oracle = make(name, tmp_path)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, 12))
    want = oracle_logits(oracle, tokens)
    near = 2e-3 * np.abs(want).max()
    model = load_decoder(checkpoint)
    assert set(model.state_dict()) == set(as_gguf(checkpoint).tensors) - {"rope_freqs.weight", *_FACTORS}
    with pf.no_grad():
        assert np.abs(model(pf.tensor(tokens)).numpy() - want).max() < near
        if name not in _ONLY_HF:
            assert np.abs(load_decoder(as_gguf(checkpoint))(pf.tensor(tokens)).numpy() - want).max() < near
    for step, got in enumerate(cached_logprobs(model, tokens)):
        expected = np.stack([want[0, 8 + step], want[1, 6 + step]]).astype(np.float64)
        expected -= np.log(np.exp(expected).sum(-1, keepdims=True))
        assert np.abs(got - expected).max() < near, step


def cached_logprobs(model: Decoder, tokens: np.ndarray) -> list[np.ndarray]:
    """Log probabilities behind prompts of 9 and 7 tokens, and behind three more tokens."""
    batch = Batch(model, 2, 32, pf.float32, "cpu")
    found = [batch.prefill([tokens[0, :9].tolist(), tokens[1, :7].tolist()]).log_softmax(-1).numpy()]
    for step in range(3):
        batch.tokens.copy_(pf.tensor([[tokens[0, 9 + step]], [tokens[1, 7 + step]]]))
        picked = batch.next(Features(logprobs=VOCAB))
        assert picked.top_tokens is not None and picked.top_logprobs is not None
        row = np.empty((2, VOCAB), np.float32)
        np.put_along_axis(row, picked.top_tokens.numpy(), picked.top_logprobs.numpy(), 1)
        found.append(row)
    return found


def test_bert_embeddings(tmp_path: Path) -> None:
    checkpoint, hidden = make_bert(tmp_path)
    prompts = [[3, 9, 27, 4], [5, 6, 7, 8, 9, 10, 11]]
    for one in (checkpoint, as_gguf(checkpoint)):
        model = Model(load_decoder(one), None, None, "cpu", pf.float32, 64)
        for tokens, vector in zip(prompts, model.embed(prompts).numpy(), strict=True):
            mean = hidden(tokens).mean(0)
            assert np.abs(vector - mean / np.linalg.norm(mean)).max() < 1e-5
    with pytest.raises(pf.ArgumentError, match="expected a decoder"):
        model.generate([1], max_tokens=1)


def test_unknown_architecture() -> None:
    with pytest.raises(pf.NotSupportedError, match=r"bert, deepseek_v2, .* but got 'lama'; did you mean 'llama'"):
        find("hf", "lama")
    with pytest.raises(pf.NotSupportedError, match="but got 'mamba'"):
        find("gguf", "mamba")


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    checkpoint, _ = make("llama", tmp_path)
    norm = checkpoint.tensors.pop("model.norm.weight")
    with pytest.raises(pf.FileFormatError, match=r"expected a tensor output_norm.weight of shape"):
        load_decoder(checkpoint)
    checkpoint.tensors["model.norm.weight"] = norm[:-1]
    with pytest.raises(pf.FileFormatError, match=r"output_norm.weight to have shape \(32,\) but got \(31,\)"):
        load_decoder(checkpoint)
    checkpoint.tensors["model.norm.weight"] = norm
    checkpoint.tensors["model.layers.0.self_attn.q_norm.weight"] = norm
    with pytest.raises(pf.FileFormatError, match=r"no place for blk.0.attn_q_norm.weight|which it has not"):
        load_decoder(checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layer"), [("llama", "attn_q"), ("mixtral", "ffn_gate_exps"), ("gpt_oss", "attn_k")])
def test_quantized_while_loading(name: str, layer: str, tmp_path: Path) -> None:
    checkpoint, oracle = make(name, tmp_path)
    tokens = np.random.default_rng(3).integers(0, VOCAB, (2, 12))
    want = oracle_logits(oracle, tokens)
    near = 0.05 * np.abs(want).max()
    model = load_decoder(checkpoint, quantized="q8_0")
    assert getattr(model.blk[0], layer).encoding == "q8_0"
    with pf.no_grad():
        assert 0 < np.abs(model(pf.tensor(tokens)).numpy() - want).max() < near
    expected = np.stack([want[0, 11], want[1, 9]]).astype(np.float64)
    expected -= np.log(np.exp(expected).sum(-1, keepdims=True))
    assert np.abs(cached_logprobs(model, tokens)[-1] - expected).max() < near
