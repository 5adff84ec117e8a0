"""Reads mapped files ahead of a copy to a GPU, so that the disk is never idle.

A copy goes through pinned pieces (`runtime/gpu/transfer.py`): the GPU fetches one while the host fills the next. Filled
from a mapped file, each would wait for the disk page by page. A thread touches the pages before, in the order of the
file and at most AHEAD bytes beyond what was taken: the system's cache of files holds them, and no copy is made.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np

AHEAD = 256 << 20
_STEP = 16 << 20
_PAGE = 4096


class ReadAhead:
    """For a `with` block in which the tensors are taken, mostly in the order in which they lie in their files."""

    def __init__(self, tensors: Iterable[np.ndarray[Any, np.dtype[np.uint8]]], ahead: int = AHEAD) -> None:
        self._pieces = _pieces(tensors)
        self._room = threading.Condition()
        self._read, self._limit, self._ended = 0, ahead, False
        self._thread = threading.Thread(target=self._run, name="pyflame-read-ahead", daemon=True)

    def __enter__(self) -> ReadAhead:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._room:
            self._ended = True
            self._room.notify()
        self._thread.join()

    @property
    def read(self) -> int:
        """Bytes that were read so far."""
        return self._read

    def took(self, nbytes: int) -> None:
        """Tell that so many more bytes are being copied."""
        with self._room:
            self._limit += nbytes
            self._room.notify()

    def _run(self) -> None:
        for piece in self._pieces:
            with self._room:
                self._room.wait_for(lambda size=piece.size: self._ended or self._read + size <= self._limit)  # type: ignore[misc]
                if self._ended:
                    return
            piece[::_PAGE].max()  # a byte of every page, while other threads run
            self._read += piece.size


def _pieces(
    tensors: Iterable[np.ndarray[Any, np.dtype[np.uint8]]],
) -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Flat parts of tensors, as they lie in memory, of at most so many bytes that the thread ends soon when told."""
    flat = sorted((t.reshape(-1) for t in tensors if t.size), key=lambda t: t.ctypes.data)
    return [t[at : at + _STEP] for t in flat for at in range(0, t.size, _STEP)]
