"""Hugging Face folders with quantised weights, packed as other programs do, compute what their decoded weights do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pyflame as pf
from pyflame.core.errors import FileFormatError, NotSupportedError
from pyflame.llm.architectures import find
from pyflame.llm.files import open_checkpoint
from pyflame.llm.load import Reader, load_decoder
from tests.llm import checkpoints, small
from tests.unit.test_repacking import packed

Packing = Callable[
    [Any], tuple[dict[str, Any], Any]
]  # a weight -> its tensors by ends of names, and what they stand for
GROUP = 32
_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def rounded(weight: Any, bits: int) -> tuple[Any, Any, Any, Any]:
    """Numbers (out, in), scales and zero points (out, groups), and what they stand for."""
    parts = weight.astype(np.float32).reshape(len(weight), -1, GROUP)
    low, high = parts.min(-1), parts.max(-1)
    scales = ((high - low) / ((1 << bits) - 1)).astype(np.float16)
    zeros = np.clip(np.round(-low / scales.astype(np.float32)), 1, (1 << bits) - 1).astype(np.int64)
    numbers = np.clip(np.round(parts / scales[..., None].astype(np.float32)) + zeros[..., None], 0, (1 << bits) - 1)
    plain = (numbers - zeros[..., None]) * scales[..., None].astype(np.float32)
    return numbers.reshape(weight.shape).astype(np.int64), scales, zeros, plain.reshape(weight.shape).astype(np.float32)


def gptq(weight: Any) -> tuple[dict[str, Any], Any]:
    numbers, scales, zeros, plain = rounded(weight, 4)
    order = (np.arange(weight.shape[1]) // GROUP).astype(np.int32)
    tensors = {"qweight": packed(numbers, 4).T, "qzeros": packed((zeros - 1).T, 4), "scales": scales.T, "g_idx": order}
    return tensors, plain


def awq(weight: Any) -> tuple[dict[str, Any], Any]:
    numbers, scales, zeros, plain = rounded(weight, 4)
    return {"qweight": packed(numbers.T, 4, _AWQ), "qzeros": packed(zeros.T, 4, _AWQ), "scales": scales.T}, plain


def compressed(weight: Any) -> tuple[dict[str, Any], Any]:
    numbers, scales, zeros, plain = rounded(weight, 4)
    shape = np.array(weight.shape, np.int64)
    tensors = {"weight_packed": packed(numbers, 4), "weight_scale": scales, "weight_shape": shape}
    return {**tensors, "weight_zero_point": packed(zeros.T, 4).T}, plain


def int8(weight: Any) -> tuple[dict[str, Any], Any]:
    scale = np.abs(weight).max(1, keepdims=True).astype(np.float32) / 127
    numbers = np.round(weight / scale).astype(np.int8)
    return {"weight": numbers, "weight_scale": scale}, numbers * scale


def fp8(weight: Any) -> tuple[dict[str, Any], Any]:
    scale = np.full((-(-len(weight) // 128), -(-weight.shape[1] // 128)), 0.25, np.float32)
    numbers = (weight / 0.25).astype(ml_dtypes.float8_e4m3fn)
    return {"weight": numbers, "weight_scale_inv": scale}, numbers.astype(np.float32) * 0.25


def _groups(kind: str, bits: int, form: str) -> dict[str, Any]:
    weights = {"type": kind, "num_bits": bits, "group_size": GROUP}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights}}}


PACKED: dict[str, tuple[Packing, dict[str, Any], str]] = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}, "int4_g32"),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "version": "gemm"}, "int4_g32"),
    "compressed": (compressed, _groups("int", 4, "pack-quantized"), "int4_g32"),
    "int8": (int8, _groups("int", 8, "int-quantized"), "int8_g"),
    "fp8": (fp8, {"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_g"),
}


def write(folder: Path, tensors: Mapping[str, Any], more: dict[str, Any]) -> None:
    save_file({name: np.ascontiguousarray(x) for name, x in tensors.items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **more}))


def both(tmp_path: Path, packing: Packing, config: dict[str, Any]) -> tuple[Path, Path]:
    """The folder with packed weights, and one with what they stand for."""
    folders = [small.folder(tmp_path / name) for name in ("packed", "plain")]
    tensors = load_file(folders[0] / "model.safetensors")
    outside, plain = {}, {}
    for name, x in tensors.items():
        wide = x.astype(np.float32)
        plain[name] = wide
        if "layers" in name and x.ndim == 2:
            found, plain[name] = packing(wide)
            outside |= {f"{name.removesuffix('.weight')}.{end}": a for end, a in found.items()}
        else:
            outside[name] = wide
    write(folders[0], outside, {"quantization_config": config})
    write(folders[1], plain, {})
    return folders[0], folders[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKED)
def test_logits(name: str, tmp_path: Path) -> None:
    packing, config, kind = PACKED[name]
    given, wanted = (open_checkpoint(folder) for folder in both(tmp_path, packing, config))
    assert sorted(given.names()) == sorted(wanted.names())
    encoded = [given.stored(n).encoding for n in given.names() if "layers" in n and "norm" not in n]
    assert encoded and all(e.startswith(kind) for e in encoded)
    tokens = pf.tensor([[5, 3, 17, 2, 9]])
    with pf.no_grad():
        found, plain = (load_decoder(c, activation_bits=32)(tokens).numpy() for c in (given, wanted))
    np.testing.assert_allclose(found, plain, atol=2e-5 * np.abs(plain).max(), rtol=0)


def test_what_is_refused(tmp_path: Path) -> None:
    folder, _ = both(tmp_path, gptq, PACKED["gptq"][1])
    write(folder, load_file(folder / "model.safetensors"), {"quantization_config": {"quant_method": "bitsandbytes"}})
    with pytest.raises(NotSupportedError, match=r"compressed-tensors, fp8, mxfp4 but .* 'bitsandbytes'"):
        open_checkpoint(folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(n for n in tensors if n.endswith("scales"))
    write(folder, {**tensors, name: tensors[name][:, :3]}, {"quantization_config": PACKED["gptq"][1]})
    with pytest.raises((FileFormatError, pf.ShapeError), match=name.removesuffix(".scales")):
        open_checkpoint(folder).stored(name.removesuffix("scales") + "weight")


FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0], np.float32)


def openai_decoded(blocks: Any, scales: Any) -> Any:
    """As transformers documents it: two neighbours in a byte, the first in its low bits, times 2^(scale - 127)."""
    numbers = np.empty((*blocks.shape[:-1], 32), np.float32)
    numbers[..., 0::2], numbers[..., 1::2] = FP4[blocks & 15], FP4[blocks >> 4]
    return np.ldexp(numbers, scales.astype(np.int32)[..., None] - 127).reshape(*blocks.shape[:2], -1)


def gpt_oss(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, dict[str, Any]]:
    """gpt-oss as OpenAI publishes it, with plain weights, and the numbers of its experts (experts, out, in)."""
    monkeypatch.setattr(checkpoints, "SIZES", {**checkpoints.SIZES, "hidden_size": 64, "intermediate_size": 96})
    rng, plain, published, numbers = np.random.default_rng(0), {}, {}, {}
    for name in ("plain", "published"):
        made, _ = checkpoints.make("gpt_oss", folder / name)
    for name, x in made.tensors.items():
        plain[name] = published[name] = x
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = x.shape
            blocks = rng.integers(0, 256, (experts, outputs, inputs // 32, 16), np.uint8)
            scales = rng.integers(121, 126, blocks.shape[:-1], np.uint8)
            del published[name]
            published |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            numbers[name] = openai_decoded(blocks, scales)
            plain[name] = numbers[name].swapaxes(1, 2)
    write(folder / "plain", plain, {})
    write(folder / "published", published, {"quantization_config": {"quant_method": "mxfp4"}})
    return folder / "published", folder / "plain", numbers


@pytest.mark.slow
def test_gpt_oss_as_openai_publishes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts stay encoded, and are what transformers makes of them: gate and up alternate."""
    published, plain, numbers = gpt_oss(tmp_path, monkeypatch)
    reader = Reader(open_checkpoint(published), find("hf", "gpt_oss"))
    for layer in range(2):
        both = numbers[f"model.layers.{layer}.mlp.experts.gate_up_proj"]
        wanted = {"gate": both[:, 0::2], "up": both[:, 1::2]}
        wanted["down"] = numbers[f"model.layers.{layer}.mlp.experts.down_proj"]
        for kind, x in wanted.items():
            name = f"blk.{layer}.ffn_{kind}_exps.weight"
            found = reader.weight(name, "cpu", pf.float32, None)
            assert isinstance(found, pf.EncodedTensor) and found.encoding.name == "mxfp4"
            assert np.array_equal(found.dequantize().numpy(), x) and np.array_equal(reader.numbers(name), x)
    tokens = pf.tensor([[5, 3, 17, 2, 9]])
    with pf.no_grad():
        found, wanted_logits = (
            load_decoder(open_checkpoint(p), activation_bits=32)(tokens).numpy() for p in (published, plain)
        )
    np.testing.assert_allclose(found, wanted_logits, atol=2e-5 * np.abs(wanted_logits).max(), rtol=0)
    assert open_checkpoint(published).nbytes < open_checkpoint(plain).nbytes / 2


def test_blocks_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published, _, _ = gpt_oss(tmp_path, monkeypatch)
    tensors, name = load_file(published / "model.safetensors"), "model.layers.0.mlp.experts.down_proj"
    for end, wrong in (("blocks", tensors[f"{name}_blocks"][..., :8]), ("scales", tensors[f"{name}_scales"][:, 1:])):
        write(published, {**tensors, f"{name}_{end}": wrong}, {})
        with pytest.raises(pf.ShapeError, match=rf"{name} of .* expected bytes of blocks"):
            open_checkpoint(published).stored(name)
