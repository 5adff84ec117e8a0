"""Bytes that launches leave for the host, which looks at them when it next waits: records of bad indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 256  # records kept for the next wait; one more, and they are looked at now
Report = Callable[[bytes], None]


class Watched:
    """What is to be looked at, each once."""

    def __init__(self) -> None:
        self._records: dict[int, tuple[Any, int, Report]] = {}  # by address

    def add(self, storage: Any, address: int, nbytes: int, report: Report) -> bool:
        """Keep a record; gives whether they are too many now."""
        self._records[address] = storage, nbytes, report
        return len(self._records) > MOST

    def check(self, fetch: Callable[[int, int, int], None]) -> None:
        """Look at all of them; then the first error that was reported is raised. `fetch(to, address, nbytes)` gets one
        from the device."""
        first: Exception | None = None
        while self._records:
            try:
                address = next(iter(self._records))
                _storage, nbytes, report = self._records.pop(address)
            except (KeyError, RuntimeError, StopIteration):
                continue  # another thread took it, or brought one
            record = np.empty(nbytes, np.uint8)
            fetch(record.ctypes.data, address, nbytes)
            try:
                report(record.tobytes())
            except Exception as error:  # what went wrong later may follow from it
                first = first or error
        if first is not None:
            raise first
