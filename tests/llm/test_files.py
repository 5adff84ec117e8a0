"""Checkpoints: GGUF files and Hugging Face folders, whole and with parts missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.llm.files import open_checkpoint
from tests.llm import small

NAME = "model.layers.0.mlp.down_proj.weight"


def test_a_gguf_file(tmp_path: Path) -> None:
    found = open_checkpoint(small.gguf(tmp_path / "small.gguf"))
    assert (found.kind, found.architecture, found.metadata["llama.block_count"]) == ("gguf", "llama", 2)
    embedding = found.stored("token_embd.weight")
    assert embedding.shape == (271, 32) and embedding.encoding == "q8_0" and embedding.bytes.shape == (271, 34)
    assert found.stored("output_norm.weight").encoding == "float32"
    assert found.chat_template is not None and found.tokenizer().encode("hello") == [found.tokenizer().id("hello")]
    assert found.nbytes == sum(found.stored(name).bytes.nbytes for name in found.names())
    with pytest.raises(ArgumentError, match=r"got 'token_embed\.weight'; did you mean 'token_embd\.weight'"):
        found.stored("token_embed.weight")


def test_parts_of_a_gguf_file(tmp_path: Path) -> None:
    found = open_checkpoint(small.split(tmp_path)[0])
    assert found.architecture == "llama" and len(found.names()) == 20


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder(tmp_path: Path, shards: int) -> None:
    found = open_checkpoint(small.folder(tmp_path / "hf", shards))
    assert (found.kind, found.architecture, found.metadata["hidden_size"]) == ("hf", "llama", 32)
    assert found.metadata["generation_config"]["eos_token_id"] == [2]
    stored = found.stored(NAME)
    assert stored.shape == (32, 64) and stored.encoding == "float16" and stored.bytes.shape == (32, 128)
    assert not stored.bytes.flags.owndata and not stored.bytes.flags.writeable
    file = next(f for f in (tmp_path / "hf").glob("*.safetensors") if NAME in safetensors.numpy.load_file(f))
    assert np.array_equal(stored.bytes.view(np.float16), safetensors.numpy.load_file(file)[NAME])
    tokenizer = found.tokenizer()
    assert (tokenizer.bos, tokenizer.eos) == (1, {0, 2})
    assert found.chat_template == "{{ messages }}"


def test_chat_templates_of_folders(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf")
    several = {"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}
    (path / "tokenizer_config.json").write_text(json.dumps(several))
    assert open_checkpoint(path).chat_template == "d"
    (path / "chat_template.jinja").write_text("own file ▁")
    assert open_checkpoint(path).chat_template == "own file ▁"
    (path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(FileFormatError, match=r"expected text but .*chat_template\.jinja"):
        open_checkpoint(path)
    (path / "chat_template.jinja").unlink()
    (path / "tokenizer_config.json").write_text('{"chat_template": 3}')
    with pytest.raises(FileFormatError, match="to be text but got int"):
        open_checkpoint(path)
    (path / "tokenizer_config.json").unlink()
    assert open_checkpoint(path).chat_template is None


def remove(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).unlink()


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(text)


INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"
MISSING = {
    "config": (remove("config.json"), FileNotFoundError, r"with config\.json but .* has none"),
    "no config's object": (write("config.json", "[]"), FileFormatError, r"an object in .*config\.json but got list"),
    "no JSON": (write("config.json", "{"), FileFormatError, r"JSON but .*config\.json is damaged"),
    "no model_type": (write("config.json", "{}"), FileFormatError, "model_type is None"),
    "generation": (write("generation_config.json", "3"), FileFormatError, r"generation_config\.json but got int"),
    "a shard": (remove(SHARD), FileNotFoundError, f"expected {SHARD}, which .* names, but it is missing"),
    "the index": (remove(INDEX), FileNotFoundError, r"has neither; it has model-00001-of-00003\.safetensors"),
    "no map": (write(INDEX, "{}"), FileFormatError, "to have a weight_map"),
    "outside": (
        write(INDEX, '{"weight_map": {"x": "../x.safetensors"}}'), FileFormatError, "to name files beside it"
    ),
    "unknown": (
        write(INDEX, json.dumps({"weight_map": {"x": SHARD}})), FileFormatError, f"in {SHARD} but it does not"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISSING)
def test_what_is_missing_is_named(tmp_path: Path, kind: str) -> None:
    path = small.folder(tmp_path / "hf", shards=3)
    change, error, expected = MISSING[kind]
    change(path)
    with pytest.raises(error, match=expected):
        open_checkpoint(path)


def test_a_tensor_that_the_index_promises(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf", shards=3)
    index = json.loads((path / INDEX).read_text())
    index["weight_map"]["more"] = SHARD
    (path / INDEX).write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=f"expected 'more' in {SHARD}"):
        open_checkpoint(path)


def test_what_is_no_model(tmp_path: Path) -> None:
    path = small.folder(tmp_path / "hf")
    with pytest.raises(ArgumentError, match="give the folder it is in"):
        open_checkpoint(path / "model.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no"):
        open_checkpoint(tmp_path / "nothing")
    (path / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected tokenizer\.json but"):
        open_checkpoint(path).tokenizer()
    shutil.rmtree(path)
    path.mkdir()
    small.gguf(path / "inside.gguf")
    with pytest.raises(FileNotFoundError, match=r"has none; it has inside\.gguf"):
        open_checkpoint(path)
