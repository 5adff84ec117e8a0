"""DistributedSampler: each process of a group visits its own part of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np

from pyflame import distributed
from pyflame.core.errors import ArgumentError
from pyflame.data.sampler import Sampler
from pyflame.data.seeds import rng

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, of an order that is the same in all processes.

    Without `drop_last` the first indices come again until all processes have equally many. The order of an epoch
    follows from the seed and `set_epoch`.

    >>> list(pf.utils.data.DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        self.num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        self.rank = distributed.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ArgumentError(
                f"[DistributedSampler] expected a rank from 0 to {self.num_replicas - 1} but got {self.rank}"
            )
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0

    @property
    def num_samples(self) -> int:
        """How many indices each process gets."""
        whole, rest = divmod(len(self.dataset), self.num_replicas)
        return whole + (1 if rest and not self.drop_last else 0)

    @property
    def total_size(self) -> int:
        """How many indices all processes get together."""
        return self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = rng(self.seed, self.epoch).permutation(n) if self.shuffle else np.arange(n)
        whole = np.resize(order, self.total_size)  # repeats from the start, or cuts off the end
        return iter(whole[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Make the order of this epoch next."""
        self.epoch = epoch
