"""Rows: the device's side of an engine. A paged cache, a sampler and jitted steps over any of its rows.

A row is one sequence. A decode step is jitted for 1, 2, 4, 8 … rows, and a tensor says which rows they are, so requests
come and go without a new plan. There is one row more than asked for: steps are padded with it, and what it writes goes
to the spare page.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, int64
from pyflame.llm.attention import Where
from pyflame.llm.batch import CHUNKS
from pyflame.llm.cache import bucket_of, pages_of
from pyflame.llm.decoder import Decoder
from pyflame.llm.lora_rows import adapters_of, row_adapters
from pyflame.llm.sampler import Features, Picked, Sampler, Sampling, overwrite, spread
from pyflame.tensor import Tensor
from pyflame.tensor.counted import where as choose
from pyflame.tensor.creation import arange, full, tensor, zeros
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval
from pyflame.transform.jit import jit


class Rows:
    """`count` sequences of up to `capacity` tokens over `pages` pages."""

    def __init__(
        self, decoder: Decoder, count: int, capacity: int, pages: int, chunk: int, kv: DType, device: object
    ) -> None:
        self.decoder, self.count, self.capacity, self.device = decoder, count, capacity, device
        self.cache = decoder.cache(count + 1, capacity, kv, device, pages)
        self.sampler = Sampler(count + 1, decoder.config.vocab, capacity, device)
        self.tokens = zeros(count + 1, dtype=int64, device=device)
        self.lengths = zeros(count + 1, dtype=int64, device=device)
        self.adapters = zeros(count + 1, dtype=int64, device=device)  # the number of each row's, 0: none
        self.sizes = (*(n for n in CHUNKS if n < chunk), chunk)
        self.buckets = (*(1 << n for n in range((count - 1).bit_length())), count)
        self._table = np.zeros((count + 1, pages_of(capacity)), np.int32)  # what the device's table will be
        self._changed: set[int] = set()  # rows of it that are to be written there
        self._masked: set[int] = set()
        self._which = {n: full((n,), count, dtype=int64, device=device) for n in self.buckets}
        # the rows that `_which` names, but for padding
        self._named: dict[int, tuple[int, ...]] = dict.fromkeys(self.buckets, ())
        self._take_in = {n: jit(self._take_in_step) for n in self.sizes}
        self._first = jit(self._first_step)
        self._next = {n: jit(partial(self._next_step, which)) for n, which in self._which.items()}

    def prepare(self) -> None:
        """Plan, and on a GPU capture, reading and writing of every size, before the first request: with the spare row.
        What else a request asks of the sampler is planned when it comes."""
        for _ in range(2):  # the second call captures
            logits = [self.read(self.count, [0] * min(size, self.capacity), 0) for size in self.sizes]
            for features in (Features(), Features(sampled=True)):
                self.first(self.count, logits[0], 0, features)
                with no_grad():
                    eval([step(features).tokens for step in self._next.values()])

    def put_pages(self, row: int, at: int, pages: Sequence[int]) -> None:
        """Name the pages of a row from the one with number `at` on; those behind are spare."""
        self._table[row, at : at + len(pages)] = pages
        self._table[row, at + len(pages) :] = 0
        self._changed.add(row)

    def drop_pages(self, row: int, count: int) -> None:
        """The first pages of a row are no longer its own."""
        self._table[row, :count] = 0
        self._changed.add(row)

    def begin(
        self,
        row: int,
        settings: Sampling,
        prompt: Sequence[int],
        said: Sequence[int],
        stream: int,
        count: int,
        adapter: int,
    ) -> None:
        """Let a row write a text of up to `count` tokens, or go on behind what it has said of it."""
        if row_adapters(self.decoder).names:
            overwrite(self.adapters, [adapter], [row])
        self.sampler.start([settings], [prompt], [stream], count, [row], [said])
        if row in self._masked:
            self._masked.remove(row)
            self.sampler.allow(np.ones((1, self.sampler.vocab), bool), [row])

    def allow(self, masks: dict[int, Any]) -> None:
        """Which tokens may come next in these rows."""
        self.sampler.allow(np.stack(list(masks.values())), list(masks))
        self._masked |= masks.keys()

    def size_for(self, count: int, start: int) -> int:
        """What so many tokens from a position on are padded to; less where they do not fit or are too many."""
        room = self.capacity - start
        fitting = [n for n in self.sizes if n <= room] or [room]
        return next((n for n in fitting if n >= count), fitting[-1])

    def read(self, row: int, tokens: Sequence[int], start: int) -> Tensor:
        """Take in tokens of a row from a position on; gives the logits behind the last: (1, vocab)"""
        size = self.size_for(len(tokens), start)
        self._write_table()
        with no_grad():
            logits: Tensor = self._take_in.setdefault(size, jit(self._take_in_step))(
                self._numbers([[*tokens, *[0] * (size - len(tokens))]]),
                self._numbers([row]),
                self._numbers([start]),
                self._numbers([len(tokens) - 1]),
                bucket_of(start + size, self.capacity),
            )
        return logits

    def first(self, row: int, logits: Tensor, length: int, features: Features) -> Picked:
        """Pick the token behind a prompt whose `length` tokens were taken in."""
        with no_grad():
            return self._first(logits, self._numbers([row]), self._numbers([length]), features)  # type: ignore[no-any-return]

    def next(self, rows: Sequence[int], features: Features) -> Picked:
        """Take in the tokens that these rows picked last and pick the ones that follow. What it gives is padded."""
        bucket = next(n for n in self.buckets if n >= len(rows))
        if self._named[bucket] != tuple(rows):
            overwrite(self._which[bucket], [*rows, *[self.count] * (bucket - len(rows))], range(bucket))
            self._named[bucket] = tuple(rows)
        self._write_table()
        with no_grad():
            return self._next[bucket](features)  # type: ignore[no-any-return]

    def _numbers(self, values: Any) -> Tensor:
        return tensor(values, dtype=int64, device=self.device)

    def _write_table(self) -> None:
        if self._changed:
            rows = sorted(self._changed)
            self.cache.name_pages(rows, self._table[rows])
            self._changed.clear()

    def _take_in_step(self, tokens: Tensor, row: Tensor, start: Tensor, last: Tensor, bucket: int) -> Tensor:
        positions = (start + arange(tokens.shape[1], device=tokens.device)).unsqueeze(0)
        with self._adapted(row):
            x = self._hidden(tokens, row, positions, start, bucket)
            return self.decoder.logits(x[0].index_select(0, last))

    def _adapted(self, rows: Tensor) -> AbstractContextManager[None]:
        """Each of these rows computes with its own adapter, where the model has some."""
        has = bool(row_adapters(self.decoder).names)
        return adapters_of(self.adapters.index_select(0, rows)) if has else nullcontext()

    def _hidden(self, tokens: Tensor, rows: Tensor, positions: Tensor, first: Tensor, bucket: int) -> Tensor:
        slots, lengths = self.cache.slots(positions, rows), first + tokens.shape[1]
        return self.decoder.hidden(tokens, Where(positions, first, lengths, self.cache, slots, bucket, rows))

    def _first_step(self, logits: Tensor, row: Tensor, length: Tensor, features: Features) -> Picked:
        picked = self.sampler.pick(logits, features, row)
        self._set(self.tokens, picked.tokens, row)
        self._set(self.lengths, length, row)
        return picked

    def _next_step(self, which: Tensor, features: Features) -> Picked:
        lengths, tokens = self.lengths.index_select(0, which), self.tokens.index_select(0, which)
        with self._adapted(which):
            x = self._hidden(tokens.unsqueeze(1), which, lengths.unsqueeze(1), lengths, self.capacity)
            logits = self.decoder.logits(x[:, -1])
        picked = self.sampler.pick(logits, features, which)
        self._set(self.tokens, picked.tokens, which)
        self._set(self.lengths, lengths + 1, which)
        return picked

    def _set(self, cell: Tensor, values: Tensor, rows: Tensor) -> None:
        """New values of these rows, element by element, so that they come to lie where the old ones do. The spare row
        keeps what it has."""
        mine = arange(self.count + 1, device=cell.device) < self.count
        cell.copy_(choose(mine, spread(values, rows, cell, self.count + 1), cell))
