"""Estimates of memory, and the commands that show them."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import ArgumentError
from pyflame.llm.cache import KV, PAGE, Cache
from pyflame.llm.estimate import config_of, estimate, kv_bytes
from pyflame.llm.files import open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.tensor import memory
from tests.llm import checkpoints, small
from tests.llm.measuring import measured, resized


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small.gguf(tmp_path / "small.gguf")


def test_weights_and_cache_are_exact(model: Path) -> None:
    checkpoint = open_checkpoint(model)
    found = estimate(checkpoint, context=100, batch=3, device="cpu")
    assert found.weights == sum(checkpoint.stored(n).bytes.nbytes for n in checkpoint.names())
    # keys and values, layers, rows, whole pages, ..., bytes
    assert found.cache == 2 * 2 * 3 * 128 * small.KV_HEADS * small.HEAD * 2
    cache = Cache(config_of(checkpoint), 3, 100, pf.float16, "cpu")
    assert found.cache == sum(x.nbytes for layer in cache.layers for x in layer)
    assert found.total == found.weights + found.cache + found.workspace and found.parameters > 20_000


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 4])
def test_what_is_measured_is_what_was_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    sizes = dict(WIDTH=256, FFN=768, LAYERS=4, HEADS=8, KV_HEADS=4, HEAD=32, CONTEXT=1024)
    for name in sizes:
        monkeypatch.setattr(small, name, getattr(small, name))
    path = resized(tmp_path / "hf", **sizes)
    expected = estimate(path, context=1024, batch=batch, kv="fp32", dtype="float32", device="cpu")
    assert abs(expected.total / measured(path, "cpu", batch, temperature=0.7, repetition_penalty=1.1) - 1) < 0.05


_ON_A_SIMULATED_GPU = """
import sys
from pathlib import Path
from pyflame.llm.estimate import estimate
from tests.llm.measuring import measured, resized
path = resized(Path(sys.argv[1]), WIDTH=128, FFN=320, LAYERS=1, HEADS=4, KV_HEADS=2, HEAD=32, CONTEXT=64)
expected = estimate(path, context=64, batch=2, kv="bf16", dtype="bfloat16", device="sim:gfx942")
print(expected.total / measured(path, "sim:gfx942", 2, "bfloat16"))
"""


@pytest.mark.slow(16)
def test_on_a_simulated_gpu(tmp_path: Path) -> None:
    """With the pool of real GPUs: simulated ones have none unless asked, so that they see where buffers end."""
    env = {**os.environ, "PYFLAME_MEMORY_POOL": "cached"}
    command = [sys.executable, "-c", _ON_A_SIMULATED_GPU, str(tmp_path / "hf")]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert abs(float(found.stdout.split()[-1]) - 1) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixtral", "deepseek_v2", "gpt_oss"])
def test_other_architectures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Experts, latent lines, sinks, windows: what they take is what their plans take."""
    monkeypatch.setattr(checkpoints, "SIZES", {**checkpoints.SIZES, "hidden_size": 256, "intermediate_size": 384})
    checkpoints.make(name, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    gc.collect()
    pf.reset_peak_memory_stats("cpu")
    before = pf.memory_stats("cpu").allocated
    model = Model(load_decoder(checkpoint, "cpu"), None, None, "cpu", pf.float32, 128)
    model.generate([[3] * 100, [4] * 90], max_tokens=2)
    found = pf.memory_stats("cpu").peak_allocated - before
    expected = estimate(checkpoint, context=128, batch=2, kv="fp32", device="cpu")
    mapped = expected.weights  # float32 lies in the file, on the CPU
    assert abs(expected.total / (found + mapped) - 1) < 0.05


def test_an_encoder_has_no_cache(tmp_path: Path) -> None:
    checkpoints.make_bert(tmp_path)
    found = estimate(open_checkpoint(tmp_path), context=64, batch=3, device="cpu")
    assert found.cache == 0 and found.workspace > 3 * 64 * 4 * 32


def test_how_keys_and_values_are_kept(model: Path) -> None:
    config = config_of(open_checkpoint(model))
    sizes = {kv: kv_bytes(config, 1, 64, kv) for kv in ("fp32", "fp16", "bf16", "fp8", "int8")}
    assert sizes["fp32"] == 2 * sizes["fp16"] == 2 * sizes["bf16"]
    assert sizes["int8"] == sizes["fp8"] == sizes["fp16"] // 2 * (small.HEAD + 4) // small.HEAD
    for kv, nbytes in sizes.items():
        cache = Cache(config, 1, 64, KV[kv], "cpu")
        assert nbytes == sum(x.nbytes for layer in (*cache.layers, *cache.scales) for x in layer)


def test_plain_weights_in_another_dtype(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf")
    half, full = estimate(path).weights, estimate(path, dtype="float32").weights
    assert full == 2 * half
    encoded = small.gguf(tmp_path / "small.gguf")
    norms = 5 * small.WIDTH
    assert estimate(encoded).weights - estimate(encoded, dtype="float16").weights == 2 * norms


def test_what_fits(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = estimate(model, context=128, device="cpu")
    page = kv_bytes(config_of(open_checkpoint(model)), 1, PAGE, "fp16")

    def fit(free: int) -> tuple[bool, int]:
        module = sys.modules["pyflame.llm.estimate"]  # pf.llm.estimate is the function
        monkeypatch.setattr(module, "memory_info", lambda device: (free, 1 << 40))
        (found,) = estimate(model, context=128, device="cpu").devices
        return found.fits, found.longest_context

    whole = needed.total + needed.interleaved
    assert needed.interleaved > 0
    assert fit(whole) == (True, 128)
    assert fit(whole - 1) == (False, 128 - PAGE)
    assert fit(whole - 3 * page) == (False, 128 - 3 * PAGE)
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
