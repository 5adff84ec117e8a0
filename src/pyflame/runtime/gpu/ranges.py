"""Named ranges for the vendors' profilers (roctx, nvtx), through whichever of their libraries is installed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any


class Ranges:
    """Ranges through a library that has `<prefix>RangePushA` and `<prefix>RangePop`; without one, nothing happens.

    >>> ranges = Ranges("nvtx", ["libnvToolsExt.so.1"])
    >>> ranges.push("step"); ranges.pop()
    """

    def __init__(self, prefix: str, libraries: Sequence[str]) -> None:
        self._prefix = prefix
        self._names = libraries

    @cached_property
    def _library(self) -> Any:
        for name in self._names:
            try:
                library = ctypes.CDLL(name)
                getattr(library, f"{self._prefix}RangePushA").argtypes = [ctypes.c_char_p]
            except (OSError, AttributeError):
                continue
            return library
        return None

    def push(self, name: str) -> None:
        if self._library is not None:
            getattr(self._library, f"{self._prefix}RangePushA")(name.encode())

    def pop(self) -> None:
        if self._library is not None:
            getattr(self._library, f"{self._prefix}RangePop")()
