"""What MIOpen's searches found, kept between processes.

MIOpen forgets a search when the process ends unless its own database works, and that database is the source of its
longest stalls. The numbers of the best solutions are kept here by problem, library version and device, and a later
process runs them at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyflame.core.cache_folder import cache_dir
from pyflame.core.errors import ArgumentTypeError
from pyflame.core.locks import lock, rlock
from pyflame.core.records import Records

FORM = "MIOpen tuning 2"


@dataclass(frozen=True)
class Solution:
    """MIOpen's number of a way to run a convolution, the workspace it needs, and seconds where they are known."""

    number: int
    workspace: int
    seconds: float = 0.0


class MIOpenTuningCache:
    """Solutions by problem. Thread safe.

    >>> cache = MIOpenTuningCache()
    >>> cache.solution("3.4.0", "gfx942", "conv ...", lambda exhaustive: Solution(7, 0)).number
    7
    >>> cache.get_stats().misses, cache.get_stats().entries
    (1, 1)
    """

    @dataclass
    class Config:
        """`enable_exhaustive_search`: time all of a library's kernels, which may take minutes per problem."""

        enable_exhaustive_search: bool = True
        enable_caching: bool = True
        enable_persistence: bool = False
        cache_file: str = ""

    @dataclass(frozen=True)
    class Stats:
        """Questions answered from the cache, questions that led to a search, and what it holds."""

        hits: int
        misses: int
        entries: int

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._lock = rlock()
        self._hits = self._misses = 0
        path: Any = None
        if self.config.enable_persistence:
            path = Path(self.config.cache_file) if self.config.cache_file else _usual_file
        self._records = Records(path, FORM)

    def enable_exhaustive_search(self, enable: bool) -> None:
        """Whether searches to come time everything."""
        with self._lock:
            self.config.enable_exhaustive_search = bool(enable)

    def set_cache_file(self, path: str | os.PathLike[str]) -> None:
        """Keep solutions in this file (JSON) from now on, and take those it holds."""
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentTypeError(f"[set_cache_file] expected the path of a file but got {path!r}")
        with self._lock:
            self.config.enable_persistence = True
            self.config.cache_file = os.fspath(path)
            self._records = Records(Path(path), FORM)

    def clear(self) -> None:
        """Forget all solutions, those on disk too, and the counters."""
        with self._lock:
            self._records.clear()
            self._hits = self._misses = 0

    def get_stats(self) -> Stats:
        """The counters."""
        with self._lock:
            return self.Stats(self._hits, self._misses, len(self._records))

    def solution(self, version: str, device: str, problem: str, search: Callable[[bool], Solution]) -> Solution:
        """The solution of a problem; `search(exhaustive)` is called where it is not known."""
        key = f"{version} | {device} | {problem}"
        with self._lock:
            if self.config.enable_caching:
                entry = self._records.get(key)
                found = _solution(entry)
                if found is not None:
                    self._hits += 1
                    return found
            self._misses += 1
            found = search(self.config.enable_exhaustive_search)
            if self.config.enable_caching:
                self._records.put(key, asdict(found))
            return found


def _solution(entry: Any) -> Solution | None:
    """An entry of a file, unless somebody has written something else into it."""
    try:
        return Solution(int(entry["number"]), int(entry["workspace"]), float(entry["seconds"]))
    except (KeyError, TypeError, ValueError):
        return None


def _usual_file() -> Path:
    return cache_dir() / "miopen.json"


_shared: list[MIOpenTuningCache] = []
_shared_lock = lock()


def get_tuning_cache() -> MIOpenTuningCache:
    """The cache that convolutions use. It is kept in PyFlame's cache folder.

    >>> get_tuning_cache() is get_tuning_cache()
    True
    """
    with _shared_lock:
        if not _shared:
            # Quick searches unless asked otherwise: minutes of silence at the first step are MIOpen's best known fault.
            config = MIOpenTuningCache.Config(enable_exhaustive_search=False, enable_persistence=True)
            _shared.append(MIOpenTuningCache(config))
        return _shared[0]
