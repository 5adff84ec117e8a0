"""Prompts on disk: what is saved is what is restored, and files that do not fit are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import FileFormatError, PyFlameError
from pyflame.io import load_file, save_file
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from tests.io.test_damage import mutations
from tests.llm import small
from tests.llm.checkpoints import make
from tests.llm.letters import letters_model

PROMPT = [int(n) for n in np.random.default_rng(0).integers(3, 250, 70)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.gguf(tmp_path_factory.mktemp("model") / "small.gguf")


def loaded(path: Path, kv: str | None = None, device: str = "cpu", **options: object) -> Model:
    return pf.llm.load(path, device=device, dtype="float32", activation_bits=32, kv=kv, **options)


def lines(model: Model, count: int) -> list[np.ndarray]:
    """What the cache keeps of the first tokens of its first row."""
    with model.lease(1) as batch:
        kept = [x for layer in (*batch.cache.layers, *batch.cache.scales) for x in layer]
        return [x[:count].numpy().view(np.uint8) for x in kept]


@pytest.mark.slow
@pytest.mark.parametrize("kv", [None, "bf16", "int8", "fp8"])
def test_what_is_restored_is_what_was_saved(path: Path, tmp_path: Path, kv: str | None) -> None:
    first, second = loaded(path, kv), loaded(path, kv)
    first.save_prompt(tmp_path / "p", PROMPT)
    longer = [*PROMPT, 9, 8, 7]
    here = first.generate(longer, max_tokens=6)
    there = second.generate(longer, max_tokens=6, prompt_cache=tmp_path / "p")
    assert there.timings.cached == here.timings.cached == len(PROMPT) and there.tokens == here.tokens
    for ours, theirs in zip(lines(first, len(PROMPT)), lines(second, len(PROMPT)), strict=True):
        assert np.array_equal(ours, theirs)


def test_longest_common_beginning_is_reused(path: Path, tmp_path: Path) -> None:
    loaded(path).save_prompt(tmp_path / "p", PROMPT)
    model = loaded(path)
    other = [*PROMPT[:41], 5, 6, 7]
    assert model.generate(other, max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == 41
    assert model.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == len(PROMPT) - 1
    assert loaded(path).generate([5, 6], max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == 0
    several = loaded(path).generate([other, PROMPT[:50]], max_tokens=1, prompt_cache=tmp_path / "p")
    assert [g.timings.cached for g in several] == [41, 41]
    samples = loaded(path).generate(other, n=2, max_tokens=1, prompt_cache=tmp_path / "p")
    assert [g.timings.cached for g in samples] == [41, 41]


def test_what_the_cache_holds_is_not_read_from_a_file(path: Path, tmp_path: Path) -> None:
    model = loaded(path)
    model.save_prompt(tmp_path / "p", PROMPT[:10])
    model.generate(PROMPT, max_tokens=1)
    assert model.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == len(PROMPT) - 1


def test_messages_and_latent_lines(tmp_path: Path) -> None:
    talking = letters_model(tmp_path / "letters")
    chat = [{"role": "user", "content": "Hello there"}]
    talking.save_prompt(tmp_path / "chat", messages=chat)
    fresh = Model(talking.decoder, talking.tokenizer, talking.chat_template, "cpu", pf.float32, 128)
    found = fresh.generate(messages=chat, max_tokens=1, prompt_cache=tmp_path / "chat")
    assert found.timings.cached == len("uHello there") - 1
    checkpoint, _ = make("deepseek_v2", tmp_path / "deepseek")  # one latent line per token, no values
    one, two = (Model(load_decoder(checkpoint), None, None, "cpu", pf.float32, 64) for _ in range(2))
    one.save_prompt(tmp_path / "latent", range(3, 30))
    assert two.generate(range(3, 30), max_tokens=1, prompt_cache=tmp_path / "latent").timings.cached == 26
    assert all(np.array_equal(a, b) for a, b in zip(lines(one, 26), lines(two, 26), strict=True))


@pytest.mark.slow
def test_on_a_simulated_gpu(path: Path, tmp_path: Path) -> None:
    loaded(path).save_prompt(tmp_path / "p", PROMPT)
    device = loaded(path, device="sim:gfx942")
    assert device.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == len(PROMPT) - 1
    assert all(np.array_equal(a, b) for a, b in zip(lines(loaded_with(path), 69), lines(device, 69), strict=True))
    device.save_prompt(tmp_path / "q", PROMPT[:40])
    assert loaded(path).generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "q").timings.cached == 40


def loaded_with(path: Path) -> Model:
    model = loaded(path)
    model.generate(PROMPT, max_tokens=1)
    return model


def test_other_models_and_settings_are_refused(path: Path, tmp_path: Path) -> None:
    saved = tmp_path / "p"
    model = loaded(path)
    model.save_prompt(saved, PROMPT)
    half = pf.llm.load(path, device="cpu", dtype="float16", activation_bits=32, kv="fp32")
    rounded = pf.llm.load(path, device="cpu", dtype="float32", activation_bits=16)
    for other, what in ((loaded(path, "fp16"), "kv 'float32'"), (half, "dtype 'float32'"), (rounded, "weights")):
        with pytest.raises(pf.ArgumentError, match=rf"\[prompt_cache\] expected keys and values of this .*{what}"):
            other.generate(PROMPT, max_tokens=1, prompt_cache=saved)
    adapted = loaded(path)
    pf.llm.add_lora(adapted, rank=2)
    with pytest.raises(pf.ArgumentError, match="has weights"):
        adapted.generate(PROMPT, max_tokens=1, prompt_cache=saved)
    adapted.save_prompt(saved, PROMPT)
    pf.llm.lora_parameters(adapted)[1].data[3, 0] = 1.0
    with pytest.raises(pf.ArgumentError, match="has weights"):
        adapted.generate(PROMPT, max_tokens=1, prompt_cache=saved)
    changed = loaded(path)
    changed.decoder.token_embd.weight[PROMPT[5], 4] += 1
    model.save_prompt(saved, PROMPT)
    with pytest.raises(pf.ArgumentError, match="has weights"):
        changed.generate(PROMPT, max_tokens=1, prompt_cache=saved)


def test_what_cannot_be_saved(path: Path, tmp_path: Path) -> None:
    model = loaded(path, context=32)
    with pytest.raises(pf.ArgumentError, match="context of 32 tokens but got 1 of 70"):
        model.save_prompt(tmp_path / "p", PROMPT)
    with pytest.raises(pf.ArgumentError, match="expected one prompt"):
        model.save_prompt(tmp_path / "p", [[1], [2]])  # type: ignore[list-item]
    with pytest.raises(FileNotFoundError):
        model.generate([1, 2], max_tokens=1, prompt_cache=tmp_path / "nothing")
    assert not (tmp_path / "p").exists()


@pytest.mark.slow
def test_damaged_files_are_refused(path: Path, tmp_path: Path) -> None:
    """Whatever is changed in a file: an error, or the lines that were saved."""
    model, file = loaded(path), tmp_path / "p"
    model.save_prompt(file, PROMPT[:8])
    raw = file.read_bytes()
    wanted = lines(model, 7)
    refused = 0
    for changed in mutations(raw, 60, 1):
        file.write_bytes(changed)
        fresh = loaded(path)
        try:
            found = fresh.generate(PROMPT[:8], max_tokens=1, prompt_cache=file)
        except PyFlameError:
            refused += 1
            continue
        assert found.timings.cached == 0 or all(map(np.array_equal, wanted, lines(fresh, 7)))
    assert refused > 40


def test_files_of_another_shape_are_refused(path: Path, tmp_path: Path) -> None:
    """With right checksums, as another program might write them."""
    model, file = loaded(path), tmp_path / "p"
    model.save_prompt(file, PROMPT)
    tensors, metadata = load_file(file, memory_map=False), pf.io.file_info(file).metadata
    for change in (
        {"lines.1.0": tensors["lines.1.0"][:-1]}, {"lines.0.1": tensors["lines.0.1"].to(pf.float16)},
        {"tokens": tensors["tokens"].to(pf.float32)}, {"tokens": tensors["tokens"].reshape(1, -1)},
    ):  # fmt: skip
        save_file({**tensors, **change}, file, metadata)
        with pytest.raises(FileFormatError, match="expected a file of save_prompt"):
            loaded(path).generate(PROMPT, max_tokens=1, prompt_cache=file)
    for wrong in ({}, {"pyflame.prompt": "[1]"}, {"pyflame.prompt": "{"}):
        save_file(tensors, file, wrong)
        with pytest.raises(FileFormatError, match="expected a file of save_prompt"):
            loaded(path).generate(PROMPT, max_tokens=1, prompt_cache=file)
    other = {"pyflame.prompt": json.dumps({**json.loads(metadata["pyflame.prompt"]), "format": 2})}
    save_file(tensors, file, other)
    with pytest.raises(pf.ArgumentError, match="has format 2 instead of 1"):
        loaded(path).generate(PROMPT, max_tokens=1, prompt_cache=file)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = letters_model(tmp_path / "letters")
    fresh = lambda *args: Model(made.decoder, made.tokenizer, made.chat_template, "cpu", pf.float32, 128)  # noqa: E731
    monkeypatch.setattr("pyflame.cli.llm_arguments.load", fresh)
    file, prompt = tmp_path / "p", "Once upon a time"
    command = ["generate", "-n", "4", "-t", "0", "--stats", "--prompt-cache", str(file)]
    capsys.readouterr()

    def run(prompt: str) -> str:
        assert main([*command, prompt]) == 0
        return capsys.readouterr().err

    run(prompt)
    written = file.stat().st_mtime_ns
    assert "(15 were known)" in run(prompt) and file.stat().st_mtime_ns == written
    assert "(16 were known)" in run(prompt + "!") and file.stat().st_mtime_ns == written
    run("Once more")  # another prompt takes the file
    assert file.stat().st_mtime_ns != written
    file.write_bytes(file.read_bytes()[:-8])
    assert "it is written anew" in run(prompt) and "were known" in run(prompt)
    other = tmp_path / "model.gguf"
    other.write_bytes(b"GGUF" * 40)
    assert main([*command[:-1], str(other), prompt]) == 1 and other.read_bytes() == b"GGUF" * 40
    assert main(["chat", "-n", "4", "-t", "0", "--prompt-cache", str(file), "--system", "Be", "Hi"]) == 0
    assert load_file(file)["tokens"].numel() == len("sBeuHi")
