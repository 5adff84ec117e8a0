"""Tensor parallelism: every layer divided over several devices, which work at once (shares.py says how).

Each device has a decoder of its share. Where a layer gives a summand, every device copies those of the others and adds
all of them in the order of devices: all have the same bits, at every run. Logits are gathered on the first device,
where tokens go in and are drawn. It is one process, and one jitted step: the engine cuts it at the copies and captures
what each device does between two of them as a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pyflame.core.dtype import DType
from pyflame.llm.architectures.base import Array
from pyflame.llm.attention import Where
from pyflame.llm.cache import Cache
from pyflame.llm.config import ModelConfig
from pyflame.llm.decoder import Decoder, in_step
from pyflame.llm.placement import Placement
from pyflame.llm.shares import Cut, Share
from pyflame.nn.containers import ModuleList
from pyflame.nn.module import Module
from pyflame.nn.ops import F
from pyflame.tensor import Tensor


class ParallelDecoder(Decoder):
    """The decoders of all devices as one: `parts`, made of `shares`, in the order of `devices`."""

    def __init__(
        self, config: ModelConfig, parts: Sequence[Decoder], shares: Sequence[Share], devices: Sequence[object]
    ) -> None:
        Module.__init__(self)
        self.config, self.lora = config, None
        self.places, self.shares = Placement.divided(devices, config), shares
        self.parts: Any = ModuleList(parts)
        self.eval()

    def hidden(self, tokens: Tensor, where: Where) -> Tensor:
        devices = self.places.parallel
        assert where.cache is None or isinstance(where.cache, ParallelCache), "a cache of `cache()`"
        caches = [None] * len(devices) if where.cache is None else where.cache.parts
        steps = [
            part.steps(tokens.to(device), replace(where.to(device), cache=cache))
            for part, device, cache in zip(self.parts, devices, caches, strict=True)
        ]
        return in_step(steps, self._sums)

    def _sums(self, parts: list[Tensor]) -> list[Tensor]:
        """The sum of these on each device, always in the same order."""
        found = []
        for device in self.places.parallel:
            total, *others = [part.to(device) for part in parts]
            for other in others:
                total = total + other
            found.append(total)
        return found

    def own_logits(self, x: Tensor) -> Tensor:
        """Of all tokens, on the first device."""
        both = zip(self.parts, self.places.parallel, strict=True)
        return F["cat"]([part.own_logits(x.to(device)).to(self.places.first) for part, device in both], -1)

    def join(self) -> None:
        for part in self.parts:
            part.join()

    def cache(self, rows: int, capacity: int, dtype: DType, device: object, pages: int | None = None) -> Cache:
        both = zip(self.parts, self.places.parallel, strict=True)
        return ParallelCache([part.cache(rows, capacity, dtype, place, pages) for part, place in both])

    def page_bytes(self, dtype: DType, device: object) -> dict[object, int]:
        both = zip(self.parts, self.places.parallel, strict=True)
        return {place: nbytes for part, own in both for place, nbytes in part.page_bytes(dtype, own).items()}

    def want_room(self, capacity: int, dtype: DType) -> None:
        for part in self.parts:
            part.want_room(capacity, dtype)


def parts_of(decoder: Decoder) -> list[tuple[Decoder, Callable[[str], Cut | None]]]:
    """The decoder of each device, and what it has of a tensor by its name (None: all)."""
    if not isinstance(decoder, ParallelDecoder):
        return [(decoder, lambda name: None)]
    return [(part, share.cut) for part, share in zip(decoder.parts, decoder.shares, strict=True)]


class ParallelCache(Cache):
    """The caches of all devices, which each keep the heads that are theirs. Lines lie in the same slots on each."""

    def __init__(self, parts: Sequence[Cache]) -> None:
        self.parts, self.tables = parts, parts[0].tables
        self.rows, self.capacity, self.largest = parts[0].rows, parts[0].capacity, parts[0].largest
        self.layers = [layer for part in parts for layer in part.layers]
        self.scales = [layer for part in parts for layer in part.scales]

    def name_pages(self, rows: Sequence[int], named: Array) -> None:
        for part in self.parts:
            part.name_pages(rows, named)
