"""Estimates of memory, and the commands that show them."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import ArgumentError
from pyflame.llm.cache import Cache
from pyflame.llm.estimate import config_of, estimate, kv_bytes
from pyflame.llm.files import open_checkpoint
from pyflame.tensor import memory
from tests.llm import small


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.gguf(tmp_path / "small.gguf")


def test_weights_and_cache_are_exact(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    found = estimate(checkpoint, context=100, batch=3, device="cpu")
    assert found.weights == sum(checkpoint.stored(n).bytes.nbytes for n in checkpoint.names())
    assert found.cache == 2 * 2 * 3 * 100 * small.KV_HEADS * small.HEAD * 2  # keys and values, layers, ..., bytes
    cache = Cache(config_of(checkpoint), 3, 100, pf.float16, "cpu")
    assert found.cache == sum(x.nbytes for layer in cache.layers for x in layer)
    assert found.total == found.weights + found.cache + found.workspace and found.parameters > 20_000


@pytest.mark.parametrize("batch", [1, 4])
def test_what_is_measured_is_what_was_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    sizes = dict(WIDTH=256, FFN=768, LAYERS=4, HEADS=8, KV_HEADS=4, HEAD=32, CONTEXT=1024)
    for name, size in sizes.items():
        monkeypatch.setattr(small, name, size)
    path = small.folder(tmp_path / "hf")
    gc.collect()
    pf.reset_peak_memory_stats("cpu")
    before = pf.memory_stats("cpu").allocated
    model = pf.llm.load(path, device="cpu", dtype="float32", context=1024)
    model.generate([[number] * 900 for number in range(3, 3 + batch)], max_tokens=3)
    measured = pf.memory_stats("cpu").peak_allocated - before
    expected = estimate(path, context=1024, batch=batch, kv="fp32", dtype="float32", device="cpu")
    assert abs(expected.total / measured - 1) < 0.1  # of small models workspace is a large part


def test_how_keys_and_values_are_kept(model: Path) -> None:
    config = config_of(open_checkpoint(model))
    sizes = {kv: kv_bytes(config, 1, 64, kv) for kv in ("fp32", "fp16", "bf16", "fp8", "int8")}
    assert sizes["fp32"] == 2 * sizes["fp16"] == 2 * sizes["bf16"] == 4 * sizes["fp8"]
    assert sizes["int8"] == sizes["fp8"] * (small.HEAD + 2) // small.HEAD


def test_plain_weights_in_another_dtype(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf")
    half, full = estimate(path).weights, estimate(path, dtype="float32").weights
    assert full == 2 * half
    encoded = small.gguf(tmp_path / "small.gguf")
    norms = 5 * small.WIDTH
    assert estimate(encoded).weights - estimate(encoded, dtype="float16").weights == 2 * norms


def test_what_fits(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = estimate(model, context=128, device="cpu")
    per_token = kv_bytes(config_of(open_checkpoint(model)), 1, 1, "fp16")

    def fit(free: int) -> tuple[bool, int]:
        module = sys.modules["pyflame.llm.estimate"]  # pf.llm.estimate is the function
        monkeypatch.setattr(module, "memory_info", lambda device: (free, 1 << 40))
        (found,) = estimate(model, context=128, device="cpu").devices
        return found.fits, found.longest_context

    assert fit(needed.total) == (True, 128)
    assert fit(needed.total - 1) == (False, 127)
    assert fit(needed.total - 100 * per_token) == (False, 28)
    assert fit(needed.weights) == (False, 0)


def test_what_has_no_estimate(model: Path) -> None:
    for wrong, expected in (
        (dict(context=129), "1 to 128 tokens"),
        (dict(context=0), "1 to 128"),
        (dict(batch=0), "at least 1"),
        (dict(kv="int3"), "one of fp32"),
    ):
        with pytest.raises(ArgumentError, match=expected):
            estimate(model, **wrong)  # type: ignore[arg-type]


def test_info(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "info", str(model), "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "llama" in out and "q8_0" in out and "blk.1.ffn_down.weight" in out and "<|im_start|>" in out
    assert main(["llm", "info", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["layers"] == 2 and found["encodings"]["q8_0"]["tensors"] == 15
    assert found["tokenizer"] == {"tokens": 271, "bos": "<|im_start|>", "eos": ["<|endoftext|>", "<|im_end|>"]}


def test_info_of_what_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small.gguf(tmp_path / "x.gguf", **{"general.architecture": "martian", "tokenizer.ggml.model": "rwkv"})
    assert main(["llm", "info", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "martian" in found["config"]["unknown"] and "rwkv" in found["tokenizer"]["unknown"]
    assert main(["llm", "info", str(tmp_path / "nothing")]) == 1
    assert "there is no" in capsys.readouterr().err


def test_estimate_command(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "estimate", str(model), "--context", "64", "--batch", "2", "--kv", "fp8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cache"] == estimate(model, 64, 2, "fp8").cache and "cpu" in [d["device"] for d in found["devices"]]
    assert main(["llm", "estimate", str(model), "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "workspace (estimated)" in out and "128" in out
    free, total = memory.memory_info("cpu")
    assert 0 < free <= total
