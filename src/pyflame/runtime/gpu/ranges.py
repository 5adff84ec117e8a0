"""Named ranges for the vendors' profilers (roctx, nvtx), through whichever of their libraries is installed."""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyflame.core.cached import cached_property


class Ranges:
    """Ranges through a library that has `<prefix>RangePushA` and `<prefix>RangePop`; without one, nothing happens.

    It is looked for by its names where the dynamic loader looks, then in `folders`; those that are not absolute lie in
    pip's wheels, and may hold `*`.

    >>> ranges = Ranges("nvtx", ["libnvToolsExt.so.1"])
    >>> ranges.push("step"); ranges.pop()
    """

    def __init__(self, prefix: str, libraries: Sequence[str], folders: Sequence[str] = ()) -> None:
        self._prefix = prefix
        self._names = libraries
        self._folders = folders

    def _candidates(self) -> Iterator[str]:
        yield from self._names
        for folder in self._folders:
            for root in [""] if os.path.isabs(folder) else sys.path:
                for name in self._names:
                    yield from sorted(glob.glob(os.path.join(root, folder, name)))

    @cached_property
    def _library(self) -> Any:
        for name in self._candidates():
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
