"""What the steps of a model take of memory beside weights and cache: they are planned, and nothing of them runs.

The model is made on a null device, of the shapes that its decoder asks for and as few layers as show every kind, since
layers use the same memory one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyflame.core.dtype import DType, bool_, float32, int64, uint8
from pyflame.core.encoding import encoding, row_bytes
from pyflame.core.errors import FileFormatError
from pyflame.llm.batch import Batch, chunk_of
from pyflame.llm.config import ModelConfig
from pyflame.llm.decoder import Decoder
from pyflame.llm.layers import Weight, Weights
from pyflame.llm.sampler import Features
from pyflame.tensor import Tensor
from pyflame.tensor.creation import empty
from pyflame.tensor.encoded import EncodedTensor
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval
from pyflame.transform.explain import workspace_bytes
from pyflame.transform.jit import jit

_NULL = "null"


class ShapesOnly(Weights):
    """Weights without values. `kind` gives a weight's encoding, or None."""

    def __init__(self, names: Any, kind: Callable[[str], str | None], dtype: DType) -> None:
        super().__init__(names, lambda name: _made((), dtype), dtype)
        self.kind = kind

    def take(self, name: str, *shape: int) -> Weight:
        if name not in self.names:
            raise FileFormatError(f"[estimate] expected a tensor {name} of shape {shape} but the checkpoint has none")
        kind = self.kind(name)
        if kind is None:
            return _made(shape, self.dtype)
        found = encoding(kind)
        return EncodedTensor(_made((*shape[:-1], row_bytes(found, shape[-1])), uint8), kind)


def _made(shape: tuple[int, ...], dtype: DType) -> Tensor:
    x = empty(*shape, dtype=dtype, device=_NULL)
    eval(x)
    return x


def step_bytes(
    config: ModelConfig, weights: ShapesOnly, rows: int, capacity: int, kv: DType, devices: list[str]
) -> list[int]:
    """The bytes of reading and writing on each device: the hungrier of both, with what lies there between steps."""
    few = _layers(config)
    decoder = Decoder(replace(config, layers=few, windows=config.windows[:few]), weights, _NULL)
    with no_grad():
        eval(decoder.state_dict())
        if not config.causal:
            tokens, lengths = _made((rows, capacity), int64), _made((rows,), int64)
            return [workspace_bytes(jit(decoder), device, tokens, lengths) for device in devices]
        batch = Batch(decoder, rows, capacity, kv, _NULL)
        logits = _made((rows, config.vocab), float32)
        kept = 2 * logits.nbytes + batch.sampler.nbytes  # logits go in and come out
        sampled = Features(sampled=True, shaped=True)

        def reading(device: str) -> int:
            size = min(chunk_of(capacity, device), capacity)
            numbers = _made((rows, size), int64), _made((1,), int64), _made((rows,), int64), _made((rows,), bool_)
            return workspace_bytes(batch._take_in, device, *numbers, logits, capacity)

        return [kept + max(reading(device), workspace_bytes(batch._next, device, sampled)) for device in devices]


def _layers(config: ModelConfig) -> int:
    """So many layers have one of every kind, and one behind it."""
    kinds = [(config.is_sparse(n), config.windows[n]) for n in range(config.layers)]
    return min(config.layers, max(kinds.index(kind) for kind in kinds) + 2)
