"""What a model will take of memory: weights, the cache of keys and values, workspace, and where it fits.

Weights and cache are exact: they follow from the file's header and from `cache.py`. Workspace is what the plans of the
steps take (`workspace.py`): intermediates, scratch of kernels, logits and what the sampler keeps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyflame.core.dtype import as_dtype
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.core.errors import ArgumentError, DTypeError
from pyflame.llm.architectures import find
from pyflame.llm.batch import chunk_of
from pyflame.llm.cache import KV, PAGE, cache_bytes
from pyflame.llm.config import ModelConfig
from pyflame.llm.default import resolve
from pyflame.llm.files import Checkpoint, open_checkpoint
from pyflame.llm.load import Reader, computed_in, shared
from pyflame.llm.placement import TensorParallel, parallel_devices
from pyflame.llm.workspace import ShapesOnly, step_bytes
from pyflame.tensor.devices import devices
from pyflame.tensor.memory import memory_info


@dataclass(frozen=True)
class Fit:
    """A device's memory, what the model takes of it, and the longest context that fits into what is free of it (0: not
    even the weights do)."""

    device: str
    free: int
    total: int
    weights: int
    cache: int
    workspace: int
    fits: bool
    longest_context: int


@dataclass(frozen=True)
class Estimate:
    """Bytes that a model takes on one device, where `workspace` is that of the device that needs most; on all devices
    together with `tensor_parallel`, the number of those that share it."""

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
    tensor_parallel: int = 1

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
    tensor_parallel: TensorParallel | None = None,
) -> Estimate:
    """What a model takes for `batch` sequences of `context` tokens, and where that fits. `dtype` is what plain weights
    are turned into (default: as they are stored). `tensor_parallel`: devices that share each layer, as in `load`.
    Nothing but headers is read.

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
    if device is not None and tensor_parallel is not None:
        raise ArgumentError(f"[estimate] expected a device or tensor_parallel but got {device} and {tensor_parallel}")
    copies = interleaved_bytes(reader)
    parallel = [] if tensor_parallel is None else [str(one) for one in parallel_devices(tensor_parallel)]
    if len(parallel) > 1:
        fits = _divided(reader, batch, length, kv, dtype, parallel)
        weights, cache, workspace = (sum(getattr(f, n) for f in fits) for n in ("weights", "cache", "workspace"))
    else:
        names = parallel or ([device] if device else devices())
        weights, cache = weight_bytes(checkpoint, dtype), kv_bytes(config, batch, length, kv) if config.causal else 0
        spaces = _workspaces(reader, batch, length, kv, dtype, names)
        page = kv_bytes(config, batch, PAGE, kv)
        fits = [
            _fit(name, weights, cache, space, page, config, copies if name == "cpu" else 0)
            for name, space in spaces.items()
        ]
        workspace = max(fit.workspace for fit in fits)
    shapes = (checkpoint.stored(name).shape for name in checkpoint.names())
    parameters = sum(map(math.prod, shapes))
    return Estimate(
        str(checkpoint.path), checkpoint.architecture, parameters, length, batch, kv, weights, cache, workspace,
        copies, tuple(fits), max(len(parallel), 1),
    )  # fmt: skip


def _fit(name: str, weights: int, cache: int, workspace: int, page: int, config: ModelConfig, copies: int = 0) -> Fit:
    """What a device has room for. `page`: the bytes of a page of the cache; `copies`: those of interleaved matrices."""
    free, total = memory_info(name)
    needed = weights + workspace + copies
    room = max(0, free - needed) // page * PAGE if free >= needed else 0
    fits = needed + cache <= free
    return Fit(name, free, total, weights, cache, workspace, fits, min(room, config.context))


def _divided(reader: Reader, rows: int, length: int, kv: str, dtype: object, names: Sequence[str]) -> list[Fit]:
    """Of each device that has a share of every layer."""
    sizes = reader.sizes(None if dtype is None else as_dtype(dtype))
    kind, found = computed_in(dtype, names[0]), []
    for name, share in zip(names, shared(reader, len(names)), strict=True):
        weights = sum(int(size * share.part(n)) for n, size in sizes.items())
        cache, page = (kv_bytes(share.config, rows, n, kv) for n in (length, PAGE))
        # Planned as if each device had all logits, as the first one has; others take less.
        config = replace(share.config, own_tokens=None)
        shapes = ShapesOnly(reader.sources, reader.encoding, kind)
        (workspace,) = step_bytes(config, shapes, rows, length, KV[kv], [name])
        summand = rows * min(chunk_of(length, name), length) * config.width * kind.itemsize
        workspace += (len(names) - 1) * summand  # copies of what the others have
        found.append(_fit(name, weights, cache if config.causal else 0, workspace, page, config))
    return found


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
