"""What a model will take of memory: weights, the cache of keys and values, workspace, and where it fits.

Weights and cache are exact: they follow from the file's header and from `cache.py`. Workspace is an estimate: what a
chunk of a prompt holds at once within a block, and the logits with what the sampler makes of them.
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from typing import Any

from pyflame.core.dtype import DType, as_dtype, float16, float32
from pyflame.core.encoding import ENCODINGS
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.llm.architectures import find
from pyflame.llm.batch import CHUNK
from pyflame.llm.cache import cache_bytes
from pyflame.llm.config import ModelConfig
from pyflame.llm.default import resolve
from pyflame.llm.files import Checkpoint, open_checkpoint
from pyflame.llm.load import Reader
from pyflame.tensor.devices import devices
from pyflame.tensor.memory import memory_info

KV = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "fp8": "float8_e4m3fn"}
_SCALE = float16  # of each head's int8 keys, and values, of a token
_LOGITS = 4  # arrays of one number per word: logits, sorted ones, their places, chances


@dataclass(frozen=True)
class Fit:
    """A device's memory, and the longest context that fits into what is free of it (0: not even the weights do)."""

    device: str
    free: int
    total: int
    fits: bool
    longest_context: int


@dataclass(frozen=True)
class Estimate:
    """Bytes that a model takes."""

    model: str
    architecture: str
    parameters: int
    context: int
    batch: int
    kv: str
    weights: int
    cache: int
    workspace: int
    devices: tuple[Fit, ...]

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.workspace

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "total": self.total}


def estimate(
    model: str | os.PathLike[str] | Checkpoint,
    context: int | None = None,
    batch: int = 1,
    kv: str = "fp16",
    dtype: object = None,
    device: str | None = None,
) -> Estimate:
    """What a model takes for `batch` sequences of `context` tokens, and where that fits. `dtype` is what plain weights
    are turned into (default: as they are stored). Nothing but headers is read.

    >>> estimate("smollm2", context=2048).weights
    96576768
    """
    checkpoint = model if isinstance(model, Checkpoint) else open_checkpoint(resolve(model))
    config = config_of(checkpoint)
    length = config.context if context is None else context
    if not 1 <= length <= config.context:
        raise ArgumentError(f"[estimate] expected a context of 1 to {config.context} tokens but got {length}")
    if batch < 1:
        raise ArgumentError(f"[estimate] expected a batch of at least 1 but got {batch}")
    if kv not in KV:
        raise ArgumentError(f"[estimate] expected kv to be one of {', '.join(KV)} but got {kv!r}")
    weights, cache = weight_bytes(checkpoint, dtype), kv_bytes(config, batch, length, kv)
    workspace = workspace_bytes(config, batch, length)
    per_token = kv_bytes(config, batch, 1, kv)
    fits = []
    for name in devices() if device is None else [device]:
        free, total = memory_info(name)
        room = max(0, free - weights - workspace) // per_token if free >= weights + workspace else 0
        fits.append(Fit(name, free, total, weights + cache + workspace <= free, min(room, config.context)))
    shapes = (checkpoint.stored(name).shape for name in checkpoint.names())
    parameters = sum(map(math.prod, shapes))
    return Estimate(
        str(checkpoint.path), checkpoint.architecture, parameters, length, batch, kv, weights, cache, workspace,
        tuple(fits),
    )  # fmt: skip


def config_of(checkpoint: Checkpoint) -> ModelConfig:
    """The sizes of a checkpoint's model; an architecture that is not known is refused by name."""
    return Reader(checkpoint, find(checkpoint.kind, checkpoint.architecture)).config


def weight_bytes(checkpoint: Checkpoint, dtype: object = None) -> int:
    """The weights as they are kept: encoded ones as they are, plain ones in `dtype`, or as they are stored."""
    if dtype is None:
        return checkpoint.nbytes
    size = as_dtype(dtype).itemsize
    total = 0
    for name in checkpoint.names():
        stored = checkpoint.stored(name)
        total += math.prod(stored.shape) * size if _is_float(stored.encoding) else stored.bytes.nbytes
    return total


def _is_float(name: str) -> bool:
    if name in ENCODINGS:
        return False
    try:
        return as_dtype(name).is_float
    except (DTypeError, ArgumentError):
        return False  # a block format that only GGUF has


def kv_bytes(config: ModelConfig, rows: int, context: int, kv: str) -> int:
    """The cache of keys and values; int8 has a scale for each head's keys and values of a token."""
    dtype: DType = as_dtype(KV[kv])
    heads, _, value = config.cached_sizes()
    scales = (2 if value else 1) * heads * _SCALE.itemsize if kv == "int8" else 0
    return cache_bytes(config, rows, context, dtype) + config.layers * rows * context * scales


def workspace_bytes(config: ModelConfig, rows: int, context: int) -> int:
    """What a chunk of each prompt holds in float32 while the hungrier half of a block computes, and each row's logits.

    Attention holds queries, keys, values and its result, and a copy of the cached keys and values in the order that it
    reads them in; an MLP holds its two wide products. Both hold the block's input, its norm and its sum.
    """
    tokens = rows * min(CHUNK, context)
    heads, key, value = config.cached_sizes()
    moe = config.experts
    wide = max(config.ffn, moe.used * moe.ffn + moe.shared_ffn) if moe else config.ffn
    attention = tokens * 2 * (config.heads + config.kv_heads) * config.head_size + rows * context * heads * (
        key + value
    )
    block = tokens * 3 * config.width + max(attention, tokens * 2 * wide)
    return (block + _LOGITS * rows * config.vocab) * float32.itemsize
