"""Speculative decoding: guesses of a look-up and of a draft model give the text of plain decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.speculative import Lookup
from pyflame.llm.tokenizer import Tokenizer
from tests.llm.checkpoints import VOCAB, make
from tests.llm.letters import letters_model, letters_tokenizer

PROMPT = [5, 17, 3, 80, 22]
PROMPTS = ([7, 8, 9, 7, 8, 9, 7, 8], PROMPT * 3, [1])


def loaded(name: str, folder: Path, device: str = "cpu", context: int = 64) -> Model:
    checkpoint, _ = make(name, folder)
    return Model(load_decoder(checkpoint, device, activation_bits=32), None, None, device, pf.float32, context)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return loaded("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def near(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A draft that is often, and not always, right: the same weights with an adapter that changes them a little."""
    draft = loaded("llama", tmp_path_factory.mktemp("near"))
    pf.manual_seed(0)
    pf.llm.add_lora(draft, rank=2, targets=("attn_output", "ffn_down"))
    for parameter in pf.llm.lora_parameters(draft):
        parameter.data.normal_(0.0, 0.15)
    return draft


def test_lookup_is_plain_greedy(model: Model) -> None:
    """Over prompts that repeat themselves, so that guesses are right and wrong."""
    accepted = guessed = 0
    for prompt in PROMPTS:
        plain = model.generate(prompt, max_tokens=30)
        found = model.generate(prompt, max_tokens=30, lookup=4)
        assert found.tokens == plain.tokens and plain.timings.guessed == 0
        accepted, guessed = accepted + found.timings.accepted, guessed + found.timings.guessed
    assert 0 < accepted < guessed
    full = model.generate(PROMPT, lookup=4)
    assert full.tokens == model.generate(PROMPT).tokens and len(full.tokens) == 64 - len(PROMPT) + 1


def test_what_is_looked_up() -> None:
    assert Lookup(2).guess([1, 2, 3, 4, 9, 2, 3]) == [4, 9]
    assert Lookup(4).guess([1, 2, 3]) == [] and Lookup(4).guess([1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 4, 7])
def test_draft_is_plain_greedy(model: Model, near: Model, ahead: int) -> None:
    accepted = guessed = 0
    for prompt in PROMPTS:
        plain = model.generate(prompt, max_tokens=30).tokens
        for _ in range(2):  # the second one finds the draft's cache filled
            found = model.generate(prompt, max_tokens=30, draft=near, ahead=ahead)
            assert found.tokens == plain
            accepted, guessed = accepted + found.timings.accepted, guessed + found.timings.guessed
    assert 0 < accepted < guessed


def test_a_draft_of_the_same_weights_is_always_right(model: Model) -> None:
    found = model.generate(PROMPT, max_tokens=31, draft=model, ahead=5)
    assert found.tokens == model.generate(PROMPT, max_tokens=31).tokens
    assert found.timings.guessed == found.timings.accepted == 25


def test_to_the_end_of_both_contexts(model: Model, near: Model) -> None:
    """A draft of a shorter context stops guessing; the model goes on alone."""
    short = Model(near.decoder, None, None, "cpu", pf.float32, 24)
    plain = model.generate(PROMPT).tokens
    for draft in (near, short):
        assert model.generate(PROMPT, draft=draft).tokens == plain and len(plain) == 64 - len(PROMPT) + 1
    assert model.generate([3] * 30, max_tokens=9, draft=short).timings.guessed == 0


def test_both_models_are_usable_afterwards(model: Model, near: Model) -> None:
    alone = near.generate(PROMPT, max_tokens=8).tokens
    stream = model.stream(PROMPT, max_tokens=30, draft=near)
    next(stream), next(stream)
    stream.close()
    assert near.generate(PROMPT, max_tokens=8).tokens == alone
    plain = model.generate(PROMPT, max_tokens=8).tokens
    assert model.generate(PROMPT, max_tokens=8, draft=near).tokens == plain


def test_draft_whose_weights_change(model: Model, near: Model) -> None:
    """It does not guess from lines of its old weights, and does not keep them as if they were its new ones."""
    model.generate(PROMPT, max_tokens=8, draft=near)
    before = near.generate(PROMPT, max_tokens=8).tokens
    a = pf.llm.lora_parameters(near)[0]
    kept = a.data.clone()
    a.data.mul_(30.0)
    model.generate(PROMPT, max_tokens=8, draft=near)
    changed = near.generate(PROMPT, max_tokens=8).tokens
    a.data.copy_(kept)
    assert near.generate(PROMPT, max_tokens=8).tokens == before != changed


def test_on_another_device(model: Model, tmp_path: Path) -> None:
    """Guesses pass through the host, so a draft may run elsewhere."""
    draft = loaded("llama", tmp_path, "sim:gfx942")
    found = model.generate(PROMPT, max_tokens=6, draft=draft, ahead=2)
    assert found.tokens == model.generate(PROMPT, max_tokens=6).tokens and found.timings.accepted > 0


@pytest.mark.parametrize(
    "options",
    [dict(lookup=-1), dict(lookup=4, temperature=1.0), dict(lookup=4, n=2), dict(lookup=2, draft=True),
     dict(draft=True, ahead=0), dict(draft=True, ahead=1.5), dict(draft=True, logprobs=1)],
)  # fmt: skip
def test_where_guesses_have_no_meaning(model: Model, near: Model, options: dict[str, Any]) -> None:
    options = {**options, **({"draft": near} if "draft" in options else {})}
    with pytest.raises(pf.ArgumentError, match="expected lookup >= 1, or a draft with ahead >= 1, with greedy"):
        model.generate(PROMPT, **options)


def test_other_vocabularies_are_refused(model: Model, tmp_path: Path) -> None:
    checkpoint, _ = make("llama", tmp_path)
    checkpoint.metadata["vocab_size"] = VOCAB - 1
    checkpoint.tensors = {n: t[: VOCAB - 1] if t.shape[0] == VOCAB else t for n, t in checkpoint.tensors.items()}
    other = Model(load_decoder(checkpoint), None, None, "cpu", pf.float32, 64)
    with pytest.raises(pf.ArgumentError, match="writes the model's 96 tokens but got llama with 95"):
        model.generate(PROMPT, draft=other)
    spoken, swapped = letters_model(tmp_path / "letters"), letters_tokenizer()
    words = swapped.get_vocab()
    words["A"], words["B"] = words["B"], words["A"]
    swapped.model = type(swapped.model)(words, [])
    other = Model(spoken.decoder, Tokenizer(swapped, Path("x"), None, {VOCAB - 1}), None, "cpu", pf.float32, 64)
    with pytest.raises(pf.ArgumentError, match="token 33 is 'A' and 'B' in the draft"):
        spoken.generate("Hi", draft=other)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = letters_model(tmp_path)
    monkeypatch.setattr("pyflame.cli.llm_arguments.load", lambda *args: model)
    for options in (["--draft", "small.gguf", "--ahead", "3"], ["--lookup", "2"]):
        assert main(["generate", "aaaa", "-n", "9", "-t", "0", "--stats", *options]) == 0
        out, err = capsys.readouterr()
        assert out == "aaaa" + model.generate("aaaa", max_tokens=9).text + "\n" and "guesses were right" in err
    assert main(["chat", "-n", "9", "-t", "0", "--draft", "small.gguf", "Hi"]) == 0
    assert capsys.readouterr().out == model.generate("uHi", max_tokens=9).text + "\n"
    assert main(["generate", "Hi", "--draft", "small.gguf"]) == 1
    assert "with greedy decoding" in capsys.readouterr().err
