"""Several adapters of one model, of which each row of a step takes one: what an engine serves beside the base model.

Each layer has the adapters stacked. A tensor of the rows' numbers picks from the stacks, so that one plan, captured
once, serves any mixture of them; number 0 is none. What a row computes is what it would with its adapter alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyflame.core.dtype import float32
from pyflame.core.errors import ArgumentError, suggest
from pyflame.llm.adapter import own_part, read_adapter
from pyflame.llm.decoder import Decoder
from pyflame.llm.generate import Model
from pyflame.llm.layers import Linear
from pyflame.llm.lora import decoder_of, linear_layers
from pyflame.llm.parallel import parts_of
from pyflame.nn.module import Module
from pyflame.nn.parameter import Parameter
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor

_numbers: ContextVar[Tensor | None] = ContextVar("numbers of the rows' adapters", default=None)
Stored = tuple[Any, Any, float]  # A, B and their scale


@dataclass(frozen=True, eq=False)
class RowAdapters:
    """The adapters of a model by name, in the order of their numbers, from 1 on."""

    names: tuple[str, ...]

    def number(self, name: str | None) -> int:
        """What a row that takes this adapter is given; 0 for none."""
        if name is not None and name not in self.names:
            raise ArgumentError(
                f"[submit] expected an adapter among {', '.join(self.names) or 'none'} but got {name!r}"
                f"{suggest(name, self.names)}; load it with load_adapters before"
            )
        return 0 if name is None else self.names.index(name) + 1


class RowLora(Module):
    """The adapters of one layer: A (count, rank, inputs), B (count, outputs, rank), zeros where one has none."""

    def __init__(self, layer: Linear, stored: Sequence[Stored | None]) -> None:
        super().__init__()
        rank = max(len(one[0]) for one in stored if one is not None)
        a = np.zeros((len(stored), rank, layer.inputs), np.float32)
        b = np.zeros((len(stored), layer.weight.shape[0], rank), np.float32)
        scales = np.zeros((len(stored), 1, 1), np.float32)
        for number, one in enumerate(stored):
            if one is not None:
                a[number, : len(one[0])], b[number, :, : len(one[0])], scales[number] = one
        place = layer.weight.device
        self.A, self.B, self.scales = (
            Parameter(tensor(value, device=place), requires_grad=False) for value in (a, b, scales)
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """y + scale (x A^T) B^T, with A, B and scale of each row's own adapter; outside of an engine y alone."""
        numbers = _numbers.get()
        if numbers is None:
            return y
        numbers = numbers.to(x.device)
        lines = x.to(float32).reshape(numbers.shape[0], -1, x.shape[-1])  # (rows, T, inputs)
        a, b, scale = (stack.index_select(0, numbers) for stack in (self.A, self.B, self.scales))
        more = (lines @ a.transpose(1, 2)) @ b.transpose(1, 2) * scale
        return (y + more.reshape(y.shape)).to(y.dtype)


@contextmanager
def adapters_of(numbers: Tensor) -> Iterator[None]:
    """Have rows take the adapters of these numbers, one for each, in what is computed meanwhile."""
    before = _numbers.set(numbers)
    try:
        yield
    finally:
        _numbers.reset(before)


def load_adapters(model: Model | Decoder, folders: Mapping[str, str | os.PathLike[str]]) -> None:
    """Give a model adapters by name, in place of those it has; `Engine.submit(adapter=name)` chooses one for a request.

    They are PEFT's folders, as of `load_adapter`, of any ranks and layers. Without an engine the model is the base.

    >>> pf.llm.load_adapters(model, {"pirate": "adapters/pirate", "terse": "adapters/terse"})
    >>> with pf.llm.Engine(model) as engine:
    ...     requests = [engine.submit("Hello", adapter=name) for name in ("pirate", "terse", None)]
    """
    decoder = decoder_of(model)
    if not folders:
        raise ArgumentError("[load_adapters] expected adapters by name but got none")
    read = [read_adapter(decoder, folder) for folder in folders.values()]
    marker = RowAdapters(tuple(folders))
    decoder.lora = marker
    for part, cut in parts_of(decoder):
        part.lora = marker
        for name, layer in linear_layers(part).items():
            stored = [None, *(_stored(name, cut, *one) for one in read)]
            layer.lora = RowLora(layer, stored) if any(stored) else None


def _stored(name: str, cut: Any, config: Any, values: Mapping[str, Any]) -> Stored | None:
    """What one adapter has for a layer, or for a device's part of it."""
    return (*own_part(name, cut(f"{name}.weight"), *values[name]), config.scale) if name in values else None


def row_adapters(decoder: Decoder) -> RowAdapters:
    """The adapters that rows may take."""
    return decoder.lora if isinstance(decoder.lora, RowAdapters) else RowAdapters(())
