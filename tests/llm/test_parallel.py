"""Tensor parallelism: the same logits and tokens as on one device, of every architecture that can be divided."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflame as pf
from pyflame import llm
from pyflame.cli import main
from pyflame.core.device import CPU
from pyflame.llm.cache import cache_bytes
from pyflame.llm.config import Experts, ModelConfig
from pyflame.llm.decoder import Decoder
from pyflame.llm.estimate import estimate
from pyflame.llm.generate import Model
from pyflame.llm.load import Reader, load_decoder
from pyflame.llm.parallel import ParallelCache, ParallelDecoder
from pyflame.llm.placement import Placement, parallel_devices
from pyflame.llm.shares import Cut, shares
from tests.children import printed
from tests.llm import small
from tests.llm.checkpoints import MODELS, make, make_bert
from tests.llm.test_lora import randomise
from tests.second_cpu import SECOND, second_cpu

PROMPT = [5, 17, 3, 80, 22]
CONFIG = ModelConfig("test", 4, 32, 4, 2, 8, 48, 96, 128)
BOTH = [CPU, SECOND]
QUICK = (
    "llama", "mixtral", "qwen2", "gemma3", "gpt2", "qwen2_moe", "phi3", "stablelm_parallel", "falcon", "deepseek_v3",
    "gpt_oss",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _second_device() -> Iterator[None]:
    with second_cpu():
        yield


def loaded(checkpoint: Any, **options: Any) -> tuple[Decoder, ParallelDecoder]:
    """The model on one device, and on two."""
    one = load_decoder(checkpoint, "cpu", activation_bits=32, **options)
    two = load_decoder(checkpoint, Placement.divided(BOTH, one.config), activation_bits=32, **options)
    assert isinstance(two, ParallelDecoder)
    return one, two


def logits(decoder: Decoder, tokens: list[int] = PROMPT) -> np.ndarray:
    with pf.no_grad():
        return decoder(pf.tensor([tokens], device="cpu")).numpy()


def assert_near(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)


def tokens(decoder: Decoder) -> list[list[int]]:
    model = Model(decoder, None, None, "cpu", pf.float32, 64)
    return [one.tokens for one in model.generate([[9], PROMPT], max_tokens=4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.thorough) for n in MODELS if n != "olmo2"]
)
def test_same_logits_and_tokens(name: str, tmp_path: Path) -> None:
    one, two = loaded(make(name, tmp_path)[0])
    assert_near(logits(two), logits(one))
    assert tokens(two) == tokens(one)


@pytest.mark.slow
def test_an_engine_over_a_divided_model(tmp_path: Path) -> None:
    models = [Model(decoder, None, None, "cpu", pf.float32, 64) for decoder in loaded(make("llama", tmp_path)[0])]
    prompts = [[9], PROMPT, list(range(1, 40))]
    alone = [models[0].generate(p, max_tokens=4).tokens for p in prompts]
    with llm.Engine(models[1], rows=2, chunk=32) as engine:
        requests = [engine.submit(p, max_tokens=4) for p in prompts]
        assert [r.result()[0].tokens for r in requests] == alone
        assert engine.pages == 2 * 2  # two full contexts


def test_every_tensor_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, numbers = list[str](), Reader.numbers
    monkeypatch.setattr(Reader, "numbers", lambda reader, name: read.append(name) or numbers(reader, name))
    two = load_decoder(make("gpt2", tmp_path)[0], Placement.divided(BOTH, CONFIG))
    assert len(read) == len(set(read)) == len(list(two.parts[0].parameters()))
    biases = {n for part in two.parts for n, _ in part.named_parameters() if n.endswith("attn_output.bias")}
    assert len(biases) == two.config.layers and two.parts[1].blk[0].attn_output.bias is None


@pytest.mark.slow
def test_an_encoder(tmp_path: Path) -> None:
    one, two = loaded(make_bert(tmp_path)[0])
    found, wanted = (Model(m, None, None, "cpu", pf.float32, 64).embed([PROMPT, [9]]).numpy() for m in (two, one))
    assert_near(found, wanted)


def test_every_device_has_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = load_decoder(make("mixtral", tmp_path)[0], Placement.divided(BOTH, CONFIG))
    assert isinstance(two, ParallelDecoder)
    sums, seen = two._sums, []
    monkeypatch.setattr(two, "_sums", lambda parts: seen.append(sums(parts)) or seen[-1])
    wanted = logits(two)
    assert len(seen) == 1 + 2 * two.config.layers
    for here, there in seen:
        assert (here._node.meta.device, there._node.meta.device) == (CPU, SECOND)
        assert np.array_equal(here.numpy(), there.numpy())
    assert np.array_equal(logits(two), wanted)


@pytest.mark.slow(16)
def test_what_a_step_does(tmp_path: Path) -> None:
    """Several drawn texts of a prompt, narrow keys and values, guesses: all as on one device."""
    one, two = loaded(make("llama", tmp_path)[0])
    drawn, guessed = dict(n=2, temperature=1.0, seed=3), dict(lookup=3)
    for kv, options in ((pf.int8, drawn), (pf.float32, guessed)):
        found, wanted = (
            Model(m, None, None, "cpu", pf.float32, 64, kv).generate(PROMPT, max_tokens=5, **options)
            for m in (two, one)
        )
        pairs = zip(found, wanted, strict=True) if isinstance(found, list) else [(found, wanted)]
        assert all(text.tokens == other.tokens for text, other in pairs)


@pytest.fixture
def wider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads of keys and values are two blocks of 32; the MLP has three of them."""
    for name, size in dict(WIDTH=64, FFN=96, HEADS=4, KV_HEADS=2, HEAD=16).items():
        monkeypatch.setattr(small, name, size)


@pytest.mark.slow(16)
@pytest.mark.usefixtures("wider")
def test_encoded_weights(tmp_path: Path) -> None:
    """Blocks of the file are divided, and blocks that are made while loading: each device has the same numbers."""
    sources = [(small.gguf(tmp_path / "small.gguf"), None), (small.folder(tmp_path / "hf"), "q4_0")]
    for path, quantize in sources:
        options: dict[str, Any] = dict(dtype="float32", activation_bits=32, quantize=quantize)
        two = llm.load(path, tensor_parallel=BOTH, **options)
        assert "2 layers divided over cpu, cpu" in repr(two)
        one = llm.load(path, device="cpu", **options)
        first, second = two.decoder.parts
        assert [p.blk[0].ffn_down.inputs for p in (first, second)] == [32, 64]
        assert first.blk[0].ffn_down.encoding == one.decoder.blk[0].ffn_down.encoding == (quantize or "q8_0")
        assert_near(logits(two.decoder), logits(one.decoder))
        assert two.generate(PROMPT, max_tokens=4).tokens == one.generate(PROMPT, max_tokens=4).tokens


@pytest.mark.usefixtures("wider")
def test_memory_of_a_device_is_about_half(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf")
    one, two = (llm.load(path, dtype="float32", tensor_parallel=where) for where in (None, BOTH))
    total = sum(p.nbytes for p in one.decoder.parameters())
    for part, device in zip(two.decoder.parts, BOTH, strict=True):
        assert {p._node.meta.device for p in part.parameters()} == {device}
        assert 0.45 < sum(p.nbytes for p in part.parameters()) / total < 0.6
    cache = two.decoder.cache(1, 64, pf.float32, "cpu")
    assert isinstance(cache, ParallelCache)
    for kept in cache.parts:
        assert 2 * sum(x.nbytes for layer in kept.layers for x in layer) == cache_bytes(one.config, 1, 64, pf.float32)


@pytest.mark.usefixtures("wider")
def test_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small.folder(tmp_path / "hf")
    whole = estimate(path, 64, dtype="float32", device="cpu")
    found = estimate(path, 64, dtype="float32", tensor_parallel=["cpu", "sim:gfx942"])
    decoder = llm.load(path, dtype="float32", tensor_parallel=BOTH).decoder
    assert [f.weights for f in found.devices] == [sum(p.nbytes for p in part.parameters()) for part in decoder.parts]
    assert [f.cache for f in found.devices] == [whole.cache // 2] * 2 and found.cache == whole.cache
    assert found.tensor_parallel == 2 and found.total == sum(f.weights + f.cache + f.workspace for f in found.devices)
    command = ["llm", "estimate", str(path), "--context", "64", "--dtype", "float32", "--tensor-parallel"]
    assert main([*command, "cpu,sim:gfx942", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"][1]["weights"] == found.devices[1].weights
    assert main([*command, "cpu,sim:gfx942"]) == 0
    assert "over 2 devices" in capsys.readouterr().out
    assert main([*command, "cpu,cpu"]) == 1
    assert "different devices" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_measured_is_what_was_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over both devices: the second CPU takes some of its memory from the first."""
    for name, size in dict(WIDTH=256, FFN=768, LAYERS=4, HEADS=8, KV_HEADS=4, HEAD=32, CONTEXT=1024).items():
        monkeypatch.setattr(small, name, size)
    path = small.folder(tmp_path / "hf")
    expected = estimate(path, 1024, 4, "fp32", "float32", tensor_parallel=BOTH)
    gc.collect()
    before = [pf.memory_stats(device).allocated for device in BOTH]
    for device in BOTH:
        pf.reset_peak_memory_stats(device)
    model = llm.load(path, dtype="float32", context=1024, tensor_parallel=BOTH)
    model.generate([[n] * 768 for n in range(3, 7)], max_tokens=2, temperature=0.7, repetition_penalty=1.1)
    found = sum(pf.memory_stats(device).peak_allocated for device in BOTH) - sum(before)
    assert abs(expected.total / found - 1) < 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("wider")
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(small.gguf(tmp_path / "small.gguf"))
    monkeypatch.setattr("pyflame.llm.placement.parse_device", lambda name: {"cpu": CPU, "second": SECOND}[name])
    command = ["generate", "hello", "-m", path, "-n", "3", "-t", "0", "--activation-bits", "32", "--dtype", "float32"]
    assert main([*command, "--device", "cpu"]) == 0
    wanted = capsys.readouterr().out
    assert main([*command, "--tensor-parallel", "cpu,second"]) == 0
    assert capsys.readouterr().out == wanted
    bench = ["llm", "bench", path, "-p", "0", "-n", "2", "-r", "1", "--json", "--activation-bits", "32"]
    found = []
    for where in (["--device", "cpu"], ["--tensor-parallel", "cpu,second"]):
        assert main([*bench, *where]) == 0
        found += json.loads(capsys.readouterr().out)
    assert found[1]["backends"] == "2 layers divided over cpu, cpu"
    norms = 5 * small.WIDTH * 4  # which each device has
    assert found[1]["weight_bytes_per_token"] == found[0]["weight_bytes_per_token"] + norms


def test_prompts_on_disk(tmp_path: Path) -> None:
    decoders = loaded(make("llama", tmp_path)[0])
    one, two = (Model(m, None, None, "cpu", pf.float32, 64) for m in decoders)
    two.save_prompt(tmp_path / "p", PROMPT)
    again = Model(decoders[1], None, None, "cpu", pf.float32, 64)
    found = again.generate([*PROMPT, 7], max_tokens=3, prompt_cache=tmp_path / "p")
    assert found.timings.cached == 5 and found.tokens == one.generate([*PROMPT, 7], max_tokens=3).tokens
    other = Model(decoders[0], None, None, "cpu", pf.float32, 64)
    with pytest.raises(pf.ArgumentError, match="keys and values of this model"):
        other.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p")
    with pf.no_grad():
        decoders[1].parts[1].token_embd.weight[80 - 48] += 1.0  # the row of a token of the prompt
    with pytest.raises(pf.ArgumentError, match="keys and values of this model"):
        again.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_adapters(name: str, tmp_path: Path) -> None:
    """They are divided as their layers are; training them asks for whole layers."""
    one, two = loaded(make(name, tmp_path)[0])
    layers = ("attn_qkv", "attn_output") if name == "gpt2" else ("attn_q", "attn_v", "attn_output", "ffn_down")
    plain = logits(one)
    llm.add_lora(one, rank=2, targets=layers)
    randomise(one)
    llm.save_adapter(one, tmp_path / "adapter")
    llm.load_adapter(two, tmp_path / "adapter")
    wanted = logits(one)
    assert np.abs(wanted - plain).max() > 1e-2 * np.abs(plain).max()
    assert_near(logits(two), wanted)
    assert tokens(two) == tokens(one)
    llm.merge_lora(two)
    assert all(part.lora is None for part in (two, *two.parts))
    assert_near(logits(two), wanted)
    for refused in (llm.add_lora, lambda m: llm.load_adapter(m, tmp_path / "adapter", trainable=True)):
        with pytest.raises(pf.NotSupportedError, match="layers lie on one device each"):
            refused(two)


def test_what_each_device_has() -> None:
    """All parts together are the whole, and keys and values that several devices need lie on each of them."""

    def spans(count: int, layer: str, config: ModelConfig = CONFIG, block: int = 1) -> list[Any]:
        return [s.cut(f"blk.0.{layer}").spans for s in shares(config, count, lambda name: block)]  # type: ignore[union-attr]

    assert spans(2, "attn_q.weight") == [((0, 16),), ((16, 32),)]
    assert spans(2, "attn_k.bias") == [((0, 8),), ((8, 16),)]
    assert spans(4, "attn_v.weight") == [((0, 8),), ((0, 8),), ((8, 16),), ((8, 16),)]
    assert spans(2, "attn_qkv.weight")[1] == ((16, 32), (40, 48), (56, 64))
    assert spans(3, "ffn_down.weight", _changed(kv_heads=4)) == [((0, 16),), ((16, 32),), ((32, 48),)]
    assert spans(2, "ffn_down.weight", block=16) == [((0, 16),), ((16, 48),)]
    assert [s.config.heads for s in shares(_changed(kv_heads=4), 3, lambda name: 1)] == [1, 1, 2]
    moe = _changed(experts=Experts(5, 2, 8))
    assert spans(2, "ffn_up_exps.weight", moe) == [((0, 2),), ((2, 5),)]
    biased = shares(_changed(biases=frozenset({"attn_q", "attn_output"})), 2, lambda name: 1)
    assert [s.config.biases for s in biased] == [{"attn_q", "attn_output"}, {"attn_q"}]
    assert [s.part("blk.0.attn_output.bias") for s in biased] == [1.0, 0.0]
    cut = Cut(-2, 6, ((0, 2), (4, 5)))
    assert np.array_equal(cut.of("x", np.arange(12).reshape(6, 2)), [[0, 1], [2, 3], [8, 9]])
    with pytest.raises(pf.FileFormatError, match="expected x to have 6 elements along its axis but got 5"):
        cut.of("x", np.zeros((5, 2)))


def _changed(**changes: Any) -> ModelConfig:
    return ModelConfig("test", 4, 32, 4, changes.pop("kv_heads", 2), 8, 48, 96, 128, **changes)


def test_what_cannot_be_divided(tmp_path: Path) -> None:
    olmo, _ = make("olmo2", tmp_path / "olmo2")
    with pytest.raises(pf.NotSupportedError, match="olmo2 has a norm over all heads of q and k"):
        load_decoder(olmo, Placement.divided(BOTH, CONFIG))
    with pytest.raises(pf.NotSupportedError, match="llama has 2 heads of keys and values in blocks of 2"):
        llm.load(small.gguf(tmp_path / "small.gguf"), tensor_parallel=BOTH)
    for config, count, words in (
        (_changed(), 3, "4 heads of size 8, 2 of keys and values"),
        (_changed(experts=Experts(1, 1, 8)), 2, "test has 1 experts"),
        (_changed(kv_heads=4), 5, "4 heads of size 8"),
    ):
        with pytest.raises(pf.NotSupportedError, match=words):
            shares(config, count, lambda name: 1)
    with pytest.raises(pf.NotSupportedError, match="48 columns of ffn_down in blocks of 48"):
        shares(CONFIG, 2, lambda name: 48 if "ffn" in name else 1)


def test_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    monkeypatch.setattr("pyflame.llm.placement.devices", lambda: ["cpu", "cuda:0", "rocm:0", "rocm:1"])
    assert list(map(str, parallel_devices(["rocm:1", "cpu"]))) == ["rocm:1", "cpu"]
    monkeypatch.setattr("pyflame.llm.placement.devices", lambda: ["cpu", "rocm:0", "rocm:1"])
    assert list(map(str, parallel_devices(2))) == ["rocm:0", "rocm:1"]
    for wrong, words in (
        (3, "but got 3 and this machine has rocm:0, rocm:1"),
        (0, "expected tensor_parallel of 1"),
        ("rocm", "a number or a list of different devices but got 'rocm'"),
        (["cpu", "cpu"], "different devices"),
        ([], "different devices"),
    ):
        with pytest.raises(pf.ArgumentError, match=words):
            parallel_devices(wrong)  # type: ignore[arg-type]
    with pytest.raises(pf.ArgumentError, match="expected a device, a device_map or tensor_parallel but got"):
        llm.load(path, device="cpu", tensor_parallel=2)
    assert not llm.load(path, tensor_parallel=["cpu"]).decoder.places.split


_ON_TWO_GPUS = """
import sys
import numpy as np
import pyflame as pf
from pyflame.llm.sampler import Features
one = pf.llm.load(sys.argv[1], device="sim:gfx942", dtype="float32", activation_bits=32)
two = pf.llm.load(sys.argv[1], dtype="float32", activation_bits=32, tensor_parallel=["sim:gfx942:0", "sim:gfx942:1"])
tokens = pf.tensor([[5, 17, 3, 80, 22]], device="sim:gfx942")
with pf.no_grad():
    wanted, found = one.decoder(tokens).numpy(), two.decoder(tokens).numpy()
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert np.array_equal(two.decoder(tokens).numpy(), found)
assert one.generate([5, 17, 3], max_tokens=5).tokens == two.generate([5, 17, 3], max_tokens=5).tokens
with pf.no_grad():
    step, _ = two._idle[0]._next.find((Features(),), {})
assert {runner.why for _, _, runner in step.parts} == {"replayed as a graph"}
for part, device in zip(two.decoder.parts, ("sim:gfx942", "sim:gfx942:1")):
    assert {str(p.device) for p in part.parameters()} == {device}
"""


@pytest.mark.slow(16)
@pytest.mark.usefixtures("wider")
def test_two_simulated_gpus(tmp_path: Path) -> None:
    printed(_ON_TWO_GPUS, str(small.gguf(tmp_path / "small.gguf")), PYFLAME_SIM_DEVICES="2")
