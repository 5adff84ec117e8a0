"""Adapters in PEFT's files: names and order of rows by what transformers computes with them, round trip, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import pyflame as pf
from pyflame import llm
from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.llm.adapter import _modules
from pyflame.llm.load import load_decoder
from pyflame.llm.lora import adapters
from tests.llm.checkpoints import make, make_bert, oracle_logits
from tests.llm.gguf_files import as_gguf
from tests.llm.test_lora import TEXT, llama, randomise, small_model, train

__all__ = ["llama"]  # a fixture

TOKENS = np.array([TEXT])


def logits(decoder: Any) -> np.ndarray:
    with pf.no_grad():
        return decoder(pf.tensor(TOKENS)).numpy()


def with_adapter(oracle: Any, folder: Path) -> np.ndarray:
    """What transformers' model gives with the folder's matrices added to the modules that they name."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = safetensors.numpy.load_file(folder / "adapter_model.safetensors")
    modules = {n.removeprefix("base_model.model.").rsplit(".", 2)[0] for n in tensors}
    for module in modules:
        a, b = (tensors[f"base_model.model.{module}.lora_{part}.weight"] for part in "AB")
        weight = oracle.get_submodule(module).weight
        change = torch.from_numpy(config["lora_alpha"] / config["r"] * b @ a)
        with torch.no_grad():
            weight += change if isinstance(oracle.get_submodule(module), torch.nn.Linear) else change.T  # or a Conv1D
    return oracle_logits(oracle, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["llama", "qwen2_moe", "phi3", "gpt2", "gpt_neox", "falcon_grouped", "deepseek_v3_plain", "gpt_oss"]
)
def test_transformers_computes_the_same_with_it(name: str, tmp_path: Path) -> None:
    checkpoint, oracle = make(name, tmp_path)
    decoder = load_decoder(checkpoint)
    llm.add_lora(decoder, rank=2, alpha=3, targets=list(_modules(decoder)))
    randomise(decoder)
    llm.save_adapter(decoder, tmp_path / "adapter")
    wanted = with_adapter(oracle, tmp_path / "adapter")
    near = 2e-3 * np.abs(wanted).max()
    assert np.abs(logits(decoder) - wanted).max() < near
    other = load_decoder(as_gguf(checkpoint))  # rows of some layers lie in another order here
    llm.load_adapter(other, tmp_path / "adapter")
    assert np.abs(logits(other) - wanted).max() < near


def test_every_layer_of_an_encoder_has_its_name(tmp_path: Path) -> None:
    decoder = load_decoder(make_bert(tmp_path)[0])
    names = _modules(decoder)
    assert len(names) == 2 * 6 and names["blk.1.attn_output"] == "encoder.layer.1.attention.output.dense"


@pytest.mark.slow
def test_round_trip(llama: Any, tmp_path: Path) -> None:
    model = small_model(llama, "q8_0")
    llm.add_lora(model, rank=3, alpha=5, dropout=0.1, rslora=True)
    train(model, 2)
    llm.save_adapter(model, tmp_path, base="some/model")
    about = json.loads((tmp_path / "adapter_config.json").read_text())
    assert about["target_modules"] == ["q_proj", "v_proj"] and about["base_model_name_or_path"] == "some/model"
    names = safetensors.numpy.load_file(tmp_path / "adapter_model.safetensors")
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in names and len(names) == 8
    other = small_model(llama, "q8_0")
    before = other.generate(TEXT, max_tokens=3, logprobs=1)
    llm.load_adapter(other, tmp_path)
    assert [p.requires_grad for p in llm.lora_parameters(other)] == [False] * 8
    ours, theirs = adapters(model), adapters(other)
    assert all(np.array_equal(ours[n].B.detach().numpy(), theirs[n].B.numpy()) for n in ours)
    assert np.array_equal(logits(model.decoder.eval()), logits(other.decoder))
    after = other.generate(TEXT, max_tokens=3, logprobs=1)
    assert after.timings.cached == 0 and after.logprobs != before.logprobs
    assert after.logprobs == model.generate(TEXT, max_tokens=3, logprobs=1).logprobs


def test_training_goes_on_from_a_file(llama: Any, tmp_path: Path) -> None:
    model = small_model(llama)
    llm.add_lora(model)
    first = train(model, 5)
    llm.save_adapter(model, tmp_path)
    llm.load_adapter(model, tmp_path, trainable=True)
    assert train(model, 10) < first


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"use_dora": True}, "use_dora=True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"bias": "all"}, "bias='all'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({"something_new": 1}, "something_new=1"),
        ({"peft_type": "IA3"}, "peft_type LORA .* but got 'IA3'"),
        ({"target_modules": ["q_proj"]}, "no layer of this model for .*v_proj"),
        ({"target_modules": "all-linear"}, "lacks .*layers.0.mlp.down_proj.lora_A"),
        ({"r": 2}, r"shapes \(\(2, 32\), \(32, 2\)\) but got"),
        ({"r": "8"}, "expected r in"),
        ({"lora_dropout": None}, "expected lora_dropout in"),
        ({"target_modules": "("}, "an expression as target_modules"),
    ],
)
def test_what_is_not_plain_lora_is_refused(llama: Any, tmp_path: Path, change: dict[str, Any], match: str) -> None:
    model = small_model(llama)
    llm.add_lora(model, rank=4)
    llm.save_adapter(model, tmp_path)
    llm.remove_lora(model)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises((NotSupportedError, FileFormatError), match=match):
        llm.load_adapter(model, tmp_path)
    assert model.decoder.lora is None


def test_missing_and_broken_files(llama: Any, tmp_path: Path) -> None:
    model = small_model(llama)
    with pytest.raises(ArgumentError, match="with adapters but it has none"):
        llm.save_adapter(model, tmp_path)
    with pytest.raises(FileFormatError, match=r"folder with adapter_config.json"):
        llm.load_adapter(model, tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(FileFormatError, match="expected JSON"):
        llm.load_adapter(model, tmp_path)


def test_a_router_has_no_place_in_a_file(tmp_path: Path) -> None:
    decoder = load_decoder(make("mixtral", tmp_path)[0])
    llm.add_lora(decoder, targets=("ffn_gate_inp",))
    with pytest.raises(NotSupportedError, match=r"mixtral has but got \['blk.0.ffn_gate_inp'"):
        llm.save_adapter(decoder, tmp_path / "adapter")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_peft_reads_ours_and_writes_for_us(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    checkpoint, oracle = make(name, tmp_path)
    decoder = load_decoder(checkpoint)
    targets = ["attn_qkv", "ffn_down"] if name == "gpt2" else ["attn_q", "attn_k", "ffn_down"]
    llm.add_lora(decoder, rank=2, alpha=3, targets=targets, rslora=True)
    randomise(decoder)
    llm.save_adapter(decoder, tmp_path / "ours")
    theirs = peft.PeftModel.from_pretrained(oracle, tmp_path / "ours").eval()
    wanted = oracle_logits(theirs, TOKENS)
    near = 2e-3 * np.abs(wanted).max()
    assert np.abs(logits(decoder) - wanted).max() < near
    theirs.save_pretrained(tmp_path / "theirs")
    other = load_decoder(as_gguf(checkpoint))
    llm.load_adapter(other, tmp_path / "theirs")
    assert np.abs(logits(other) - wanted).max() < near
