"""`pyflame llm quantize`: what is encoded and how, and that the written file loads and gives near logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.encoding import encoding
from pyflame.core.errors import ArgumentError
from pyflame.io.gguf import GGUFFile
from pyflame.llm.export import Content, Tensor, choose, encoded, of_gguf, targets, write
from pyflame.llm.files import open_checkpoint
from tests.llm import small
from tests.llm.numpy_llama import NumpyLlama

TOKENS = [3, 50, 7, 100, 21, 9]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model in float32."""
    folder = tmp_path_factory.mktemp("plain")
    assert main(["llm", "quantize", str(small.gguf(folder / "q8.gguf")), str(folder / "f32.gguf"), "--to", "f32"]) == 0
    return folder / "f32.gguf"


def logits(path: Path) -> np.ndarray:
    model = pf.llm.load(path, device="cpu", activation_bits=32)
    return model.decoder(pf.tensor([TOKENS])).numpy()[0]


def random_tensor(name: str, shape: tuple[int, ...], kind: str = "float32") -> Tensor:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return Tensor(name, shape, kind, lambda: x.view(np.uint8), lambda: x)


@pytest.mark.slow
def test_decoded_weights_give_the_same_logits(plain: Path) -> None:
    assert np.allclose(logits(plain), logits(plain.with_name("q8.gguf")), atol=1e-4)


# How large errors may be as a share of the logits: random weights are large, and attention makes more of their errors.
@pytest.mark.slow
@pytest.mark.parametrize(("to", "near"), [("f16", 0.01), ("q8_0", 0.05), ("q5_1", 0.3), ("q4_0", 0.6), ("q4_k", 0.5)])
def test_written_files_load_and_give_near_logits(plain: Path, to: str, near: float, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert main(["llm", "quantize", str(plain), str(out), "--to", to]) == 0
    want, got = logits(plain), logits(out)
    assert 0 < np.sqrt(((got - want) ** 2).mean()) < near * np.sqrt((want**2).mean())
    exact = NumpyLlama(GGUFFile(out)).logits(TOKENS)
    assert np.abs(got - exact).max() < 2e-3 * np.abs(exact).max()
    before, after = GGUFFile(plain), GGUFFile(out)
    assert list(after.tensors) == list(before.tensors)
    changed = {key for key, value in after.metadata.items() if before.metadata.get(key) != value}
    assert changed == {"general.file_type"} and after.types.items() >= before.types.items()
    kinds = {name: tensor.encoding for name, tensor in after.tensors.items()}
    assert kinds["blk.0.attn_norm.weight"] == "float32"
    assert kinds["blk.1.ffn_up.weight"] == {"f16": "float16", "q4_k": "q5_0"}.get(to, to)  # rows of 32
    assert kinds["token_embd.weight"] == ("float16" if to == "f16" else "q8_0")  # it makes logits


def test_says_what_was_written(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", "quantize", str(plain), str(tmp_path / "out.gguf"), "--to", "Q8_0"]) == 0
    out, err = capsys.readouterr()
    assert "q8_0" in out and "float32" in out and "writing out.gguf: 20 of 20" in err


@pytest.mark.parametrize(
    ("name", "shape", "to", "want"),
    [
        ("blk.0.attn_q.weight", (8, 256), "q4_k", "q4_k"),
        ("blk.0.attn_q.weight", (8, 288), "q4_k", "q5_0"),
        ("blk.0.attn_q.weight", (8, 288), "iq4_xs", "iq4_nl"),
        ("blk.0.attn_q.weight", (8, 40), "q6_k", "f16"),
        ("blk.0.ffn_up_exps.weight", (4, 8, 256), "q4_k", "q4_k"),
        ("token_embd.weight", (8, 256), "q4_0", "q4_0"),
        ("output.weight", (8, 256), "q4_0", "q6_k"),
        ("output.weight", (8, 64), "q4_0", "q8_0"),
        ("output.weight", (8, 256), "q8_0", "q8_0"),
        ("output.weight", (8, 256), "f16", "f16"),
        ("output_norm.weight", (256,), "q4_0", None),
        ("blk.0.attn_q_norm.weight", (8, 256), "q4_0", None),
        ("blk.0.ffn_gate_inp.weight", (8, 256), "q4_0", None),
        ("blk.0.attn_q.bias", (256,), "q4_0", None),
        ("position_embd.weight", (8, 256), "q4_0", None),
        ("blk.0.attn_q.weight", (8, 256), "f32", None),
    ],
)
def test_what_a_tensor_is_written_in(name: str, shape: tuple[int, ...], to: str, want: str | None) -> None:
    found = choose(random_tensor(name, shape), encoding(to), tied=False)
    assert (found and found.name) == want


@pytest.mark.parametrize("to", targets())
def test_every_target_can_be_written_and_read(to: str, tmp_path: Path) -> None:
    tensor, out = random_tensor("blk.0.ffn_up.weight", (3, 5, 512)), tmp_path / "out.gguf"
    output = random_tensor("output.weight", (4, 512))
    content = encoded(Content({"general.architecture": "llama"}, {}, [tensor, output]), to)
    write(content, out, tmp_path)
    stored = GGUFFile(out).tensors[tensor.name]
    numbers = encoding(to).decode(np.asarray(stored.bytes))
    assert stored.shape == tensor.shape and stored.encoding == {
        "f32": "float32",
        "f16": "float16",
        "bf16": "bfloat16",
    }.get(to, to)
    assert np.abs(numbers - tensor.numbers()).mean() < 0.3


def test_encoded_weights_are_refused_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = small.gguf(tmp_path / "small.gguf"), tmp_path / "out.gguf"
    command = ["llm", "quantize", str(source), str(out), "--to", "q4_0"]
    assert main(command) == 1 and not out.exists()
    assert "token_embd.weight is q8_0" not in capsys.readouterr().err  # which stays as it is
    assert main([*command, "--requantize"]) == 0 and out.exists()


def test_split_files_become_one(tmp_path: Path) -> None:
    parts, out = small.split(tmp_path), tmp_path / "out.gguf"
    assert main(["llm", "quantize", str(parts[1]), str(out), "--to", "q8_0"]) == 0
    assert np.array_equal(logits(out), logits(parts[0]))


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    x = np.full((2, 32), np.nan, np.float32)
    bad = Tensor("blk.0.ffn_up.weight", (2, 32), "float32", lambda: x.view(np.uint8), lambda: x)
    content = encoded(Content({"general.architecture": "llama"}, {}, [bad]), "q8_0")
    with pytest.raises(ArgumentError, match=r"NaN or infinity \(in blk.0.ffn_up.weight\)"):
        write(content, tmp_path / "out.gguf", tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ArgumentError, match="which GGUF has not"):
        encoded(content, "int4_g64")


def test_the_source_is_not_overwritten(plain: Path) -> None:
    with pytest.raises(ArgumentError, match="would be lost"):
        write(of_gguf(open_checkpoint(plain)), plain, plain)
