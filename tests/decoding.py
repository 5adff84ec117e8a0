"""One layer of a decoder's step from its inputs to attention, for tests of what it launches and of what it gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import pyflame as pf

HEADS, SHARED, SIZE, PAGE, WIDTH = 4, 2, 16, 32, 24


class Layer:
    """Queries, keys and values of one product; keys and values are kept in pages, in place."""

    def __init__(self, rows: int, interleaved: bool = False, dtype: pf.DType = pf.float32) -> None:
        rng = np.random.default_rng(0)
        self.rows, self.interleaved = rows, interleaved
        slots = 2 * PAGE * rows
        self.weight = pf.tensor(rng.normal(size=(WIDTH, (HEADS + 2 * SHARED) * SIZE)) * 0.2, dtype=dtype)
        self.bias = pf.tensor(rng.normal(size=(HEADS + 2 * SHARED) * SIZE), dtype=dtype)
        self.keys, self.values = (pf.zeros(slots, SHARED, SIZE, dtype=dtype) for _ in range(2))
        self.table = pf.tensor(np.arange(2 * rows).reshape(rows, 2), dtype=pf.int32)
        self.x = pf.tensor(rng.normal(size=(rows, 1, WIDTH)), dtype=dtype)
        self.positions = pf.tensor(np.arange(rows) % 2 * 30 + 3)

    def step(self) -> Callable[[pf.Tensor, pf.Tensor], pf.Tensor]:
        @pf.jit
        def step(x: pf.Tensor, positions: pf.Tensor) -> pf.Tensor:
            at = positions.unsqueeze(1)
            slots = (self.table.gather(1, at // PAGE) * PAGE + at % PAGE).reshape(-1)
            whole = (x @ self.weight + self.bias).reshape(self.rows, 1, -1, SIZE)
            q, k, v = whole.split([HEADS, SHARED, SHARED], 2)
            q, k = (pf.rope(t.transpose(1, 2), at, interleaved=self.interleaved) for t in (q, k))
            self.keys.index_copy_(0, slots, k.transpose(1, 2).reshape(-1, SHARED, SIZE))
            self.values.index_copy_(0, slots, v.reshape(-1, SHARED, SIZE))
            pages = [kept.reshape(-1, PAGE, SHARED, SIZE) for kept in (self.keys, self.values)]
            return pf.paged_attention(q, *pages, self.table, positions + 1)

        return step
