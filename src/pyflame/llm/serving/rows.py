"""Rows: the device's side of an engine. A paged cache, a sampler and jitted steps over any of its rows.

A row is one sequence. A decode step is jitted for 1, 2, 4, 8 … rows, and a tensor says which rows they are, so requests
come and go without a new plan; a prefill step is jitted for a few shapes of pieces, each of which names its row. There
is one row more than asked for: steps are padded with it, and what it writes goes to the spare page.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from pyflame.core.dtype import DType, int64
from pyflame.llm.attention import Where
from pyflame.llm.cache import PAGE, bucket_of, pages_of
from pyflame.llm.decoder import Decoder
from pyflame.llm.lora_rows import adapters_of, row_adapters
from pyflame.llm.sampler import Features, Picked, Sampler, overwrite, spread
from pyflame.llm.serving.prefill import Prefill, Shape, shapes_of
from pyflame.llm.serving.request import TextSequence, want_row
from pyflame.tensor import Tensor
from pyflame.tensor.counted import where as choose
from pyflame.tensor.creation import arange, full, tensor, zeros
from pyflame.tensor.gradients import no_grad
from pyflame.tensor.modes import eval
from pyflame.transform.jit import jit


class Rows:
    """`count` sequences of up to `capacity` tokens over `pages` pages. `budgets`: how many tokens of prompts steps may
    take in."""

    def __init__(
        self, decoder: Decoder, count: int, capacity: int, pages: int, budgets: Sequence[int], kv: DType, device: object
    ) -> None:
        self.decoder, self.count, self.capacity, self.device = decoder, count, capacity, device
        self.cache = decoder.cache(count + 1, capacity, kv, device, pages)
        self.sampler = Sampler(count + 1, decoder.config.vocab, capacity, device)
        self.tokens = zeros(count + 1, dtype=int64, device=device)
        self.lengths = zeros(count + 1, dtype=int64, device=device)
        self.adapters = zeros(count + 1, dtype=int64, device=device)  # the number of each row's, 0: none
        most = count * pages_of(capacity) * PAGE
        self.shapes = list(dict.fromkeys(shape for n in budgets for shape in shapes_of(min(n, most), capacity)))
        self.buckets = (*(1 << n for n in range((count - 1).bit_length())), count)
        self._table = np.zeros((count + 1, pages_of(capacity)), np.int32)  # what the device's table will be
        self._changed: set[int] = set()  # rows of it that are to be written there
        self._masked: set[int] = set()
        self._which = {n: full((n,), count, dtype=int64, device=device) for n in self.buckets}
        # the rows that `_which` names, but for padding
        self._named: dict[int, tuple[int, ...]] = dict.fromkeys(self.buckets, ())
        self._take_in = {shape: jit(self._take_in_step) for shape in self.shapes}
        self._first = jit(self._first_step)
        self._next = {n: jit(partial(self._next_step, which)) for n, which in self._which.items()}

    def prepare(self) -> None:
        """Plan, and on a GPU capture, reading and writing of every size, before the first request: with the spare row.
        What else a request asks of the sampler is planned when it comes."""
        for _ in range(2):  # the second call captures
            logits = [self._read(shape, [], [], [], bucket_of(shape.size, self.capacity)) for shape in self.shapes]
            for features in (Features(), Features(sampled=True)):
                for one in {x.shape: x for x in logits}.values():
                    self._pick([], one, [], features)
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

    def begin(self, sequences: Sequence[TextSequence]) -> None:
        """Let the rows of these write their texts, or go on behind what they have said of them."""
        rows, requests = [want_row(s) for s in sequences], [s.request for s in sequences]
        if row_adapters(self.decoder).names:
            overwrite(self.adapters, [r.adapter for r in requests], rows)
        longest, said = max(s.text.limit for s in sequences), [s.text.tokens for s in sequences]
        settings, prompts = [r.options.sampling for r in requests], [r.prompt for r in requests]
        self.sampler.start(settings, prompts, [s.index for s in sequences], longest, rows, said)
        free = sorted(self._masked.intersection(rows))
        if free:
            self._masked.difference_update(free)
            self.sampler.allow(np.ones((len(free), self.sampler.vocab), bool), free)
        for one, row in zip(sequences, rows, strict=True):
            self.put_pages(row, 0, one.pages)

    def allow(self, masks: dict[int, Any]) -> None:
        """Which tokens may come next in these rows."""
        self.sampler.allow(np.stack(list(masks.values())), list(masks))
        self._masked |= masks.keys()

    def read(self, given: Prefill) -> Tensor:
        """Take in tokens of prompts; gives the logits behind each piece: (pieces, vocab)"""
        pieces = given.pieces
        tokens = [p.sequence.tokens[p.start : p.start + p.count] for p in pieces]
        rows = [want_row(p.sequence) for p in pieces]
        self._write_table()
        return self._read(given.shape, tokens, rows, [p.start for p in pieces], given.bucket)

    def _read(
        self, shape: Shape, tokens: Sequence[list[int]], rows: list[int], starts: list[int], bucket: int
    ) -> Tensor:
        """Pieces that are not given are of the spare row."""
        spare = shape.pieces - len(rows)
        padded = [t + [0] * (shape.size - len(t)) for t in [*tokens, *[[]] * spare]]
        last = [max(len(t) - 1, 0) for t in [*tokens, *[[]] * spare]]
        with no_grad():
            return self._take_in[shape](  # type: ignore[no-any-return]
                self._numbers(padded),
                self._numbers(rows + [self.count] * spare),
                self._numbers(starts + [0] * spare),
                self._numbers(last),
                bucket,
            )

    def first(self, sequences: Sequence[TextSequence], logits: Tensor, features: Features) -> Picked:
        """Pick the tokens behind prompts that were read: the first logits are theirs. What it gives is padded."""
        return self._pick([want_row(s) for s in sequences], logits, [s.lines for s in sequences], features)

    def _pick(self, rows: list[int], logits: Tensor, lengths: list[int], features: Features) -> Picked:
        spare = logits.shape[0] - len(rows)
        named, behind = self._numbers(rows + [self.count] * spare), self._numbers(lengths + [0] * spare)
        with no_grad():
            return self._first(logits, named, behind, features)  # type: ignore[no-any-return]

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

    def _take_in_step(self, tokens: Tensor, rows: Tensor, starts: Tensor, last: Tensor, bucket: int) -> Tensor:
        positions = starts.unsqueeze(1) + arange(tokens.shape[1], device=tokens.device)
        with self._adapted(rows):
            x = self._hidden(tokens, rows, positions, starts, bucket)
            own = x.gather(1, last.reshape(-1, 1, 1).expand(x.shape[0], 1, x.shape[2]))[:, 0]
            return self.decoder.logits(own)

    def _adapted(self, rows: Tensor) -> AbstractContextManager[None]:
        """Each of these rows computes with its own adapter, where the model has some."""
        has = bool(row_adapters(self.decoder).names)
        return adapters_of(self.adapters.index_select(0, rows)) if has else nullcontext()

    def _hidden(self, tokens: Tensor, rows: Tensor, positions: Tensor, first: Tensor, bucket: int) -> Tensor:
        slots, lengths = self.cache.slots(positions, rows), first + tokens.shape[1]
        if tokens.shape[1] > 1:
            positions = positions.clamp(max=self.capacity - 1)  # padding of the last page may lie behind the context
        return self.decoder.hidden(tokens, Where(positions, first, lengths, self.cache, slots, bucket, rows))

    def _first_step(self, logits: Tensor, rows: Tensor, lengths: Tensor, features: Features) -> Picked:
        picked = self.sampler.pick(logits, features, rows)
        self._set(self.tokens, picked.tokens, rows)
        self._set(self.lengths, lengths, rows)
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
