"""The cache of keys and values: static memory in pages that a table names.

Keys of one layer are (slots, heads, size), and a page is PAGE neighbouring slots. Row r of the table names the pages of
sequence r in order. Attention reads pages where they lie and as far as a sequence is long (`paged_attention`), so one
plan serves every length. In int8 and float8 each line of a head has a scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pyflame.core.device import parse_device
from pyflame.core.dtype import DType, bfloat16, float8_e4m3fn, float16, float32, int8, int32, int64
from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.llm.config import ModelConfig
from pyflame.llm.placement import Placement
from pyflame.tensor import Tensor
from pyflame.tensor.creation import tensor, zeros
from pyflame.tensor.memory import memory_info

PAGE = 32
KV = {"fp32": float32, "fp16": float16, "bf16": bfloat16, "int8": int8, "fp8": float8_e4m3fn}
SMALLEST_BUCKET = 256
_LARGEST = {int8: 127.0, float8_e4m3fn: 448.0}  # what lines are scaled to


def bucket_of(count: int, most: int) -> int:
    """The least power of two that holds so many, and at most `most`."""
    return min(max(SMALLEST_BUCKET, 1 << (count - 1).bit_length()), most)


def pages_of(count: int) -> int:
    """How many pages so many positions take."""
    return -(-count // PAGE)


def cache_bytes(config: ModelConfig, rows: int, capacity: int, dtype: DType) -> int:
    """What a cache for so many rows and positions takes."""
    heads, key, value = config.cached_sizes()
    scales = (2 if value else 1) * float32.itemsize if dtype in _LARGEST else 0
    line = heads * ((key + value) * dtype.itemsize + scales)
    return config.layers * rows * pages_of(capacity) * PAGE * line


class Pages(NamedTuple):
    """Pages (count, PAGE, heads, size) of one layer, and the scales (count, PAGE, heads) of their lines."""

    lines: Tensor
    scales: Tensor | None


class Cache:
    """Keys and values of `rows` sequences of up to `capacity` tokens."""

    def __init__(
        self, config: ModelConfig, rows: int, capacity: int, dtype: DType, device: object, pages: int | None = None
    ) -> None:
        """`device`: of all layers, or a Placement of them. Each row has pages of its own for all of its tokens, or
        there are so many `pages` for all rows, which `name_pages` shares out."""
        self.rows, self.capacity, columns = rows, capacity, pages_of(capacity)
        count = rows * columns if pages is None else pages
        want_room(config, rows, capacity, dtype, device, count)
        places = device.layers if isinstance(device, Placement) else (device,) * config.layers
        heads, key, value = config.cached_sizes()
        sizes, slots = (key, value) if value else (key,), count * PAGE
        self.largest = _LARGEST.get(dtype)
        named = np.arange(count).reshape(rows, columns) if pages is None else np.zeros((rows, columns))
        made = {place: tensor(named, dtype=int32, device=place) for place in dict.fromkeys(places)}
        self.tables = [made[place] for place in places]  # of each layer: one for all on a device
        self.layers = [[zeros(slots, heads, size, dtype=dtype, device=place) for size in sizes] for place in places]
        kept = len(sizes) if self.largest else 0
        self.scales = [[zeros(slots, heads, dtype=float32, device=place) for _ in range(kept)] for place in places]

    def name_pages(self, rows: Sequence[int], named: np.ndarray[Any, Any]) -> None:
        """Say which pages these rows have: (rows, columns). It is written where it lies: a graph knows the address."""
        for table in {id(table): table for table in self.tables}.values():
            at = tensor(list(rows), dtype=int64, device=table.device)
            table.index_copy_(0, at, tensor(named, dtype=int32, device=table.device))

    def slots(self, positions: Tensor, rows: Tensor | None = None) -> Tensor:
        """Where the lines of these positions (B, T) of these rows (B), or of all, lie: in every layer alike."""
        pages = self.table(0, rows).gather(1, positions // PAGE)
        found: Tensor = (pages * PAGE + positions % PAGE).reshape(-1)
        return found

    def table(self, layer: int, rows: Tensor | None = None) -> Tensor:
        """The pages of these rows (B), or of all: (B, columns)"""
        return self.tables[layer] if rows is None else self.tables[layer].index_select(0, rows)

    def write(self, layer: int, slots: Tensor, *lines: Tensor) -> None:
        """Keep lines (rows, T, heads, size) of keys, and of values where they are no part of keys."""
        for n, (kept, new) in enumerate(zip(self.layers[layer], lines, strict=True)):
            line = new.reshape(-1, *kept.shape[1:])
            if self.largest is not None:
                scale = line.abs().amax(-1).to(float32).clamp(min=1e-12) / self.largest
                line = line.to(float32) / scale.unsqueeze(-1)
                line = line.round() if kept.dtype is int8 else line
                self.scales[layer][n].index_copy_(0, slots, scale)
            kept.index_copy_(0, slots, line.to(kept.dtype))

    def read(self, layer: int) -> list[Pages]:
        """Keys and values of a layer, as pages."""
        scales: Sequence[Tensor | None] = self.scales[layer] or [None] * len(self.layers[layer])
        return [
            Pages(x.reshape(-1, PAGE, *x.shape[1:]), None if s is None else s.reshape(-1, PAGE, s.shape[1]))
            for x, s in zip(self.layers[layer], scales, strict=True)
        ]

    def copy_from(self, other: Cache, count: int) -> None:
        """Give every row the first lines of the one row of another cache: at least so many."""
        columns = pages_of(count)
        for given, mine in zip([*other.layers, *other.scales], [*self.layers, *self.scales], strict=True):
            for lines, kept in zip(given, mine, strict=True):
                shape = (self.rows, -1, *kept.shape[1:])
                kept.reshape(shape)[:, : columns * PAGE] = lines[: columns * PAGE]


def want_room(
    config: ModelConfig, rows: int, capacity: int, dtype: DType, device: object, pages: int | None = None
) -> None:
    """Refuse a cache that cannot be, before anything runs. A null device has no memory and needs none."""
    if type(capacity) is not int or not 1 <= capacity <= config.context:
        raise ArgumentError(f"[cache] expected a context of 1 to {config.context} tokens but got {capacity!r}")
    lines = PAGE * (rows * pages_of(capacity) if pages is None else pages)
    shares = device.shares() if isinstance(device, Placement) else {device: config.layers}
    for place, layers in shares.items():
        if parse_device(place).kind == "null":
            continue
        needed = cache_bytes(config, 1, lines, dtype) * layers // config.layers
        free, _ = memory_info(place)
        if needed > free:
            raise OutOfMemoryError(
                f"[cache] expected the keys and values of {lines} tokens to fit but they take "
                f"{needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free on {place}; take a shorter context= or "
                "a narrower kv="
            )
