"""The cache of keys and values: static memory, lines found through slots that are data.

Keys of one layer are (slots, heads, size). Row r of a batch owns the slots r * capacity up to (r + 1) * capacity, and
position p of it lies in slot r * capacity + p. Who reads gets (rows, heads, bucket, size), a
view of the first lines of each row: only `slots` and `read` know where a line lies, so that a table of blocks could
take the place of that rule. A bucket is a power of two, so a few plans serve every length.
"""

from __future__ import annotations

from pyflame.core.dtype import DType
from pyflame.core.errors import ArgumentError, OutOfMemoryError
from pyflame.llm.config import ModelConfig
from pyflame.tensor import Tensor
from pyflame.tensor.creation import arange, zeros
from pyflame.tensor.memory import memory_info

SMALLEST_BUCKET = 256


def bucket_of(count: int, most: int) -> int:
    """The least power of two that holds so many, and at most `most`."""
    return min(max(SMALLEST_BUCKET, 1 << (count - 1).bit_length()), most)


def cache_bytes(config: ModelConfig, rows: int, capacity: int, dtype: DType) -> int:
    """What a cache for so many rows and positions takes."""
    heads, key, value = config.cached_sizes()
    return config.layers * rows * capacity * heads * (key + value) * dtype.itemsize


class Cache:
    """Keys and values of `rows` sequences of up to `capacity` tokens."""

    def __init__(self, config: ModelConfig, rows: int, capacity: int, dtype: DType, device: object) -> None:
        want_room(config, rows, capacity, dtype, device)
        self.rows, self.capacity = rows, capacity
        heads, key, value = config.cached_sizes()
        sizes = (key, value) if value else (key,)
        self.layers = [
            [zeros(rows * capacity, heads, size, dtype=dtype, device=device) for size in sizes]
            for _ in range(config.layers)
        ]

    def slots(self, positions: Tensor) -> Tensor:
        """Where the lines at these positions (rows, T) lie: (rows * T)"""
        first = arange(self.rows, device=positions.device) * self.capacity
        return (first.unsqueeze(1) + positions).reshape(-1)

    def write(self, layer: int, positions: Tensor, *lines: Tensor) -> None:
        """Keep lines (rows, T, heads, size) of keys, and of values where they are no part of keys."""
        slots = self.slots(positions)
        for kept, new in zip(self.layers[layer], lines, strict=True):
            kept.index_copy_(0, slots, new.reshape(-1, *kept.shape[1:]).to(kept.dtype))

    def read(self, layer: int, bucket: int) -> list[Tensor]:
        """Keys and values at positions below `bucket`: (rows, heads, bucket, size)"""
        kept = (x.reshape(self.rows, self.capacity, *x.shape[1:]) for x in self.layers[layer])
        return [x[:, :bucket].transpose(1, 2) for x in kept]

    def copy_from(self, other: Cache, bucket: int) -> None:
        """Give every row the first lines of the one row of another cache."""
        for layer, given in zip(self.layers, other.layers, strict=True):
            for kept, lines in zip(layer, given, strict=True):
                kept.reshape(self.rows, self.capacity, *kept.shape[1:])[:, :bucket] = lines[:bucket]


def want_room(config: ModelConfig, rows: int, capacity: int, dtype: DType, device: object) -> None:
    """Refuse a cache that cannot be, before anything runs."""
    if type(capacity) is not int or not 1 <= capacity <= config.context:
        raise ArgumentError(f"[cache] expected a context of 1 to {config.context} tokens but got {capacity!r}")
    needed, (free, _) = cache_bytes(config, rows, capacity, dtype), memory_info(device)
    if needed > free:
        raise OutOfMemoryError(
            f"[cache] expected the keys and values of {rows} x {capacity} tokens to fit but they take "
            f"{needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free; take a shorter context= or a narrower dtype"
        )
