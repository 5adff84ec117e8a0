"""`pyflame llm convert`: Hugging Face folders of every architecture as GGUF files, and their tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

import pyflame as pf
from pyflame.cli import main
from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.io.gguf import GGUFFile
from pyflame.llm.convert import model_of_folder
from pyflame.llm.convert_tokenizer import vocabulary_of
from pyflame.llm.export import write
from pyflame.llm.files import open_checkpoint
from pyflame.llm.gguf_tokenizer import from_gguf
from pyflame.llm.load import decoded, load_decoder
from pyflame.llm.tokenizer import Tokenizer
from tests.llm import small
from tests.llm.checkpoints import MODELS, VOCAB, make, make_bert, oracle_logits
from tests.llm.numpy_llama import NumpyLlama

# What GGUF has no key for: a scale of its own, layers with a window in an order of their own, groups of DeepSeek V2,
# two different factors of yarn.
REFUSED = {"gemma2_scaled": "attention_scale", "gemma3": "windows", "deepseek_v2": "experts", "deepseek_v3": "rope"}
TEXT = "hello world, 123 hello\n  worlds"


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED])
def test_logits_of_every_architecture(name: str, tmp_path: Path) -> None:
    _, oracle = make(name, tmp_path)
    tokens = np.random.default_rng(0).integers(0, VOCAB, (2, 12))
    want = oracle_logits(oracle, tokens)
    write(model_of_folder(open_checkpoint(tmp_path)), tmp_path / "out.gguf", tmp_path)
    with pf.no_grad():
        got = load_decoder(open_checkpoint(tmp_path / "out.gguf"))(pf.tensor(tokens)).numpy()
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_an_encoder(tmp_path: Path) -> None:
    _, hidden = make_bert(tmp_path)
    write(model_of_folder(open_checkpoint(tmp_path)), tmp_path / "out.gguf", tmp_path)
    decoder = load_decoder(open_checkpoint(tmp_path / "out.gguf"))
    with pf.no_grad():
        got = decoder(pf.tensor([[3, 9, 27, 4]])).numpy()[0]
    assert decoder.config.pooling == "mean" and np.abs(got - hidden([3, 9, 27, 4])).max() < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_gguf_cannot_describe_is_refused(name: str, tmp_path: Path) -> None:
    make(name, tmp_path)
    with pytest.raises(NotSupportedError, match=rf"\[convert\] expected .* has {REFUSED[name]} = "):
        model_of_folder(open_checkpoint(tmp_path))


@pytest.mark.parametrize(("command", "to"), [("convert", None), ("convert", "q8_0"), ("quantize", "q8_0")])
def test_a_folder_becomes_a_file(command: str, to: str | None, tmp_path: Path) -> None:
    folder, out = small.folder(tmp_path / "hf"), tmp_path / "out.gguf"
    assert main(["llm", command, str(folder), str(out), *(["--to", to] if to else [])]) == 0
    file, before, after = GGUFFile(out), open_checkpoint(folder), open_checkpoint(out)
    assert after.chat_template == before.chat_template
    one, other = before.tokenizer(), after.tokenizer()
    assert other.encode(TEXT) == one.encode(TEXT) and (other.bos, other.eos, other.end) == (one.bos, one.eos, one.end)
    assert file.metadata["tokenizer.ggml.pre"] == "smollm" and file.tensors["output_norm.weight"].encoding == "float32"
    assert file.tensors["blk.0.attn_q.weight"].encoding == (to or "float16")
    tokens = other.encode(TEXT)
    want, got = (load_decoder(c, activation_bits=32)(pf.tensor([tokens])).numpy()[0] for c in (before, after))
    near = 0.3 if to else 1e-5  # weights of size 1 make scores of 30, which one part in 250 of an error changes much
    assert np.sqrt(((got - want) ** 2).mean()) < near * np.sqrt((want**2).mean())
    plain = decoded(before.stored("model.layers.1.mlp.up_proj.weight")).astype(np.float32)
    assert np.abs(NumpyLlama(file).weight("blk.1.ffn_up.weight") - plain).max() <= np.abs(plain).max() / 250
    exact = NumpyLlama(file).logits(tokens)
    assert np.abs(got - exact).max() < 2e-3 * np.abs(exact).max()


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "convert", str(small.gguf(tmp_path / "in.gguf")), str(tmp_path / "out.gguf")]) == 1
    assert "expected a Hugging Face folder" in capsys.readouterr().err


def test_nothing_is_written_where_the_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = small.folder(tmp_path / "hf")
    data = json.loads((folder / "tokenizer.json").read_text())
    data["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(data))
    assert main(["llm", "convert", str(folder), str(tmp_path / "out.gguf")]) == 1
    assert "changes texts by Lowercase, which GGUF has no key for" in capsys.readouterr().err
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("kind", [small.byte_level, small.sentencepiece, small.wordpiece])
@pytest.mark.parametrize("bos", [True, False])
def test_vocabularies_go_there_and_back(kind: Any, bos: bool) -> None:
    given = {**kind(), "tokenizer.ggml.add_bos_token": bos}
    tokenizer = from_gguf(given, Path("given"))
    found = vocabulary_of(tokenizer, len(given["tokenizer.ggml.tokens"]) + 3)
    made = from_gguf(found, Path("found"))
    for text in (TEXT, "Hello, WORLD wörld 世界", " ", "<|im_start|>hello</s>[SEP]"):
        assert made.encode(text) == tokenizer.encode(text), text
    assert found["tokenizer.ggml.tokens"][-1].startswith("[PAD") and found["tokenizer.ggml.token_type"][-1] == 5
    for key in ("model", "pre", "merges"):
        assert found.get(f"tokenizer.ggml.{key}") == given.get(f"tokenizer.ggml.{key}")


def changed(**parts: Any) -> Tokenizer:
    data = json.loads(small.tokenizer_json()) | parts
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(data)), Path("tokenizer.json"), 1, {2})


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"pre_tokenizer": {"type": "Whitespace"}}, "is of type BPE without bytes"),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        {"type": "Punctuation", "behavior": "Isolated"},
                        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                    ],
                }
            },
            r"cuts texts into words by Punctuation \+ ByteLevel, and in none of the ways .* llama-bpe",
        ),
        ({"normalizer": {"type": "NFKC"}}, "changes texts by NFKC"),
    ],
)
def test_tokenizers_that_gguf_cannot_hold(parts: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotSupportedError, match=rf"\[convert\] expected a tokenizer .* {reason}"):
        vocabulary_of(changed(**parts), 400)


def test_more_refusals() -> None:
    unigram = from_gguf(small.unigram(), Path("t5"))
    with pytest.raises(NotSupportedError, match="is of type Unigram; known are"):
        vocabulary_of(unigram, 100)
    with pytest.raises(FileFormatError, match=r"expected embeddings of all 271 tokens .* but the model has 100"):
        vocabulary_of(changed(), 100)
    many = changed()
    many.eos = set(range(40, 50))
    with pytest.raises(NotSupportedError, match="10 tokens that end a text"):
        vocabulary_of(many, 400)
    around = changed()
    around.inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|im_start|> <|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    with pytest.raises(NotSupportedError, match="more than one token before or behind a text"):
        vocabulary_of(around, 400)


@pytest.mark.slow
def test_smollm2s_vocabulary(smollm2: Path) -> None:
    checkpoint = open_checkpoint(smollm2)
    found = vocabulary_of(checkpoint.tokenizer(), 49152)
    same = {key for key, value in found.items() if checkpoint.metadata.get(key) == value}
    assert {
        f"tokenizer.ggml.{key}" for key in ("model", "pre", "tokens", "token_type", "merges", "eos_token_id")
    } <= same
