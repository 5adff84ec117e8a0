"""Which worker this process is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's number, how many there are, its seed in this epoch, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: list[WorkerInfo | None] = [None]


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a DataLoader which one it is; None elsewhere.

    >>> get_worker_info() is None
    True
    """
    return _info[0]


def set_worker_info(info: WorkerInfo) -> None:
    """Called by the worker itself."""
    _info[0] = info
