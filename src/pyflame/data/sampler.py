"""Samplers: in which order a dataset's items are visited.

A sampler of this file is a function of (seed, epoch), so an order can be made again. `order()` gives all indices of the
epoch at once; a loader slices it, which costs nothing per item and lets it start anywhere. Samplers of your own need
`__iter__` only; `set_epoch(epoch)` is called before each epoch where they have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.core.generator import Generator
from pyflame.data.seeds import check_seed, draw_seed, rng

Index = TypeVar("Index", covariant=True)
Indices = Any  # a range, an integer array or a list


def count_of(op: str, name: str, value: object) -> int:
    """A positive whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ArgumentError(f"[{op}] expected a positive whole number as {name} but got {value!r}")
    return int(value)


class Sampler(Generic[Index]):
    """Base of samplers: iterable over indices."""

    def __init__(self, data_source: Sized | None = None) -> None:
        """PyTorch's older programs hand their dataset on; it is not needed."""

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__")

    def set_epoch(self, epoch: int) -> None:
        """Told before each epoch; an order that does not change ignores it."""

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to make the same orders again."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the orders of another sampler of this kind."""


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> list(SequentialSampler([5, 6, 7]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def order(self) -> Indices:
        return range(len(self.data_source))

    def __iter__(self) -> Iterator[int]:
        return iter(self.order())

    def __len__(self) -> int:
        return len(self.data_source)


class SeededSampler(Sampler[int]):
    """A sampler whose order follows from a seed and the epoch. Iterating it by hand starts the next epoch each time."""

    def __init__(self, seed: int | None, generator: Generator | None) -> None:
        check_seed(type(self).__name__, seed, generator)
        self.generator = generator
        self._seed = None if seed is None else int(seed)
        self.epoch = 0

    @property
    def seed(self) -> int:
        """The base seed; drawn from the generator when first asked for."""
        if self._seed is None:
            self._seed = draw_seed(self.generator)
        return self._seed

    def set_epoch(self, epoch: int) -> None:
        """Make the order of this epoch next."""
        self.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seed, self.epoch = int(state["seed"]), int(state["epoch"])

    def order(self) -> Indices:
        """All indices of the current epoch."""
        return self._order(rng(self.seed, self.epoch))

    def _order(self, random: np.random.Generator) -> Indices:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        order = self.order()
        self.epoch += 1
        return iter(order if isinstance(order, LongOrder) else order.tolist())


class LongOrder:
    """More indices than memory should hold: made in chunks, when a chunk is asked for, of a chunk's number alone."""

    def __init__(self, total: int, chunk: int, make: Callable[[int], np.ndarray[Any, Any]]) -> None:
        self._total, self._chunk, self._make = total, chunk, make

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, wanted: slice) -> np.ndarray[Any, Any]:
        start, stop, _ = wanted.indices(self._total)
        first, last = start // self._chunk, max(stop - 1, start) // self._chunk
        joined = np.concatenate([self._make(k) for k in range(first, last + 1)])
        return joined[start - first * self._chunk : stop - first * self._chunk]

    def __iter__(self) -> Iterator[int]:
        for start in range(0, self._total, self._chunk):
            yield from self[start : start + self._chunk].tolist()


_LONG = 1 << 24  # indices that are made at once


class RandomSampler(SeededSampler):
    """Every index once, in random order; or `num_samples` of them, with or without replacement.

    >>> sorted(RandomSampler(range(4), seed=0))
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed, generator)
        self.data_source = data_source
        self.replacement = bool(replacement)
        self._num_samples = None if num_samples is None else count_of("RandomSampler", "num_samples", num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _order(self, random: np.random.Generator) -> Indices:
        n, wanted = len(self.data_source), self.num_samples
        if n == 0:
            return np.empty(0, np.int64)
        if wanted > max(_LONG, n):
            chunk, epoch = (1 << 16 if self.replacement else n), self.epoch

            def make(k: int) -> np.ndarray[Any, Any]:
                own = rng(self.seed, epoch, k)
                return own.integers(0, n, chunk) if self.replacement else own.permutation(n)

            return LongOrder(wanted, chunk, make)
        if self.replacement:
            return random.integers(0, n, wanted)
        rounds = [random.permutation(n) for _ in range(-(-wanted // n))]
        return rounds[0][:wanted] if len(rounds) == 1 else np.concatenate(rounds)[:wanted]

    def __len__(self) -> int:
        return self.num_samples if len(self.data_source) else 0


class SubsetRandomSampler(SeededSampler):
    """Every one of the given indices once, in random order.

    >>> sorted(SubsetRandomSampler([3, 1, 4], seed=0))
    [1, 3, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None, *, seed: int | None = None) -> None:
        super().__init__(seed, generator)
        self.indices = indices

    def _order(self, random: np.random.Generator) -> Indices:
        return np.asarray(self.indices, np.int64)[random.permutation(len(self.indices))]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(SeededSampler):
    """`num_samples` indices, each drawn with a probability proportional to its weight.

    >>> list(WeightedRandomSampler([0.0, 1.0], num_samples=3, seed=0))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed, generator)
        self.weights = np.asarray(weights, np.float64)
        self.num_samples = count_of("WeightedRandomSampler", "num_samples", num_samples)
        self.replacement = bool(replacement)
        if self.weights.ndim != 1 or not np.isfinite(self.weights).all() or not (self.weights >= 0).all():
            raise ArgumentError("[WeightedRandomSampler] expected one finite weight >= 0 per item but got others")
        possible = int(np.count_nonzero(self.weights))
        if possible == 0 or (not self.replacement and possible < self.num_samples):
            raise ArgumentError(
                f"[WeightedRandomSampler] expected at least {1 if self.replacement else self.num_samples} weights "
                f"above 0 but got {possible}; draw fewer, or with replacement"
            )

    def _order(self, random: np.random.Generator) -> Indices:
        p = self.weights / self.weights.sum()
        return random.choice(len(p), self.num_samples, self.replacement, p)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Groups the indices of a sampler into batches.

    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool = False) -> None:
        self.sampler = sampler
        self.batch_size = count_of("BatchSampler", "batch_size", batch_size)
        self.drop_last = bool(drop_last)

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.sampler.state_dict()) if hasattr(self.sampler, "state_dict") else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(state)

    def batches(self, start: int = 0) -> Iterator[Indices]:
        """The batches from number `start` on. Of samplers with an `order()` none before it is visited."""
        size = self.batch_size
        if hasattr(self.sampler, "order"):
            order = self.sampler.order()
            last = len(order) - (size - 1 if self.drop_last else 0)
            for at in range(start * size, last, size):
                yield order[at : at + size]
            return
        indices = islice(self.sampler, start * size, None)
        while batch := list(islice(indices, size)):
            if len(batch) == size or not self.drop_last:
                yield batch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches():
            yield batch if isinstance(batch, list) else batch.tolist() if isinstance(batch, np.ndarray) else list(batch)
        if isinstance(self.sampler, SeededSampler):
            self.sampler.epoch += 1

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
