"""LoRA: a small random Llama, plain and encoded, learns a sequence; base weights stay; plans see other adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pyflame as pf
from pyflame import llm
from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.lora import adapters
from pyflame.train import Trainer
from tests.llm.checkpoints import MemoryCheckpoint, make, oracle_logits

TEXT = [5, 17, 3, 80, 22, 9, 61, 44, 7, 30]
ALL = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "output")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryCheckpoint, Any]:
    return make("llama", tmp_path_factory.mktemp("llama"))


def small_model(llama: tuple[MemoryCheckpoint, Any], quantized: str | None = None) -> Model:
    return Model(load_decoder(llama[0], quantized=quantized), None, None, "cpu", pf.float32, 64)


def randomise(model: Model | Decoder, seed: int = 0) -> None:
    """Adapters as if trained."""
    rng = np.random.default_rng(seed)
    with pf.no_grad():
        for p in llm.lora_parameters(model):
            p.copy_(pf.tensor(rng.normal(0, 0.2, tuple(p.shape)).astype(np.float32)))


def loss_fn(logits: pf.Tensor, target: pf.Tensor) -> pf.Tensor:
    return pf.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def train(model: Model, steps: int = 40) -> float:
    batch = (pf.tensor([TEXT[:-1]]), pf.tensor([TEXT[1:]]))
    optimizer = pf.optim.AdamW(llm.lora_parameters(model), lr=0.01, weight_decay=0.0)
    trainer = Trainer(model.decoder, optimizer, loss_fn, train_data=[batch], max_steps=steps, progress=False)
    trainer.fit()
    return trainer.evaluate([batch])["loss"]


def base_bytes(model: Model) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in model.decoder.state_dict().items() if ".lora." not in n}


@pytest.mark.slow
@pytest.mark.parametrize("quantized", [None, "q8_0"])
def test_learns_a_sequence_and_writes_it(llama: tuple[MemoryCheckpoint, Any], quantized: str | None) -> None:
    pf.manual_seed(0)
    model = small_model(llama, quantized)
    before, untrained = base_bytes(model), model.generate(TEXT[:2], max_tokens=8).tokens
    llm.add_lora(model, rank=8, alpha=16, targets=ALL)
    assert model.generate(TEXT[:2], max_tokens=8).tokens == untrained != TEXT[2:]  # B is 0
    assert train(model) < 0.1
    assert base_bytes(model) == before
    assert model.generate(TEXT[:2], max_tokens=8).tokens == TEXT[2:]
    llm.remove_lora(model)
    assert model.generate(TEXT[:2], max_tokens=8).tokens == untrained


@pytest.mark.slow
def test_lines_of_other_weights_are_not_used(llama: tuple[MemoryCheckpoint, Any]) -> None:
    """The cache still holds the prompt when weights change."""
    pf.manual_seed(0)
    model, prompt = small_model(llama), list(range(20, 50))
    llm.add_lora(model, targets=ALL)
    for steps in (1, 5):
        train(model, steps)
        used = model.generate(prompt, max_tokens=1, logprobs=3)
        again = model.generate(prompt, max_tokens=1, logprobs=3)
        fresh = Model(model.decoder, None, None, "cpu", pf.float32, 64).generate(prompt, max_tokens=1, logprobs=3)
        assert used.timings.cached == 0 and again.timings.cached == len(prompt) - 1
        assert used.logprobs == fresh.logprobs


@pytest.mark.parametrize("rslora", [False, True])
def test_logits_are_those_of_the_sum(llama: tuple[MemoryCheckpoint, Any], rslora: bool) -> None:
    oracle = llama[1]
    model = small_model(llama)
    llm.add_lora(model, rank=4, alpha=6, targets=("attn_q", "ffn_down"), rslora=rslora)
    randomise(model)
    modules = {"attn_q": "self_attn.q_proj", "ffn_down": "mlp.down_proj"}
    weights = {}
    for name, one in adapters(model).items():
        _, block, layer = name.split(".")
        weight = oracle.get_submodule(f"model.layers.{block}.{modules[layer]}").weight
        weights[weight] = weight.detach().clone()
        scale = 6 / 4**0.5 if rslora else 6 / 4
        with torch.no_grad():
            weight += torch.from_numpy(scale * one.B.numpy() @ one.A.numpy())
    tokens = np.array([TEXT])
    wanted = oracle_logits(oracle, tokens)
    with torch.no_grad():
        for weight, kept in weights.items():
            weight.copy_(kept)
    assert len(weights) == 4
    with pf.no_grad():
        found = model.decoder(pf.tensor(tokens)).numpy()
        np.testing.assert_allclose(found, wanted, atol=2e-4 * np.abs(wanted).max())
        llm.merge_lora(model)
        merged = model.decoder(pf.tensor(tokens)).numpy()
    assert not llm.lora_parameters(model)
    np.testing.assert_allclose(merged, wanted, atol=2e-4 * np.abs(wanted).max())


def test_merging_changes_what_is_generated_not_the_checkpoint(llama: tuple[MemoryCheckpoint, Any]) -> None:
    stored = {n: t.copy() for n, t in llama[0].tensors.items()}
    model = small_model(llama)
    llm.add_lora(model, targets=ALL)
    randomise(model)
    adapted = model.generate(TEXT, max_tokens=4).tokens
    llm.merge_lora(model)
    assert model.generate(TEXT, max_tokens=4).tokens == adapted
    assert all(np.array_equal(stored[n], t) for n, t in llama[0].tensors.items())


def test_encoded_weights_are_merged_when_asked(llama: tuple[MemoryCheckpoint, Any]) -> None:
    model = small_model(llama, "q8_0")
    llm.add_lora(model, targets=("attn_v",))
    randomise(model)
    with pytest.raises(NotSupportedError, match=r"blk.0.attn_v is encoded as q8_0.*encode=True"):
        llm.merge_lora(model)
    layer = model.decoder.blk[0].attn_v
    wanted = pf.dequantize(pf.EncodedTensor(layer.weight, "q8_0")).numpy() + layer.lora.difference().detach().numpy()
    llm.merge_lora(model, encode=True)
    found = pf.dequantize(pf.EncodedTensor(layer.weight, "q8_0")).numpy()
    assert layer.lora is None and np.abs(found - wanted).max() <= np.abs(wanted).max() / 127


def test_dropout_acts_in_training_only(llama: tuple[MemoryCheckpoint, Any]) -> None:
    model, tokens = small_model(llama), pf.tensor([TEXT])
    llm.add_lora(model, dropout=0.5)
    randomise(model)
    with pf.no_grad():
        first, second = model.decoder(tokens).numpy(), model.decoder(tokens).numpy()
        model.decoder.train()
        dropped = model.decoder(tokens).numpy()
    assert np.array_equal(first, second) and not np.allclose(first, dropped)


def test_mistakes_are_named(llama: tuple[MemoryCheckpoint, Any]) -> None:
    model = small_model(llama)
    with pytest.raises(ArgumentError, match=r"targets among attn_k, .* but got \['attn_x'\]"):
        llm.add_lora(model, targets=("attn_x",))
    with pytest.raises(ArgumentError, match="rank of at least 1 but got 0"):
        llm.add_lora(model, rank=0)
    with pytest.raises(ArgumentError, match="with adapters but it has none"):
        llm.merge_lora(model)
    assert model.decoder.lora is None
    llm.add_lora(model.decoder, targets=("blk.1.attn_q", "output"))
    assert list(adapters(model)) == ["blk.1.attn_q", "output"]
    assert [p.requires_grad for p in model.decoder.parameters()].count(True) == 4
    with pytest.raises(ArgumentError, match="merge or remove them first"):
        llm.add_lora(model)


def gradients(model: Decoder, device: str = "cpu") -> list[np.ndarray]:
    tokens = pf.tensor([TEXT], device=device)
    loss_fn(model(tokens[:, :-1]), tokens[:, 1:]).backward()
    found = [p.grad for p in llm.lora_parameters(model)]
    return [grad.numpy() for grad in found if grad is not None]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_gradients_follow_from_that_of_the_weight(name: str, tmp_path: Path) -> None:
    """Of W + scale B A: dA = scale B^T dW and dB = scale dW A^T. They come through what lies above, experts too."""
    checkpoint, oracle = make(name, tmp_path)
    decoder = load_decoder(checkpoint)
    llm.add_lora(decoder, rank=4, alpha=6, targets=("blk.0.attn_k",))
    randomise(decoder)
    one = adapters(decoder)["blk.0.attn_k"]
    a, b = one.A.detach().numpy(), one.B.detach().numpy()
    weight = oracle.model.layers[0].self_attn.k_proj.weight
    with torch.no_grad():
        weight += torch.from_numpy(1.5 * b @ a)
    logits = oracle(torch.tensor([TEXT[:-1]])).logits[0]
    torch.nn.functional.cross_entropy(logits, torch.tensor(TEXT[1:])).backward()
    change = weight.grad.numpy()
    for found, wanted in zip(gradients(decoder), (1.5 * b.T @ change, 1.5 * change @ a.T), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.thorough
def test_gradients_on_a_simulated_gpu(llama: tuple[MemoryCheckpoint, Any]) -> None:
    found = []
    for device in ("cpu", "sim:gfx942"):
        decoder = load_decoder(llama[0], device=device, quantized="q8_0", activation_bits=32)
        llm.add_lora(decoder, rank=4, targets=("attn_q", "ffn_down"))
        randomise(decoder)
        found.append(gradients(decoder, device))
    assert len(found[0]) == 8
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-4 * np.abs(ours).max())
