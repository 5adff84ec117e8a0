"""Perplexity against a float64 forward in NumPy: of a small random model, and of SmolLM2 where it has been fetched."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import ArgumentError
from pyflame.io.gguf import GGUFFile
from pyflame.llm.perplexity import Perplexity, Window, perplexity, windows
from tests.llm import small
from tests.llm.numpy_llama import NumpyLlama

TEXT = (
    "The water cycle describes how water moves above, on and below the surface of the Earth. Heat of the sun makes "
    "water of the oceans evaporate; the vapour rises, cools and becomes clouds, and rain brings it back to the land. "
    "Some of it runs off into rivers, some of it is kept by soil and plants, and some seeps into the ground, where it "
    "may stay for thousands of years before a well or a spring brings it to light again."
)


def numpy_losses(path: Path, tokens: list[int], context: int, stride: int | None) -> list[float]:
    """-log p of every scored token, in float64; windows are told apart by hand."""
    model, found = NumpyLlama(GGUFFile(path)), []
    starts = range(0, len(tokens) - context + 1, context) if stride is None else range(0, len(tokens) - 1, stride)
    scored = 1
    for start in starts:
        seen = tokens[start : start + context]
        first = context // 2 + 1 if stride is None else scored - start
        if first >= len(seen):
            break
        logits = model.logits(seen)
        peak = logits.max(-1, keepdims=True)
        logp = logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))
        found += [-logp[n - 1, seen[n]] for n in range(first, len(seen))]
        scored = start + len(seen)
    return found


@pytest.mark.parametrize(("context", "stride"), [(16, None), (17, None), (16, 5), (128, 64), (100, 1)])
def test_a_small_model_equals_numpy(tmp_path: Path, context: int, stride: int | None) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    model = pf.llm.load(path, device="cpu", activation_bits=32)
    tokens = np.random.default_rng(0).integers(0, model.config.vocab, 103).tolist()
    want = numpy_losses(path, tokens, context, stride)
    got = perplexity(model, tokens, context, stride)
    assert got.tokens == len(want) and np.allclose(got.losses, want, rtol=1e-4, atol=1e-5)
    assert got.value == pytest.approx(math.exp(np.mean(want)), rel=1e-5)
    assert got.error == pytest.approx(got.value * np.std(want, ddof=1) / len(want) ** 0.5, rel=1e-4)


def test_a_window_begins_as_texts_do(tmp_path: Path) -> None:
    path = small.gguf(tmp_path / "small.gguf", **{"tokenizer.ggml.add_bos_token": True})
    model = pf.llm.load(path, device="cpu", activation_bits=32)
    text = "hello world, 123 words of a small text that ends somewhere"
    tokens = model.encode(text)
    replaced = [model.tokenizer.bos if n % 16 == 0 else token for n, token in enumerate(tokens)]
    assert replaced != tokens
    assert perplexity(model, text, 16).losses == pytest.approx(numpy_losses(path, replaced, 16, None), rel=1e-4)


def test_windows() -> None:
    assert windows(9, 4) == [Window(0, 4, 3), Window(4, 8, 7)]
    assert windows(7, 4, 2) == [Window(0, 4, 1), Window(2, 6, 4), Window(4, 7, 6)]
    assert windows(3, 8, 2) == [Window(0, 3, 1)]
    for count in range(2, 40):  # with a stride every token but the first is scored once
        scored = [n for w in windows(count, 8, 3) for n in range(w.first, w.stop)]
        assert scored == list(range(1, count))
    assert Perplexity([1.0]).error == math.inf


@pytest.mark.parametrize(("count", "context", "stride"), [(9, 2, None), (9, 4, 4), (9, 4, 0), (9, 16, None), (1, 4, 2)])
def test_windows_that_cannot_be(count: int, context: int, stride: int | None) -> None:
    with pytest.raises(ArgumentError, match=r"\[perplexity\] expected"):
        windows(count, context, stride)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, text = small.gguf(tmp_path / "small.gguf"), tmp_path / "text.txt"
    text.write_text("hello world " * 30)
    command = ["llm", "perplexity", str(path), "--file", str(text), "--context", "16", "--device", "cpu"]
    assert main([*command, "--activation-bits", "32"]) == 0
    out, err = capsys.readouterr()
    model = pf.llm.load(path, device="cpu", activation_bits=32)
    want = perplexity(model, text.read_text(), 16)
    assert f"perplexity {want.value:.4f} ± {want.error:.4f} over {want.tokens} of" in out and "perplexity:" in err
    assert main([*command, "--activation-bits", "32", "--stride", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored"] == len(model.encode(text.read_text())) - 1
    text.write_bytes(b"\xff\xfe")
    assert main(command) == 1 and "expected UTF-8" in capsys.readouterr().err


@pytest.mark.thorough
def test_smollm2_equals_numpy_within_a_thousandth(smollm2: Path) -> None:
    model = pf.llm.load(smollm2, device="cpu")
    want = math.exp(np.mean(numpy_losses(smollm2, model.encode(TEXT), 64, 32)))
    assert perplexity(model, TEXT, 64, 32).value == pytest.approx(want, rel=1e-3)
