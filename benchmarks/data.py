"""Batches of 256 rows of 784 floats in random order, from 60,000 of them: what feeds the MLP of the training benchmark.

The consumer does nothing, so this is the price of loading alone. torch's TensorDataset hands out rows one by one, so
torch runs a second time with a dataset that gathers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import have
from benchmarks.timing import Result, measure
from pyflame.data import DataLoader, TensorDataset

ROWS, WIDTH, BATCH = 60_000, 784, 256
PER_CALL = 100  # batches


def _taker(loader: Any) -> Callable[[], None]:
    """Takes the next hundred batches, epoch after epoch."""
    batches = iter(())

    def take() -> None:
        nonlocal batches
        for _ in range(PER_CALL):
            try:
                next(batches)
            except StopIteration:
                batches = iter(loader)
                next(batches)

    return take


def _torch_loaders(x: np.ndarray, y: np.ndarray, **options: Any) -> dict[str, Callable[[], object]]:
    if not have("torch"):
        return {}
    import torch
    from torch.utils import data

    class Gathered(data.TensorDataset):
        """The best that torch's protocol allows: one gather per batch and no collation."""

        def __getitems__(self, indices: list[int]) -> Any:
            at = torch.tensor(indices)
            return [t[at] for t in self.tensors]

    tensors = torch.from_numpy(x), torch.from_numpy(y)
    plain = data.DataLoader(data.TensorDataset(*tensors), BATCH, shuffle=True, **options)
    if options:  # a class of this function cannot reach a worker
        return {"torch": _taker(plain)}
    gathered = data.DataLoader(Gathered(*tensors), BATCH, shuffle=True, collate_fn=_as_it_is)
    return {"torch": _taker(plain), "torch, own gather": _taker(gathered)}


def _as_it_is(batch: Any) -> Any:
    return batch


def run() -> list[Result]:
    rng = np.random.default_rng(0)
    x, y = rng.random((ROWS, WIDTH), np.float32), rng.integers(0, 10, ROWS)
    dataset = TensorDataset(x, y)
    results = []
    for workers in (0, 2):
        options: dict[str, Any] = dict(num_workers=workers, persistent_workers=True) if workers else {}
        loader = DataLoader(dataset, BATCH, shuffle=True, seed=0, **options)
        contenders = {"pyflame": _taker(loader), **_torch_loaders(x, y, **options)}
        seconds = measure(contenders, budget=3.0)
        results.append(Result(f"{PER_CALL} batches 256x784, {workers} workers", PER_CALL, "batches/s", seconds))
    return results
