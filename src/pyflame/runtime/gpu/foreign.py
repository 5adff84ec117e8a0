"""Memory of a GPU that another library owns: torch's, JAX's or CuPy's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflame.runtime.gpu.deferred_free import DeferredFrees


class ForeignMemory:
    """Foreign memory as Storage, which nothing is written to.

    The owner is kept until all work is done that used it: on `streams`, and on those that `used_on` tells.
    """

    __slots__ = ("_deferred", "_streams", "address", "nbytes", "owner")
    on_host = False
    read_only = True

    def __init__(
        self, address: int, nbytes: int, owner: Any, streams: Iterable[int], deferred: DeferredFrees[Any]
    ) -> None:
        self.address = address
        self.nbytes = nbytes
        self.owner = owner
        self._streams = tuple(dict.fromkeys(streams))
        self._deferred = deferred

    def used_on(self, stream: int) -> None:
        """Tell that work on another stream uses it."""
        if stream not in self._streams:
            self._streams = (*self._streams, stream)

    def __del__(self) -> None:
        self._deferred.give((self.owner, list(self._streams)))
