"""DataLoader: batches of a dataset, in an order that a seed decides, loaded here, in a thread or in worker processes.

The order of an epoch follows from (seed, epoch) alone: it is the same for any number of workers, and a loader can
continue in the middle of an epoch (`state_dict`, `load_state_dict`) without loading what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from pyflame.core.errors import ArgumentError
from pyflame.core.generator import Generator
from pyflame.data.collate import default_collate, default_convert
from pyflame.data.dataset import Item, IterableDataset
from pyflame.data.fetch import Recipe
from pyflame.data.memory import allocating
from pyflame.data.pinning import Pinning, pinning
from pyflame.data.prefetch import prefetched
from pyflame.data.sampler import BatchSampler, RandomSampler, SequentialSampler, count_of
from pyflame.data.seeds import check_seed, draw_seed

if TYPE_CHECKING:
    from pyflame.data.pool import Pool

_END = object()
_POSITION = ("epoch", "batch", "seed")


class DataLoader(Generic[Item]):
    """Iterates over a dataset in batches. Each `for` over it is one epoch.

    dataset: has `__getitem__` and `__len__`, or is an IterableDataset
    batch_size: items per batch; None gives the items themselves
    shuffle: visit the items in another random order in each epoch
    sampler, batch_sampler: decide the order instead; of single indices, or of whole batches
    num_workers: processes that load; 0 loads in this one
    collate_fn: makes a batch of a list of items; default_collate stacks them into tensors
    pin_memory: make batches in page-locked memory of the current GPU, which copies them while the program goes on; on
        the CPU it changes nothing
    drop_last: leave out a last batch that is not full
    timeout: seconds to wait for a batch of a worker; 0: for ever
    worker_init_fn: called in each worker with its number, before the first item
    seed: of the order, and of the random numbers that a dataset draws in workers. Without it, one is drawn from
        `generator`, or from the generator that pf.manual_seed sets, when the loader is first used
    prefetch_factor: batches to load ahead: of each worker (2), or with num_workers=0 in a thread (0: no thread)
    persistent_workers: keep the workers for the next epoch
    multiprocessing_context, pin_memory_device, in_order: PyTorch's, taken and without effect

    In workers the global generators of `random`, `numpy.random` and PyFlame are seeded before each batch from (seed,
    epoch, batch), for a stream once per epoch from (seed, epoch, worker). With num_workers=0 a dataset draws from the
    generators of this process, which are left alone.

    >>> data = TensorDataset(np.arange(10.0), np.arange(10))
    >>> for x, y in DataLoader(data, batch_size=4, shuffle=True, seed=0):
    ...     print(x.shape)
    (4,)
    (4,)
    (2,)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        seed: int | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.dataset = dataset
        self.is_stream = isinstance(dataset, IterableDataset)
        _check_order(self.is_stream, batch_size, shuffle, sampler, batch_sampler, drop_last)
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        check_seed("DataLoader", seed, generator)
        self.batch_size = None if batch_sampler is not None else batch_size
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        # PyTorch's, without effect: workers come from a forkserver, memory is pinned for the current device, batches
        # come in order
        self.multiprocessing_context = multiprocessing_context
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self.prefetch_factor = (2 if num_workers else 0) if prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.generator = generator
        self._seed = None if seed is None else int(seed)
        self._own_sampler = shuffle and sampler is None
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        if not self.is_stream:
            if sampler is None:
                self.sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
            if batch_sampler is None and batch_size is not None:
                self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)
        self._recipe = Recipe(dataset, self.collate_fn, batched, self.batch_size, drop_last)
        self._position = (0, 0)  # epoch, batches handed out
        self._next = (0, 0)  # where the next iteration starts
        self._iteration = 0
        self._pool: Pool | None = None

    def with_batch_size(self, batch_size: int) -> DataLoader[Item]:
        """A loader of the same items in the same order, in batches of another size, at its beginning.

        >>> len(DataLoader(range(8), batch_size=2).with_batch_size(4))
        2
        """
        count_of("with_batch_size", "batch_size", batch_size)
        if self.batch_size is None:
            raise ArgumentError(
                "[with_batch_size] expected a loader with a batch_size but got one with a batch_sampler or without "
                "batches; make it with batch_size="
            )
        other = copy(self)
        other.batch_size = batch_size
        if not self.is_stream:
            other.batch_sampler = BatchSampler(self.sampler, batch_size, self.drop_last)
        other._recipe = replace(self._recipe, batch_size=batch_size)
        other._pool = None
        other._iteration = 0
        other._position = other._next = (0, 0)
        return other

    def __len__(self) -> int:
        """Number of batches of an epoch; of an iterable dataset, if that has a length."""
        if not self.is_stream:
            return len(self._index_source())
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def _index_source(self) -> Any:
        """What gives the indices of a batch: the batch sampler; without batching the sampler."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    # --- iteration --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._next
        self._iteration += 1
        self._position, self._next = (epoch, start), (epoch + 1, 0)
        return self._count(self._batches(epoch, start), epoch, start, self._iteration)

    def _count(self, batches: Iterator[Any], epoch: int, start: int, iteration: int) -> Iterator[Any]:
        """Keep the position up to date while batches are handed out."""
        for batch in batches:
            start += 1
            if iteration == self._iteration:  # an older iterator does not tell where the loader is
                self._position = (epoch, start)
            yield batch
            del batch  # its memory may serve for the next one
        if iteration == self._iteration:
            self._position = (epoch + 1, 0)

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        pinned = pinning() if self.pin_memory else None
        if self.num_workers:
            return _begun(self._from_workers(epoch, start, pinned))
        batches = self._from_here(epoch, start, pinned)
        return _begun(prefetched(batches, self.prefetch_factor)) if self.prefetch_factor else batches

    def _from_here(self, epoch: int, start: int, pinned: Pinning | None) -> Iterator[Any]:
        recipe = self._recipe
        if self.is_stream:
            batches: Iterator[Any] = islice(recipe.stream(), start, None)
        else:
            batches = map(recipe.load, self._indices(epoch, start))
        if pinned is None:
            yield from batches
            return
        while True:
            with allocating(pinned.empty):
                batch = next(batches, _END)
            if batch is _END:
                return
            batch = pinned.pin(batch)
            yield batch
            del batch

    def _from_workers(self, epoch: int, start: int, pinned: Pinning | None) -> Iterator[Any]:
        from pyflame.data.pool import Pool  # here: importing multiprocessing takes longer than all of this room

        pool, self._pool = self._pool, None  # a second iterator beside this one gets workers of its own
        if pool is None:
            pool = Pool(self._recipe, self.worker_init_fn, self.seed, epoch, self.num_workers)
        waiting = (self.prefetch_factor, self.timeout, np.empty if pinned is None else pinned.empty)
        usable = False
        try:
            if self.is_stream:
                batches = pool.streamed(epoch, *waiting)
                yield next(batches)
                batches = islice(batches, start, None)
            else:
                batches = pool.indexed(self._indices(epoch, start), start, epoch, *waiting)
            yield from batches if pinned is None else map(pinned.pin, batches)
            usable = True
        except GeneratorExit:  # the consumer left; after an error or Ctrl-C a message may be half read
            usable = True
            raise
        finally:
            if usable and self.persistent_workers and self._pool is None:
                self._pool = pool
            else:
                pool.close()

    def _indices(self, epoch: int, start: int) -> Iterator[Any]:
        """What to load for each batch of an epoch, from one batch on."""
        source = self._index_source()
        if self._own_sampler:
            self.sampler._seed = self.seed
        if hasattr(source, "set_epoch"):
            source.set_epoch(epoch)
        if hasattr(source, "batches"):
            return source.batches(start)  # type: ignore[no-any-return]
        return islice(source, start, None)

    # --- position ---------------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """The base seed; drawn when first asked for."""
        if self._seed is None:
            self._seed = draw_seed(self.generator)
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch that is running; between two, the next one."""
        return self._position[0]

    def set_epoch(self, epoch: int) -> None:
        """Start the next iteration at the beginning of this epoch."""
        if isinstance(epoch, bool) or not isinstance(epoch, (int, np.integer)) or epoch < 0:
            raise ArgumentError(f"[set_epoch] expected a whole number from 0 on but got {epoch!r}")
        self._position = self._next = (int(epoch), 0)

    def state_dict(self) -> dict[str, Any]:
        """The position as plain numbers: the epoch, how many of its batches were handed out, the seeds of the order.

        >>> DataLoader(range(8), batch_size=2, seed=3).state_dict()["epoch"]
        0
        """
        epoch, batch = self._position
        state = {"epoch": epoch, "batch": batch, "seed": self.seed, "batch_size": self.batch_size}
        source = self._index_source()
        if not self._own_sampler and hasattr(source, "state_dict"):
            state["sampler"] = source.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another loader of the same dataset was: the next iteration starts at that batch.

        Items before it are not loaded; those of an iterable dataset are, since a stream has no index to jump to.
        """
        missing = [name for name in _POSITION if name not in state]
        if missing:
            raise ArgumentError(
                f"[load_state_dict] expected the dict of DataLoader.state_dict() but {missing[0]!r} is missing"
            )
        if state.get("batch_size") != self.batch_size:
            raise ArgumentError(
                f"[load_state_dict] expected the position of a loader with batch_size={self.batch_size} but got one "
                f"with {state.get('batch_size')}; make this loader with the same batch_size"
            )
        self._seed = int(state["seed"])
        self._position = self._next = (int(state["epoch"]), int(state["batch"]))
        if "sampler" in state and hasattr(self._index_source(), "load_state_dict"):
            self._index_source().load_state_dict(state["sampler"])
        if self._pool is not None:  # persistent workers know another seed
            self._pool.close()
            self._pool = None


def _begun(batches: Iterator[Any]) -> Iterator[Any]:
    """Run a generator up to its first yield, which gives None, so that loading starts before a batch is asked for."""
    next(batches)
    return batches


def _check_order(
    is_stream: bool, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: bool
) -> None:
    if batch_size is not None:
        count_of("DataLoader", "batch_size", batch_size)
    elif drop_last:
        raise ArgumentError("[DataLoader] expected drop_last=False without batching (batch_size=None) but got True")
    if is_stream and (shuffle or sampler is not None or batch_sampler is not None):
        raise ArgumentError(
            "[DataLoader] expected no shuffle and no sampler for an IterableDataset, which has its own order, but got "
            f"{'shuffle' if shuffle else 'a sampler'}; shuffle inside its __iter__"
        )
    if sampler is not None and shuffle:
        raise ArgumentError("[DataLoader] expected a sampler or shuffle but got both; the sampler decides the order")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError(
            "[DataLoader] expected batch_sampler without batch_size, shuffle, sampler and drop_last, which it replaces"
        )


def _check_workers(num_workers: Any, timeout: Any, prefetch_factor: Any, persistent_workers: bool) -> None:
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 0:
        raise ArgumentError(f"[DataLoader] expected num_workers of 0 or more but got {num_workers!r}")
    if not timeout >= 0:
        raise ArgumentError(f"[DataLoader] expected a timeout of 0 or more seconds but got {timeout!r}")
    if prefetch_factor is not None and (not isinstance(prefetch_factor, int) or prefetch_factor < (num_workers > 0)):
        raise ArgumentError(f"[DataLoader] expected a positive prefetch_factor but got {prefetch_factor!r}")
    if persistent_workers and not num_workers:
        raise ArgumentError("[DataLoader] expected num_workers above 0 for persistent_workers=True but got 0")
