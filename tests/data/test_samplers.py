"""Samplers: lengths and grouping as torch's, orders that follow from (seed, epoch)."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from torch.utils import data as peer

import pyflame as pf
from pyflame.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_batches_as_torch_groups_them(count: int, drop_last: bool) -> None:
    theirs = peer.BatchSampler(peer.SequentialSampler(range(count)), 3, drop_last)
    for inner in (SequentialSampler(range(count)), list(range(count))):
        ours = BatchSampler(inner, 3, drop_last)
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)
        for start in range(4):
            assert [list(b) for b in ours.batches(start)] == list(theirs)[start:]


def test_random_sampler() -> None:
    sampler = RandomSampler(range(20), seed=5)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first and list(sampler) == second
    other = RandomSampler(range(20))
    other.load_state_dict({**sampler.state_dict(), "epoch": 1})
    assert list(other) == second
    assert all(type(i) is int for i in first)


def test_random_sampler_counts() -> None:
    for count in (3, 10, 25):
        sampler = RandomSampler(range(10), num_samples=count, seed=0)
        assert len(sampler) == len(list(sampler)) == count
        times = collections.Counter(list(sampler))
        assert max(times.values()) - min(times[i] for i in range(10)) <= 1
    drawn = list(RandomSampler(range(10), replacement=True, num_samples=500, seed=0))
    assert set(drawn) == set(range(10)) and len(drawn) == 500
    assert list(RandomSampler([])) == [] and len(RandomSampler([])) == 0


def test_the_default_generator_seeds_them() -> None:
    def orders() -> Any:
        pf.manual_seed(7)
        return list(RandomSampler(range(50))), list(RandomSampler(range(50)))

    (a, b), (c, d) = orders(), orders()
    assert a == c and b == d and a != b
    mine = list(RandomSampler(range(50), generator=pf.Generator(3)))
    assert mine == list(RandomSampler(range(50), generator=pf.Generator(3)))


def test_subset_and_weighted() -> None:
    subset = SubsetRandomSampler([9, 8, 7], seed=0)
    assert sorted(subset) == [7, 8, 9] and len(subset) == 3
    weighted = WeightedRandomSampler([1, 0, 3], 4000, seed=0)
    counts = np.bincount(list(weighted), minlength=3) / 4000
    np.testing.assert_allclose(counts, [0.25, 0, 0.75], atol=0.03)
    assert sorted(WeightedRandomSampler([1, 0, 3], 2, replacement=False, seed=0)) == [0, 2]


def test_refusals() -> None:
    with pytest.raises(pf.ArgumentError, match="at least 3 weights above 0 but got 2"):
        WeightedRandomSampler([1, 0, 3], 3, replacement=False)
    with pytest.raises(pf.ArgumentError, match="finite weight"):
        WeightedRandomSampler([1, -1], 1)
    with pytest.raises(pf.ArgumentError, match="num_samples but got 0"):
        RandomSampler(range(3), num_samples=0)
    with pytest.raises(pf.ArgumentError, match="both"):
        RandomSampler(range(3), generator=pf.Generator(0), seed=0)
    with pytest.raises(pf.ArgumentError, match=r"expected a pf\.Generator but got int"):
        RandomSampler(range(3), generator=3)
    with pytest.raises(pf.ArgumentError, match="batch_size but got 0"):
        BatchSampler([1], 0)
