"""Layers over several devices: the same logits and tokens as on one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyflame as pf
from pyflame.cli import main
from pyflame.core.device import parse_device
from pyflame.llm.config import ModelConfig
from pyflame.llm.generate import Model
from pyflame.llm.load import load_decoder
from pyflame.llm.placement import Placement, placed
from tests.children import printed
from tests.llm import small
from tests.llm.checkpoints import make

PROMPT = [5, 17, 3, 80, 22]
CONFIG = ModelConfig("test", 4, 32, 4, 2, 8, 48, 96, 128)
CPU, GPU, OTHER = map(parse_device, ("cpu", "sim:gfx942", "sim:gfx942:1"))


def test_what_a_map_says() -> None:
    def found(device_map: dict[str, object], **changes: object) -> Placement:
        config = ModelConfig("test", 4, 32, 4, 2, 8, 48, 96, 128, **changes)  # type: ignore[arg-type]
        return placed(device_map, config, dict, 0)

    halves = {"blk.0-1": "sim:gfx942", "blk.2-3": "cpu"}
    assert found(halves) == Placement(GPU, (GPU, GPU, CPU, CPU), CPU)
    assert found(halves, tied=True) == Placement(GPU, (GPU, GPU, CPU, CPU), GPU)
    moved = found({**halves, "blk.2": "sim:gfx942:1", "token_embd": "cpu", "output": "sim:gfx942"})
    assert moved == Placement(CPU, (GPU, GPU, OTHER, CPU), GPU)
    assert [moved.of(n) for n in ("token_embd.weight", "blk.2.attn_q.weight", "output_norm.weight")] == [
        CPU,
        OTHER,
        GPU,
    ]
    assert str(moved) == "2 layers on sim:gfx942, 1 layers on sim:gfx942:1, 1 layers on cpu"
    for wrong, words in (
        ({"blk.0-2": "cpu"}, r"all 4 blocks but got \[0, 1, 2\]"),
        ({"blk.0-4": "cpu"}, "all 4 blocks"),
        ({"blk.0-3": "cpu", "layers.0": "cpu"}, "but got 'layers.0'"),
    ):
        with pytest.raises(pf.ArgumentError, match=words):
            found(wrong)
    with pytest.raises(pf.ArgumentError, match="output beside token_embd"):
        found({**halves, "output": "cpu"}, tied=True)
    with pytest.raises(pf.ArgumentError, match="'auto' or a dict but got 'balanced'"):
        placed("balanced", CONFIG, dict, 0)


def test_automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, each as full as it may be, the CPU last; what has no room anywhere is refused with the figures."""
    sizes = {"token_embd.weight": 50, "output_norm.weight": 10, **{f"blk.{n}.attn_q.weight": 90 for n in range(4)}}

    def found(**free: int) -> tuple[object, ...]:
        room = dict(zip(("sim:gfx942", "sim:gfx942:1", "cpu"), free.values(), strict=False))
        monkeypatch.setattr("pyflame.llm.placement.devices", lambda: ["cpu", *[d for d in room if d != "cpu"]])
        monkeypatch.setattr("pyflame.llm.placement.memory_info", lambda device: (room[str(device)], 1 << 40))
        places = placed("auto", CONFIG, lambda: sizes, 10)
        assert places.first == places.last == places.layers[0]
        return places.layers

    assert found(a=1000, b=1000, c=1000) == (GPU,) * 4
    assert found(a=300, b=1000, c=1000) == (GPU, GPU, OTHER, OTHER)
    assert found(a=300, b=120, c=1000) == (GPU, GPU, OTHER, CPU)
    assert found(a=100, b=1000, c=1000) == (OTHER,) * 4  # no room for a layer beside the embeddings
    with pytest.raises(pf.OutOfMemoryError, match=r"460 bytes .* but sim:gfx942 has 90, .* cpu has 90"):
        found(a=100, b=100, c=100)


@pytest.mark.slow(16)
@pytest.mark.parametrize("name", ["gpt2", "gpt_oss"])
def test_same_logits_and_tokens(name: str, tmp_path: Path) -> None:
    """Half on a simulated GPU, half on the CPU, the head on the other side of the embeddings where it may."""
    checkpoint, _ = make(name, tmp_path)
    whole = load_decoder(checkpoint, "cpu", activation_bits=32)
    last = GPU if whole.config.tied else CPU
    spread = load_decoder(checkpoint, Placement(GPU, (GPU, CPU), last), activation_bits=32)
    assert {str(p.device) for p in spread.parameters()} == {"cpu", "sim:gfx942"}
    with pf.no_grad():
        wanted = whole(pf.tensor([PROMPT], device="cpu")).numpy()
        found = spread(pf.tensor([PROMPT], device="sim:gfx942")).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)
    one = Model(whole, None, None, "cpu", pf.float32, 64)
    several = Model(spread, None, None, "sim:gfx942", pf.float32, 64)
    options = dict(max_tokens=4)
    assert several.generate([PROMPT, [9]], **options)[1].tokens == one.generate([PROMPT, [9]], **options)[1].tokens
    assert several.generate(PROMPT, **options).tokens == one.generate(PROMPT, **options).tokens


@pytest.mark.slow
def test_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small.gguf(tmp_path / "small.gguf")
    halves = {"blk.0": "cpu", "blk.1": "sim:gfx942"}
    model = pf.llm.load(path, dtype="float32", activation_bits=32, device_map=halves)
    assert "1 layers on cpu, 1 layers on sim:gfx942" in repr(model)
    wanted = pf.llm.load(path, device="cpu", dtype="float32", activation_bits=32).generate(PROMPT, max_tokens=4)
    assert model.generate(PROMPT, max_tokens=4).tokens == wanted.tokens
    model.save_prompt(tmp_path / "p", PROMPT)
    again = pf.llm.load(path, dtype="float32", activation_bits=32, device_map=halves)
    assert again.generate(PROMPT, max_tokens=1, prompt_cache=tmp_path / "p").timings.cached == 4
    monkeypatch.setattr("pyflame.llm.placement.devices", lambda: ["cpu"])
    assert not pf.llm.load(path, device_map="auto").decoder.places.split
    with pytest.raises(pf.ArgumentError, match="expected a device, a device_map or tensor_parallel"):
        pf.llm.load(path, device="cpu", device_map="auto")


_ON_TWO_GPUS = """
import sys
import numpy as np
import pyflame as pf
halves = {"blk.0": "sim:gfx942:0", "blk.1": "sim:gfx942:1"}
one = pf.llm.load(sys.argv[1], device="sim:gfx942", dtype="float32", activation_bits=32)
two = pf.llm.load(sys.argv[1], dtype="float32", activation_bits=32, device_map=halves)
tokens = pf.tensor([[5, 17, 3, 80, 22]], device="sim:gfx942")
with pf.no_grad():
    assert np.array_equal(one.decoder(tokens).numpy(), two.decoder(tokens).numpy())
assert one.generate([5, 17, 3], max_tokens=3).tokens == two.generate([5, 17, 3], max_tokens=3).tokens
assert {str(p.device) for p in two.decoder.parameters()} == {"sim:gfx942", "sim:gfx942:1"}
"""


@pytest.mark.slow(16)
def test_two_simulated_gpus(tmp_path: Path) -> None:
    """Equal bits: the same kernels on the same numbers."""
    printed(_ON_TWO_GPUS, str(small.gguf(tmp_path / "small.gguf")), PYFLAME_SIM_DEVICES="2")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(small.gguf(tmp_path / "small.gguf"))
    command = ["generate", "hello", "-m", path, "-n", "3", "-t", "0", "--activation-bits", "32", "--dtype", "float32"]
    assert main([*command, "--device", "cpu"]) == 0
    wanted = capsys.readouterr().out
    assert main([*command, "--device-map", "blk.0=cpu,blk.1=sim:gfx942"]) == 0
    assert capsys.readouterr().out == wanted
    assert main([*command, "--device-map", "blk.0"]) == 1
    assert "expected device_map to be 'auto' or a dict" in capsys.readouterr().err
