"""The real SmolLM2-135M-Instruct: logits and an answer on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.io.gguf import GGUFFile
from pyflame.llm.generate import Model
from tests.llm.numpy_llama import NumpyLlama

pytestmark = pytest.mark.slow
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return pf.llm.load(smollm2, device="cpu", context=256)


def test_logits_equal_a_numpy_forward(model: Model, smollm2: Path) -> None:
    tokens = model.encode("The quick brown fox")
    want = NumpyLlama(GGUFFile(smollm2)).logits(tokens)
    with model.lease(1) as batch:
        got = batch.prefill([tokens]).numpy()[0]
    assert np.abs(got - want[-1]).max() < 2e-3 * np.abs(want[-1]).max()


def test_answers_a_question(model: Model) -> None:
    answer = model.generate(messages=QUESTION, max_tokens=24)
    assert answer.text == "The capital of France is Paris." and answer.finish_reason == "stop"
    cut = model.generate(messages=QUESTION, max_tokens=24, stop=["Fran", " Paris"])
    assert cut.text == "The capital of " and cut.finish_reason == "stop"
    chunks = list(model.stream(messages=QUESTION, max_tokens=24))
    assert "".join(c.text for c in chunks) == answer.text and chunks[-1].finish_reason == "stop"
