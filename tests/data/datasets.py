"""Datasets for worker processes, which import this module and so nothing heavy."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import pyflame as pf
from pyflame.data import Dataset, IterableDataset, get_worker_info


class Rows(Dataset):
    """Item i is a row of `width` floats that all are i, and i itself."""

    def __init__(self, count: int, width: int = 8) -> None:
        self.count = count
        self.width = width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return np.full(self.width, i, np.float32), i


class Noise(Rows):
    """Draws from all three global generators."""

    def __getitem__(self, i: int) -> Any:
        return i, random.random(), np.random.rand(), pf.rand(1).numpy()[0]


class Computed(Rows):
    """PyFlame ops inside the worker."""

    def __getitem__(self, i: int) -> Any:
        return pf.softmax(pf.arange(5, dtype=pf.float32) * i, axis=-1) + i


class Faulty(Rows):
    """Fails at item 5, in the way it is told."""

    def __init__(self, how: str) -> None:
        super().__init__(12)
        self.how = how

    def __getitem__(self, i: Any) -> Any:
        if i == "sleep":
            time.sleep(60)
        if i == 5:
            if self.how == "raise":
                raise KeyError(f"no item {i}")
            if self.how == "own":
                raise Demanding("a", "b")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
            if self.how == "unpicklable":
                return lambda: i
        return super().__getitem__(i)


class Demanding(Exception):
    """Cannot be built from a message."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class Unstartable(Rows):
    """Cannot be unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise OSError("the file is not there")


class Counter(IterableDataset):
    """0 .. count - 1, split between the workers; without a split each gives all."""

    def __init__(self, count: int, split: bool = True) -> None:
        self.count = count
        self.split = split

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info and self.split else (0, 1)
        for i in range(first, self.count, step):
            yield i, np.random.rand()


def keep(items: list[Any]) -> Any:
    """A collate_fn that keeps every batch it made, and checks that they stay as they were."""
    from pyflame.data import default_collate

    for batch, label in _KEPT:
        if not (batch.numpy() == label.numpy()[:, None]).all():
            raise ValueError("a batch that was kept has changed")
    made = default_collate(items)
    _KEPT.append(made)
    return made


_KEPT: list[Any] = []


def announce(worker: int) -> None:
    """A worker_init_fn."""
    info = get_worker_info()
    assert info is not None and info.id == worker
    os.environ["ANNOUNCED"] = f"{worker} of {info.num_workers}"


class Announced(Rows):
    def __getitem__(self, i: int) -> Any:
        return os.environ["ANNOUNCED"], os.environ["PYFLAME_THREADS"], len(get_worker_info().dataset)


class Mixed(Rows):
    """Long text, arrays of many kinds, and nothing at all."""

    def __getitem__(self, i: int) -> Any:
        return {
            "text": f"{i}" * 3000,
            "half": pf.full((64, 64), i, dtype=pf.bfloat16),
            "bits": np.arange(4096) % 2 == i % 2,
            "strided": np.arange(8192.0)[:: i + 1][:1024],
            "empty": np.empty((0, 3), np.int32),
            "number": np.int16(i),
        }


def pid(items: list[Any]) -> int:
    """A collate_fn that tells who made the batch."""
    return os.getpid()
