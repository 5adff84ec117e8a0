"""What a model will take of memory: weights, the cache of keys and values, workspace, and where it fits.

Weights and cache are exact: they follow from the file's header and from `cache.py`. Workspace is what the plans of the
steps take (`workspace.py`): intermediates, scratch of kernels, logits and what the sampler keeps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyflame.core.dtype import as_dtype
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.llm.architectures import find
from pyflame.llm.cache import KV, PAGE, cache_bytes
from pyflame.llm.config import ModelConfig
from pyflame.llm.default import resolve
from pyflame.llm.files import Checkpoint, open_checkpoint
from pyflame.llm.load import Reader, computed_in
from pyflame.llm.workspace import ShapesOnly, step_bytes
from pyflame.tensor.devices import devices
from pyflame.tensor.memory import memory_info


@dataclass(frozen=True)
class Fit:
    """A device's memory, what steps take of it beside weights and cache, and the longest context that fits into what is
    free of it (0: not even the weights do)."""

    device: str
    free: int
    total: int
    workspace: int
    fits: bool
    longest_context: int


@dataclass(frozen=True)
class Estimate:
    """Bytes that a model takes; `workspace` is that of the device that needs most."""

    model: str
    architecture: str
    parameters: int
    context: int
    batch: int
    kv: str
    weights: int
    cache: int
    workspace: int
    interleaved: int  # copies of encoded matrices, on CPUs only (`load(interleave=True)`); not in `total`
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
    reader = _reader(checkpoint)
    config = reader.config
    length = config.context if context is None else context
    if not 1 <= length <= config.context:
        raise ArgumentError(f"[estimate] expected a context of 1 to {config.context} tokens but got {length}")
    if batch < 1:
        raise ArgumentError(f"[estimate] expected a batch of at least 1 but got {batch}")
    if kv not in KV:
        raise ArgumentError(f"[estimate] expected kv to be one of {', '.join(KV)} but got {kv!r}")
    weights, cache = weight_bytes(checkpoint, dtype), kv_bytes(config, batch, length, kv) if config.causal else 0
    page = kv_bytes(config, batch, PAGE, kv)
    fits, copies = [], interleaved_bytes(reader)
    for name, workspace in _workspaces(reader, batch, length, kv, dtype, [device] if device else devices()).items():
        free, total = memory_info(name)
        needed = weights + workspace + (copies if name == "cpu" else 0)
        room = max(0, free - needed) // page * PAGE if free >= needed else 0
        fits.append(Fit(name, free, total, workspace, needed + cache <= free, min(room, config.context)))
    shapes = (checkpoint.stored(name).shape for name in checkpoint.names())
    parameters = sum(map(math.prod, shapes))
    return Estimate(
        str(checkpoint.path), checkpoint.architecture, parameters, length, batch, kv, weights, cache,
        max(fit.workspace for fit in fits), copies, tuple(fits),
    )  # fmt: skip


def config_of(checkpoint: Checkpoint) -> ModelConfig:
    """The sizes of a checkpoint's model; an architecture that is not known is refused by name."""
    return _reader(checkpoint).config


def _reader(checkpoint: Checkpoint) -> Reader:
    return Reader(checkpoint, find(checkpoint.kind, checkpoint.architecture))


def _workspaces(reader: Reader, rows: int, length: int, kv: str, dtype: object, names: Sequence[str]) -> dict[str, int]:
    """Of each device, where computing is in `dtype`, or in what `load` takes there."""
    found: dict[str, int] = {}
    for kind in {computed_in(dtype, name) for name in names}:
        places = [name for name in names if computed_in(dtype, name) is kind]
        weights = ShapesOnly(reader.sources, reader.encoding, kind)
        found |= zip(places, step_bytes(reader.config, weights, rows, length, KV[kv], places), strict=True)
    return {name: found[name] for name in names}


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


def interleaved_bytes(reader: Reader) -> int:
    """What a CPU keeps of encoded matrices in the order of its products, beside the mapped file."""
    head = "token_embd.weight" if reader.config.tied else "output.weight"
    total = 0
    for name in reader.sources:
        kind = reader.encoding(name)
        if kind is None or not (name == head or name.startswith("blk.")):
            continue
        shape = reader.shape(name)
        if encoding(kind).interleaves and len(shape) == 2:
            total += shape[0] * encoding(kind).row_bytes(shape[1])
    return total


def _is_float(name: str) -> bool:
    if name in ENCODINGS:
        return False
    try:
        return as_dtype(name).is_float
    except (DTypeError, ArgumentError):
        return False  # a block format that only GGUF has


def kv_bytes(config: ModelConfig, rows: int, context: int, kv: str) -> int:
    """The cache of keys and values; int8 and fp8 have a scale for each head's keys and values of a token."""
    return cache_bytes(config, rows, context, KV[kv])
