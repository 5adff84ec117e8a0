"""Where the arrays of a batch are made.

Usually NumPy's memory. A worker process makes them in memory that its parent sees too; `pin_memory` makes them in
page-locked memory, where the current device offers that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pyflame.core.state import state
from pyflame.engine.devices import get_device

Allocator = Callable[[tuple[int, ...], Any], "np.ndarray[Any, Any]"]


class _Local(threading.local):
    def __init__(self) -> None:
        self.allocator: Allocator = np.empty


_local = _Local()


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised array for a part of a batch."""
    return _local.allocator(shape, dtype)


@contextmanager
def allocating(allocator: Allocator) -> Iterator[None]:
    """Make the arrays of batches this way, in this thread, within a `with` block."""
    before = _local.allocator
    _local.allocator = allocator
    try:
        yield
    finally:
        _local.allocator = before


def pinned_allocator() -> Allocator:
    """Makes arrays in page-locked memory, from which copies to a GPU are faster.

    A device that has such memory offers `pinned_empty(shape, dtype)`. The CPU has none and needs none: plain memory.
    """
    return getattr(get_device(state.device), "pinned_empty", np.empty)
