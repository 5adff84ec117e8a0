"""Adapters in PEFT's files: adapter_config.json, and adapter_model.safetensors with Hugging Face's names.

Rows of B are stored in Hugging Face's order; a layer whose rows GGUF orders otherwise gets them reordered.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyflame.core.atomic import write_atomic
from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, FileFormatError, NotSupportedError
from pyflame.io.safetensors import load_file, save_file
from pyflame.llm.architectures import Architecture, known
from pyflame.llm.architectures.base import Array
from pyflame.llm.config import ModelConfig
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.layers import Linear
from pyflame.llm.lora import (
    LoraConfig,
    adapters,
    decoder_of,
    linear_layers,
    put_lora,
    remove_lora,
    want_whole_layers,
)
from pyflame.llm.names import module_names
from pyflame.llm.parallel import parts_of
from pyflame.llm.shares import Cut
from pyflame.nn.parameter import replace
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
# Fields that we act on, and those that say nothing of what is computed. All others must be off.
_USED = ("peft_type", "r", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "bias", "init_lora_weights")
_SILENT = (
    "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "fan_in_fan_out", "layers_pattern", "megatron_core", "qalora_group_size", "ensure_weight_tying",
)  # fmt: skip
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # others change the base weights as well


def save_adapter(model: Model | Decoder, folder: str | os.PathLike[str], base: str | None = None) -> None:
    """Write the adapters of a model as PEFT does. `base`: the name or path of the model they belong to.

    >>> pf.llm.save_adapter(model, "adapter", base="HuggingFaceTB/SmolLM2-135M-Instruct")
    """
    decoder, found = decoder_of(model), adapters(model)
    want_whole_layers("save_adapter", decoder)
    if not isinstance(decoder.lora, LoraConfig):
        raise ArgumentError("[save_adapter] expected a model with adapters but it has none; call add_lora first")
    architecture, modules = _architecture(decoder.config), _modules(decoder)
    nameless = [name for name in found if name not in modules]
    if nameless:
        raise NotSupportedError(
            f"[save_adapter] expected layers that Hugging Face's {decoder.config.architecture} has but got {nameless}"
        )
    tensors: dict[str, Tensor] = {}
    for name, one in found.items():
        rows = np.argsort(_rows(architecture, decoder.config, name, one.B.shape[0]))
        tensors[f"{_PREFIX}{modules[name]}.lora_A.weight"] = one.A.detach()
        tensors[f"{_PREFIX}{modules[name]}.lora_B.weight"] = tensor(one.B.detach().numpy()[rows])
    about = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if decoder.config.causal else "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": decoder.lora.rank,
        "lora_alpha": decoder.lora.alpha,
        "lora_dropout": decoder.lora.dropout,
        "use_rslora": decoder.lora.rslora,
        "target_modules": _shortest(decoder, modules, {modules[name] for name in found}),
        "bias": "none",
        "inference_mode": True,
    }
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    (path / CONFIG).unlink(missing_ok=True)  # never the config of one adapter beside the tensors of another
    save_file(tensors, path / TENSORS, {"format": "pt"})
    write_atomic(path / CONFIG, json.dumps(about, indent=2) + "\n")


def load_adapter(model: Model | Decoder, folder: str | os.PathLike[str], trainable: bool = False) -> None:
    """Give a model the adapters of a folder that PEFT or `save_adapter` wrote, in place of those it has.

    `trainable`: as `add_lora` leaves them, to go on training. What PEFT has beside plain LoRA is refused by name.

    >>> pf.llm.load_adapter(model, "adapter")
    >>> model.generate("Once upon a time")
    """
    decoder = decoder_of(model)
    if trainable:
        want_whole_layers("load_adapter", decoder)
    config, values = read_adapter(decoder, folder)
    remove_lora(decoder)
    decoder.lora = config
    for part, cut in parts_of(decoder):
        put_lora(part, set(values), config)
        for name, one in adapters(part).items():
            for cell, value in zip((one.A, one.B), own_part(name, cut(f"{name}.weight"), *values[name]), strict=True):
                replace(cell, tensor(value, device=cell.device))
                cell.requires_grad = trainable


def read_adapter(decoder: Decoder, folder: str | os.PathLike[str]) -> tuple[LoraConfig, dict[str, tuple[Array, Array]]]:
    """The adapter of a folder: what its layers have in common, and A and B of each by GGUF's names, checked."""
    path = Path(folder)
    about, config = _read_config(path)
    first, cut = parts_of(decoder)[0]
    modules = {theirs: ours for ours, theirs in _modules(first).items()}
    chosen = {modules[theirs]: theirs for theirs in _selected(about["target_modules"], modules)}
    stored = load_file(path / TENSORS)
    _check_names(path, stored, chosen.values())
    architecture, layers = _architecture(decoder.config), linear_layers(first)
    values: dict[str, tuple[Array, Array]] = {}
    for name, theirs in chosen.items():
        shape = _whole_shape(layers[name], cut(f"{name}.weight"))
        a, b = _checked(path / TENSORS, stored, theirs, config.rank, *shape)
        values[name] = (a, b[_rows(architecture, decoder.config, name, len(b))])
    return config, values


def _checked(
    file: Path, stored: Mapping[str, Tensor], theirs: str, rank: int, outputs: int, inputs: int
) -> tuple[Array, Array]:
    """A and B of a module, as a layer of this shape needs them."""
    a, b = (stored[f"{_PREFIX}{theirs}.lora_{part}.weight"] for part in "AB")
    wanted = ((rank, inputs), (outputs, rank))
    if (tuple(a.shape), tuple(b.shape)) != wanted or not (a.dtype.is_float and b.dtype.is_float):
        raise FileFormatError(
            f"[load_adapter] expected A and B of {theirs} in {file} to be numbers of shapes {wanted} but got "
            f"{a.dtype.name} {tuple(a.shape)} and {b.dtype.name} {tuple(b.shape)}"
        )
    return a.to(float32).numpy(), b.to(float32).numpy()


def _whole_shape(layer: Linear, cut: Cut | None) -> list[int]:
    """Outputs and inputs of a layer of which a device may have a part."""
    shape = [layer.weight.shape[0], layer.inputs]
    if cut is not None:
        shape[cut.axis] = cut.size
    return shape


def own_part(name: str, cut: Cut | None, a: Array, b: Array) -> tuple[Array, Array]:
    """A and B of a device's part: A has the layer's columns, and B its rows."""
    if cut is None:
        return a, b
    return (cut.of(name, a), b) if cut.axis == -1 else (a, cut.of(name, b))


def _architecture(config: ModelConfig) -> Architecture:
    """A config keeps the name that its checkpoint had, GGUF's or Hugging Face's."""
    table = known()
    return table.get(("gguf", config.architecture)) or table["hf", config.architecture]


def _modules(decoder: Decoder) -> dict[str, str]:
    """GGUF's name -> Hugging Face's, of the linear layers that this model has."""
    found = module_names(_architecture(decoder.config), decoder.config.layers)
    return {name: found[name] for name in linear_layers(decoder) if name in found}


def _rows(architecture: Architecture, config: ModelConfig, name: str, count: int) -> np.ndarray[Any, Any]:
    """Row n of the layer is row rows[n] of Hugging Face's."""
    short = name.rsplit(".", 1)[-1]
    rows = architecture.adapt(config, f"{short}.weight", np.arange(count).reshape(-1, 1)).reshape(-1)
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(short)
    if architecture.name == "llama" and config.rope is not None and config.rope.interleaved and heads:
        rows = rows.reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)  # Llama's GGUF files: neighbours, not halves
    return np.asarray(rows)


def _selected(targets: object, modules: Iterable[str]) -> list[str]:
    """The modules that `target_modules` means: a regular expression, "all-linear", or ends of names."""
    if targets == "all-linear":
        return [m for m in modules if "." in m]  # all but the head
    if isinstance(targets, str):
        try:
            return [m for m in modules if re.fullmatch(targets, m)]
        except re.error as error:
            raise FileFormatError(f"[load_adapter] expected an expression as target_modules but got {error}") from None
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        raise FileFormatError(f"[load_adapter] expected target_modules to be names but got {targets!r}")
    return [m for m in modules if any(m == t or m.endswith(f".{t}") for t in targets)]


def _shortest(decoder: Decoder, modules: Mapping[str, str], chosen: set[str]) -> list[str]:
    """Last parts of names where these select the same modules. Experts, which we keep stacked, have such names too."""
    short = sorted({m.rsplit(".", 1)[-1] for m in chosen})
    exact = decoder.config.experts is None and set(_selected(short, modules.values())) == chosen
    return short if exact else sorted(chosen)


def _read_config(path: Path) -> tuple[dict[str, Any], LoraConfig]:
    """What adapter_config.json says, all of which we can do."""
    file = path / CONFIG
    try:
        about = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"[load_adapter] expected a folder with {CONFIG} but {path} has none") from None
    except ValueError as error:
        raise FileFormatError(f"[load_adapter] expected JSON in {file} but got {error}") from None
    if not isinstance(about, dict) or about.get("peft_type") != "LORA":
        kind = about.get("peft_type") if isinstance(about, dict) else about
        raise NotSupportedError(f"[load_adapter] expected peft_type LORA in {file} but got {kind!r}")
    refused = {key: value for key, value in about.items() if key not in (*_USED, *_SILENT) and value}
    if about.get("bias", "none") != "none":
        refused["bias"] = about["bias"]
    if about.get("init_lora_weights") not in _PLAIN_STARTS:
        refused["init_lora_weights"] = about["init_lora_weights"]
    if refused:
        listed = ", ".join(f"{key}={value!r}" for key, value in refused.items())
        raise NotSupportedError(f"[load_adapter] expected plain LoRA in {file} but got {listed}")
    return about, _lora_config(file, about)


def _lora_config(file: Path, about: dict[str, Any]) -> LoraConfig:
    number = (int, float)
    kinds: dict[str, Any] = {"r": int, "lora_alpha": number, "lora_dropout": number, "target_modules": (str, list)}
    given = {"lora_dropout": 0.0, "use_rslora": False} | about
    for key, kind in kinds.items():
        if not isinstance(given.get(key), kind) or isinstance(given[key], bool):
            raise FileFormatError(f"[load_adapter] expected {key} in {file} but got {given.get(key)!r}")
    return LoraConfig(given["r"], given["lora_alpha"], given["lora_dropout"], bool(given["use_rslora"]))


def _check_names(path: Path, stored: Iterable[str], modules: Iterable[str]) -> None:
    """The file must hold A and B of the modules that the config means, and nothing else."""
    wanted = {f"{_PREFIX}{m}.lora_{part}.weight" for m in modules for part in "AB"}
    have = set(stored)
    for what, names in (("lacks", wanted - have), ("has no layer of this model for", have - wanted)):
        if names:
            raise FileFormatError(
                f"[load_adapter] expected {path / TENSORS} to hold the adapters that target_modules means but it "
                f"{what} {', '.join(sorted(names)[:4])}"
            )
    if not wanted:
        raise FileFormatError(f"[load_adapter] expected {path / TENSORS} to hold adapters but it has none")
