"""DataLoader in this process and with a thread: lengths and orders as torch's, positions that can be continued."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from torch.utils import data as peer

import pyflame as pf
from pyflame.data import BatchSampler, DataLoader, RandomSampler, Subset, TensorDataset
from tests.data.datasets import Counter, Faulty, Rows


def labels(loader: Any) -> list[Any]:
    """The second part of every batch."""
    return [batch[1].tolist() for batch in loader]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "size"), [(0, 4), (3, 4), (8, 4), (9, 4), (5, 1)])
def test_lengths_as_torch(count: int, size: int, drop_last: bool) -> None:
    theirs = peer.DataLoader(Rows(count), size, drop_last=drop_last)
    for ours in (
        DataLoader(Rows(count), size, drop_last=drop_last),
        DataLoader(Rows(count), size, drop_last=drop_last, prefetch_factor=2),
        DataLoader(TensorDataset(np.zeros((count, 2)), np.arange(count)), size, drop_last=drop_last),
    ):
        assert len(ours) == len(theirs)
        assert labels(ours) == labels(theirs)


def test_structure_as_torch() -> None:
    ours, theirs = next(iter(DataLoader(Rows(4), 2))), next(iter(peer.DataLoader(Rows(4), 2)))
    assert type(ours) is type(theirs) is list
    assert [t.shape for t in ours] == [tuple(t.shape) for t in theirs]
    assert [t.dtype for t in ours] == [pf.float32, pf.int64]
    item = next(iter(DataLoader(Rows(4), batch_size=None)))
    assert [type(part).__name__ for part in item] == ["Tensor", "int"]
    assert len(DataLoader(Rows(4), batch_size=None)) == 4
    sampled = DataLoader(Rows(9), batch_sampler=[[0, 8], [3]])
    assert labels(sampled) == [[0, 8], [3]] and len(sampled) == 2
    assert labels(DataLoader(Rows(9), 2, sampler=[4, 2, 0])) == [[4, 2], [0]]
    assert list(DataLoader(Rows(3), 3, collate_fn=lambda items: [i for _, i in items])) == [[0, 1, 2]]


def test_the_fast_path_is_taken() -> None:
    """One gather per batch: the items of a TensorDataset are never asked for."""

    class Whole(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError

    data = Whole(np.arange(12.0).reshape(6, 2), np.arange(6))
    (x, y), *_ = DataLoader(Subset(data, range(1, 6)), 3, shuffle=True, seed=0)
    np.testing.assert_array_equal(x.numpy(), np.arange(12.0).reshape(6, 2)[y.numpy()])
    assert not x._node.meta.committed


@pytest.mark.parametrize("prefetch", [0, 3])
def test_shuffle_follows_seed_and_epoch(prefetch: int) -> None:
    def loader(seed: int | None = 1) -> DataLoader:
        return DataLoader(Rows(10), 3, shuffle=True, seed=seed, prefetch_factor=prefetch)

    first = loader()
    epochs = [labels(first), labels(first), labels(first)]
    assert all(sorted(i for batch in e for i in batch) == list(range(10)) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    second = loader()
    second.set_epoch(2)
    assert labels(second) == epochs[2]
    assert labels(loader(2)) != epochs[0]
    pf.manual_seed(3)
    drawn = labels(loader(None))
    pf.manual_seed(3)
    assert labels(loader(None)) == drawn != labels(loader(None))
    with_generator = DataLoader(Rows(10), 3, shuffle=True, generator=pf.Generator(4))
    assert labels(with_generator) == labels(DataLoader(Rows(10), 3, shuffle=True, generator=pf.Generator(4)))


class Counted(Rows):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.loaded = 0

    def __getitem__(self, i: int) -> Any:
        self.loaded += 1
        return super().__getitem__(i)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_resume_in_the_middle_of_an_epoch(stop: int, prefetch: int) -> None:
    options = dict(batch_size=3, shuffle=True, prefetch_factor=prefetch)
    first = DataLoader(Rows(11), seed=6, **options)
    everything = [labels(first) for _ in range(3)]
    again = DataLoader(Rows(11), seed=6, **options)
    assert labels(again) == everything[0]
    batches = iter(again)
    seen = [next(batches)[1].tolist() for _ in range(stop)]
    state = again.state_dict()
    assert state["epoch"] == 1 and state["batch"] == stop
    data = Counted(11)
    resumed = DataLoader(data, seed=None, **options)
    resumed.load_state_dict(state)
    assert seen + labels(resumed) == everything[1]
    assert data.loaded == max(11 - 3 * stop, 0)
    assert resumed.state_dict() | {"epoch": 2, "batch": 0} == resumed.state_dict()
    assert labels(resumed) == everything[2]


def test_resume_with_other_samplers() -> None:
    def loader(sampler: Any) -> DataLoader:
        return DataLoader(Rows(9), batch_sampler=BatchSampler(sampler, 2))

    first = loader(RandomSampler(range(9), seed=1))
    labels(first)
    batches = iter(first)
    seen = [next(batches)[1].tolist() for _ in range(2)]
    state = first.state_dict()
    rest = labels(batches)
    resumed = loader(RandomSampler(range(9)))
    resumed.load_state_dict(state)
    assert labels(resumed) == rest and seen

    stream = DataLoader(Counter(10), 2)
    batches = iter(stream)
    next(batches)
    state = stream.state_dict()
    resumed = DataLoader(Counter(10), 2)
    resumed.load_state_dict(state)
    assert [b[0].tolist() for b in resumed] == [[2, 3], [4, 5], [6, 7], [8, 9]]


def test_position_after_leaving_early() -> None:
    loader = DataLoader(Rows(6), 2, shuffle=True, seed=0)
    whole = [labels(loader) for _ in range(2)]
    loader.set_epoch(0)
    for _ in loader:
        break
    assert loader.state_dict()["batch"] == 1 and loader.epoch == 0
    assert labels(loader) == whole[1]
    assert loader.epoch == 2


def test_bad_positions() -> None:
    loader = DataLoader(Rows(6), 2)
    with pytest.raises(pf.ArgumentError, match="'epoch' is missing"):
        loader.load_state_dict({})
    with pytest.raises(pf.ArgumentError, match="batch_size=3 but got one with 2"):
        DataLoader(Rows(6), 3).load_state_dict(loader.state_dict())
    with pytest.raises(pf.ArgumentError, match="from 0 on but got -1"):
        loader.set_epoch(-1)


def test_a_thread_loads_ahead() -> None:
    class Slow(Rows):
        def __getitem__(self, i: int) -> Any:
            loaded.append((i, threading.current_thread().name))
            return super().__getitem__(i)

    loaded: list[Any] = []
    batches = iter(DataLoader(Slow(8), 1, prefetch_factor=3))
    deadline = time.monotonic() + 5
    while len(loaded) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert [i for i, _ in loaded] == [0, 1, 2]  # three ahead and no more
    assert {name for _, name in loaded} == {"pyflame-prefetch"}
    next(batches)
    del batches
    gc.collect()
    assert "pyflame-prefetch" not in [t.name for t in threading.enumerate()]


def test_errors_in_a_thread_are_raised_at_their_batch() -> None:
    batches = iter(DataLoader(Faulty("raise"), 2, prefetch_factor=2))
    assert [next(batches)[1].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="no item 5"):
        next(batches)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_batches_follow_the_current_device(prefetch: int) -> None:
    with pf.device("null:gfx942"):
        (x, _), *_ = DataLoader(Rows(2), 2, prefetch_factor=prefetch)
        (z, _), *_ = DataLoader(TensorDataset(X, range(6)), 2, prefetch_factor=prefetch)
    assert x.device == z.device == "null:gfx942"


X = np.zeros((6, 2))


def test_streams() -> None:
    assert [b[0].tolist() for b in DataLoader(Counter(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [b[0].tolist() for b in DataLoader(Counter(5), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [b[0] for b in DataLoader(Counter(3), batch_size=None)] == [0, 1, 2]
    with pytest.raises(TypeError):
        len(DataLoader(Counter(5), 2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (dict(batch_size=0), "batch_size but got 0"),
        (dict(batch_size=None, drop_last=True), "drop_last=False without batching"),
        (dict(sampler=[1], shuffle=True), "but got both"),
        (dict(batch_sampler=[[1]], batch_size=2), "batch_sampler without"),
        (dict(num_workers=-1), "num_workers of 0 or more"),
        (dict(timeout=-1), "timeout"),
        (dict(num_workers=1, prefetch_factor=0), "positive prefetch_factor"),
        (dict(persistent_workers=True), "num_workers above 0"),
        (dict(seed=0.5), "whole number as seed"),
    ],
)
def test_refusals(options: dict[str, Any], text: str) -> None:
    with pytest.raises(pf.ArgumentError, match=text):
        DataLoader(Rows(3), **options)
    with pytest.raises(pf.ArgumentError, match="shuffle inside its __iter__"):
        DataLoader(Counter(3), shuffle=True)
