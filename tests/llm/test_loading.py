"""Loading: bytes are counted once, read ahead of a GPU, and shown."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.llm.files import open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.read_ahead import _STEP, ReadAhead
from tests.llm import small
from tests.llm.checkpoints import make


def wait_until(done: object) -> None:
    for _ in range(500):
        if done():  # type: ignore[operator]
            return
        time.sleep(0.01)
    raise AssertionError("nothing happened for 5 seconds")


def test_reads_so_far_ahead_and_no_further() -> None:
    file = np.zeros(_STEP + 305, np.uint8)
    tensors = [file[_STEP + 5 :].reshape(3, 100), file[: _STEP + 5], file[:0]]
    with ReadAhead(tensors, ahead=_STEP + 5) as reader:
        wait_until(lambda: reader.read == _STEP + 5)
        time.sleep(0.05)
        assert reader.read == _STEP + 5
        reader.took(300)
        wait_until(lambda: reader.read == file.size)
    assert not [t for t in threading.enumerate() if t.name == "pyflame-read-ahead"]


def test_ends_with_its_block() -> None:
    """While the thread waits for room, and where the block fails."""
    with pytest.raises(KeyError), ReadAhead([np.zeros(100, np.uint8)], ahead=0):
        raise KeyError
    assert not [t for t in threading.enumerate() if t.name == "pyflame-read-ahead"]


@pytest.mark.parametrize("name", ["llama", "phi3", "mixtral", "gpt_oss"])
def test_every_byte_is_counted_once(name: str, tmp_path: Path) -> None:
    """Also of tensors that are cut into several, and of several that are stacked."""
    make(name, tmp_path)
    checkpoint, seen = open_checkpoint(tmp_path), []
    load_decoder(checkpoint, "cpu", reads=seen.append)
    assert sum(seen) == checkpoint.nbytes


def test_same_weights_on_a_simulated_gpu(tmp_path: Path) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    here, there = (pf.llm.load(path, device=d, dtype="float32").decoder.state_dict() for d in ("cpu", "sim:gfx942"))
    assert here.keys() == there.keys()
    assert all(np.array_equal(here[name].numpy(), there[name].numpy()) for name in here)
    assert not [t for t in threading.enumerate() if t.name == "pyflame-read-ahead"]


@pytest.mark.slow
def test_matrices_of_halves_stay_so_on_a_cpu(tmp_path: Path) -> None:
    """Products are of float32 all the same; a dtype makes parameters of them."""
    path, tokens = small.folder(tmp_path), pf.tensor([[3, 1, 4, 1, 5]])
    kept, plain = (pf.llm.load(path, device="cpu", dtype=dtype).decoder for dtype in (None, "float32"))
    for layer, other in ((kept.blk[0].attn_q, plain.blk[0].attn_q), (kept.token_embd, plain.token_embd)):
        assert layer.encoding == "f16" and 2 * layer.weight.nbytes == other.weight.nbytes
        assert other.encoding is None and other.weight.dtype is pf.float32
        np.testing.assert_array_equal(layer.weight.numpy().view(np.float16), other.weight.numpy())
    np.testing.assert_allclose(kept(tokens).numpy(), plain(tokens).numpy(), rtol=1e-4, atol=1e-4)
    options = {"max_tokens": 8, "ignore_eos": True}
    texts = [Model(d, None, None, "cpu", pf.float32, 64).generate([3, 1, 4], **options).tokens for d in (kept, plain)]
    assert texts[0] == texts[1]


def test_large_models_show_how_far_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    pf.llm.load(path, device="cpu")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.modules["pyflame.llm.load"], "_LARGE", 1000)  # pf.llm.load is the function
    pf.llm.load(path, device="cpu")
    assert capsys.readouterr().err == "small.gguf: loading (0 MB)\n"


def test_bench_says_how_long_the_first_token_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    command = ["llm", "bench", str(path), "-p", "0", "-n", "2", "-r", "1", "--device", "cpu"]
    assert main(command) == 0
    assert "load to first token: " in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert 0 < row["load_s"] < row["load_to_first_token_s"]
