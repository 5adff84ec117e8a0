"""A Hugging Face folder as the content of a GGUF file: settings, tensors and vocabulary under GGUF's names.

Architectures read settings by GGUF's key and config.json's name at once, so what they read is what is written, with the
sizes that some of them only compute. The result is then read as a GGUF file's: where that gives another model, GGUF has
no words for this one, and it is refused before anything is written.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.dtype import as_dtype
from pyflame.core.errors import ArgumentError, NotSupportedError
from pyflame.llm.architectures import Fields, find
from pyflame.llm.architectures.base import Architecture
from pyflame.llm.config import ModelConfig, Rope
from pyflame.llm.convert_tokenizer import vocabulary_of
from pyflame.llm.export import Content, Tensor, file_type
from pyflame.llm.files import Checkpoint
from pyflame.llm.load import Reader
from pyflame.llm.names import is_matrix
from pyflame.llm.rope import frequencies

Array = np.ndarray[Any, Any]
_GATING = {"softmax": 1, "sigmoid": 2, "softmax_chosen": 3}
_POOLING = {"none": 0, "mean": 1, "cls": 2}
_PLAIN = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}  # what matrices may be stored in
_FLOATS = re.compile(r".*(epsilon|softcapping|_scale|freq_base.*|factor|multiplier)")  # of type float32 in GGUF


class _Recorded(Fields):
    """Notes the value of every GGUF key that an architecture asks for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.found: dict[str, Any] = {}

    def __call__(self, gguf: str, hf: str, *default: Any) -> Any:
        value = super().__call__(gguf, hf, *default)
        if gguf and value is not None:
            self.found[gguf] = float(value) if _FLOATS.fullmatch(gguf) else value
        return value


def of_folder(checkpoint: Checkpoint) -> Content:
    """What a Hugging Face folder holds, as a GGUF file would."""
    if checkpoint.kind != "hf":
        raise ArgumentError(f"[convert] expected a Hugging Face folder but {checkpoint.path} is a GGUF file")
    content = model_of_folder(checkpoint)
    rows = next(tensor.shape[0] for tensor in content.tensors if tensor.name == "token_embd.weight")
    vocabulary = vocabulary_of(checkpoint.tokenizer(), rows)
    if checkpoint.chat_template is not None:
        vocabulary["tokenizer.chat_template"] = checkpoint.chat_template
    return replace(content, metadata=content.metadata | vocabulary)


def model_of_folder(checkpoint: Checkpoint) -> Content:
    """Settings and tensors, without the vocabulary."""
    reader = Reader(checkpoint, find("hf", checkpoint.architecture))
    config, name = reader.config, reader.architecture.name
    given = _Recorded("hf", checkpoint.architecture, checkpoint.metadata, reader.sources, reader.shape, reader.numbers)
    reader.architecture.config(given)
    settings = given.found | _sizes(config) | _rope(given, config)
    metadata = {"general.architecture": name, "general.name": checkpoint.path.resolve().name}
    metadata |= {f"{name}.{key}": value for key, value in settings.items()}
    extra = {n: np.array(x, np.float32) for n, x in _factors(given, config).items()}
    shapes = {n: _shape(reader, n) for n in reader.sources}
    read = _read_back(reader.architecture, metadata, shapes, extra)
    _want_equal(checkpoint, config, read)
    turned = config.rope is not None and read.rope is not None and config.rope.interleaved != read.rope.interleaved
    tensors = [_tensor(reader, n, shape, turned) for n, shape in shapes.items()]
    tensors += [_plain(n, x.shape, "float32", partial(np.asarray, x)) for n, x in extra.items()]
    kinds = Counter(tensor.encoding for tensor in tensors if is_matrix(tensor.name, tensor.shape))
    return Content(metadata | file_type(_PLAIN[kinds.most_common(1)[0][0]]), {}, tensors)


def _sizes(config: ModelConfig) -> dict[str, Any]:
    """What GGUF's files say also where an architecture here computes it."""
    found: dict[str, Any] = {
        "block_count": config.layers,
        "context_length": config.context,
        "embedding_length": config.width,
        "feed_forward_length": config.ffn,
        "vocab_size": config.vocab,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
    }
    if (latent := config.latent) is not None:
        found |= {
            "attention.head_count_kv": 1,
            "attention.key_length": latent.kv_rank + latent.rope_dims,
            "attention.value_length": latent.kv_rank,
            "attention.key_length_mla": latent.nope_dims + latent.rope_dims,
            "attention.value_length_mla": latent.value_size,
        }
    if config.experts is not None:
        found["expert_gating_func"] = _GATING[config.experts.gating]
    if not config.causal:
        found |= {"attention.causal": False, "pooling_type": _POOLING[config.pooling]}
    return found


def _rope(given: Fields, config: ModelConfig) -> dict[str, Any]:
    """How positions turn and how that is stretched; what single frequencies are divided by are tensors."""
    rope = config.rope
    if rope is None:
        return {}
    found: dict[str, Any] = {"rope.dimension_count": rope.dims, "rope.freq_base": rope.base}
    if config.local_rope is not None:
        found["rope.freq_base_swa"] = config.local_rope.base
    if rope.scaling in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope.scaling, "rope.scaling.factor": rope.factor}
        found["rope.scaling.original_context_length"] = rope.original_context or config.context
    if rope.scaling == "yarn":
        found |= {"rope.scaling.yarn_beta_fast": rope.beta_fast, "rope.scaling.yarn_beta_slow": rope.beta_slow}
        found["rope.scaling.yarn_log_multiplier"] = 0.1 * float(given.scaling().get("mscale_all_dim") or 0.0)
    if rope.scaling == "factors":
        trained = given.scaling().get("original_max_position_embeddings", config.context)
        found["rope.scaling.original_context_length"] = int(given("", "original_max_position_embeddings", trained))
        found["rope.scaling.attn_factor"] = rope.attention_factor
    return found


def _factors(given: Fields, config: ModelConfig) -> dict[str, Any]:
    """What frequencies are divided by, where that is a tensor in GGUF."""
    rope = config.rope
    if rope is not None and rope.scaling == "llama3":
        return {"rope_freqs.weight": frequencies(replace(rope, scaling="none")) / frequencies(rope)}
    if rope is not None and rope.scaling == "factors":
        return {f"rope_factors_{kind}.weight": given.scaling()[f"{kind}_factor"] for kind in ("long", "short")}
    return {}


def _read_back(
    architecture: Architecture, metadata: dict[str, Any], shapes: dict[str, tuple[int, ...]], extra: dict[str, Array]
) -> ModelConfig:
    """The config that these settings give to a reader of GGUF."""
    names = [*shapes, *extra]
    return architecture.config(
        Fields("gguf", architecture.name, metadata, names, shapes.__getitem__, extra.__getitem__)
    )


def _want_equal(checkpoint: Checkpoint, config: ModelConfig, read: ModelConfig) -> None:
    """Refuse a model that its GGUF file would not say all of."""
    for field in fields(ModelConfig):
        want, got = getattr(config, field.name), getattr(read, field.name)
        same = _same_rope(want, got) if field.name in ("rope", "local_rope") else want == got
        if not same and field.name != "architecture":
            raise NotSupportedError(
                f"[convert] expected a model that GGUF can describe but {checkpoint.path} has {field.name} = {want}, "
                f"which a GGUF file of {read.architecture} would give as {got}"
            )


def _same_rope(one: Rope | None, other: Rope | None) -> bool:
    """Whether both turn alike; which elements are pairs is a matter of the order of rows."""
    if one is None or other is None:
        return one is other
    alike = one.dims == other.dims and np.isclose(one.attention_factor, other.attention_factor, rtol=1e-6)
    return bool(alike and np.allclose(frequencies(one), frequencies(other), rtol=1e-6))


def _shape(reader: Reader, name: str) -> tuple[int, ...]:
    source = reader.sources[name]
    if reader.architecture.adapt is not Architecture.adapt or source.cut:
        return tuple(reader.numbers(name).shape)
    stacked = (len(source.stored),) if len(source.stored) > 1 else ()
    return (*stacked, *reader.shape(name))


def _tensor(reader: Reader, name: str, shape: tuple[int, ...], turned: bool) -> Tensor:
    kind = reader.checkpoint.stored(reader.sources[name].stored[0]).encoding
    if kind not in _PLAIN:
        raise NotSupportedError(
            f"[convert] expected tensors in {', '.join(_PLAIN)} but {name} of {reader.checkpoint.path} is {kind}"
        )
    numbers: Callable[[], Array] = partial(reader.numbers, name)
    config = reader.config
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[2] if "blk." in name else "")
    if turned and heads is not None:
        numbers = partial(_neighbours, numbers, heads)
    return _plain(name, shape, kind if is_matrix(name, shape) else "float32", numbers)


def _neighbours(numbers: Callable[[], Array], heads: int) -> Array:
    """Rows of each head in GGUF's order: pairs that turn together are neighbours, not half a head apart."""
    x = numbers()
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def _plain(name: str, shape: tuple[int, ...], kind: str, numbers: Callable[[], Array]) -> Tensor:
    def make() -> Array:
        return np.ascontiguousarray(numbers(), as_dtype(kind).numpy).view(np.uint8)

    return Tensor(name, shape, kind, make, numbers)
